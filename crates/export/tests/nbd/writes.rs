//! The NBD export of a source that can be written: an overlay, with the clients that people use and
//! with a client that is told each byte.

use crate::support::{CHUNK, Client, Image, STRUCTURED, Served, have, limits, output, request, run};
use std::sync::Arc;
use vfield_block::device::BlockDevice;
use vfield_block::source::BlockSource;
use vfield_core::image::ImageId;
use vfield_export::nbd::{Address, Server};
use vfield_overlay::Overlay;

type Test = Result<(), Box<dyn std::error::Error>>;

const LENGTH: usize = 5 * (1 << 20) + 700;
const DEVICE: u64 = (LENGTH as u64).next_multiple_of(512);

/// Commands and errors, by their numbers in the specification.
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const ZERO: u16 = 6;
const FUA: u16 = 1;
const EIO: u32 = 5;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const ESHUTDOWN: u32 = 108;

fn serve(max_bytes: u64) -> (Arc<Image>, Arc<Overlay>, Served) {
    let image = Image::new("a", LENGTH);
    let overlay = Arc::new(Overlay::in_memory(image.clone(), ImageId([1; 32]), max_bytes).expect("there is memory"));
    let folder = tempfile::tempdir().expect("a temporary directory");
    let address = Address::Unix(folder.path().join("nbd.sock"));
    let server = Server::bind(&address, vec![overlay.clone() as Arc<dyn BlockSource>]).expect("a free path");
    (image, overlay, Served { serving: server.start(), folder })
}

/// What a client reads from a device that was never written.
fn untouched(image: &Image) -> Vec<u8> {
    image.device(0, DEVICE)
}

fn write(cookie: u64, flags: u16, offset: u64, bytes: &[u8]) -> Vec<u8> {
    [&request(WRITE, flags, cookie, offset, bytes.len() as u32)[..], bytes].concat()
}

fn read_back(client: &mut Client, offset: u64, length: u32) -> Vec<u8> {
    client.request(0, 0, 99, offset, length);
    assert_eq!(client.simple(), (0, 99));
    client.receive(length as usize)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_are_told_that_they_may_write() -> Test {
    let (_, _, served) = serve(1 << 30);
    let (size, flags) = served.connect().go(STRUCTURED);
    assert_eq!(size, DEVICE);
    // HAS_FLAGS, SEND_FLUSH, SEND_FUA, SEND_TRIM, SEND_WRITE_ZEROES, SEND_DF, CAN_MULTI_CONN,
    // SEND_CACHE.
    assert_eq!(flags, 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10);
    if have("nbdinfo") {
        let info = run("nbdinfo", &["--json", &served.uri()]).await;
        for expected in ["\"is_read_only\": false", "\"can_fua\": true", "\"can_trim\": true", "\"can_zero\": true"] {
            assert!(info.contains(expected), "no {expected} in {info}");
        }
        assert!(info.contains("\"block_size_preferred\": 4096"), "{info}");
    }
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_change_at_odd_places() -> Test {
    let (image, _, served) = serve(1 << 30);
    let mut expected = untouched(&image);
    let mut client = served.connect();
    client.go(false);
    let noise: Vec<u8> = (0..3_000_000).map(|at: u32| (at % 251) as u8 + 1).collect();
    // Longer than a window, and in pieces that end anywhere.
    let long = write(1, FUA, 1234, &noise);
    for part in long.chunks(77_777) {
        client.send(&[part]);
    }
    assert_eq!(client.simple(), (0, 1));
    expected[1234..1234 + noise.len()].copy_from_slice(&noise);
    // Many in one go, of all lengths, none at all among them.
    let mut all = Vec::new();
    for (cookie, length) in [0, 1, 511, 512, 4095, 4096, 4097, 70_000].into_iter().enumerate() {
        let offset = 4_000_000 + cookie * 80_000;
        all.extend(write(10 + cookie as u64, 0, offset as u64, &noise[..length]));
        expected[offset..offset + length].copy_from_slice(&noise[..length]);
    }
    client.send(&[&all]);
    let mut answered: Vec<_> = (0..8).map(|_| client.simple()).collect();
    answered.sort_unstable();
    assert_eq!(answered, (10..18).map(|cookie| (0, cookie)).collect::<Vec<_>>());
    client.request(ZERO, FUA, 20, 5000, 100_000);
    assert_eq!(client.simple(), (0, 20));
    expected[5000..105_000].fill(0);
    client.request(TRIM, 0, 21, 8192 * 100, 40_960);
    assert_eq!(client.simple(), (0, 21));
    expected[8192 * 100..8192 * 100 + 40_960].fill(0);
    client.request(FLUSH, 0, 22, 0, 0);
    assert_eq!(client.simple(), (0, 22));
    assert!(read_back(&mut client, 0, DEVICE as u32) == expected);
    // Another connection sees the same.
    let mut other = served.connect();
    other.go(false);
    assert!(read_back(&mut other, 0, DEVICE as u32) == expected);
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_is_refused_and_the_stream_goes_on() -> Test {
    let (image, overlay, served) = serve(64 << 10);
    let mut client = served.connect();
    client.go(false);
    client.send(&[&write(1, 0, DEVICE - 511, &[1; 512]), &write(2, 1 << 9, 0, &[1; 512])]);
    assert_eq!((client.simple(), client.simple()), ((ENOSPC, 1), (EINVAL, 2)));
    client.request(ZERO, 0, 3, DEVICE, 1);
    client.request(TRIM, 0, 4, DEVICE, 1);
    assert_eq!((client.simple(), client.simple()), ((ENOSPC, 3), (EINVAL, 4)));
    // Full: that write fails; held granules can be changed, the rest can be read.
    client.send(&[&write(5, 0, 0, &[5; 64 << 10])]);
    assert_eq!(client.simple(), (0, 5));
    client.send(&[&write(6, 0, 1 << 20, &[6; 3 << 20])]);
    assert_eq!(client.simple(), (ENOSPC, 6));
    client.send(&[&write(7, 0, 1000, &[7; 60_000])]);
    assert_eq!(client.simple(), (0, 7));
    assert!(read_back(&mut client, 1 << 20, 3 << 20) == image.device(1 << 20, 3 << 20));
    client.request(TRIM, 0, 8, 0, 64 << 10);
    assert_eq!(client.simple(), (0, 8));
    assert_eq!(overlay.usage().held_bytes, 0);
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_refused_write_no_flush_succeeds() -> Test {
    let (image, overlay, served) = serve(64 << 10);
    let mut client = served.connect();
    client.go(false);
    client.send(&[&write(1, FUA, 0, &[1; 32 << 10])]);
    assert_eq!(client.simple(), (0, 1));
    // Longer than a window, and the first one would find room: refused whole.
    client.send(&[&write(2, 0, (1 << 20) - 4096, &[2; 3 << 20])]);
    assert_eq!(client.simple(), (ENOSPC, 2));
    assert!(
        read_back(&mut client, 32 << 10, DEVICE as u32 - (32 << 10)) == image.device(32 << 10, DEVICE - (32 << 10))
    );
    assert_eq!(overlay.usage().held_bytes, 32 << 10);
    // On whatever connection, and whatever else is made durable.
    let mut other = served.connect();
    other.go(false);
    for client in [&mut client, &mut other] {
        client.request(FLUSH, 0, 3, 0, 0);
        assert_eq!(client.simple(), (ENOSPC, 3));
        client.send(&[&write(4, FUA, 0, &[4; 4096]), &write(5, 0, 0, &[5; 4096])]);
        assert_eq!((client.simple(), client.simple()), ((ENOSPC, 4), (0, 5)));
    }
    // Given up in parts.
    client.request(TRIM, 0, 6, (1 << 20) - 4096, 1 << 20);
    client.request(FLUSH, 0, 7, 0, 0);
    assert_eq!((client.simple(), client.simple()), ((0, 6), (ENOSPC, 7)));
    client.request(TRIM, 0, 8, (2 << 20) - 4096, 2 << 20);
    client.request(FLUSH, 0, 9, 0, 0);
    assert_eq!((client.simple(), client.simple()), ((0, 8), (0, 9)));
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_waits_for_its_granule_holds_up_no_other() -> Test {
    let (image, _, served) = serve(1 << 30);
    image.change(|gaps| gaps.missing = [1].into());
    let mut client = served.connect();
    client.go(false);
    let start = CHUNK + 100;
    // Its first granule is in the missing chunk, its last is not.
    client.send(&[&write(1, 0, start, &vec![1; 2 << 20])]);
    client.send(&[&write(2, FUA, 0, &[2; 4096]), &write(3, 0, CHUNK + 8192, &[3; 4096])]);
    let mut others = [client.simple(), client.simple()];
    others.sort_unstable();
    assert_eq!(others, [(0, 2), (0, 3)]);
    image.until_waiting_for(1).await;
    image.change(|gaps| gaps.missing.clear());
    assert_eq!(client.simple(), (0, 1));
    let mut expected = image.device(0, 3 << 20);
    expected[..4096].fill(2);
    expected[start as usize..start as usize + (2 << 20)].fill(1);
    let found = read_back(&mut client, 0, 3 << 20);
    // The third write came while the first was waiting and may lie over it or under it.
    let third = CHUNK as usize + 8192..CHUNK as usize + 12_288;
    assert!(found[third.clone()].iter().all(|byte| *byte == found[third.start]));
    expected[third.clone()].copy_from_slice(&found[third]);
    assert!(found == expected);
    // A change that can never be made says so.
    image.change(|gaps| gaps.broken = [40].into());
    client.send(&[&write(4, 0, 40 * CHUNK + 1, &[4])]);
    assert_eq!(client.simple(), (EIO, 4));
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_may_go_in_the_middle_of_a_write() -> Test {
    let (image, overlay, served) = serve(1 << 30);
    for cut in [1, 27, 28, 29, 4000, 8 << 10, 100 << 10, 1100 << 10] {
        let mut client = served.connect();
        client.go(false);
        client.send(&[&write(1, 0, 100, &vec![1; 2 << 20])[..cut]]);
        drop(client);
        served.until_connected(0).await;
    }
    // Only a window that was complete is there.
    assert_eq!(overlay.usage().held_bytes, 1 << 20);
    image.change(|gaps| gaps.missing = [60].into());
    let mut client = served.connect();
    client.go(false);
    client.send(&[&write(1, 0, 60 * CHUNK + 1, &[1; 100])]);
    image.until_waiting(1).await;
    drop(client);
    image.until_waiting(0).await;
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_shutdown_a_write_that_waits_is_refused() -> Test {
    let image = Image::new("a", LENGTH);
    image.change(|gaps| gaps.missing = [2].into());
    let overlay = Arc::new(Overlay::in_memory(image.clone(), ImageId([1; 32]), 1 << 30)?);
    let folder = tempfile::tempdir()?;
    let address = Address::Unix(folder.path().join("nbd.sock"));
    let limits = limits(|limits| limits.grace = std::time::Duration::ZERO);
    let server = Server::bind(&address, vec![overlay as Arc<dyn BlockSource>])?.with_limits(limits);
    let served = Served { serving: server.start(), folder };
    let mut client = served.connect();
    client.go(false);
    client.send(&[&write(7, 0, 2 * CHUNK + 1, &[1; 100])]);
    image.until_waiting(1).await;
    served.serving.shutdown().await;
    assert_eq!(client.simple(), (ESHUTDOWN, 7));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nbdcopy_writes_and_reads_back() -> Test {
    if !have("nbdcopy") {
        return Ok(());
    }
    let (image, _, served) = serve(1 << 30);
    let mut bytes = untouched(&image);
    bytes.reverse();
    let (from, to) = (served.folder.path().join("from"), served.folder.path().join("to"));
    std::fs::write(&from, &bytes)?;
    let (from, to) = (from.display().to_string(), to.display().to_string());
    run("nbdcopy", &["--connections=4", "--flush", &from, &served.uri()]).await;
    run("nbdcopy", &["--connections=4", &served.uri(), &to]).await;
    assert!(std::fs::read(&to)? == bytes);
    assert_eq!(served.serving.counts().refused, 0);
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn qemu_io_writes_zeroes_and_discards() -> Test {
    if !have("qemu-io") {
        return Ok(());
    }
    let (_, overlay, served) = serve(2 << 20);
    let uri = served.uri();
    let io = async |commands: &[&str]| {
        let mut words = vec!["-f", "raw"];
        commands.iter().for_each(|command| words.extend(["-c", command]));
        words.push(&uri);
        let output = output("qemu-io", &words).await;
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let said = io(&["write -P 0x5a 1234 70001", "flush", "read -P 0x5a 1234 70001", "write -f -P 0x11 0 512"]).await;
    assert!(!said.contains("ailed") && !said.contains("rror"), "{said}");
    let said = io(&["write -z 4096 65536", "read -P 0 4096 65536", "write -z -u 0 4096", "read -P 0 0 4096"]).await;
    assert!(!said.contains("ailed") && !said.contains("rror"), "{said}");
    assert_eq!(overlay.usage().held_bytes, 4096, "of all that, only the last granule is not zeros");
    let said = io(&["discard 0 1M", "read -P 0 0 1M"]).await;
    assert!(!said.contains("ailed") && !said.contains("rror"), "{said}");
    assert_eq!(overlay.usage().held_bytes, 0);
    let said = io(&["write -P 1 0 3M"]).await;
    assert!(said.contains("No space left on device"), "{said}");
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fio_writes_at_random_and_verifies() -> Test {
    if !have("fio") {
        return Ok(());
    }
    let (_, _, served) = serve(1 << 30);
    let uri = format!("--uri={}", served.uri());
    let job =
        ["--name=w", "--ioengine=nbd", &uri, "--rw=randwrite", "--bsrange=512-64k", "--bs_unaligned", "--iodepth=16"];
    run(
        "fio",
        &[&job[..], &["--size=5M", "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--fsync=16"]]
            .concat(),
    )
    .await;
    assert_eq!(served.serving.counts().refused, 0);
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nbdsh_sees_writes_of_one_connection_on_another() -> Test {
    if !have("nbdsh") {
        return Ok(());
    }
    let (_, overlay, served) = serve(1 << 30);
    let script = format!(
        r#"
other = nbd.NBD()
for one in (h, other):
    one.add_meta_context("base:allocation")
    one.connect_uri("{uri}")
assert h.can_multi_conn() and h.can_fua() and h.can_trim() and h.can_zero() and not h.is_read_only()
for turn in range(200):
    offset = turn * 26003
    h.pwrite(bytes([turn + 1]) * 9000, offset, nbd.CMD_FLAG_FUA if turn % 7 == 0 else 0)
    assert other.pread(9000, offset) == bytes([turn + 1]) * 9000
    h, other = other, h
h.zero(1000000, 77, nbd.CMD_FLAG_NO_HOLE)
assert other.pread(1000000, 77) == bytes(1000000)
found = []
other.block_status(819200, 4096, lambda context, offset, entries, error: found.extend(entries))
assert found[:2] == [819200, 3], found
h.trim(h.get_size(), 0)
h.flush()
assert other.pread(5 << 20, 0) == bytes(5 << 20)
h.shutdown()
other.shutdown()
"#,
        uri = served.uri(),
    );
    run("nbdsh", &["-c", &script]).await;
    assert_eq!(overlay.usage().held_bytes, 0);
    overlay.flush().await?;
    served.serving.shutdown().await;
    Ok(())
}

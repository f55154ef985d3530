//! The NBD server around its connections: addresses, negotiation of odd kinds, limits, shutdown.

use crate::support::{CHUNK, Image, SIMPLE, STRUCTURED, limits, serve, serve_one, serve_with};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;
use vfield_block::source::BlockSource;
use vfield_export::nbd::{Address, BindError, Server};

type Test = Result<(), Box<dyn std::error::Error>>;

fn sources(images: &[Arc<Image>]) -> Vec<Arc<dyn BlockSource>> {
    images.iter().map(|image| image.clone() as Arc<dyn BlockSource>).collect()
}

#[tokio::test]
async fn a_socket_file_is_private_replaced_when_dead_and_removed_when_ours() -> Test {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("s");
    let address = Address::Unix(path.clone());
    let image = sources(&[Image::new("a", 512)]);
    drop(UnixListener::bind(&path)?);
    let server = Server::bind(&address, image.clone())?;
    assert_eq!(std::fs::metadata(&path)?.permissions().mode() & 0o777, 0o600);
    let error = Server::bind(&address, image.clone()).unwrap_err();
    assert!(matches!(error, BindError::InUse(_)));
    assert_eq!(error.to_string(), format!("another process is listening on {}", path.display()));
    server.start().shutdown().await;
    assert!(!path.exists());
    // A file that somebody else has put there is left alone.
    let server = Server::bind(&address, image.clone())?;
    std::fs::remove_file(&path)?;
    std::fs::write(&path, "theirs")?;
    drop(server);
    assert_eq!(std::fs::read(&path)?, b"theirs");
    assert!(matches!(Server::bind(&address, image), Err(BindError::NotASocket(_))));
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_bound_is_named() -> Test {
    let image = Image::new("a", 512);
    let error = |address: &str, images: &[Arc<Image>]| {
        Server::bind(&address.parse().expect("an address"), sources(images)).unwrap_err().to_string()
    };
    let missing = error("unix:/nowhere/at/all.sock", std::slice::from_ref(&image));
    assert!(missing.starts_with("cannot listen on the unix socket /nowhere/at/all.sock: No such file"), "{missing}");
    assert_eq!(error("tcp:127.0.0.1:0", &[]), "a server needs at least one image");
    assert_eq!(error("tcp:127.0.0.1:0", &[image.clone(), image.clone()]), "two images are called 'a'");
    let server = Server::bind(&"tcp:127.0.0.1:0".parse()?, sources(std::slice::from_ref(&image)))?;
    let taken = error(&server.address().to_string(), &[image]);
    assert!(taken.contains("Address already in use"), "{taken}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_beyond_the_limit_are_turned_away() -> Test {
    let served =
        serve_with(&[Image::new("a", 512)], |server| server.with_limits(limits(|limits| limits.connections = 2)));
    let (mut first, mut second) = (served.connect(), served.connect());
    first.go(SIMPLE);
    assert_eq!(second.receive(18).len(), 18);
    assert!(served.connect().rest().is_empty());
    drop(second);
    served.until_connected(1).await;
    served.connect().go(SIMPLE);
    served.serving.shutdown().await;
    Ok(())
}

/// Honest clients are slow on a busy machine: none of them has to meet so short a bound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_handshake_keeps_no_place() -> Test {
    let served = serve_with(&[Image::new("a", 512)], |server| {
        server.with_limits(limits(|limits| limits.handshake = Duration::from_millis(50)))
    });
    let mut slow = served.connect();
    assert_eq!(slow.receive(18).len(), 18);
    assert!(slow.rest().is_empty());
    served.until_connected(0).await;
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_negotiations_are_answered() -> Test {
    const UNSUPPORTED: u32 = 1 << 31 | 1;
    const INVALID: u32 = 1 << 31 | 3;
    const UNKNOWN: u32 = 1 << 31 | 6;
    const TOO_BIG: u32 = 1 << 31 | 9;
    let served = serve(&[Image::new("a", 1000), Image::new("b", 2000)]);
    let mut client = served.connect();
    client.greet();
    let context = |name: &str, queries: &[&str]| {
        let string = |text: &str| [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat();
        let queries_data: Vec<u8> = queries.iter().flat_map(|query| string(query)).collect();
        [string(name), (queries.len() as u32).to_be_bytes().to_vec(), queries_data].concat()
    };
    let mut expect = |option: u32, data: &[u8], kinds: &[u32]| {
        client.option(option, data);
        for kind in kinds {
            assert_eq!(client.answer().0, *kind, "option {option} with {} bytes", data.len());
        }
    };
    expect(3, b"", &[2, 2, 1]);
    expect(3, b"x", &[INVALID]);
    expect(5, b"", &[UNSUPPORTED]);
    expect(4711, &[0; 100], &[UNSUPPORTED]);
    expect(4711, &vec![0; 1 << 20], &[TOO_BIG]);
    expect(10, &context("a", &["base:allocation"]), &[INVALID]);
    expect(8, b"x", &[INVALID]);
    expect(8, b"", &[1]);
    expect(9, &context("a", &[]), &[4, 1]);
    expect(9, &context("a", &["base:"]), &[4, 1]);
    expect(9, &context("a", &["qemu:", "base:other"]), &[1]);
    expect(10, &context("a", &["base:other"]), &[1]);
    expect(10, &context("none", &["base:allocation"]), &[UNKNOWN]);
    expect(10, &context("a", &["x:y", "base:allocation"]), &[4, 1]);
    expect(10, &context("a", &["base:allocation"])[..9], &[INVALID]);
    expect(10, &context(&"n".repeat(4096), &["base:allocation"]), &[UNKNOWN]);
    expect(10, &context(&"n".repeat(4097), &["base:allocation"]), &[TOO_BIG]);
    expect(6, b"\0\0\0\x04none\0\0", &[UNKNOWN]);
    expect(6, b"\0\0\0\x09none\0\0", &[INVALID]);
    expect(6, b"\0\0\0\x01b\0\x03\0\x01\0\x02\0\x03", &[3, 3, 3, 3, 1]);
    // A context that was set for one export is not there in another.
    expect(10, &context("a", &["base:allocation"]), &[4, 1]);
    expect(7, b"\0\0\0\x01b\0\0", &[3, 1]);
    client.request(7, 0, 1, 0, 512);
    assert_eq!(client.chunk().1, 0x8001);
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_old_ways_to_choose_and_to_leave() -> Test {
    let served = serve(&[Image::new("a", 1000), Image::new("b", 2000)]);
    let mut client = served.connect();
    client.receive(18);
    client.send(&[&1_u32.to_be_bytes()]);
    client.option(1, b"b");
    let reply = client.receive(8 + 2 + 124);
    assert_eq!(reply[..8], 2048_u64.to_be_bytes());
    assert!(reply[10..].iter().all(|byte| *byte == 0));
    client.request(0, 0, 1, 0, 512);
    assert_eq!((client.simple(), client.receive(512).len()), ((0, 1), 512));
    let mut client = served.connect();
    client.greet();
    client.option(1, b"none");
    assert!(client.rest().is_empty());
    let mut client = served.connect();
    client.greet();
    client.option(2, b"");
    assert_eq!(client.answer().0, 1);
    assert!(client.rest().is_empty());
    let mut client = served.connect();
    client.receive(18);
    client.send(&[&0xff_u32.to_be_bytes()]);
    assert!(client.rest().is_empty());
    served.serving.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_answers_what_is_under_way() -> Test {
    let image = Image::new("a", 1 << 20);
    image.change(|gaps| gaps.missing = [1].into());
    let served = serve_one(&image);
    let (mut idle, mut busy) = (served.connect(), served.connect());
    idle.go(SIMPLE);
    busy.go(SIMPLE);
    busy.request(0, 0, 1, CHUNK, 512);
    image.until_waiting(1).await;
    let path = served.path();
    let ending = tokio::spawn(served.serving.shutdown());
    assert!(idle.rest().is_empty());
    assert!(!path.exists());
    // Each connection hears of the end by itself.
    for cookie in 2.. {
        busy.request(0, 0, cookie, 0, 512);
        let (error, answered) = busy.simple();
        assert_eq!(answered, cookie);
        if error == 108 {
            break;
        }
        assert_eq!(error, 0);
        busy.receive(512);
    }
    image.change(|gaps| gaps.missing.clear());
    assert_eq!(busy.simple(), (0, 1));
    assert_eq!(busy.receive(512), image.device(CHUNK, 512));
    assert!(busy.rest().is_empty());
    ending.await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_does_not_wait_for_ever() -> Test {
    let image = Image::new("a", 8 << 20);
    image.change(|gaps| gaps.missing = [1].into());
    let served = serve_with(std::slice::from_ref(&image), |server| {
        // On a busy machine the server itself takes some time to answer the client that waits.
        server.with_limits(limits(|limits| limits.grace = Duration::from_millis(500)))
    });
    let (mut waiting, mut deaf) = (served.connect(), served.connect());
    waiting.go(STRUCTURED);
    waiting.request(0, 0, 1, CHUNK, 512);
    deaf.go(SIMPLE);
    deaf.request(0, 0, 1, 2 * CHUNK, 4 << 20);
    image.until_waiting(1).await;
    served.serving.shutdown().await;
    let (_, kind, _, data) = waiting.chunk();
    assert_eq!((kind, data[3]), (0x8001, 108));
    assert!(waiting.rest().is_empty());
    assert!(deaf.rest().len() < 4 << 20);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_come_and_go() -> Test {
    let (first, second) = (Image::new("first", 3 * CHUNK as usize), Image::new("second", 2 * CHUNK as usize));
    let served = serve_one(&first);
    served.serving.add(second.clone())?;
    let taken = served.serving.add(Image::new("first", 512)).unwrap_err();
    assert!(matches!(taken, BindError::SameName(name) if name == "first"));
    let (mut reader, mut other) = (served.connect(), served.connect());
    let mut late = served.connect();
    // It has chosen from what there was before.
    late.greet();
    served.until_connected(3).await;
    assert_eq!(reader.go(SIMPLE).0, 3 * CHUNK);
    other.greet();
    other.option(1, b"second");
    other.receive(10);
    while (served.serving.users("first"), served.serving.users("second")) != (1, 1) {
        tokio::task::yield_now().await;
    }
    first.change(|gaps| gaps.missing.extend([1]));
    reader.request(0, 0, 7, CHUNK, 512);
    first.until_waiting(1).await;
    served.serving.remove("first");
    assert_eq!(reader.simple(), (108, 7), "what waits is told that it ends");
    assert_eq!(reader.rest(), b"");
    late.option(1, b"first");
    assert_eq!(late.rest().len(), 10, "its size, and the end: nobody begins to use what has gone");
    assert_eq!((served.serving.users("first"), served.serving.users("second")), (0, 1));
    other.request(0, 0, 8, 0, 512);
    assert_eq!(other.simple(), (0, 8), "the other one is as it was");
    assert_eq!(other.receive(512), second.device(0, 512));
    // Another image of the name is another image.
    served.serving.add(Image::new("first", CHUNK as usize))?;
    let mut again = served.connect();
    again.greet();
    again.option(1, b"first");
    let size = again.receive(10);
    assert_eq!(size[..8], CHUNK.to_be_bytes());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_further_name_leads_newcomers_elsewhere() -> Test {
    let (first, second) = (Image::new("v1", 3 * CHUNK as usize), Image::new("v2", 2 * CHUNK as usize));
    let served = serve(&[first.clone(), second.clone()]);
    let size_of = |name: &[u8]| {
        let mut client = served.connect();
        client.greet();
        client.option(1, name);
        let size = client.receive(10);
        (client, u64::from_be_bytes(*size.first_chunk().expect("ten bytes")))
    };
    served.serving.lead("prod", "v1");
    let (mut old, size) = size_of(b"prod");
    assert_eq!(size, 3 * CHUNK);
    served.serving.lead("prod", "v2");
    assert_eq!(size_of(b"prod").1, 2 * CHUNK);
    assert_eq!(size_of(b"").1, 2 * CHUNK, "the default moves too");
    assert_eq!(size_of(b"v1").1, 3 * CHUNK);
    old.request(0, 0, 8, 2 * CHUNK, 512);
    assert_eq!((old.simple(), old.receive(512)), ((0, 8), first.device(2 * CHUNK, 512)), "it stays with its image");
    // A source of that name goes first, and a name that leads nowhere is none.
    served.serving.add(Image::new("prod", CHUNK as usize))?;
    assert_eq!(size_of(b"prod").1, CHUNK);
    served.serving.lead("test", "nothing");
    let mut client = served.connect();
    client.greet();
    client.option(1, b"test");
    assert!(client.rest().is_empty());
    Ok(())
}

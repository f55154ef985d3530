//! Short reads through real processes: they bring little more than they read, whatever the field
//! does, and no byte of them is believed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use vfield_e2e::field::{Field, Plan, state_of};
use vfield_e2e::liar::Twist;
use vfield_e2e::program::vfield;
use vfield_e2e::{Failed, Outcome};
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::process::run;
use vfield_lab::{Daemon, Lab, wait_until};
use vfield_measure::storm::nbd::{Client, Target};

/// The page of a kernel, and the block of most file systems.
const BLOCK: u32 = 4 << 10;
const CHUNK: u64 = 64 << 10;
/// A busy machine takes part of a second for what takes milliseconds.
const SOON: Duration = Duration::from_secs(20);
/// Two pages of hashes below the top one.
const IMAGE_BYTES: u64 = 160 * MIB + 777;

/// Bytes that came from others.
fn fetched_bytes(daemon: &Daemon) -> Result<u64, Failed> {
    let status = daemon.status()?;
    let bytes = |key: &str| status["traffic"][key].as_u64().unwrap_or_default();
    Ok(bytes("from_peers_bytes") + bytes("from_origin_bytes"))
}

/// Reads a block in each of so many chunks, far from each other, and compares it with the image.
fn read_scattered(image: &Path, node: &Daemon, count: u64) -> Outcome {
    let image = std::fs::read(image)?;
    let mut client = Client::connect(&Target::Unix(node.nbd().to_owned()))?;
    client.give_up_after(SOON)?;
    let chunks = IMAGE_BYTES / CHUNK;
    for read in 0..count {
        // An odd step goes through all chunks before it comes back.
        let at = read * 1023 % chunks * CHUNK + read % 16 * u64::from(BLOCK);
        let mut bytes = vec![0; BLOCK as usize];
        client.ask(read, at, BLOCK)?;
        client.answer()?;
        client.fill(&mut bytes)?;
        assert!(bytes == image[at as usize..][..BLOCK as usize], "read {read}, at byte {at}");
    }
    Ok(())
}

/// Pages of hashes aside, which later reads need no more.
#[test]
fn scattered_reads_bring_little_more_than_they_read() -> Outcome {
    let plan = Plan { image_bytes: IMAGE_BYTES, stores: &["0"], ..Plan::default() };
    let field = Field::on(Lab::loopback(2)?, plan)?;
    let node = &field.nodes[0];
    read_scattered(&field.image, node, 20)?;
    let (before, reads) = (fetched_bytes(node)?, 400);
    read_scattered(&field.image, node, 20 + reads)?;
    let (came, read) = (fetched_bytes(node)? - before, (20 + reads) * u64::from(BLOCK));
    assert!(came * 100 <= read * 115, "{came} bytes came for {read}");
    Ok(())
}

/// In a field with a key everything is under seal, slices too.
#[test]
fn slices_come_under_seal() -> Outcome {
    let (lab, vfield) = (Lab::loopback(2)?, vfield());
    let key = lab.dir().join("field.key");
    run(Command::new(vfield.path()).args(["key", "new"]).arg(&key))?;
    let with_key = [Path::new("--field-key"), &key];
    let image = random_file(&lab.dir().join("disk.img"), IMAGE_BYTES, 1)?;
    let origin = vfield.serve(lab.host(0), &[&image]).args(&with_key).name("origin").ready()?;
    let node = vfield.join(lab.host(1), origin.addr()).store("0").args(&with_key).ready()?;
    read_scattered(&image, &node, 100)
}

/// A bit of each slice and chunk of a member is turned over: its reader gets the right bytes from
/// the origin, and the liar is blamed.
#[test]
fn a_wrong_slice_is_never_read() -> Outcome {
    let (mut field, front) = Field::beside_liar(4, IMAGE_BYTES, Twist::Flip)?;
    let through = field.origin.addr();
    let reader = field.join(1, through, "0").ready()?;
    field.nodes.push(reader);
    // To ask for its status would begin spot checks, which find the liar too.
    let reader = &field.nodes[1];
    let blamed = || reader.process().log().contains("sent wrong data");
    wait_until("a wrong slice came", SOON, || read_scattered(&field.image, reader, 50).is_ok() && blamed())?;
    let status = field.nodes[1].status()?;
    assert_eq!(state_of(&status, front).as_deref(), Some("blamed"), "{status:#}");
    assert_eq!(state_of(&status, through).as_deref(), Some("alive"), "the origin is innocent: {status:#}");
    Ok(())
}

//! What one machine reads first is there when the next one comes to it.

use std::time::Duration;
use vfield_e2e::field::{Field, Plan};
use vfield_e2e::program::vfield;
use vfield_e2e::{Failed, Outcome};
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::process::run;
use vfield_lab::{Daemon, Host, Lab, wait_until};
use vfield_measure::storm::nbd::{Client, Target};

const CHUNK: u64 = 64 << 10;
const IMAGE_BYTES: u64 = 64 * MIB;
/// A busy machine takes part of a second for what takes milliseconds.
const SOON: Duration = Duration::from_secs(20);
/// An origin asks after some seconds, and then after longer and longer pauses.
const LATER: Duration = Duration::from_secs(120);

/// The chunk at a place of a machine's start: no two beside each other.
const fn place(at: u64) -> u64 {
    at * 37 % (IMAGE_BYTES / CHUNK)
}

/// Reads the chunks at these places of the start.
fn read(node: &Daemon, places: std::ops::Range<u64>) -> Outcome {
    let mut client = Client::connect(&Target::Unix(node.nbd().to_owned()))?;
    client.give_up_after(SOON)?;
    for at in places {
        client.ask(at, place(at) * CHUNK, CHUNK as u32)?;
        client.answer()?;
        client.fill(&mut vec![0; CHUNK as usize])?;
    }
    Ok(())
}

/// Chunks that came from others.
fn fetched(daemon: &Daemon) -> Result<u64, Failed> {
    let status = daemon.status()?;
    let bytes = |key: &str| status["traffic"][key].as_u64().unwrap_or_default();
    Ok((bytes("from_peers_bytes") + bytes("from_origin_bytes")) / CHUNK)
}

/// What a node says that machines read first.
fn learned(daemon: &Daemon) -> Result<String, Failed> {
    Ok(run(&mut daemon.ask_to(&["learned"]))?)
}

#[test]
fn the_next_machine_is_led_along_what_the_first_one_read() -> Outcome {
    let plan = Plan { image_bytes: IMAGE_BYTES, stores: &["0", "0", "0"], ..Plan::default() };
    let mut field = Field::on(Lab::loopback(4)?, plan)?;
    assert!(learned(&field.nodes[0])?.contains("nothing learned yet"));
    read(&field.nodes[0], 0..100)?;
    let first = learned(&field.nodes[0])?;
    let lines: Vec<&str> = first.lines().collect();
    assert!(lines[0].contains("what 1 machine reads first: 6.2 MiB, 9.8 % of it"), "{first}");
    assert_eq!(lines[2..].len(), 100);
    assert_eq!(lines[3], format!("{} {CHUNK}", place(1) * CHUNK));
    // The second machine has read two chunks when it hears of the list, and has all of it before
    // it reads as many: each chunk that it reads earns two more.
    let next = &field.nodes[1];
    read(next, 0..1)?;
    wait_until("it hears of the list", SOON, || learned(next).is_ok_and(|said| said.contains("2 machines read")))?;
    read(next, 1..50)?;
    wait_until("the rest comes", SOON, || fetched(next).is_ok_and(|chunks| chunks >= 100))?;
    read(next, 50..100)?;
    assert!(fetched(next)? < 110, "{} chunks for 100, and pages", fetched(next)?);
    // The first one may go: the second one tells of both, and so does the origin later.
    drop(field.nodes.remove(0));
    let third = &field.nodes[1];
    read(third, 0..1)?;
    wait_until("it hears of both", SOON, || learned(third).is_ok_and(|said| said.contains("3 machines read")))?;
    // So a machine is led on the next day, when all others were switched off.
    let origin = &field.origin;
    wait_until("the origin hears of all", LATER, || {
        learned(origin).is_ok_and(|said| said.contains("3 machines read"))
    })?;
    Ok(())
}

/// What the node of a host keeps for its next process.
fn keeps_lists(host: &Host) -> Result<bool, Failed> {
    let names = std::fs::read_dir(host.dir())?.collect::<std::io::Result<Vec<_>>>()?;
    Ok(names.iter().any(|entry| entry.file_name().as_encoded_bytes().starts_with(b"learned-")))
}

#[test]
fn what_was_learned_outlives_all_machines() -> Outcome {
    let (lab, vfield) = (Lab::loopback(3)?, vfield());
    let image = random_file(&lab.dir().join("disk.img"), IMAGE_BYTES, 1)?;
    let serve = || vfield.serve(lab.host(0), &[&image]).ready();
    let join = |host| vfield.join(lab.host(host), lab.host(0).addr()).store("0").ready();
    let (origin, node) = (serve()?, join(1)?);
    read(&node, 0..100)?;
    wait_until("the origin keeps what it has heard", LATER, || keeps_lists(lab.host(0)).is_ok_and(|keeps| keeps))?;
    drop((origin, node));
    let (origin, next) = (serve()?, join(2)?);
    wait_until("it is known again", SOON, || learned(&origin).is_ok_and(|said| said.contains("1 machine read")))?;
    read(&next, 0..1)?;
    wait_until("the next one hears", SOON, || learned(&next).is_ok_and(|said| said.contains("2 machines read")))?;
    read(&next, 1..50)?;
    wait_until("it is led along", SOON, || fetched(&next).is_ok_and(|chunks| chunks >= 100))?;
    Ok(())
}

//! What a machine's link carries is known when its daemon starts again.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::program::vfield;
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::need::{Need, have};
use vfield_lab::{Daemon, Lab, Link, client, wait_until};

const NEEDS: [Need; 2] = [Need::Root, Need::Tool("nbdcopy")];
/// A chunk takes a tenth of a second: a machine with other work keeps up.
const MBIT: u64 = 5;
const IMAGE_BYTES: u64 = 3 * MIB;
const SOON: Duration = Duration::from_secs(60);

/// What a node says that its own link carries.
fn own_link(node: &Daemon) -> Option<u64> {
    let status = node.status().ok()?;
    let nodes = status["nodes"].as_array()?;
    nodes.iter().find(|node| node["state"] == "self")?["link_bytes_per_s"].as_u64()
}

#[test]
fn a_link_is_known_when_its_daemon_starts_again() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let lab = Lab::namespaces(3, Link::mbit(MBIT))?;
    let image = random_file(&lab.dir().join("disk.img"), IMAGE_BYTES, 1)?;
    let origin = vfield().serve(lab.host(0), &[&image]).name("origin").ready()?;
    let state = lab.dir().join("first");
    let program = vfield();
    let start = |name| program.join(lab.host(1), origin.addr()).name(name).store("100%").state(&state);
    let mut first = start("first").ready()?;
    client::compare_all(lab.host(1), &first, &image)?;
    // Two partners have to see it: the origin and one that reads from it.
    let second = program.join(lab.host(2), first.addr()).name("second").store("100%").ready()?;
    client::compare_all(lab.host(2), &second, &image)?;
    let kept: PathBuf = state.join("state").join(format!("link-{}", first.addr().ip()));
    wait_until("the link's speed is kept", SOON, || kept.exists())?;
    let carries: u64 = fs::read_to_string(&kept)?.trim().parse().expect("a number");
    let megabit = carries * 8 / 1_000_000;
    assert!((MBIT / 2..=MBIT * 2).contains(&megabit), "{megabit} Mbit/s of {MBIT}");
    first.kill();
    let again = start("again").ready()?;
    assert_eq!(own_link(&again), Some(carries));
    Ok(())
}

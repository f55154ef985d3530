//! A rolling upgrade of twenty nodes, one after the other, while each of them is read.
//!
//! `VFIELD_ROUNDS` says how often all are upgraded; the nightly checks do it more often. The test
//! prints the longest read before the first upgrade, and the longest one so far after each round.

use std::time::Duration;
use vfield_e2e::field::{Field, NEWS, Plan, live};
use vfield_e2e::watch::Watch;
use vfield_e2e::{Failed, Outcome};
use vfield_lab::bytes::MIB;
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Daemon, LabError};

const NODES: usize = 20;
/// Each tenth of the image is on two nodes.
const STORE: &str = "10%";
const GONE: Duration = Duration::from_secs(30);
/// FUSE mounts are handed over since Linux 6.9.
const NEEDS: [Need; 4] = [Need::Root, Need::Fuse, Need::Tool("nbdsh"), Need::Linux(6, 9)];

fn rounds() -> usize {
    std::env::var("VFIELD_ROUNDS").map_or(1, |rounds| rounds.parse().expect("VFIELD_ROUNDS is a number"))
}

/// Readers of all nodes over NBD, and of each fourth one through FUSE besides.
fn readers(field: &Field) -> Result<Vec<(usize, Watch)>, LabError> {
    let mut readers = Vec::new();
    for (number, node) in field.nodes.iter().enumerate() {
        let host = field.host(number);
        readers.push((number, Watch::one_of_many(host, node, None, &field.image)?));
        if let Some(mount) = node.mount() {
            let file = mount.join("disk.img");
            readers.push((number, Watch::one_of_many(host, node, Some(&file), &field.image)?));
        }
    }
    Ok(readers)
}

/// The longest read of all readers so far.
fn longest(readers: &[(usize, Watch)]) -> Result<Duration, LabError> {
    readers.iter().try_for_each(|(_, reader)| reader.goes_on())?;
    // Each round, so that hours of rounds need not be awaited.
    readers.iter().for_each(|(number, reader)| assert!(reader.errors().is_empty(), "{number}: {:#?}", reader.errors()));
    Ok(readers.iter().map(|(_, reader)| reader.longest()).max().unwrap_or_default())
}

#[test]
fn twenty_nodes_are_upgraded_in_turn_while_all_read() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let mut field = Field::start(Plan { image_bytes: 8 * MIB + 777, spare_hosts: NODES, ..Plan::default() })?;
    for number in 0..NODES {
        let through = field.nodes.last().unwrap_or(&field.origin).addr();
        let node = field.join(number, through, STORE).args(&["--guard"]).mounted(number % 4 == 0).ready()?;
        field.nodes.push(node);
    }
    field.covered()?;
    let readers = readers(&field)?;
    println!("before the first upgrade: longest read {:?}", longest(&readers)?);
    for round in 1..=rounds() {
        let mut pauses = Vec::new();
        for (number, node) in field.nodes.iter().enumerate() {
            pauses.push(upgrade(node)?);
            let together = |status: &serde_json::Value| live(status).len() == NODES + 1;
            let what = format!("node {number} knows all, round {round}");
            node.wait_status(&what, NEWS, together)?;
        }
        pauses.sort_unstable();
        let (median, most) = (&pauses[NODES / 2], &pauses[NODES - 1]);
        println!(
            "round {round}: pauses of {median} ms, {most} ms at most; longest read so far {:?}",
            longest(&readers)?
        );
    }
    for (number, reader) in readers {
        reader.judge(&field.nodes[number].process().log(), 0);
    }
    // All guards are there still.
    field.nodes.iter_mut().try_for_each(|node| node.leave(GONE).map(drop)).map_err(Failed::from)
}

/// Upgrades a node. Returns the pause that its daemon tells, in milliseconds.
fn upgrade(node: &Daemon) -> Result<u64, LabError> {
    let said = run(&mut node.ask("upgrade"))?;
    let pause = said.split("a pause of ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
    Ok(pause.unwrap_or_else(|| panic!("no pause is told: {said}")))
}

//! A node that is drained before it goes: no reader of the field misses it.

use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::field::{Field, NEWS, Plan, state_of};
use vfield_e2e::watch::Watch;
use vfield_lab::bytes::MIB;
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Daemon, LabError, client};

const GONE: Duration = Duration::from_secs(20);
const NEEDS: [Need; 3] = [Need::Root, Need::Tool("nbdcopy"), Need::Tool("nbdsh")];

/// Bytes that a node has sent to peers.
fn sent(node: &Daemon) -> Result<u64, LabError> {
    Ok(node.status()?["traffic"]["to_peers_bytes"].as_u64().expect("a count"))
}

/// Three readers read all the time. The node with half of the image is drained, taken back, drained
/// again, and leaves.
#[test]
fn a_drained_node_leaves_and_no_reader_notices() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let stores = ["60%", "60%", "60%", "0", "0"];
    let mut field = Field::start(Plan { image_bytes: 24 * MIB + 777, stores: &stores, ..Plan::default() })?;
    field.covered()?;
    let readers = [0, 3, 4].map(|node| Watch::nbd(field.host(node), &field.nodes[node], &field.image));
    let readers = readers.into_iter().collect::<Result<Vec<_>, _>>()?;
    let go_on = |readers: &[Watch]| readers.iter().try_for_each(Watch::goes_on);
    go_on(&readers)?;
    let (going, other) = (&field.nodes[1], &field.nodes[3]);
    let told = |state: &str| {
        let said = |status: &serde_json::Value| state_of(status, going.addr()).as_deref() == Some(state);
        other.wait_status(&format!("it is {state}"), NEWS, said)
    };

    let said = run(&mut going.ask("drain"))?;
    assert_eq!(said, "the node is drained: no other node needs it");
    told("leaving")?;
    assert!(run(&mut going.ask("status"))?.contains("drained: other nodes ask this one last"));
    let before = sent(going)?;
    go_on(&readers)?;
    assert_eq!(sent(going)?, before, "readers ask it though others have all");
    // A client that comes is turned away; other nodes' clients are not.
    let refused = client::compare_nbd(field.host(1), &going.uri(""), &field.image).expect_err("no new clients");
    assert!(refused.to_string().contains("server is shutting down"), "{refused}");

    run(going.ask("drain").arg("--undo"))?;
    told("alive")?;
    client::compare_nbd(field.host(1), &going.uri(""), &field.image)?;

    run(&mut going.ask("drain"))?;
    assert!(field.nodes[1].leave(GONE)?.success());
    go_on(&readers)?;
    for (reader, node) in readers.into_iter().zip([0, 3, 4]) {
        reader.judge(&field.nodes[node].process().log(), 0);
    }
    Ok(())
}

/// An origin whose file is in no other store is needed, and says so.
#[test]
fn a_node_that_is_needed_says_for_what() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let field = Field::start(Plan { stores: &["30%"], ..Plan::default() })?;
    field.filled()?;
    let needed = run(field.origin.ask("drain").args(["--timeout", "2s"])).expect_err("most is nowhere else");
    assert!(needed.to_string().contains("after 2 s the node is still needed: no other node holds 7"), "{needed}");
    // It goes on serving.
    field.compare(&[])?;
    // Refused to leave, it is drained as before.
    run(field.origin.ask("leave").args(["--timeout", "1s"])).expect_err("it has the last copies");
    assert_eq!(field.origin.status()?["draining"], true);
    run(field.origin.ask("drain").arg("--undo"))?;
    assert_eq!(field.origin.status()?["draining"], false);
    Ok(())
}

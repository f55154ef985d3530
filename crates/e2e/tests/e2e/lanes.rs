//! Lanes: a fast peer's chunks come over several connections, a slow one's over one.

use std::collections::BTreeSet;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::field::{Field, Plan};
use vfield_lab::bytes::MIB;
use vfield_lab::daemon::FILL_LIMIT;
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Lab, LabError, Link, client, wait_until};

/// A busy machine takes part of a second for what takes milliseconds.
const SOON: Duration = Duration::from_secs(20);
/// Bytes that may be under way to a node, and so be lost with its connections.
const WINDOW: u64 = 8 * MIB;

/// The local ports of the connections that the first node has opened to the origin, each once: the
/// kernel's table names a connection twice if others end while it is read.
fn lanes(field: &Field) -> Result<Vec<String>, LabError> {
    let table = run(field.host(0).client(SOON, "cat").arg("/proc/net/tcp"))?;
    let port = |addr: &str| addr.rsplit_once(':').and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
    let lines = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let established = lines.filter(|words| words.len() > 3 && words[3] == "01");
    let pairs = established.filter_map(|words| Some((port(words[1])?, port(words[2])?)));
    let ports = pairs.filter(|(_, theirs)| *theirs == field.origin.addr().port()).map(|(mine, _)| mine);
    Ok(ports.collect::<BTreeSet<u16>>().iter().map(u16::to_string).collect())
}

/// The connections of these local ports end at the node's next packet.
fn reset(field: &Field, ports: &[String]) -> Outcome {
    let rule = format!("tcp sport {{ {} }} reject with tcp reset;", ports.join(", "));
    let rules = format!("table inet cut {{\nchain out {{\ntype filter hook output priority 0; {rule}\n}}\n}}");
    run(field.host(0).client(SOON, "nft").arg(rules))?;
    Ok(())
}

/// A lane is taken to carry a hundredth of the link, so the node has as many as threads. Most of
/// them are cut in the middle of their chunks: all else goes on, and nothing is lost or wrong.
#[test]
fn chunks_come_over_several_lanes_and_lanes_that_are_cut_cost_no_more_than_a_window() -> Outcome {
    if !have(&[Need::Root, Need::Tool("nft"), Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let lab = Lab::namespaces(2, Link::mbit(400))?;
    let join = ["--threads", "4", "--lane-rate", "500000"];
    let plan = Plan { image_bytes: 192 * MIB + 777, stores: &["all"], join: &join, ..Plan::default() };
    let field = Field::on(lab, plan)?;
    wait_until("a lane for demands and four for the rest", SOON, || lanes(&field).is_ok_and(|lanes| lanes.len() == 5))?;
    let ports = lanes(&field)?;
    reset(&field, &ports[1..])?;
    wait_until("they are gone", SOON, || {
        lanes(&field).is_ok_and(|lanes| lanes.iter().all(|lane| !ports[1..].contains(lane)))
    })?;
    assert_eq!(field.nodes[0].image()?["filled"], false, "they were cut too late");
    field.nodes[0].wait("filled", FILL_LIMIT)?;
    client::compare_all(field.host(0), &field.nodes[0], &field.image)?;
    let status = field.nodes[0].status()?;
    let bytes = |key: &str| status["traffic"][key].as_u64().unwrap_or_default();
    let fetched = bytes("from_peers_bytes") + bytes("from_origin_bytes");
    assert!(fetched <= 192 * MIB + 2 * WINDOW, "{} MiB were fetched", fetched / MIB);
    Ok(())
}

/// With as many threads, but without a word about lanes.
#[test]
fn a_slow_peer_has_one_lane_for_all_but_demands() -> Outcome {
    if !have(&[Need::Root]) {
        return Ok(());
    }
    let lab = Lab::namespaces(2, Link::mbit(400))?;
    let plan = Plan { image_bytes: 48 * MIB, stores: &["all"], join: &["--threads", "4"], ..Plan::default() };
    let field = Field::on(lab, plan)?;
    field.nodes[0].wait("filled", FILL_LIMIT)?;
    let lanes = lanes(&field)?;
    assert!((1..=2).contains(&lanes.len()), "{lanes:?}");
    Ok(())
}

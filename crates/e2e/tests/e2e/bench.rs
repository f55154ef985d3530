//! `vfield bench`: what it says is plausible, and what it does leaves no trace in the field.
//!
//! No absolute values: they are the machine's. But no link carries more than it can, shares are
//! shares, and bytes that were asked for came.

use serde_json::Value;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::field::{Field, NEWS, Plan, live, while_running};
use vfield_e2e::liar::{Twist, answer, twist};
use vfield_lab::bytes::MIB;
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Daemon, Lab, LabError, Link};

/// A benchmark in these tests takes a few seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// What a benchmark prints with `--json`.
fn outcome(command: &mut Command) -> Result<Value, LabError> {
    let text = run(command.arg("--json"))?;
    Ok(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

fn bytes(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number of bytes"))
}

/// What must hold of every run.
fn check(run: &Value) {
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} in {run:#}"));
    let delays = ["min", "median", "p95", "p99", "max"].map(|name| number(&run["delay_us"][name]));
    assert!(delays[0] > 0.0 && delays.is_sorted(), "{delays:?}");
    for share in ["machine", "bench", "softirq", "stolen"] {
        // Too short for the kernel's ticks, or a share.
        let (share, short) = (&run["cpu"][share], number(&run["seconds"]) < 0.1);
        assert!(if share.is_null() { short } else { (0.0..=1.0).contains(&number(share)) }, "{run:#}");
    }
    assert!(number(&run["seconds"]) > 0.0 && number(&run["mb_per_s"]) > 0.0 && bytes(&run["requests"]) > 0, "{run:#}");
    let rate = bytes(&run["bytes"]) as f64 / number(&run["seconds"]) / 1e6;
    assert!((rate / number(&run["mb_per_s"]) - 1.0).abs() < 0.01, "{run:#}");
    assert_eq!((bytes(&run["refused"]), bytes(&run["unanswered"])), (0, 0), "{run:#}");
}

/// A full link of Ethernet carries 94 % payload; a third is what a busy machine must reach.
fn check_link(run: &Value) {
    let of_link = run["network"]["of_link"].as_f64().unwrap_or_else(|| panic!("{run:#}"));
    assert!((1.0 / 3.0..=1.0).contains(&of_link), "of the link: {of_link}; {run:#}");
}

#[test]
fn an_image_read_over_a_link_comes_at_the_links_rate() -> Outcome {
    if !have(&[Need::Root]) {
        return Ok(());
    }
    let lab = Lab::namespaces(2, Link::mbit(100))?;
    let field = Field::on(lab, Plan { image_bytes: 8 * MIB + 777, stores: &["0"], ..Plan::default() })?;
    let node = &field.nodes[0];
    let found = outcome(node.ask("bench").args(["disk.img", "--link", "100M", "--pattern", "sequential"]))?;
    let runs = found["runs"].as_array().cloned().unwrap_or_default();
    assert_eq!(runs.len(), 1, "{found:#}");
    check(&runs[0]);
    check_link(&runs[0]);
    assert_eq!(bytes(&runs[0]["bytes"]), 8 * MIB + 777, "all of it was read");
    assert_eq!(bytes(&runs[0]["requests"]), 33, "in blocks of 256 KiB");
    let network = &runs[0]["network"];
    assert!(bytes(&network["bytes"]) >= 8 * MIB + 777, "a store of 0 has nothing: {network:#}");
    assert_eq!(network["own_store_bytes"], 0);
    assert_eq!(network["peers"][0]["addr"], field.origin.addr().to_string());
    assert_eq!(network["peers"][0]["origin"], true);
    assert!(runs[0]["cpu"]["node"].is_f64(), "{found:#}");
    assert_eq!(found["target"]["pid"], node.process().pid());
    assert_eq!(found["image"]["size_bytes"], 8 * MIB + 777);
    Ok(())
}

#[test]
fn the_own_store_is_told_from_the_network() -> Outcome {
    let field = Field::start(Plan { stores: &["all"], mounted: true, ..Plan::default() })?;
    field.covered()?;
    let node = &field.nodes[0];
    let ask = |words: &[&str]| outcome(node.ask("bench").args(["--seconds", "1", "--streams", "1,3"]).args(words));
    let mut ways = vec!["nbd"];
    if node.mount().is_some() {
        ways.push("fuse");
    }
    for way in ways {
        let found = ask(&["--via", way])?;
        let runs = found["runs"].as_array().cloned().unwrap_or_default();
        let made: Vec<_> = runs.iter().map(|run| (run["pattern"].as_str(), run["streams"].as_u64())).collect();
        let [s, r] = [Some("sequential"), Some("random")];
        assert_eq!(made, [(s, Some(1)), (s, Some(3)), (r, Some(1)), (r, Some(3))], "{way}");
        for run in &runs {
            check(run);
            assert_eq!(
                (bytes(&run["network"]["bytes"]), &run["network"]["own_store_bytes"]),
                (0, &run["bytes"]),
                "{way}"
            );
        }
    }
    let words = ["--size", "1M", "--block-size", "64K", "--depth", "1", "--pattern", "sequential"];
    let found = ask(&[&["--nbd", &node.uri("disk.img")][..], &words].concat())?;
    assert_eq!(found["target"]["pid"], node.process().pid(), "the export is the daemon's");
    for run in found["runs"].as_array().into_iter().flatten() {
        assert_eq!((bytes(&run["bytes"]), bytes(&run["requests"])), (MIB, 16));
    }
    Ok(())
}

#[test]
fn a_matrix_says_where_the_bytes_came_from() -> Outcome {
    let image_bytes = 8 * MIB + 777;
    let field = Field::start(Plan { image_bytes, stores: &["all", "0"], ..Plan::default() })?;
    field.filled()?;
    let [full, empty] = &field.nodes[..] else { panic!("two nodes were asked for") };
    let ask =
        |node: &Daemon, words: &[&str]| outcome(node.ask("bench").args(["--matrix", "--seconds", "1"]).args(words));
    for (node, warm, origin) in [(full, true, false), (empty, false, false), (&field.origin, true, true)] {
        let found = ask(node, &[])?;
        let runs = found["runs"].as_array().cloned().unwrap_or_default();
        let made: Vec<_> = runs.iter().map(|run| (run["pattern"].as_str(), run["block_bytes"].as_u64())).collect();
        let (random, sequential) = (Some("random"), Some("sequential"));
        let (small, large) = (Some(4 << 10), Some(64 << 10));
        assert_eq!(made, [(random, small), (sequential, small), (random, large), (sequential, large)]);
        assert_eq!((bytes(&found["matrix"]["end_bytes"]), &found["target"]["origin"]), (image_bytes, &origin.into()));
        for run in &runs {
            check(run);
            assert_eq!(
                (&run["streams"], &run["depth"], bytes(&run["span_bytes"])),
                (&1.into(), &1.into(), image_bytes)
            );
            let network = &run["network"];
            // What passes through a node without a store stays there for a while.
            assert!(bytes(&network["bytes"]) > 0 || network["state"] == "warm", "{run:#}");
            // Nodes look at each other's stores now and then, which is no reader's traffic.
            assert!(!warm || network["state"] == "warm", "{run:#}");
            assert!(bytes(&network["hit_bytes"]) <= bytes(&run["bytes"]), "{run:#}");
            assert!(!warm || network["hit_bytes"] == run["bytes"], "{run:#}");
        }
        assert_eq!(runs[0]["network"]["state"] == "warm", warm, "{found:#}");
    }
    let streams = ask(full, &["--streams", "1,2"])?;
    assert_eq!(streams["runs"].as_array().map(Vec::len), Some(8), "{streams:#}");
    Ok(())
}

/// A sweep from a host without a node.
fn sweep(field: &Field, host: usize, to: SocketAddr, words: &[&str]) -> Result<Value, LabError> {
    let program = field.vfield.path().to_str().expect("a plain path").to_owned();
    let mut command = field.host(host).client(LIMIT, &program);
    outcome(command.args(["bench", "--peer", &to.to_string(), "--seconds", "1", "--link", "100M"]).args(words))
}

#[test]
fn a_node_is_asked_by_more_and_more_streams_and_has_no_new_member() -> Outcome {
    if !have(&[Need::Root]) {
        return Ok(());
    }
    let lab = Lab::namespaces(3, Link::mbit(100))?;
    let plan = Plan { image_bytes: 4 * MIB + 777, stores: &["60%"], spare_hosts: 1, ..Plan::default() };
    let field = Field::on(lab, plan)?;
    field.filled()?;
    field.members(2, &[])?;
    let members = || -> Result<Vec<Vec<String>>, LabError> {
        let daemons = [&field.origin, &field.nodes[0]];
        daemons.into_iter().map(|daemon| Ok(live(&daemon.status()?))).collect()
    };
    let before = members()?;
    let mut seen = Vec::new();
    for (to, origin, words, streams) in [
        (field.nodes[0].addr(), false, &[][..], &[1, 2, 4, 8, 12][..]),
        (field.origin.addr(), true, &["--streams", "2", "--depth", "3", "--image", "disk.img"], &[2]),
    ] {
        let look = || seen.extend(members());
        let found = while_running(|| sweep(&field, 1, to, words), look)?;
        let runs = found["runs"].as_array().cloned().unwrap_or_default();
        let made: Vec<_> = runs.iter().filter_map(|run| run["streams"].as_u64()).collect();
        assert_eq!(made, streams, "{found:#}");
        for run in &runs {
            check(run);
            check_link(run);
        }
        assert_eq!((&found["target"]["addr"], &found["target"]["origin"]), (&to.to_string().into(), &origin.into()));
        // The image's 65 chunks on the origin; on the node the share of them that it holds.
        let chunks = bytes(&found["target"]["chunks"]);
        assert!(if origin { chunks == 65 } else { (30..50).contains(&chunks) }, "{found:#}");
    }
    assert!(!seen.is_empty() && seen.iter().all(|members| *members == before), "{before:?} became {seen:?}");
    // Nor later, when gossip has reached all nodes.
    let late = field.join(1, field.nodes[0].addr(), "0").ready()?;
    field.members(3, &[])?;
    late.wait_status("three members", NEWS, |status| live(status).len() == 3)?;
    let status = field.nodes[0].status()?;
    assert_eq!(status["warnings"], Value::Array(vec![]), "{status:#}");
    Ok(())
}

#[test]
fn all_nodes_are_measured_and_the_slow_one_is_named() -> Outcome {
    if !have(&[Need::Root]) {
        return Ok(());
    }
    // Host 0 has the origin, and host 2 the second node.
    let lab = Lab::namespaces_with(5, |host| Link::mbit(if host == 2 { 10 } else { 100 }))?;
    let plan = Plan { image_bytes: 4 * MIB + 777, stores: &["60%", "60%", "0"], spare_hosts: 1, ..Plan::default() };
    let field = Field::on(lab, plan)?;
    field.filled()?;
    field.members(4, &[])?;
    let addr = |node: usize| field.nodes[node].addr().to_string();
    let before = live(&field.origin.status()?);

    // On the machine of a member, and on another one.
    let program = field.vfield.path().to_str().expect("a plain path").to_owned();
    let control = field.origin.control().to_str().expect("a plain path").to_owned();
    let on = |host: usize, words: &[&str]| {
        let mut command = field.lab.host(host).client(LIMIT, &program);
        command.args(["bench", "--peers"]).args(words);
        command
    };
    let from_member = outcome(&mut on(0, &["--control", &control, "--link", "100M"]))?;
    let from_outside = outcome(&mut on(4, &["--peer", &addr(0), "--link", "100M"]))?;
    for (found, count) in [(&from_member, 3), (&from_outside, 4)] {
        assert_eq!(found["target"]["kind"], "field");
        let nodes = found["nodes"].as_array().cloned().unwrap_or_default();
        assert_eq!(nodes.len(), count, "{found:#}");
        for node in &nodes {
            let is_slow = node["addr"] == addr(1);
            let link = if is_slow { 1.25e6 } else { 12.5e6 };
            let way = |name: &str| node[name].as_u64().map(|rate| rate as f64 / link);
            let (up, down) = (way("up_bytes_per_s"), way("down_bytes_per_s"));
            // A link has a bucket of tokens, and a machine that is busy is late.
            let holds = node["addr"] != addr(2);
            assert_eq!(up.is_some(), holds, "{node:#}");
            for rate in [up, down].into_iter().flatten() {
                assert!((1.0 / 3.0..=1.5).contains(&rate), "{rate} of its link: {node:#}");
            }
            assert!(down.is_some() && node["failure"].is_null(), "{node:#}");
            // A machine that was so late just then is slow, too.
            let was_late = [up, down].into_iter().flatten().any(|rate| rate < 0.5);
            assert!(node["slow"] == is_slow || was_late, "{found:#}");
            assert!(!is_slow || node["slow"] == true, "{found:#}");
        }
    }
    assert_eq!(live(&field.origin.status()?), before, "nobody is new");
    let status = field.origin.status()?;
    assert_eq!(status["warnings"], Value::Array(vec![]), "{status:#}");

    let text = run(&mut on(0, &["--control", &control, "--seconds", "0.5"]))?;
    assert!(text.contains(&format!("\n{} has a link of ", addr(1))), "{text}");
    Ok(())
}

#[test]
fn ending_it_early_prints_what_was_measured() -> Outcome {
    let field = Field::start(Plan { stores: &["all"], ..Plan::default() })?;
    field.filled()?;
    let node = &field.nodes[0];
    let uri = node.uri("disk.img");
    let read = |status: &Value| bytes(&status["traffic"]["from_store_bytes"]);
    let before = read(&node.status()?);
    let mut command = field.host(0).command(field.vfield.path());
    command.args(["bench", "--seconds", "600", "--size", "100T", "--json", "--nbd", &uri]);
    let mut bench = field.host(0).spawn("bench", &mut command)?;
    node.wait_status("it reads", NEWS, |status| read(status) > before + MIB)?;
    bench.terminate();
    let status = bench.wait(NEWS)?;
    let found: Value = serde_json::from_str(&bench.log()).unwrap_or_default();
    assert!(status.success() && found["interrupted"] == true, "{status}: {}", bench.log());
    assert_eq!(found["runs"].as_array().map(Vec::len), Some(1), "{found:#}");
    assert!(bytes(&found["runs"][0]["bytes"]) > 0, "{found:#}");
    Ok(())
}

#[test]
fn who_cannot_be_measured_is_named() -> Outcome {
    let lab = Lab::loopback(4)?;
    let [liar, stranger, nobody] = [1, 2, 3].map(|host| lab.host(host).addr());
    let field = Field::on(lab, Plan { image_bytes: MIB, ..Plan::default() })?;
    let complaint = |words: &[&str]| match run(Command::new(field.vfield.path()).arg("bench").args(words)) {
        Err(LabError::Command { why, .. }) => why,
        other => panic!("{words:?}: {other:?}"),
    };
    let of_node = |addr: SocketAddr| complaint(&["--peer", &addr.to_string()]);
    twist(liar, field.origin.addr(), Twist::Flip)?;
    assert!(of_node(liar).contains(&format!("node {liar} sent #16 with wrong bytes")), "{}", of_node(liar));
    answer(stranger, b"VFIELD\r\n\xff\xff\0\0\0\0\xff\xff")?;
    assert!(of_node(stranger).contains("speaks protocol version 65535"), "{}", of_node(stranger));
    assert!(of_node(nobody).contains(&format!("node {nobody}: connection refused")), "{}", of_node(nobody));
    assert!(complaint(&["--nbd", "nbd+unix:///?socket=none.sock"]).contains("no such file"));
    assert!(complaint(&["--nbd", &field.origin.uri("none.img")]).contains("refused the export \"none.img\""));
    Ok(())
}

#[test]
fn what_is_written_is_measured_where_it_can_be() -> Outcome {
    // Whole granules: the end of an odd image would have to be read before it is written.
    let plan = Plan { image_bytes: 16 * MIB, stores: &["0", "0"], mounted: true, ..Plan::default() };
    let field = Field::start(Plan { join: &["--overlay", "ram"], ..plan })?;
    let node = &field.nodes[0];
    let mut ways = vec!["nbd"];
    if node.mount().is_some() {
        ways.push("fuse");
    }
    for way in ways {
        let words = ["--via", way, "--pattern", "write,randwrite", "--size", "8M", "--streams", "2"];
        let found = outcome(node.ask("bench").args(words))?;
        let runs = found["runs"].as_array().cloned().unwrap_or_default();
        let made: Vec<_> = runs.iter().map(|run| (run["pattern"].as_str(), run["block_bytes"].as_u64())).collect();
        assert_eq!(made, [(Some("write"), Some(256 << 10)), (Some("randwrite"), Some(4096))], "{way}");
        for run in &runs {
            check(run);
            assert_eq!((bytes(&run["bytes"]), &run["network"]), (8 * MIB, &Value::Null), "{way}");
        }
    }
    let status = node.status()?;
    assert!(bytes(&status["overlays"][0]["held_bytes"]) >= 8 * MIB, "{status:#}");
    let came = |status: &Value| status["traffic"]["from_origin_bytes"].clone();
    assert_eq!(came(&status), 0, "whole granules need nothing of the image");
    let refused = outcome(field.origin.ask("bench").args(["--pattern", "write"])).unwrap_err().to_string();
    assert!(refused.contains("is read-only: nothing was written") && refused.contains("--overlay ram"), "{refused}");
    Ok(())
}

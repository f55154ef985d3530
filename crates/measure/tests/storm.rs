//! Storms of the systems that are no node: races begin together, count every byte, and survive
//! trouble.

use std::path::{Path, PathBuf};
use vfield_lab::need::{Need, have};
use vfield_lab::{Lab, LabError, Link};
use vfield_measure::storm::{Event, Mode, Plan, Programs, Sample, System, play_role, run};

/// Not a test: what the processes of the hosts run, this program being their program as well.
#[test]
#[ignore = "run by other tests"]
fn process_of_a_host() {
    play_role();
}

fn storm(plan: &Plan) -> Result<Sample, LabError> {
    let words = ["--exact", "process_of_a_host", "--ignored", "--nocapture"].map(str::to_owned);
    let this = std::env::current_exe().expect("a running program has a path");
    run(plan, &Programs { helper: (this, words.to_vec()), vfield: PathBuf::new(), front: None })
}

fn trouble(events: &[&str]) -> Vec<Event> {
    events.iter().map(|event| event.parse().expect("an event")).collect()
}

#[test]
fn a_chain_uses_all_links_at_once() -> Result<(), LabError> {
    if !have(&[Need::Root]) {
        return Ok(());
    }
    let plan = Plan { system: System::Chain, readers: 3, mbit: 200, size_bytes: 16 << 20, ..Plan::default() };
    let sample = storm(&plan)?;
    assert_eq!((sample.ok, sample.delivered_bytes), (3, 3 * plan.size_bytes), "{}", sample.line());
    // One server for all would reach a third. The first burst is free, and a busy machine may be
    // slower.
    assert!((0.4..1.05).contains(&sample.efficiency), "{}", sample.line());
    assert!((1.0..1.2).contains(&sample.origin_copies), "{}", sample.line());
    Ok(())
}

#[test]
fn one_server_sends_everything_to_everyone() -> Result<(), LabError> {
    if !have(&[Need::Root, Need::Tool("nbdkit"), Need::Tool("ss")]) {
        return Ok(());
    }
    let plan = Plan { system: System::Nbdkit, readers: 2, mbit: 200, size_bytes: 4 << 20, ..Plan::default() };
    let sample = storm(&Plan { events: trouble(&["0.1s:join:1"]), ..plan.clone() })?;
    assert_eq!((sample.ok, sample.nodes.len()), (3, 3), "{}", sample.line());
    assert!((3.0..3.5).contains(&sample.origin_copies), "{}", sample.line());
    assert!(sample.efficiency < 0.5, "{}", sample.line());

    let random = Plan { mode: Mode::Random, count: 50, depth: 4, ..plan };
    let sample = storm(&random)?;
    assert_eq!((sample.ok, sample.delivered_bytes), (2, 2 * 50 * 65536), "{}", sample.line());
    assert!(sample.random.is_some_and(|random| random.p50_us > 0 && random.max_us >= random.p99_us));
    Ok(())
}

#[test]
fn hosts_have_links_of_their_own() -> Result<(), LabError> {
    if !have(&[Need::Root]) {
        return Ok(());
    }
    let plan = |links: &str| {
        let links = links.parse().expect("links");
        Plan { system: System::Chain, readers: 3, links, size_bytes: 4 << 20, ..Plan::default() }
    };
    let slow_down = storm(&plan("50M,10M/50M@3"))?;
    let own: Vec<_> = slow_down.nodes.iter().map(|node| node.own_link).collect();
    // 3.4 s over the slow link, 0.7 s over the others. The burst of 64 KiB is free.
    assert!(own[2] > 0.95 && own[0] < 3.0, "{own:?}: {}", slow_down.line());
    assert!((slow_down.bound_s - 3.355).abs() < 0.01 && slow_down.makespan_s > 3.1, "{}", slow_down.line());
    let slow_up = storm(&plan("50M,50M/10M@0"))?;
    // Nobody ends before the origin has sent all of it once.
    let mut nodes = slow_up.nodes.iter();
    assert!(nodes.all(|node| (0.95..1.5).contains(&node.own_link) && node.seconds > 3.1), "{}", slow_up.line());
    assert!((0.95..1.5).contains(&slow_up.finish_over_bound), "{}", slow_up.line());
    Ok(())
}

#[test]
fn trouble_befalls_whom_it_is_meant_for() -> Result<(), LabError> {
    if !have(&[Need::Root]) {
        return Ok(());
    }
    let plan = Plan { system: System::Chain, readers: 3, mbit: 50, size_bytes: 4 << 20, ..Plan::default() };
    let sample = storm(&Plan { events: trouble(&["0.1s:kill:2"]), ..plan.clone() })?;
    let fates: Vec<_> = sample.nodes.iter().map(|node| (node.is_ok(), node.fate.as_deref())).collect();
    assert_eq!(fates, [(true, None), (false, Some("kill:2")), (false, None)], "{}", sample.line());
    assert_eq!(sample.errors.len(), 1, "the killed one is no error: {}", sample.line());

    let slow = storm(&Plan { events: trouble(&["0s:slow:3:4"]), ..plan })?;
    assert_eq!(slow.ok, 3, "{}", slow.line());
    assert!(slow.nodes[2].seconds > 2.0 * slow.nodes[0].seconds, "{}", slow.line());
    Ok(())
}

#[test]
fn a_larger_table_of_neighbours_goes_with_its_lab() -> Result<(), LabError> {
    const MORE: u64 = 1 << 20;
    if !have(&[Need::Root]) {
        return Ok(());
    }
    let bound = || std::fs::read_to_string("/proc/sys/net/ipv4/neigh/default/gc_thresh3").unwrap_or_default();
    let mut lab = Lab::namespaces(1, Link::FAST)?;
    let before = lab.arp_table(MORE)?;
    assert!(before < MORE, "the kernel's own is small");
    assert_eq!(bound().trim(), MORE.to_string());
    let dir = lab.dir().to_owned();
    drop(lab);
    assert!(!Path::new(&dir).exists());
    // Labs of other processes may have it at once: the next lab hears what it was.
    assert_eq!(Lab::namespaces(1, Link::FAST)?.arp_table(MORE)?, before);
    Ok(())
}

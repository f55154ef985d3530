//! Stores that outlive their daemon: it is killed, and the next one has what the first had.

use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::field::{Field, Plan};
use vfield_lab::bytes::MIB;
use vfield_lab::need::{Need, have};
use vfield_lab::{Daemon, LabError, ServiceManager, client, process, wait_until};

/// A daemon that is killed is started again at once, and verifies some MiB.
const AGAIN: Duration = Duration::from_secs(30);
/// Default size of a chunk.
const CHUNK: u64 = 64 << 10;
const IMAGE: u64 = 24 * MIB + 777;

fn received(status: &Value) -> u64 {
    let bytes = |key: &str| status["traffic"][key].as_u64().unwrap_or_default();
    bytes("from_peers_bytes") + bytes("from_origin_bytes")
}

fn taken_over(status: &Value) -> u64 {
    status["images"][0]["taken_over_bytes"].as_u64().unwrap_or_default()
}

/// Waits until a daemon has taken its store over and is full again.
fn is_back(daemon: &Daemon) -> Result<(), LabError> {
    daemon.wait_status("it is back with its store", AGAIN, |status| {
        taken_over(status) > 0 && status["images"][0]["filled"] == true
    })
}

/// The daemon of a guard.
pub fn guarded(guard: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{guard}/task/{guard}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// A guard and its daemon, both of which end with this value: the guard first, or there would be
/// another daemon.
pub struct Pair {
    guard: u32,
    daemon: u32,
}

impl Drop for Pair {
    fn drop(&mut self) {
        process::kill(self.guard);
        process::kill(self.daemon);
    }
}

/// Kills the daemon of a node's guard, and waits until the next one has its store.
pub fn killed(node: &Daemon) -> Result<Pair, LabError> {
    let guard = node.process().pid();
    let first = guarded(guard).expect("a guard has a daemon");
    process::kill(first);
    let second = || guarded(guard).filter(|pid| *pid != first);
    wait_until("the daemon is started again", AGAIN, || second().is_some())?;
    let pair = Pair { guard, daemon: second().expect("it was there") };
    is_back(node)?;
    Ok(pair)
}

#[test]
fn a_guard_keeps_what_nobody_else_holds() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let mut field = Field::start(Plan { image_bytes: IMAGE, stores: &["40%"], spare_hosts: 1, ..Plan::default() })?;
    let node = field.join(1, field.nodes[0].addr(), "all").args(&["--root"]).ready()?;
    node.wait("filled", AGAIN)?;
    field.covered()?;
    field.origin.kill();

    let _pair = killed(&node)?;
    client::compare_all(field.host(1), &node, &field.image)?;
    client::compare_all(field.host(0), &field.nodes[0], &field.image)?;
    let status = node.status()?;
    assert_eq!(received(&status), 0, "nothing of it came over the network: {status:#}");
    assert!(taken_over(&status) > IMAGE, "all of it, and the hash pages: {status:#}");
    // Its guard has given up nothing, or it could not be started.
    let given_up: Vec<&str> = status["sandbox"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    assert!(given_up.len() == 3 && given_up.iter().all(|part| !part.starts_with("not ")), "{given_up:?}");
    Ok(())
}

/// A node on the field's last host, under a service manager, with a full store.
fn managed(field: &Field, manager: &mut ServiceManager) -> Result<Daemon, LabError> {
    let last = field.nodes.len();
    let through = field.nodes.last().unwrap_or(&field.origin).addr();
    let node = field.join(last, through, "all").passed(manager.pass()?).ready()?;
    node.wait("filled", AGAIN)?;
    Ok(node)
}

#[test]
fn the_last_of_a_field_comes_back_with_all_of_it() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let mut field = Field::start(Plan { image_bytes: IMAGE, spare_hosts: 2, ..Plan::default() })?;
    let mut manager = ServiceManager::new(field.lab.dir())?;
    let mut node = managed(&field, &mut manager)?;
    field.origin.kill();
    node.kill();
    assert!(manager.kept().is_some(), "its memory is kept");

    // Nobody is there whom it could join: the field is what it holds itself.
    let node = field.join(0, field.origin.addr(), "all").passed(manager.pass()?).ready()?;
    client::compare_all(field.host(0), &node, &field.image)?;
    is_back(&node)?;
    let late = field.join(1, node.addr(), "30%").ready()?;
    client::compare_all(field.host(1), &late, &field.image)?;
    assert_eq!(received(&node.status()?), 0);
    Ok(())
}

/// True once a process has ended with all its threads, reaped or not: the last one closes its
/// sockets.
fn is_over(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with('Z')) && threads < 2
}

/// As the shipped units have it: the guard alone speaks to the service manager, which keeps the
/// store beyond the guard's end. An upgrade is none of the manager's business.
#[test]
fn a_store_outlives_its_guard_under_a_service_manager() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let mut field = Field::start(Plan { image_bytes: IMAGE, spare_hosts: 1, ..Plan::default() })?;
    let mut manager = ServiceManager::new(field.lab.dir())?;
    let start = |field: &Field, manager: &mut ServiceManager| {
        let start = field.join(0, field.origin.addr(), "all").args(&["--guard"]);
        let node = start.passed(manager.pass()?).ready()?;
        let guard = node.process().pid();
        wait_until("the guard says that it is ready", AGAIN, || manager.heard().1.contains(&guard))?;
        let pair = Pair { guard, daemon: guarded(guard).expect("a guard has a daemon") };
        Ok::<_, LabError>((node, pair))
    };
    let (mut node, mut pair) = start(&field, &mut manager)?;
    node.wait("filled", AGAIN)?;
    process::run(&mut node.ask_to(&["upgrade"]))?;
    let before = std::mem::replace(&mut pair.daemon, guarded(pair.guard).expect("the next daemon"));
    assert_ne!(pair.daemon, before);
    assert!(manager.kept().is_some(), "its memory is kept");

    // A restart of the service: all of it is killed.
    field.origin.kill();
    node.kill();
    process::kill(pair.daemon);
    wait_until("both daemons are gone", AGAIN, || is_over(before) && is_over(pair.daemon))?;
    let (node, next) = start(&field, &mut manager)?;
    client::compare_all(field.host(0), &node, &field.image)?;
    is_back(&node)?;
    assert_eq!(received(&node.status()?), 0);
    let (senders, _) = manager.heard();
    assert_eq!(*senders, [pair.guard, next.guard].into());
    Ok(())
}

#[test]
fn a_byte_that_was_changed_meanwhile_is_never_served() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let plan = Plan { image_bytes: IMAGE, stores: &["all"], spare_hosts: 1, ..Plan::default() };
    let mut field = Field::start(plan)?;
    let mut manager = ServiceManager::new(field.lab.dir())?;
    let mut node = managed(&field, &mut manager)?;
    field.covered()?;
    field.origin.kill();
    node.kill();
    let memory = manager.kept().expect("its memory is kept");
    flip(memory, 7 * CHUNK + 4711)?;

    let mut node = field.join(1, field.nodes[0].addr(), "all").passed(manager.pass()?).ready()?;
    is_back(&node)?;
    client::compare_all(field.host(1), &node, &field.image)?;
    let status = node.status()?;
    // One chunk came from the other holder, and up to eight that verify its claim.
    assert!((CHUNK..=9 * CHUNK).contains(&received(&status)), "{status:#}");

    // With another label it is a stranger's: it is said so, and the store begins empty.
    node.kill();
    let memory = manager.kept().expect("its memory is kept");
    let end = memory.metadata()?.len();
    flip(memory, end - 512)?;
    let node = field.join(1, field.nodes[0].addr(), "all").passed(manager.pass()?).ready()?;
    node.wait("filled", AGAIN)?;
    client::compare_all(field.host(1), &node, &field.image)?;
    let status = node.status()?;
    assert_eq!(taken_over(&status), 0, "{status:#}");
    let warnings = status["warnings"].to_string();
    assert!(warnings.contains("is not used: it has no label"), "{warnings}");
    Ok(())
}

/// Changes a byte in a file.
fn flip(file: &File, at: u64) -> Outcome {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    file.write_all_at(&[byte[0] ^ 1], at)?;
    Ok(())
}

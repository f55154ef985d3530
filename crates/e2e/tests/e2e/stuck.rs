//! Stuck peers: a client that takes no answers, connections whose packets are dropped without a
//! word; and a log that takes no line. Others behind it go on, and nothing is fetched again and
//! again.

use crate::kept::guarded;
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use std::fs::{File, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};
use vfield_e2e::Outcome;
use vfield_e2e::field::{Field, Plan};
use vfield_e2e::program::vfield;
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::need::{Need, have};
use vfield_lab::process::kill;
use vfield_lab::{Daemon, Lab, Link, Vfield, client, wait_until};
use vfield_measure::storm::nbd::{Client, Target};

/// Requests that the stuck client sends: of a chunk each.
const HELD: u32 = 64;
const CHUNK: u32 = 64 << 10;
/// A busy machine takes part of a second for what takes milliseconds.
const SOON: Duration = Duration::from_secs(20);

fn fetched_bytes(daemon: &Daemon) -> Result<u64, vfield_lab::LabError> {
    let status = daemon.status()?;
    let bytes = |key: &str| status["traffic"][key].as_u64().unwrap_or_default();
    Ok(bytes("from_peers_bytes") + bytes("from_origin_bytes"))
}

/// Reads one chunk over a connection of its own.
fn read_chunk(daemon: &Daemon, chunk: u64) -> Result<Vec<u8>, vfield_e2e::Failed> {
    let mut client = Client::connect(&Target::Unix(daemon.nbd().to_owned()))?;
    client.give_up_after(SOON)?;
    let mut bytes = vec![0; CHUNK as usize];
    client.ask(1, chunk * u64::from(CHUNK), CHUNK)?;
    client.answer()?;
    client.fill(&mut bytes)?;
    Ok(bytes)
}

/// A virtual machine that was paused has asked for chunks and takes no answer: they are dropped
/// meanwhile, and others read them all the same, without their being fetched more than once again.
#[test]
fn a_client_that_takes_no_answers_costs_others_nothing() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let field = Field::on(Lab::loopback(2)?, Plan { image_bytes: 96 * MIB, stores: &["0"], ..Plan::default() })?;
    let node = &field.nodes[0];
    let mut stuck = Client::connect(&Target::Unix(node.nbd().to_owned()))?;
    for request in 0..HELD {
        stuck.ask(request.into(), u64::from(request) * u64::from(CHUNK), CHUNK)?;
    }
    wait_until("all of it is there", SOON, || {
        fetched_bytes(node).is_ok_and(|bytes| bytes >= u64::from(HELD) * u64::from(CHUNK))
    })?;
    // Besides the store 24 MiB are kept: the data that the stuck client waits for is pushed out.
    client::compare_all(field.host(0), node, &field.image)?;
    let before = fetched_bytes(node)?;
    let image = std::fs::read(&field.image)?;
    for chunk in 0..u64::from(HELD) {
        let at = (chunk * u64::from(CHUNK)) as usize;
        assert!(read_chunk(node, chunk)? == image[at..at + CHUNK as usize], "chunk {chunk}");
    }
    // Chunks, pages, and read-ahead of a sequential reader.
    let again = fetched_bytes(node)? - before;
    assert!(again <= 16 * MIB, "{} MiB were fetched for reads of 4 MiB", again / MIB);
    Ok(())
}

/// The local ports of established TCP connections of a host to or from the field's port.
fn flows(field: &Field, node: usize) -> Result<Vec<String>, vfield_lab::LabError> {
    let table = vfield_lab::process::run(field.host(node).client(SOON, "cat").arg("/proc/net/tcp"))?;
    let port = |addr: &str| addr.rsplit_once(':').and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
    let lines = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let established = lines.filter(|words| words.len() > 3 && words[3] == "01");
    let pairs = established.filter_map(|words| Some((port(words[1])?, port(words[2])?)));
    let here = field.nodes[node].addr().port();
    Ok(pairs.map(|(mine, theirs)| if mine == here { theirs } else { mine }.to_string()).collect())
}

/// A firewall forgets the flows that it has let through: their packets are dropped, in both
/// directions, and nobody is told. New connections and datagrams pass.
fn forget_flows(field: &Field, node: usize) -> Outcome {
    let ports = flows(field, node)?.join(", ");
    assert!(!ports.is_empty(), "no connection to cut");
    let rules = format!(
        "table inet firewall {{
             chain in {{ type filter hook input priority 0; tcp sport {{ {ports} }} drop; tcp dport {{ {ports} }} drop; }}
             chain out {{ type filter hook output priority 0; tcp sport {{ {ports} }} drop; tcp dport {{ {ports} }} drop; }}
         }}"
    );
    vfield_lab::process::run(field.host(node).client(SOON, "nft").arg(rules))?;
    Ok(())
}

/// Reads a chunk that is not here, and says how long that took.
fn timed_read(field: &Field, node: usize, chunk: u64) -> Result<Duration, vfield_e2e::Failed> {
    let image = std::fs::read(&field.image)?;
    let start = Instant::now();
    let bytes = read_chunk(&field.nodes[node], chunk)?;
    let took = start.elapsed();
    let at = (chunk * u64::from(CHUNK)) as usize;
    assert!(bytes == image[at..at + CHUNK as usize], "chunk {chunk}");
    Ok(took)
}

#[test]
fn flows_that_die_silently_are_replaced() -> Outcome {
    if !have(&[Need::Root, Need::Tool("nft")]) {
        return Ok(());
    }
    let lab = Lab::namespaces(2, Link::mbit(1000))?;
    let field = Field::on(lab, Plan { image_bytes: 32 * MIB, stores: &["0"], ..Plan::default() })?;
    timed_read(&field, 0, 3)?;
    for chunk in [100, 300] {
        forget_flows(&field, 0)?;
        let took = timed_read(&field, 0, chunk)?;
        // Silence is noticed after 0.6 s; wanted is 3 s, and the machine may be busy.
        assert!(took < Duration::from_secs(6), "a read took {took:?} though its origin answers on new connections");
        vfield_lab::process::run(field.host(0).client(SOON, "nft").args(["delete", "table", "inet", "firewall"]))?;
    }
    Ok(())
}

#[test]
fn another_holder_is_asked_when_flows_die_silently() -> Outcome {
    if !have(&[Need::Root, Need::Tool("nft")]) {
        return Ok(());
    }
    let lab = Lab::namespaces(3, Link::mbit(1000))?;
    let mut field = Field::on(lab, Plan { image_bytes: 32 * MIB, stores: &["all", "0"], ..Plan::default() })?;
    field.nodes[0].wait("filled", vfield_lab::daemon::FILL_LIMIT)?;
    timed_read(&field, 1, 3)?;
    forget_flows(&field, 1)?;
    let took = timed_read(&field, 1, 200)?;
    assert!(took < Duration::from_secs(4), "a read took {took:?} though another has it");
    field.origin.process_mut().check()?;
    Ok(())
}

/// A pipe that takes no byte, as a held terminal does, and a program that logs into it.
struct HeldLog {
    reader: File,
    vfield: Vfield,
}

impl HeldLog {
    fn new(dir: &Path) -> Result<Self, vfield_e2e::Failed> {
        let (pipe, script) = (dir.join("held.pipe"), dir.join("held.sh"));
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR)?;
        let mut reader =
            File::options().read(true).write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&pipe)?;
        while reader.write(&[b'.'; 4096]).is_ok() {}
        while reader.write(b".").is_ok() {}
        let program = vfield();
        let text = format!("#!/bin/sh\nexec '{}' \"$@\" 2>'{}'\n", program.path().display(), pipe.display());
        std::fs::write(&script, text)?;
        std::fs::set_permissions(&script, Permissions::from_mode(0o755))?;
        Ok(Self { reader, vfield: Vfield::at(&script) })
    }

    /// Reads until all of these words have come.
    fn read_until(&mut self, words: &[&str]) -> Result<(), vfield_lab::LabError> {
        let mut text = Vec::new();
        wait_until(&format!("the log has {words:?}"), SOON, || {
            // It has no byte more, for now.
            let _ = self.reader.read_to_end(&mut text);
            let said = String::from_utf8_lossy(&text);
            words.iter().all(|word| said.contains(word))
        })?;
        Ok(())
    }
}

/// Ctrl-S in the terminal of a daemon, a pager, a journal in trouble: the daemon logs every detail,
/// nobody takes a line, and the field goes on.
#[test]
fn a_log_that_takes_no_line_stops_nobody() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let lab = Lab::loopback(2)?;
    let image = random_file(&lab.dir().join("disk.img"), 8 * MIB, 1)?;
    let mut held = HeldLog::new(lab.dir())?;
    let mut origin = held.vfield.serve(lab.host(0), &[&image]).args(&["-vv", "--guard"]).ready()?;
    for _ in 0..3 {
        let mut node = vfield().join(lab.host(1), origin.addr()).store("0").ready()?;
        client::compare_all(lab.host(1), &node, &image)?;
        node.leave(SOON)?;
    }
    // Its guard has to say that it starts another one.
    let daemon = || guarded(origin.process().pid());
    let first = daemon().expect("a guard has a daemon");
    kill(first);
    wait_until("another daemon", SOON, || daemon().is_some_and(|second| second != first))?;
    origin.wait_ready(SOON)?;
    client::compare_all(lab.host(0), &origin, &image)?;
    // Two processes write, so one may be before the other.
    held.read_until(&["is started again", "disk.img"])?;
    assert!(origin.leave(SOON)?.success());
    Ok(())
}

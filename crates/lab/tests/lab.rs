//! The lab itself: it isolates, shapes and cuts, and leaves nothing behind however its program
//! ends.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use vfield_lab::cgroup::{self, Cgroup};
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Lab, LabError, Link, wait_until};

const SOON: Duration = Duration::from_secs(10);

fn namespaces_of(tag: &Path) -> usize {
    let prefix = format!("{}-", tag.file_name().expect("a tag").to_string_lossy());
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)).count()
}

fn runs(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_dropped_lab_takes_its_processes_and_files_along() -> Result<(), LabError> {
    let lab = Lab::loopback(2)?;
    let dir = lab.dir().to_owned();
    let mut sleeper = lab.host(1).spawn("sleeper", lab.host(1).command("sleep").arg("600"))?;
    sleeper.check()?;
    let pid = sleeper.pid();
    // As if its owner had forgotten it.
    std::mem::forget(sleeper);
    drop(lab);
    assert!(!dir.exists());
    // The zombie that is left is this process's child, and nobody waits for it any more.
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") Z "), "{state}");
    Ok(())
}

#[test]
fn hosts_reach_each_other_until_the_link_is_cut() -> Result<(), LabError> {
    if !have(&[Need::Root, Need::Tool("nbdkit"), Need::Tool("nbdinfo")]) {
        return Ok(());
    }
    let lab = Lab::namespaces(2, Link::FAST)?;
    let (server, client) = (lab.host(0), lab.host(1));
    let port = server.addr().port().to_string();
    let _server = server.spawn("nbdkit", server.command("nbdkit").args(["-f", "-p", &port, "null", "1M"]))?;
    let connects = || run(client.client(Duration::from_secs(2), "nbdinfo").arg(format!("nbd://{}", server.addr())));
    wait_until("the server answers", SOON, || connects().is_ok())?;
    let before = lab.counters(server)?;
    lab.cut(server)?;
    assert!(connects().is_err(), "a host without its link was reached");
    lab.restore(server)?;
    wait_until("the server answers again", SOON, || connects().is_ok())?;
    assert!(lab.counters(server)?.sent_bytes > before.sent_bytes);

    let dir = lab.dir().to_owned();
    assert_eq!(namespaces_of(&dir), 3);
    drop(lab);
    assert_eq!(namespaces_of(&dir), 0);
    Ok(())
}

#[test]
fn a_link_has_the_rate_it_was_given() -> Result<(), LabError> {
    if !have(&[Need::Root, Need::Tool("nbdkit"), Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let lab = Lab::namespaces(2, Link::mbit(200))?;
    let (server, client) = (lab.host(0), lab.host(1));
    let port = server.addr().port().to_string();
    let _server = server.spawn("nbdkit", server.command("nbdkit").args(["-f", "-p", &port, "pattern", "16M"]))?;
    let uri = format!("nbd://{}", server.addr());
    let connects = || run(client.client(Duration::from_secs(2), "nbdinfo").arg(&uri)).is_ok();
    wait_until("the server answers", SOON, connects)?;
    let start = Instant::now();
    run(client.client(SOON, "nbdcopy").args([&uri, "null:"]))?;
    let mbit = 16.0 * 8.0 * 1.048_576 / start.elapsed().as_secs_f64();
    // Headers take four hundredths, the first burst is free; a busy machine may be slower, never
    // faster.
    assert!(mbit < 215.0, "{mbit} Mbit/s over a link of 200");
    Ok(())
}

/// The kernel counts each time that it stopped the group.
#[test]
fn a_busy_host_has_a_part_of_a_processor() -> Result<(), LabError> {
    if !have(&[Need::Root]) || !cgroup::of_processors_are_there() {
        return Ok(());
    }
    let lab = Lab::loopback(1)?;
    let tag = lab.dir().file_name().expect("a tag").to_string_lossy().into_owned();
    let group = Cgroup::of_processor(&tag, 0, 20)?;
    let worker = lab.host(0).spawn("worker", lab.host(0).command("sh").args(["-c", "while :; do :; done"]))?;
    group.take(worker.pid())?;
    let [path] = &cgroup::left(&tag)[..] else { panic!("one group: {:?}", cgroup::left(&tag)) };
    let stopped = |line: &str| line.strip_prefix("nr_throttled ").is_some_and(|times| times.trim() != "0");
    let said = || std::fs::read_to_string(path.join("cpu.stat")).unwrap_or_default();
    wait_until("the group has used its part up", SOON, || said().lines().any(stopped))?;
    drop((worker, lab, group));
    assert!(cgroup::left(&tag).is_empty());
    Ok(())
}

/// Not a test: the program that [`a_killed_program_leaves_nothing`] kills.
#[test]
#[ignore = "run by another test"]
fn program_to_be_killed() {
    let lab = Lab::best(2).expect("a lab");
    let sleeper = lab.host(0).spawn("sleeper", lab.host(0).command("sleep").arg("600")).expect("sleep");
    println!("\nlab {} {}", lab.dir().display(), sleeper.pid());
    // Killed long before; the bound is for a run by hand.
    std::thread::park_timeout(Duration::from_secs(60));
}

#[test]
fn a_killed_program_leaves_nothing() -> Result<(), Box<dyn std::error::Error>> {
    let mut program = Command::new(std::env::current_exe()?)
        .args(["--exact", "program_to_be_killed", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(program.stdout.take().ok_or("no output")?).lines();
    let line = lines.map_while(Result::ok).find(|line| line.starts_with("lab ")).ok_or("it did not start")?;
    let (dir, pid) = line[4..].split_once(' ').ok_or("an odd line")?;
    let (dir, pid): (PathBuf, u32) = (dir.into(), pid.parse()?);
    assert!(dir.exists() && runs(pid));
    program.kill()?;
    program.wait()?;
    wait_until("the janitor is done", SOON, || !dir.exists() && !runs(pid) && namespaces_of(&dir) == 0)?;
    Ok(())
}

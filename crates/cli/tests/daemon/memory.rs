//! How much a daemon takes that was not told how much to take, and what it does not do without.

use super::{Bench, Daemon};
use std::io::{BufRead, BufReader, Read as _, Write};
use std::process::{Command, Stdio};

const MIB: u64 = 1 << 20;
/// An image of which 30 % are more than half of the free memory below [`LIMIT`].
const IMAGE: u64 = 384 * MIB;
/// Of the address space: enough for a daemon and its threads.
const LIMIT: u64 = 260 * MIB;
/// Half of the limit without the 48 MiB that a daemon takes besides.
const STORE: u64 = (LIMIT - 48 * MIB) / 2;

/// A daemon with a bound on its memory.
fn bounded(bench: &Bench, line: &str) -> Daemon {
    limited(bench, &format!("-v {}", LIMIT >> 10), line)
}

/// A daemon below a limit of its shell.
fn limited(bench: &Bench, limit: &str, line: &str) -> Daemon {
    let control = bench.dir.path().join("c1");
    let mut shell = Command::new("/bin/sh");
    let bounded = format!("ulimit {limit}; exec {} {line}", env!("CARGO_BIN_EXE_vfield"));
    shell.args(["-c", &bounded]).current_dir(bench.dir.path()).env_clear().env("HOME", bench.dir.path());
    shell.env("VFIELD_CONTROL", &control).stdin(Stdio::null()).stderr(Stdio::piped());
    Daemon { child: shell.spawn().unwrap(), control, dir: bench.dir.path().to_owned() }
}

#[test]
fn a_default_store_is_no_larger_than_memory_lets_it_be_and_says_so() {
    let bench = Bench::new();
    let mut file = std::fs::File::create(bench.dir.path().join("a.img")).unwrap();
    for _ in 0..IMAGE / MIB {
        file.write_all(&[7; MIB as usize]).unwrap();
    }
    drop(file);
    let origin = bench.start("c0", &["serve", "a.img", "--listen", "127.0.0.1:0", "--chunk-size", "1M"]);
    origin.wait("filled");
    let join = format!("join {} --listen 127.0.0.1:0 --threads 1 --join-boost 0", origin.addr());
    let mut node = bounded(&bench, &join);
    node.wait("ready");
    let status = node.status();
    assert_eq!(status["images"][0]["capacity_bytes"], STORE);
    assert_eq!((&status["memory"]["limit_bytes"], &status["memory"]["limit_by"]), (&LIMIT.into(), &"rlimit".into()));
    let log = BufReader::new(node.child.stderr.take().unwrap());
    let said = log.lines().map_while(Result::ok).find(|line| line.contains("--store")).unwrap();
    assert!(said.starts_with("a.img: store limited to 106.0 MiB instead of 115."), "{said}");
    assert_eq!(node.leave(), 0);

    let node = bounded(&bench, &format!("{join} --store 30%"));
    node.wait("ready");
    assert!(node.status()["images"][0]["capacity_bytes"].as_u64().unwrap() > STORE, "what was asked for is had");
}

#[test]
fn a_daemon_without_room_for_connections_says_so() {
    let bench = Bench::new();
    bench.image("a.img", 5000);
    for limit in [12, 16, 32, 63] {
        let mut daemon = limited(&bench, &format!("-n {limit}"), "serve a.img --listen 127.0.0.1:0");
        let mut said = String::new();
        daemon.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(daemon.child.wait().unwrap().code(), Some(1), "{said}");
        assert!(said.starts_with(&format!("vfield: a process may have {limit} open files here\nhint: ")), "{said}");
    }
    let daemon = limited(&bench, "-n 64", "serve a.img --listen 127.0.0.1:0");
    daemon.wait("filled");
    assert_eq!(daemon.leave(), 0);
}

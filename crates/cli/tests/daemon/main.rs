//! Daemons with real nodes on loopback, spoken to as a person or a script would.
//!
//! Every address has a port of the system's choice. Tests wait for a state, with `status
//! --wait` wherever it knows it.

mod chunks;
mod kept_hashes;
mod memory;
mod moved;
mod signals;
mod source;
mod sparse;
mod top;
mod versions;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Every wait ends after so many seconds, the test then fails.
const PATIENCE: &str = "30s";

struct Bench {
    dir: TempDir,
}

/// A daemon, or the guard of one; ended with SIGKILL if the test forgets it.
struct Daemon {
    child: Child,
    control: PathBuf,
    dir: PathBuf,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let id = self.child.id();
        let guarded = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        let pids = guarded.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
        let guarded: Vec<_> = pids.filter_map(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()).collect();
        // It may have ended already. The guard goes first, or it would start another daemon.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for daemon in guarded {
            let _ = pidfd_send_signal(&daemon, Signal::KILL);
            // The next daemon may have the same control socket, so this one has to be gone.
            let _ = poll(&mut [PollFd::new(&daemon, PollFlags::IN)], None);
        }
    }
}

fn vfield(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vfield"));
    command.current_dir(dir).env_clear().env("HOME", dir).stdin(Stdio::null());
    command
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Bench {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn image(&self, name: &str, length: usize) -> Vec<u8> {
        let seed = name.len() as u32;
        let bytes: Vec<u8> = (seed..).take(length).map(|n| (n.wrapping_mul(2_654_435_761) >> 21) as u8).collect();
        std::fs::write(self.dir.path().join(name), &bytes).unwrap();
        bytes
    }

    fn start(&self, control: &str, line: &[&str]) -> Daemon {
        self.start_with(control, line, &[])
    }

    fn start_with(&self, control: &str, line: &[&str], env: &[(&str, &Path)]) -> Daemon {
        let control = self.dir.path().join(control);
        let mut command = vfield(self.dir.path());
        command.args(line).env("VFIELD_CONTROL", &control).stderr(Stdio::piped()).envs(env.iter().copied());
        Daemon { child: command.spawn().unwrap(), control, dir: self.dir.path().to_owned() }
    }

    fn run(&self, line: &[&str]) -> Output {
        vfield(self.dir.path()).args(line).env("VFIELD_CONTROL", self.dir.path().join("own")).output().unwrap()
    }
}

impl Daemon {
    fn ask(&self, line: &[&str]) -> Output {
        vfield(&self.dir).args(line).env("VFIELD_CONTROL", &self.control).output().unwrap()
    }

    fn wait(&self, condition: &str) {
        let output = self.ask(&["status", "--wait", condition, "--timeout", PATIENCE]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn status(&self) -> serde_json::Value {
        serde_json::from_slice(&self.ask(&["status", "--json"]).stdout).unwrap()
    }

    fn addr(&self) -> String {
        self.status()["addr"].as_str().unwrap().to_owned()
    }

    fn leave(self) -> i32 {
        self.leave_with(&["--timeout", "5s"])
    }

    fn leave_with(mut self, options: &[&str]) -> i32 {
        let left = self.ask(&[&["leave"], options].concat()).status.code().unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        assert!(!self.control.exists(), "the control socket is gone with its daemon");
        left
    }
}

#[test]
fn an_image_outlives_its_origin() {
    let bench = Bench::new();
    let image = bench.image("a.img", 3_000_001);
    let origin = bench.start("c0", &["serve", "a.img", "--listen", "127.0.0.1:0"]);
    origin.wait("filled");
    let join = ["join", &origin.addr(), "--store", "60%", "--listen", "127.0.0.1:0", "--join-boost", "9"];
    let nodes = [bench.start("c1", &join), bench.start("c2", &join)];
    nodes.iter().for_each(|node| node.wait("filled"));
    nodes.iter().for_each(|node| node.wait("covered"));
    let status = nodes[0].status();
    assert_eq!(
        (status["images"][0]["origin_may_leave"].as_bool(), status["nodes"].as_array().map(Vec::len)),
        (Some(true), Some(3))
    );
    assert!(nodes[1].ask(&["cat", "a.img"]).stdout == image);
    assert_eq!(origin.leave(), 0);
    for node in &nodes {
        assert!(node.ask(&["cat", "a.img"]).stdout == image);
        assert!(node.ask(&["cat", "a.img", "--offset", "2999990"]).stdout == image[2_999_990..]);
    }
    let id = bench.run(&["id", "a.img"]).stdout;
    assert_eq!(status["images"][0]["id"].as_str().unwrap().as_bytes(), id.trim_ascii_end());
    let [first, second] = nodes;
    // Half of the image is nowhere else and does not fit into the other store.
    let rehearsed = first.ask(&["leave", "--dry-run"]);
    assert_eq!(rehearsed.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&rehearsed.stderr).contains("no other node holds "), "{rehearsed:?}");
    let refused = first.ask(&["leave", "--timeout", "1s"]);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("the node stays: ") && said.contains(" of a.img (") && said.contains("--force"), "{said}");
    assert!(first.ask(&["cat", "a.img"]).stdout == image, "it is there");
    assert_eq!(first.leave_with(&["--timeout", "1s", "--force"]), 1);
    let alone = second.ask(&["leave", "--dry-run"]);
    assert_eq!((alone.status.code(), alone.stdout), (Some(0), b"this is the field's last node\n".to_vec()));
    assert_eq!(second.leave(), 0);
}

#[test]
fn a_member_without_an_address_is_no_reason_not_to_join_through_another() {
    let bench = Bench::new();
    bench.image("a.img", 5000);
    let origin = bench.start("c0", &["serve", "a.img", "--listen", "127.0.0.1:0"]);
    origin.wait("filled");
    let join = ["join", "nobody.invalid", &origin.addr(), "--store", "0", "--listen", "127.0.0.1:0"];
    let mut node = bench.start("c1", &join);
    let log = BufReader::new(node.child.stderr.take().unwrap());
    let warned = |line: &str| line.starts_with("warning: host \"nobody.invalid\" has no address: ");
    assert!(log.lines().map_while(Result::ok).any(|line| warned(&line)), "it says whom it does without");
    node.wait("ready");
}

#[test]
fn a_read_waits_for_a_daemon_that_is_starting() {
    let bench = Bench::new();
    let image = bench.image("a.img", 1_000_000);
    // Nobody is there yet, and the node asks again.
    let addr = free_port();
    let node = bench.start("c1", &["join", &addr, "--store", "all", "--listen", "127.0.0.1:0", "--retry", "forever"]);
    let read = |node: &Daemon| {
        let mut cat = vfield(&node.dir);
        cat.args(["cat", "a.img"]).env("VFIELD_CONTROL", &node.control).stdout(Stdio::piped()).stderr(Stdio::piped());
        cat.spawn().unwrap()
    };
    // One before the node has its socket, most likely; one after.
    let early = read(&node);
    wait_until("the node starts", || {
        String::from_utf8_lossy(&node.ask(&["status"]).stderr).contains("the daemon is still starting")
    });
    let late = read(&node);
    let _origin = bench.start("c0", &["serve", "a.img", "--listen", &addr]);
    for cat in [early, late] {
        let done = cat.wait_with_output().unwrap();
        assert!(done.stdout == image, "{}", String::from_utf8_lossy(&done.stderr));
    }
}

#[test]
fn a_second_origin_adds_an_image() {
    let bench = Bench::new();
    let (_, b) = (bench.image("a.img", 100_000), bench.image("bb.img", 200_000));
    let first = bench.start("c0", &["serve", "a.img", "--listen", "127.0.0.1:0"]);
    first.wait("filled");
    let addr = first.addr();
    let second = bench.start("c1", &["serve", "bb.img", "--join", &addr, "--listen", "127.0.0.1:0"]);
    second.wait("filled");
    // News takes a moment.
    let deadline = Instant::now() + Duration::from_secs(20);
    while !String::from_utf8_lossy(&first.ask(&["status"]).stdout).contains("bb.img") {
        assert!(Instant::now() < deadline, "the first node never heard of the second image");
        std::thread::sleep(Duration::from_millis(10));
    }
    let complaint = |line: &[&str]| String::from_utf8(bench.run(line).stderr).unwrap();
    let listen = ["--listen", "127.0.0.1:0"];
    assert!(complaint(&[&["join", &addr][..], &listen].concat()).contains("the field has several images"));
    assert!(
        complaint(&[&["join", &addr, "--image", "c"][..], &listen].concat()).contains("the field has no image \"c\"")
    );
    let same = complaint(&[&["serve", "bb.img", "--name", "a.img", "--join", &addr][..], &listen].concat());
    assert!(same.contains("the field has another image named \"a.img\": a.img (id "), "{same}");
    let node = bench.start("c2", &["join", &addr, "--image", "bb.img", "--store", "0", "--listen", "127.0.0.1:0"]);
    node.wait("filled");
    assert!(node.ask(&["cat", "bb.img"]).stdout == b);
    assert_eq!(node.ask(&["cat", "a.img"]).status.code(), Some(1));
}

#[test]
fn an_image_of_a_starting_daemon_is_waited_for() {
    let bench = Bench::new();
    let image = bench.image("a.img", 300_000);
    let addr = free_port();
    let node = bench.start("c1", &["join", &addr, "--store", "0"]);
    let said = || String::from_utf8(node.ask(&["status"]).stderr).unwrap();
    wait_until("it starts", || said().contains("the daemon is still starting"));
    let mut cat = vfield(&node.dir);
    cat.args(["cat", "a.img", "--control"]).arg(&node.control).stdout(Stdio::piped());
    let cat = cat.spawn().unwrap();
    let _origin = bench.start("c0", &["serve", "a.img", "--listen", &addr]);
    let output = cat.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout == image);
}

/// An address at which nothing listens for the moment.
fn free_port() -> String {
    format!("127.0.0.1:{}", vfield_lab::port::free().unwrap())
}

#[test]
fn a_socket_appears_with_the_daemon_and_goes_with_it() {
    let bench = Bench::new();
    bench.image("a.img", 5000);
    let manager = UnixDatagram::bind(bench.dir.path().join("notify")).unwrap();
    let notify = bench.dir.path().join("notify");
    let line = ["serve", "a.img", "--listen", "127.0.0.1:0", "--nbd", "unix:nbd.sock"];
    let socket = bench.dir.path().join("nbd.sock");
    drop(UnixListener::bind(&socket).unwrap());
    let daemon = bench.start_with("c0", &line, &[("NOTIFY_SOCKET", &notify)]);
    // It also leaves files with the manager, since its memory outlives it there.
    let heard = |manager: &UnixDatagram| loop {
        let mut state = [0; 64];
        let length = manager.recv(&mut state).unwrap();
        let state = String::from_utf8(state[..length].to_vec()).unwrap();
        if !state.starts_with("FDSTORE") {
            return state;
        }
    };
    assert_eq!(heard(&manager), "READY=1");
    let mut greeting = [0; 8];
    UnixStream::connect(&socket).unwrap().read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"NBDMAGIC");
    let second = bench.run(&["serve", "a.img", "--listen", "127.0.0.1:0", "--nbd", "unix:nbd.sock"]);
    assert_eq!(second.status.code(), Some(1));
    assert_eq!(daemon.leave(), 0);
    assert_eq!(heard(&manager), "STOPPING=1");
    assert!(!socket.exists());
}

#[test]
fn sigterm_is_a_leave() {
    let bench = Bench::new();
    bench.image("a.img", 5000);
    let mut daemon = bench.start("c0", &["serve", "a.img", "--listen", "127.0.0.1:0", "--json"]);
    daemon.wait("filled");
    let pid = rustix::process::Pid::from_child(&daemon.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(daemon.child.wait().unwrap().code(), Some(0));
    let mut log = String::new();
    daemon.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    for line in log.lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
    }
    for event in ["published", "listening", "ready", "left"] {
        assert!(log.contains(&format!("\"event\":\"{event}\"")), "{event} in {log}");
    }
    assert!(!daemon.control.exists());
}

#[test]
fn what_answers_and_is_no_field_is_named() {
    let bench = Bench::new();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = other.local_addr().unwrap().to_string();
    let thread = std::thread::spawn(move || {
        // Each client gets a line and the end, until a connection says that it is enough.
        for stream in other.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n");
            let mut line = Vec::new();
            let _ = BufReader::new(stream).read_until(b'\n', &mut line);
            if line == b"enough\n" {
                return;
            }
        }
    });
    let output = bench.run(&["join", &addr, "--listen", "127.0.0.1:0"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&addr) && text.contains("hint: "), "{text}");
    std::net::TcpStream::connect(&addr).unwrap().write_all(b"enough\n").unwrap();
    thread.join().unwrap();
}

#[test]
fn what_exports_nothing_cannot_be_measured_and_what_does_can() {
    let bench = Bench::new();
    bench.image("a.img", 3 << 20);
    let silent = bench.start("c0", &["serve", "a.img", "--listen", "127.0.0.1:0"]);
    silent.wait("filled");
    let output = silent.ask(&["bench"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(1) && said.contains("exports its images neither over NBD nor as files"),
        "{said}"
    );
    assert!(said.contains("hint: start it with --nbd unix:PATH or --mount DIR"), "{said}");

    let place = free_port();
    let served = ["serve", "a.img", "--listen", "127.0.0.1:0", "--nbd", &format!("tcp:{place}")];
    let daemon = bench.start("c1", &served);
    daemon.wait("filled");
    let output = daemon.ask(&["bench", "a.img", "--json", "--size", "1M", "--link", "1G"]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["target"]["export"], format!("nbd://{place}/a.img"));
    assert_eq!(found["link"]["bits_per_second"], 1_000_000_000);
    let runs = found["runs"].as_array().unwrap();
    let made: Vec<_> = runs.iter().map(|run| (run["pattern"].as_str(), run["block_bytes"].as_u64())).collect();
    assert_eq!(made, [(Some("sequential"), Some(256 << 10)), (Some("random"), Some(4 << 10))]);
    assert!(runs.iter().all(|run| run["bytes"] == 1 << 20 && run["network"]["bytes"] == 0), "{found:#}");
    let text = String::from_utf8(daemon.ask(&["bench", "--size", "1M", "--pattern", "random"]).stdout).unwrap();
    let row = text.lines().find(|line| line.starts_with("random")).unwrap_or_default();
    assert!(row.contains(" 4K  1.0 MiB ") && row.ends_with(" 100 %") && text.contains("\nlimit: "), "{text}");
    let unknown = daemon.ask(&["bench", "b.img"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("this node has no image \"b.img\""));
}

/// Causes a panic in one of the daemon's tasks: an order of programs that are built for tests.
#[cfg(debug_assertions)]
fn panic_in(daemon: &Daemon) {
    UnixStream::connect(&daemon.control).unwrap().write_all(b"panic\n").unwrap();
}

#[test]
#[cfg(debug_assertions)]
fn a_panic_in_any_task_ends_the_daemon() {
    for threads in ["1", "3"] {
        let bench = Bench::new();
        bench.image("a.img", 5000);
        let line = ["serve", "a.img", "--listen", "127.0.0.1:0", "--threads", threads];
        let mut daemon = bench.start("c0", &line);
        daemon.wait("filled");
        panic_in(&daemon);
        let deadline = Instant::now() + Duration::from_secs(30);
        let ended = loop {
            match daemon.child.try_wait().unwrap() {
                Some(ended) => break ended,
                None => assert!(Instant::now() < deadline, "half of the daemon goes on"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(ended.signal(), Some(rustix::process::Signal::ABORT.as_raw()));
        let mut log = String::new();
        daemon.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        assert!(log.contains("panicked at crates/control/src/server.rs"), "{log}");
        assert!(log.contains("\nvfield: a defect ended this program\nhint: "), "{log}");
    }
}

#[test]
#[cfg(debug_assertions)]
fn a_guard_starts_a_daemon_again_that_panicked_and_it_has_its_store() {
    let bench = Bench::new();
    let image = bench.image("a.img", 3_000_001);
    let origin = bench.start("c0", &["serve", "a.img", "--listen", "127.0.0.1:0"]);
    origin.wait("filled");
    let addr = origin.addr();
    let guard = bench.start("c1", &["join", &addr, "--store", "all", "--root", "--listen", "127.0.0.1:0"]);
    guard.wait("filled");
    let first = guard.status()["pid"].as_u64();
    drop(origin);
    panic_in(&guard);
    let deadline = Instant::now() + Duration::from_secs(60);
    let status = loop {
        let output = guard.ask(&["status", "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if status["images"][0]["filled"] == true && status["pid"].as_u64() != first {
            break status;
        }
        assert!(Instant::now() < deadline, "no daemon followed: {status:#}");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(status["images"][0]["taken_over_bytes"].as_u64() >= Some(3_000_001), "{status:#}");
    assert!(guard.ask(&["cat", "a.img"]).stdout == image);
}

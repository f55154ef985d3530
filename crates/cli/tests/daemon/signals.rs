//! Signals that do not end a daemon, and SIGHUP, which does when its terminal has gone.

use super::{Bench, Daemon, vfield, wait_until};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;

/// A daemon that writes its log into a file.
struct Logged {
    daemon: Daemon,
    log: PathBuf,
}

impl Logged {
    fn start(bench: &Bench, line: &[&str]) -> Self {
        let log = bench.dir.path().join("log");
        let daemon = start(bench, line, File::create(&log).unwrap().into());
        daemon.wait("filled");
        Self { daemon, log }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.daemon.child), signal).unwrap();
    }

    /// Returns when the log has `line`, which it had not before, and forgets the log.
    fn says(&self, line: &str) {
        wait_until(&format!("the log says {line:?}"), || {
            let log = std::fs::read_to_string(&self.log).unwrap();
            log.lines().any(|said| said.contains(line))
        });
        OpenOptions::new().write(true).open(&self.log).unwrap().set_len(0).unwrap();
    }
}

fn start(bench: &Bench, line: &[&str], stderr: Stdio) -> Daemon {
    let control = bench.dir.path().join("control.sock");
    let mut command = vfield(bench.dir.path());
    command.args(line).env("VFIELD_CONTROL", &control).stderr(stderr);
    Daemon { child: command.spawn().unwrap(), control, dir: bench.dir.path().to_owned() }
}

const SERVE: [&str; 4] = ["serve", "a.img", "--listen", "127.0.0.1:0"];

#[test]
fn more_and_less_is_said_on_request() {
    let bench = Bench::new();
    bench.image("a.img", 5000);
    let mut logged = Logged::start(&bench, &SERVE);
    for (signal, said) in [
        (Signal::USR1, "log level: verbose (-v)"),
        (Signal::USR1, "log level: debug (-vv)"),
        (Signal::USR1, "log level: debug (-vv)"),
        (Signal::USR2, "log level: verbose (-v)"),
        (Signal::USR2, "log level: usual"),
        (Signal::USR2, "log level: quiet (-q)"),
    ] {
        logged.signal(signal);
        logged.says(said);
    }
    logged.signal(Signal::USR1);
    logged.says("log level: usual");
    // A line that only --verbose has, from a node that joins now.
    logged.signal(Signal::USR1);
    logged.says("log level: verbose (-v)");
    let addr = logged.daemon.addr();
    let node = bench.start("c1", &["join", &addr, "--store", "0", "--listen", "127.0.0.1:0"]);
    node.wait("ready");
    logged.says("joined");
    assert!(logged.daemon.child.try_wait().unwrap().is_none(), "it is still there");
}

#[test]
fn a_hang_up_reads_files_again() {
    let bench = Bench::new();
    bench.image("a.img", 5000);
    let path = |name: &str| bench.dir.path().join(name);
    let key = |name: &str| {
        let made = bench.run(&["key", "new", name]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let id = String::from_utf8(bench.run(&["key", "id", name]).stdout).unwrap();
        (std::fs::read_to_string(path(name)).unwrap(), id.trim_end().to_owned())
    };
    let ((old, old_id), (new, new_id)) = (key("old.key"), key("new.key"));
    std::fs::write(path("vfield.toml"), "field-key = \"old.key\"\n").unwrap();
    let mut logged = Logged::start(&bench, &[&SERVE[..], &["--config", "vfield.toml"]].concat());
    assert_eq!(logged.daemon.status()["field"]["keys"][0], old_id);

    std::fs::write(path("old.key"), new + &old).unwrap();
    std::fs::write(path("vfield.toml"), "field-key = \"old.key\"\nverbose = 1\n").unwrap();
    logged.signal(Signal::HUP);
    logged.says(&format!("reloaded: field keys {new_id}, {old_id}; log level verbose (-v)"));
    assert_eq!(logged.daemon.status()["field"]["keys"][0], new_id);

    // A wrong file is reported, and the right keys stay.
    std::fs::write(path("vfield.toml"), "verbsoe = 2\n").unwrap();
    std::fs::set_permissions(path("old.key"), Permissions::from_mode(0o644)).unwrap();
    logged.signal(Signal::HUP);
    logged.says("reloaded: nothing");
    logged.signal(Signal::HUP);
    logged.says("not reloaded: field key old.key: open to others (mode 644)");
    logged.signal(Signal::HUP);
    logged.says("not reloaded: vfield.toml line 1: unknown key \"verbsoe\"");
    assert_eq!(logged.daemon.status()["field"]["keys"][0], new_id);
    assert!(logged.daemon.child.try_wait().unwrap().is_none(), "it is still there");
}

#[test]
fn a_terminal_that_goes_takes_its_daemon_along() {
    let bench = Bench::new();
    bench.image("a.img", 5000);
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let screen = OpenOptions::new().read(true).write(true).open(name).unwrap();
    let watched = screen.try_clone().unwrap();
    let mut daemon = start(&bench, &SERVE, screen.into());
    daemon.wait("filled");
    drop(terminal);
    // A process that another test has just forked has the terminal too, until it is a program.
    poll(&mut [PollFd::new(&watched, PollFlags::empty())], None).unwrap();
    kill_process(Pid::from_child(&daemon.child), Signal::HUP).unwrap();
    let control = daemon.control.clone();
    let ended = || !control.exists();
    wait_until("it leaves", ended);
    assert_eq!(daemon.child.wait().unwrap().code(), Some(0));
}

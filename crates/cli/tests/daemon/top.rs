//! `vfield top` in a terminal, and without one.

use super::{Bench, wait_until};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, read, write};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::process::Child;

const SERVE: [&str; 4] = ["serve", "a.img", "--listen", "127.0.0.1:0"];

/// A terminal, as the person before it has it.
struct Terminal {
    person: OwnedFd,
    program: File,
    said: RefCell<String>,
}

impl Terminal {
    fn new(columns: u16, rows: u16) -> Self {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        fcntl_setfl(&person, OFlags::RDWR | OFlags::NONBLOCK).unwrap();
        let name = ptsname(&person, Vec::new()).unwrap().into_string().unwrap();
        let program = OpenOptions::new().read(true).write(true).open(name).unwrap();
        let terminal = Self { person, program, said: RefCell::default() };
        terminal.resize(columns, rows);
        terminal
    }

    fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.program, size).unwrap();
    }

    fn types(&self, keys: &str) {
        write(&self.person, keys.as_bytes()).unwrap();
    }

    /// Waits until the program has drawn this, since the last such wait.
    fn shows(&self, wanted: &str) {
        wait_until(wanted, || {
            let mut bytes = [0; 4096];
            loop {
                match read(&self.person, &mut bytes) {
                    Ok(count @ 1..) => self.said.borrow_mut().push_str(&String::from_utf8_lossy(&bytes[..count])),
                    Ok(0) | Err(Errno::AGAIN | Errno::IO) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            self.said.borrow().contains(wanted)
        });
        self.said.borrow_mut().clear();
    }

    fn start(&self, line: &[&str], bench: &Bench) -> Child {
        let end = || self.program.try_clone().unwrap();
        let mut command = super::vfield(bench.dir.path());
        command.args(line).env("VFIELD_CONTROL", bench.dir.path().join("own"));
        command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap()
    }

    /// True if it takes whole lines, and shows typed letters, as for a shell.
    fn is_as_before(&self) -> bool {
        let modes = tcgetattr(&self.program).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }
}

#[test]
fn a_terminal_is_drawn_upon_and_given_back() {
    let bench = Bench::new();
    bench.image("a.img", 5000);
    let mut daemon = bench.start("own", &SERVE);
    daemon.wait("filled");
    let terminal = Terminal::new(100, 24);
    let mut top = terminal.start(&["top", "--every", "100ms"], &bench);
    terminal.shows("a.img  covered 0.0 %");
    terminal.shows("ordered by traffic; o orders, arrows scroll, q ends");
    assert!(!terminal.is_as_before());
    terminal.types("o");
    terminal.shows("ordered by held bytes");
    // A narrower one has no room for the last column.
    terminal.resize(40, 10);
    kill_process(Pid::from_child(&top), Signal::WINCH).unwrap();
    terminal.shows("ordered by held bytes; o orders, arrows…");
    // It outlives its daemon.
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    terminal.shows("no daemon runs at ");
    terminal.types("q");
    assert_eq!(top.wait().unwrap().code(), Some(0));
    assert!(terminal.is_as_before());
    terminal.shows("\x1b[?1049l");
    for signal in [Signal::TERM, Signal::HUP] {
        let mut top = terminal.start(&["top"], &bench);
        terminal.shows("no daemon runs at ");
        kill_process(Pid::from_child(&top), signal).unwrap();
        assert_eq!(top.wait().unwrap().code(), Some(0), "{signal:?}");
        assert!(terminal.is_as_before(), "{signal:?}");
    }
}

#[test]
fn one_picture_needs_no_terminal() {
    let bench = Bench::new();
    bench.image("a.img", 5000);
    let daemon = bench.start("own", &SERVE);
    daemon.wait("filled");
    let top = daemon.ask(&["top", "--once"]);
    let text = String::from_utf8(top.stdout).unwrap();
    assert!(top.status.success() && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("127.0.0.1:") && text.contains("ADDRESS") && !text.contains('\x1b'), "{text}");
    let refused = daemon.ask(&["top"]);
    assert_eq!(refused.status.code(), Some(1));
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(why.contains("top needs a terminal") && why.contains("top --once"), "{why}");
}

//! A guard at work: its daemon, a successor while there is one, and the words of both.
//!
//! Invariants: at most one daemon serves. A successor gets the kept files when the daemon before it
//! has ended, and not earlier. If it ends before it has taken them over, the program before it is
//! started again with the same files.

use super::program::{self, Program};
use super::{AGAIN, Ended, GUARD, Kind, Next, RETURNS, SUCCEEDS, next};
use crate::keeper::custody::{Custody, Ends};
use crate::keeper::service_manager;
use crate::keeper::word::{self, Heard, Word};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, getpid, kill_process, pidfd_open};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use vfield_console::stderr;
use vfield_node::keeper::Keeper;

/// A program that has not said by then that it is a daemon is none.
const ALIVE_WITHIN: Duration = Duration::from_secs(10);
/// What the guard of a root does not hear: the daemon does.
const OF_DAEMON: [Signal; 3] = [Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2];
/// What a guard that stands for its daemon passes on.
const PASSED_ON: [Signal; 5] = [Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGTERM, Signal::SIGINT];

/// A guard with its daemon.
pub(super) struct Watch {
    kind: Kind,
    /// Name and arguments of each daemon.
    name: OsString,
    args: Vec<OsString>,
    /// Where this program came from, and its successors come from.
    path: PathBuf,
    signals: Option<SignalFd>,
    custody: Custody,
    program: Program,
    /// The program before, while the present one has not taken everything over.
    before: Option<Program>,
    daemon: Charge,
    heir: Option<Heir>,
    /// Somebody has told the daemon to end.
    ending: bool,
}

/// A process that a guard has started.
struct Charge {
    child: Child,
    /// Readable once it has ended.
    end: OwnedFd,
    line: Ends,
    started: Instant,
    /// It has handed everything over.
    handed: bool,
}

/// A successor that has not taken over.
struct Heir {
    charge: Charge,
    program: Program,
    /// It has to have said that it is a daemon by then; `None` once it has.
    deadline: Option<Instant>,
    ready: bool,
    refusal: Option<String>,
}

/// Unblocks what a guard has blocked, in the daemon that it starts.
pub(super) fn unblock() {
    mask(SigmaskHow::SIG_UNBLOCK, &PASSED_ON);
}

fn mask(how: SigmaskHow, signals: &[Signal]) {
    if let Err(error) = sigprocmask(how, Some(&signals.iter().copied().collect()), None) {
        tracing::warn!("hearing signals: {error}");
    }
}

impl Watch {
    /// Starts the first daemon.
    pub(super) fn start(kind: Kind, name: OsString, args: Vec<OsString>) -> io::Result<Self> {
        // First, while no number is another file's.
        let behind = if kind == Kind::Service { service_manager::FileStore::find() } else { None };
        let custody = Custody::with(behind.map(|behind| Box::new(behind) as Box<dyn Keeper>));
        let signals = match kind {
            Kind::Root => {
                mask(SigmaskHow::SIG_BLOCK, &OF_DAEMON);
                None
            }
            Kind::Service => {
                mask(SigmaskHow::SIG_BLOCK, &PASSED_ON);
                let set: SigSet = PASSED_ON.into_iter().collect();
                Some(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
            }
        };
        stderr::in_background()?;
        crate::take_descriptors();
        let program = Program::Own;
        let daemon = Charge::start(program.command(), kind, (&name, &args))?;
        let path = program::own_path();
        let watch =
            Self { kind, name, args, path, signals, custody, program, before: None, daemon, heir: None, ending: false };
        watch.leave_all();
        Ok(watch)
    }

    /// Stands guard until the daemon has ended for good.
    pub(super) fn stand(mut self) -> io::Result<Ended> {
        loop {
            self.wait()?;
            self.pass_signals_on();
            self.hear_heir();
            self.hear_daemon();
            if let Some(ended) = self.daemon.child.try_wait()? {
                // What it said last.
                self.hear_daemon();
                if let Some(ended) = self.go_on(ended)? {
                    return Ok(ended);
                }
            }
        }
    }

    /// Sleeps until somebody says something, or ends.
    fn wait(&self) -> io::Result<()> {
        let mut fds: Vec<BorrowedFd<'_>> = vec![self.daemon.end.as_fd(), self.daemon.line.guard.as_fd()];
        fds.extend(self.signals.as_ref().map(|signals| signals.as_fd()));
        let heir = self.heir.as_ref();
        fds.extend(heir.into_iter().flat_map(|heir| [heir.charge.end.as_fd(), heir.charge.line.guard.as_fd()]));
        let mut fds: Vec<_> = fds.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let deadline = heir.and_then(|heir| heir.deadline);
        let time = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let time = time.map(|time| Timespec::try_from(time).expect("a short time"));
        match poll(&mut fds, time.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn pass_signals_on(&mut self) {
        while let Some(Ok(Some(signal))) = self.signals.as_ref().map(SignalFd::read_signal) {
            let Some(signal) = PASSED_ON.into_iter().find(|passed| *passed as u32 == signal.ssi_signo) else {
                continue;
            };
            if matches!(signal, Signal::SIGTERM | Signal::SIGINT) {
                self.ending = true;
                service_manager::tell("STOPPING=1");
                if let Some(mut heir) = self.heir.take() {
                    heir.charge.kill();
                }
            }
            // It may have ended a moment ago.
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.daemon.child.id().cast_signed()), signal);
        }
    }

    fn hear_daemon(&mut self) {
        while let Heard::Word(word, file) = word::hear(&self.daemon.line.guard) {
            match word {
                Word::File(name) => self.custody.change(name, file),
                Word::Upgrade(version) => {
                    if let Err(why) = self.begin(version, file.as_ref()) {
                        self.daemon.say(&Word::Failed(why));
                    }
                }
                Word::Handed => self.daemon.handed = true,
                Word::Up => {
                    service_manager::tell("READY=1");
                    self.custody.spend();
                    self.before = None;
                }
                Word::Alive | Word::Ready | Word::Refuse(_) | Word::Go | Word::Failed(_) => {}
            }
        }
    }

    /// Starts a successor, of a program that `witness` names if there is one.
    fn begin(&mut self, version: u32, witness: Option<&OwnedFd>) -> Result<(), String> {
        if self.heir.is_some() {
            return Err("an upgrade is under way".to_owned());
        }
        let program = witness.map_or_else(|| Program::at(&self.path), Program::named)?;
        let mut command = program.command();
        command.env(SUCCEEDS, version.to_string());
        let started = Charge::start(command, self.kind, (&self.name, &self.args));
        let charge = started.map_err(|error| format!("it does not start: {error}"))?;
        let deadline = Some(Instant::now() + ALIVE_WITHIN);
        self.heir = Some(Heir { charge, program, deadline, ready: false, refusal: None });
        Ok(())
    }

    fn hear_heir(&mut self) {
        let Some(heir) = &mut self.heir else { return };
        let ended = heir.charge.child.try_wait().ok().flatten();
        while let Heard::Word(word, _) = word::hear(&heir.charge.line.guard) {
            match word {
                Word::Alive => heir.deadline = None,
                Word::Ready if !heir.ready => {
                    heir.ready = true;
                    self.daemon.say(&Word::Go);
                }
                Word::Refuse(why) => heir.refusal = Some(why),
                _ => {}
            }
        }
        let late = heir.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if ended.is_none() && !late {
            return;
        }
        if late {
            heir.charge.kill();
        }
        let why = heir.refusal.take().unwrap_or_else(|| match ended {
            Some(ended) => format!("it has ended: {ended}"),
            None => format!("it has not said within {} s that it is a daemon", ALIVE_WITHIN.as_secs()),
        });
        self.heir = None;
        // A daemon that hands over already has nothing to hear: it is started again.
        self.daemon.say(&Word::Failed(why));
    }

    /// What follows the daemon's end; something if that was the last one.
    fn go_on(&mut self, ended: ExitStatus) -> io::Result<Option<Ended>> {
        if self.ending {
            return Ok(Some(how(ended)));
        }
        // Half of a state is none; a successor's was whole, and is for the next daemon.
        if !self.daemon.handed && self.before.is_none() {
            self.custody.spend();
        }
        let heir = self.heir.take();
        if let Some(Heir { charge, program, ready: true, .. }) = heir.filter(|_| self.daemon.handed) {
            self.before = Some(std::mem::replace(&mut self.program, program));
            self.daemon = charge;
            self.leave_all();
            return Ok(None);
        }
        let mut command = None;
        if let Some(before) = self.before.take() {
            // The successor did not take over.
            self.program = before;
            command = Some(format!("the new program has ended: {ended}"));
        } else if !self.daemon.handed {
            match next(self.kind, ended) {
                Next::End(ended) => return Ok(Some(ended)),
                Next::AtOnce => tracing::warn!("the daemon was killed ({ended}) and is started again"),
                Next::Later => self.pause(),
            }
            if self.ending {
                return Ok(Some(Ended::Failed));
            }
        } else {
            command = Some("the new program has ended too early".to_owned());
        }
        let mut again = self.program.command();
        if let Some(why) = command {
            tracing::warn!("{why}; the program before it is started again");
            again.env(RETURNS, why);
        }
        self.daemon = Charge::start(again, self.kind, (&self.name, &self.args))?;
        self.leave_all();
        Ok(None)
    }

    /// Waits before another attempt, unless somebody wants an end; after a long run for nothing.
    fn pause(&mut self) {
        let until = self.daemon.started + AGAIN;
        while !self.ending && Instant::now() < until {
            let time = until.saturating_duration_since(Instant::now());
            let Some(signals) = &self.signals else {
                std::thread::sleep(time);
                return;
            };
            let mut fds = [PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
            let time = Timespec::try_from(time).expect("a short time");
            let _ = poll(&mut fds, Some(&time));
            self.pass_signals_on();
        }
    }

    /// Leaves all that is kept to the daemon.
    fn leave_all(&self) {
        if let Err(error) = self.custody.give(&self.daemon.line.guard) {
            // It goes without, or has ended.
            tracing::debug!(%error, "the daemon did not take what was kept");
        }
    }
}

impl Charge {
    fn start(mut command: Command, kind: Kind, (name, args): (&OsString, &[OsString])) -> io::Result<Self> {
        let line = Ends::new()?;
        command.arg0(name).args(args).env(GUARD, getpid().as_raw_nonzero().to_string());
        command.stdin(Stdio::from(line.daemon.try_clone()?));
        if kind == Kind::Service {
            service_manager::hide_from(&mut command);
            // A terminal's signals are for the guard, which passes them on once.
            command.process_group(0);
        }
        let child = command.spawn()?;
        let end = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        Ok(Self { child, end, line, started: Instant::now(), handed: false })
    }

    fn say(&self, word: &Word) {
        if let Err(error) = word::say(&self.line.guard, word, None) {
            tracing::debug!(%error, "the daemon was not told: {word:?}");
        }
    }

    fn kill(&mut self) {
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&self.child), rustix::process::Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for Watch {
    /// Nobody is left whom the successor could succeed.
    fn drop(&mut self) {
        if let Some(heir) = &mut self.heir {
            heir.charge.kill();
        }
    }
}

fn how(ended: ExitStatus) -> Ended {
    match (ended.code(), ended.signal()) {
        (Some(0), _) => Ended::Well,
        _ => Ended::Failed,
    }
}

//! The guard: a small process that starts a daemon, again if need be, and keeps its files.
//!
//! A daemon that was killed is started again at once. After a defect it is started a moment later,
//! because that may happen again. Its files are kept meanwhile ([`crate::keeper::custody`]). On
//! order the guard starts another program in the daemon's place (`vfield upgrade`).
//!
//! A guard of `--guard` stands for the daemon: it passes signals on, and both end together. A guard
//! of `--root` carries a root file system for as long as the machine runs. It also restarts a
//! daemon that has failed, because its members may not run yet. The shutdown spares both processes,
//! since their names begin with an `@`. Their memory is locked. The kernel knows that it must not
//! wait for the daemon's device in order to give the daemon memory. Nothing here needs a file but
//! `/proc/self`: the program may lie on an image that it serves, or be gone.

mod program;
mod watch;

use crate::keeper::custody::Line;
use crate::keeper::word::Word;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Pid, Signal, configure_io_flusher_behavior, getppid};
use rustix::thread::set_name;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus};
use std::time::Duration;
use vfield_console::failure::{Failure, plain};
use watch::Watch;

/// What a name begins with that the shutdown is to spare.
const SPARED: u8 = b'@';
/// Both processes' name in lists, where they are spared.
const NAME: &str = "@vfield";
/// The program that runs, wherever it came from.
const SELF: &str = "/proc/self/exe";
/// Tells the daemon the process id of its guard.
const GUARD: &str = "VFIELD_GUARD";
/// Tells a successor the version of the state that it will find.
const SUCCEEDS: &str = "VFIELD_SUCCEEDS";
/// Tells a daemon why its successor failed.
const RETURNS: &str = "VFIELD_RETURNS";
/// Between two attempts to join. A person who watches the console sees why it does not work, and
/// can still read it.
const AGAIN: Duration = Duration::from_secs(3);
/// What a daemon ends with that was told nonsense: more attempts would end in the same way.
const EXIT_USAGE: i32 = 2;
/// Signals by which a defect ends a process.
const DEFECTS: [Signal; 5] = [Signal::ABORT, Signal::SEGV, Signal::BUS, Signal::ILL, Signal::FPE];

/// What this process is to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Role {
    /// To be the daemon.
    Daemon,
    /// It was the guard, and the daemon has ended for good.
    Done,
}

/// For whom a guard stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `--guard`: for the daemon.
    Service,
    /// `--root`: for the machine's root.
    Root,
}

/// Becomes the guard of a daemon with the same `args` and returns when that has ended for good; or
/// returns at once if this process is that daemon.
pub fn stand(args: &[OsString], kind: Kind) -> Result<Role, Failure> {
    if kind == Kind::Root {
        stay();
    }
    if is_guarded() {
        // Started by its number, it would be called by that.
        let _ = set_name(c"vfield");
        // What the guard does not hear the daemon does: it was started with the guard's mask.
        watch::unblock();
        return Ok(Role::Daemon);
    }
    let again = args.get(1..).unwrap_or_default();
    let failed = |error: std::io::Error| Failure::failed(format!("starting {SELF}: {}", plain(&error)));
    let name = args.first().cloned().unwrap_or_default();
    if kind == Kind::Root && !is_spared(&name) {
        // Only a program that starts can have another name.
        return Err(failed(Command::new(SELF).arg0(NAME).args(again).exec()));
    }
    let ended = Watch::start(kind, name, again.to_vec()).and_then(Watch::stand).map_err(failed)?;
    match ended {
        Ended::Well => Ok(Role::Done),
        Ended::Refused => Err(Failure::usage("the daemon was told what it cannot do").already_said()),
        Ended::Failed => Err(Failure::failed("the daemon has ended").already_said()),
    }
}

/// The version of the state that this process will find, if it is to succeed a daemon that still
/// runs.
pub fn succeeds() -> Option<u32> {
    std::env::var(SUCCEEDS).ok().filter(|_| is_guarded())?.parse().ok()
}

/// Why the successor of this daemon failed, if that is why it was started.
pub fn returns() -> Option<String> {
    std::env::var(RETURNS).ok().filter(|_| is_guarded())
}

/// Tells the guard why this process does not succeed the daemon that runs, if it was to.
pub fn refuse(why: &str) {
    if succeeds().is_some() {
        Line.say(&Word::Refuse(why.to_owned()), None);
    }
}

/// How it ended for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Well,
    Refused,
    Failed,
}

/// What follows the end of the daemon.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    AtOnce,
    Later,
    End(Ended),
}

fn next(kind: Kind, ended: ExitStatus) -> Next {
    let defect = |signal: i32| DEFECTS.iter().any(|defect| defect.as_raw() == signal);
    match (ended.code(), ended.signal()) {
        (None, Some(signal)) if !defect(signal) => Next::AtOnce,
        (Some(0), _) => Next::End(Ended::Well),
        (Some(EXIT_USAGE), _) => Next::End(Ended::Refused),
        (Some(_), _) if kind == Kind::Service => Next::End(Ended::Failed),
        _ => Next::Later,
    }
}

fn is_spared(name: &OsStr) -> bool {
    name.as_bytes().first() == Some(&SPARED)
}

/// True if the process that started this one is its guard.
pub fn is_guarded() -> bool {
    let guard = std::env::var(GUARD).ok().and_then(|guard| guard.parse().ok()).and_then(Pid::from_raw);
    guard.is_some() && guard == getppid()
}

/// Makes memory something that this process has, and need not wait for. What the system refuses is
/// said and done without: a machine with little memory is to boot all the same.
fn stay() {
    // Else it would be called after the link through which it was started.
    let named = set_name(c"vfield");
    // Present pages are locked now, later pages once they are touched. Locking all of that at once
    // would fill the holes of the store.
    let locked =
        mlockall(MlockAllFlags::CURRENT).and_then(|()| mlockall(MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT));
    let flusher = configure_io_flusher_behavior(true);
    let spared = std::fs::write("/proc/self/oom_score_adj", "-1000");
    let refusals = [
        ("having a name", named.err().map(Into::into)),
        ("locking memory", locked.err().map(Into::into)),
        ("being an io flusher", flusher.err().map(Into::into)),
        ("being spared when memory is short", spared.err()),
    ];
    for (what, error) in refusals {
        if let Some(error) = error {
            tracing::warn!("{what}: {}", plain(&error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_daemon_is_started_at_once_and_one_that_failed_later() {
        for kind in [Kind::Root, Kind::Service] {
            assert_eq!(next(kind, ExitStatus::from_raw(9)), Next::AtOnce);
            assert_eq!(next(kind, ExitStatus::from_raw(Signal::ABORT.as_raw())), Next::Later);
            assert_eq!(next(kind, ExitStatus::from_raw(2 << 8)), Next::End(Ended::Refused));
            assert_eq!(next(kind, ExitStatus::from_raw(0)), Next::End(Ended::Well));
        }
        assert_eq!(next(Kind::Root, ExitStatus::from_raw(1 << 8)), Next::Later);
        assert_eq!(next(Kind::Service, ExitStatus::from_raw(1 << 8)), Next::End(Ended::Failed));
    }

    #[test]
    fn names_that_the_shutdown_spares() {
        assert!(is_spared(OsStr::new("@vfield")));
        assert!(!is_spared(OsStr::new("vfield")) && !is_spared(OsStr::new("")));
    }
}

//! What a daemon needs that carries a root file system (`--root`): to be there for as long as the
//! machine runs.
//!
//! Owns two processes. The guard is small and does nothing but start the daemon, again and again:
//! at once if it was killed, a moment later if it failed, because its members may not run yet, or
//! if a defect ended it soon after its start, because that may happen again; and keep the memory of
//! the daemon's stores meanwhile. Both are left alone by the shutdown, which spares processes with
//! an `@` in front of its name, and by those who look for memory: their own is locked, and the
//! kernel knows that it must not wait for the daemon's device in order to give the daemon memory.
//! Nothing here needs a file but `/proc/self`: the program may lie on what it serves, or be gone.

use crate::keeper::custody::Custody;
use nix::sys::signal::{self, SigSet, SigmaskHow, sigprocmask};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Pid, Signal, configure_io_flusher_behavior, getpid, getppid};
use rustix::thread::set_name;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};
use vfield_console::failure::{Failure, plain};

/// What a name begins with that the shutdown is to spare.
const SPARED: u8 = b'@';
/// Both processes' name in lists.
const NAME: &str = "@vfield";
/// The program that runs, wherever it came from.
const SELF: &str = "/proc/self/exe";
/// Tells the daemon the process id of its guard.
const GUARD: &str = "VFIELD_GUARD";
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

/// Becomes the guard of a daemon with the same `args` and returns when that has ended for good; or
/// returns at once if this process is that daemon.
pub fn stand(args: &[OsString]) -> Result<Role, Failure> {
    stay();
    if is_guarded() {
        // What the guard does not hear the daemon does: it was started with the guard's mask.
        hear(SigmaskHow::SIG_UNBLOCK);
        return Ok(Role::Daemon);
    }
    hear(SigmaskHow::SIG_BLOCK);
    let again = args.get(1..).unwrap_or_default();
    let failed = |error: std::io::Error| Failure::failed(format!("starting {SELF}: {}", plain(&error)));
    if args.first().is_none_or(|name| !is_spared(name)) {
        // Only a program that starts can have another name.
        return Err(failed(Command::new(SELF).arg0(NAME).args(again).exec()));
    }
    let mut custody = Custody::default();
    loop {
        let mut daemon = Command::new(SELF);
        daemon.stdin(custody.hand_over()).arg0(NAME).args(again).env(GUARD, getpid().as_raw_nonzero().to_string());
        let started = Instant::now();
        let ended = daemon.spawn().and_then(|mut daemon| daemon.wait()).map_err(failed)?;
        custody.take_back();
        match next(ended) {
            Next::End => return Ok(Role::Done),
            Next::Refuse => return Err(Failure::usage("the daemon was told what it cannot do").already_said()),
            Next::AtOnce => tracing::warn!("the daemon was killed ({ended}) and is started again"),
            // After a long run it waits for nothing.
            Next::Later => std::thread::sleep(AGAIN.saturating_sub(started.elapsed())),
        }
    }
}

/// What follows the end of the daemon.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    AtOnce,
    Later,
    Refuse,
    End,
}

fn next(ended: ExitStatus) -> Next {
    let defect = |signal: i32| DEFECTS.iter().any(|defect| defect.as_raw() == signal);
    match (ended.code(), ended.signal()) {
        (None, Some(signal)) if !defect(signal) => Next::AtOnce,
        (Some(0), _) => Next::End,
        (Some(EXIT_USAGE), _) => Next::Refuse,
        _ => Next::Later,
    }
}

fn is_spared(name: &OsStr) -> bool {
    name.as_bytes().first() == Some(&SPARED)
}

/// Hears the signals that say something to a daemon, or not: each would end a guard that does not
/// know them.
fn hear(how: SigmaskHow) {
    let signals = SigSet::from_iter([signal::SIGHUP, signal::SIGUSR1, signal::SIGUSR2]);
    if let Err(error) = sigprocmask(how, Some(&signals), None) {
        tracing::warn!("hearing signals: {error}");
    }
}

/// True if the process that started this one is its guard.
fn is_guarded() -> bool {
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
        assert_eq!(next(ExitStatus::from_raw(9)), Next::AtOnce);
        assert_eq!(next(ExitStatus::from_raw(1 << 8)), Next::Later);
        assert_eq!(next(ExitStatus::from_raw(Signal::ABORT.as_raw())), Next::Later);
        assert_eq!(next(ExitStatus::from_raw(2 << 8)), Next::Refuse);
        assert_eq!(next(ExitStatus::from_raw(0)), Next::End);
    }

    #[test]
    fn names_that_the_shutdown_spares() {
        assert!(is_spared(OsStr::new("@vfield")));
        assert!(!is_spared(OsStr::new("vfield")) && !is_spared(OsStr::new("")));
    }
}

//! The guard of a published file: whether its pages may go out unchecked, and which callers rely on
//! that.
//!
//! Invariant: while a [`LeasePin`] lives the lease is held, unless the pin outlives [`DRAIN_MAX`]
//! after a writer came. A guard goes through three phases and never back: leased, draining (a
//! writer waits; no new pins), over. The watcher's thread moves it on; the origin's reads ask it.
//!
//! **Duties of a pin's user.** A pin is given back when `sendfile` returned, but the pages are then
//! in the socket's queue until the other side took them. After the last pin the lease is kept for
//! [`SETTLE`] more, in which a live reader on the same machine empties its queue. A reader that is
//! stalled for longer may see the writer's bytes. A caller that must exclude that has two ways:
//!
//! - It keeps the pieces until the queue is empty (SIOCOUTQ).
//! - It subscribes to [`Guard::broken`] and closes such connections within [`DRAIN_MAX`].
//!
//! Peers check hashes themselves, so a writer can only delay them.

use super::file::SourceFile;
use super::{lease, watcher};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long a writer waits for pins that are not returned. Far below the 45 s after which the
/// kernel lets it in by itself.
pub const DRAIN_MAX: Duration = Duration::from_secs(2);

/// How long the lease is kept after a writer came, even without pins, for the queues of sockets. A
/// running reader takes the queued bytes (a few MiB) within a few milliseconds.
pub const SETTLE: Duration = Duration::from_millis(200);

/// Leases are used only if the kernel holds writers back for at least this long.
const BREAK_TIME_MIN: Duration = Duration::from_secs(10);

const _: () = assert!(SETTLE.as_millis() < DRAIN_MAX.as_millis());
const _: () = assert!(DRAIN_MAX.as_millis() * 2 < BREAK_TIME_MIN.as_millis());

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Leased,
    Draining { since: Instant },
    Over,
}

/// Watches over one published file.
pub struct Guard {
    file: Arc<OwnedFd>,
    /// True in the first phase; what reads look at.
    leased: AtomicBool,
    pins: AtomicUsize,
    phase: Mutex<Phase>,
    broken: watch::Sender<bool>,
}

impl Guard {
    /// Takes a lease on the file if one can be had and trusted; otherwise the guard is over from
    /// the start.
    pub(super) fn new(file: &SourceFile) -> Arc<Self> {
        // A lease says nothing about writes by another machine, or a FUSE daemon.
        let leased = file.is_regular()
            && file.changes_are_local()
            && break_time() >= BREAK_TIME_MIN
            && watcher::start()
            && lease::take(file.fd()).is_ok();
        let guard = Arc::new(Self {
            file: Arc::clone(file.fd()),
            leased: AtomicBool::new(leased),
            pins: AtomicUsize::new(0),
            phase: Mutex::new(if leased { Phase::Leased } else { Phase::Over }),
            broken: watch::Sender::new(!leased),
        });
        if leased {
            watcher::add(&guard);
        }
        guard
    }

    /// True while nobody can have changed the file since it was published.
    pub fn is_leased(&self) -> bool {
        self.leased.load(Ordering::SeqCst) && lease::holds(&self.file)
    }

    /// Becomes true, once, when a writer waits. Bytes of this file that are still in a socket's
    /// queue [`DRAIN_MAX`] later may then change. True from the start without a lease.
    pub fn broken(&self) -> watch::Receiver<bool> {
        self.broken.subscribe()
    }

    /// Keeps writers out; `None` if there is no lease (any more).
    pub fn pin(self: &Arc<Self>) -> Option<LeasePin> {
        if !self.leased.load(Ordering::SeqCst) {
            return None;
        }
        // Count first, look second: the end of the lease does it the other way round.
        self.pins.fetch_add(1, Ordering::SeqCst);
        let pin = LeasePin { guard: Arc::clone(self) };
        // The kernel is asked too: this process may have been stopped for so long that the lease
        // ran out.
        self.is_leased().then_some(pin)
    }

    /// Moves on to the phase that is due; returns true while there is anything left to watch, and
    /// how soon.
    pub(super) fn step(&self, now: Instant) -> Watch {
        let mut phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        if *phase == Phase::Leased && !lease::holds(&self.file) {
            self.leased.store(false, Ordering::SeqCst);
            self.broken.send_replace(true);
            *phase = Phase::Draining { since: now };
        }
        if let Phase::Draining { since } = *phase {
            let waited = now.saturating_duration_since(since);
            let drained = self.pins.load(Ordering::SeqCst) == 0 && waited >= SETTLE;
            if drained || waited >= DRAIN_MAX {
                if let Err(error) = lease::release(&self.file) {
                    tracing::warn!(%error, "giving up a read lease");
                }
                *phase = Phase::Over;
            }
        }
        match *phase {
            Phase::Leased => Watch::Idle,
            Phase::Draining { .. } => Watch::Closely,
            Phase::Over => Watch::Done,
        }
    }
}

/// How the watcher goes on with a guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Watch {
    /// It needs no more checks.
    Done,
    /// When the kernel says so, or now and then.
    Idle,
    /// Until it has drained.
    Closely,
}

/// Keeps writers out of the file while it lives.
pub struct LeasePin {
    guard: Arc<Guard>,
}

impl Drop for LeasePin {
    fn drop(&mut self) {
        self.guard.pins.fetch_sub(1, Ordering::SeqCst);
    }
}

/// How long the kernel holds writers back.
fn break_time() -> Duration {
    let text = std::fs::read_to_string("/proc/sys/fs/lease-break-time").unwrap_or_default();
    Duration::from_secs(text.trim().parse().unwrap_or(0))
}

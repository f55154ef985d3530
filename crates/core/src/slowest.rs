//! The longest answer time of all peers lately: a later answer is late on this node's link too.

use crate::time::Time;
use crate::tuning::STALL;
use std::time::Duration;

/// The longest answer time in this span of [`STALL`], and in the one before it.
#[derive(Debug, Default)]
pub struct Slowest {
    since: Time,
    now: Duration,
    before: Duration,
}

impl Slowest {
    /// Notes an answer.
    pub fn came(&mut self, delay: Duration, now: Time) {
        let age = now - self.since;
        if age >= STALL {
            self.before = if age < STALL * 2 { self.now } else { Duration::ZERO };
            (self.since, self.now) = (now, Duration::ZERO);
        }
        self.now = self.now.max(delay);
    }

    /// The longest one lately; zero if there was none.
    pub fn lately(&self, now: Time) -> Duration {
        match now - self.since {
            age if age < STALL => self.now.max(self.before),
            age if age < STALL * 2 => self.now,
            _ => Duration::ZERO,
        }
    }
}

//! Arrivals: how many members came lately. They may all have been invented: such a member is buried
//! before long, and the next ones come.

use crate::config::SYNC_EVERY;
use crate::time::Time;

/// The members that came within the last one to two [`SYNC_EVERY`].
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    since: Time,
    /// Since then, and in the span before.
    counts: [usize; 2],
}

impl Arrivals {
    /// Notes that a member came.
    pub fn came(&mut self, now: Time) {
        let counts = self.counts(now);
        if now - self.since >= SYNC_EVERY {
            self.since = now;
        }
        self.counts = [counts[0] + 1, counts[1]];
    }

    /// How many came lately.
    pub fn lately(&self, now: Time) -> usize {
        self.counts(now).iter().sum()
    }

    fn counts(&self, now: Time) -> [usize; 2] {
        match now - self.since {
            time if time < SYNC_EVERY => self.counts,
            time if time < SYNC_EVERY * 2 => [0, self.counts[0]],
            _ => [0, 0],
        }
    }
}

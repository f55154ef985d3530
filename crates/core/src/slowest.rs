//! The longest answer time of all peers lately: a later answer is late on this node's link too.

use crate::lately::Lately;
use crate::time::Time;
use crate::tuning::STALL;
use std::time::Duration;

/// The longest answer time in this span of [`STALL`], and in the one before it.
#[derive(Debug, Default)]
pub struct Slowest(Lately<Duration>);

impl Slowest {
    /// Notes an answer.
    pub fn came(&mut self, delay: Duration, now: Time) {
        self.0.gather(STALL, now, |slowest| *slowest = delay.max(*slowest));
    }

    /// The longest one lately; zero if there was none.
    pub fn lately(&self, now: Time) -> Duration {
        let [this, before] = self.0.spans(STALL, now);
        this.max(before)
    }
}

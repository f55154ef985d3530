//! The pace of a peer: how fast it sends, apart from the time that it waits itself.
//!
//! In a chain each node waits for all before it. If one falls behind, its downstream hears as
//! little as all nodes after it. So an answer says how long its sender waited for it. The pace
//! measures the rest: from the moment at which the sender could begin, after the answer before,
//! until the arrival. That time grows only where a link or a machine has become slow.
//!
//! Single fast answers are no measure: an idle machine sends them at once, past any limit on a
//! stream. So the peer is compared with what it has delivered too.

use crate::time::Time;
use crate::tuning::{BEST_SHIFT, BURST, SLOW_BELOW, SLOW_SPANS, SPAN, SPAN_ANSWERS};
use std::time::Duration;

/// The measured pace of one peer.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    /// When its last answer came.
    last: Time,
    /// The beginning of this span.
    since: Time,
    bytes: u64,
    busy: Duration,
    answers: u32,
    /// Bytes a second, in the span before.
    rate: u64,
    best: u64,
    slow_spans: u32,
}

impl Pace {
    /// Notes an answer of `bytes` that its sender could have begun at `ready`.
    pub fn came(&mut self, bytes: u64, ready: Time, now: Time) {
        self.busy += now - ready.max(self.last).min(now);
        self.last = now;
        self.bytes += bytes;
        self.answers += 1;
        if self.busy < SPAN || self.answers < SPAN_ANSWERS {
            return;
        }
        let a_second = |bytes: u64, took: Duration| {
            u64::try_from(u128::from(bytes) * 1_000_000 / took.as_micros().max(1)).unwrap_or(u64::MAX)
        };
        let (before, delivered) = (self.rate, a_second(self.bytes, now - self.since));
        self.rate = a_second(self.bytes, self.busy);
        (self.since, self.bytes, self.busy, self.answers) = (now, 0, Duration::ZERO, 0);
        if self.rate < self.best / SLOW_BELOW {
            self.slow_spans += 1;
        } else {
            // A late span is followed by a burst; use the worse of the two spans.
            let best = self.rate.min(before).min(delivered.saturating_mul(BURST));
            self.best = best.max(self.best - (self.best >> BEST_SHIFT));
            self.slow_spans = 0;
        }
    }

    /// True if it has become much slower than it was.
    pub fn is_slow(&self) -> bool {
        self.slow_spans >= SLOW_SPANS
    }

    /// Makes the current rate the expected one.
    pub fn accept(&mut self) {
        (self.best, self.slow_spans) = (self.rate, 0);
    }

    /// Judges the peer anew, by its best rate, and at once.
    pub fn try_again(&mut self) {
        (self.bytes, self.busy, self.answers) = (0, Duration::ZERO, 0);
        self.slow_spans = SLOW_SPANS - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 64 << 10;
    const MS: Duration = Duration::from_millis(1);

    /// Answers at intervals of `every`. Their sender waited for each until `own` before its
    /// arrival.
    fn answers(pace: &mut Pace, now: &mut Time, count: u32, every: Duration, own: Duration) {
        for _ in 0..count {
            *now = *now + every;
            pace.came(CHUNK, Time::default() + (*now - Time::default() - own.min(*now - Time::default())), *now);
        }
    }

    #[test]
    fn a_waiting_peer_is_not_slow_and_a_slow_one_is_found() {
        let (mut pace, mut now) = (Pace::default(), Time::default());
        answers(&mut pace, &mut now, 200, MS * 10, MS * 10);
        assert!(!pace.is_slow());
        // All nodes before it are slow: it sends each answer at once.
        answers(&mut pace, &mut now, 50, MS * 100, MS * 11);
        assert!(!pace.is_slow());
        // It is slow itself, whether it has the chunks or not.
        let mut again = pace.clone();
        answers(&mut pace, &mut now.clone(), 9, MS * 100, MS * 100);
        answers(&mut again, &mut now, 9, MS * 100, MS * 2000);
        assert!(pace.is_slow() && again.is_slow());
        pace.accept();
        assert!(!pace.is_slow());
        answers(&mut pace, &mut now, 50, MS * 100, MS * 100);
        assert!(!pace.is_slow());
    }

    #[test]
    fn a_moment_is_no_reason() {
        let (mut pace, mut now) = (Pace::default(), Time::default());
        for _ in 0..20 {
            answers(&mut pace, &mut now, 100, MS * 10, MS * 10);
            // Busy for a moment, and then all at once.
            answers(&mut pace, &mut now, 1, MS * 700, MS * 700);
            answers(&mut pace, &mut now, 40, MS / 10, MS * 700);
            assert!(!pace.is_slow());
        }
        // Three more nodes share its link.
        answers(&mut pace, &mut now, 200, MS * 40, MS * 40);
        assert!(!pace.is_slow());
    }

    #[test]
    fn bursts_of_an_idle_link_are_no_measure() {
        let (mut pace, mut now) = (Pace::default(), Time::default());
        // It waits for chunks from upstream, and then sends each faster than the link could carry
        // two.
        answers(&mut pace, &mut now, 1000, MS * 20, MS);
        answers(&mut pace, &mut now, 200, MS * 30, MS * 30);
        assert!(!pace.is_slow());
        // It has fallen behind all the same if it delivers a tenth of its rate.
        answers(&mut pace, &mut now, 9, MS * 200, MS * 200);
        assert!(pace.is_slow());
    }
}

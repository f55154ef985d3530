//! How fast a peer sends what it has, whatever it has to wait for itself.
//!
//! In a chain all wait for all before them: if one falls behind, its neighbour hears as little as everybody after it. So an
//! answer says how long its sender waited for it, and what is measured is the rest: from the moment in which the sender could begin,
//! after the answer before, until it was here. That grows where a link or a machine has become slow, and nowhere else.
//!
//! What is to be expected of a peer is not how fast single answers were, though: those that leave an idle machine go out at once,
//! past whatever limits a stream of them. So it is held to what it has delivered as well.

use crate::time::Time;
use std::time::Duration;

/// So long are answers added up before they are judged, and so many: a machine that was busy for a moment delivers what it
/// owes late, and all at once.
const SPAN: Duration = Duration::from_millis(200);
const SPAN_ANSWERS: u32 = 3;
/// Of the best rate a part of 2 to the power of this is forgotten each span that is not slow: half of it in two seconds.
const BEST_SHIFT: u32 = 4;
/// One that sends at less than this part of its best rate is slow. A link that falls back to the next slower kind is ten
/// times as slow; rates of nodes that share one with a few others differ by less.
const SLOW_BELOW: u64 = 6;
/// Its best rate counts as at most so many times what it delivered meanwhile: with a busy link it is hardly more than that.
const BURST: u64 = 2;
/// So many spans in a row: about half a second.
const SLOW_SPANS: u32 = 2;

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    /// When its last answer came.
    last: Time,
    /// Of this span, which began then.
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
    /// An answer of so many bytes has come, which its sender could have begun at `ready`.
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
            // What came late came all at once after that: the better of two is luck.
            let best = self.rate.min(before).min(delivered.saturating_mul(BURST));
            self.best = best.max(self.best - (self.best >> BEST_SHIFT));
            self.slow_spans = 0;
        }
    }

    /// True if it has become much slower than it was.
    pub fn is_slow(&self) -> bool {
        self.slow_spans >= SLOW_SPANS
    }

    /// From now on the rate that it has is what is to be expected of it.
    pub fn accept(&mut self) {
        (self.best, self.slow_spans) = (self.rate, 0);
    }

    /// Judged anew, by the best rate that it had, and at once.
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

    /// Answers that came one after the other, each so long after the one before, and waited for by their sender until so
    /// long before they were here.
    fn answers(pace: &mut Pace, now: &mut Time, count: u32, every: Duration, own: Duration) {
        for _ in 0..count {
            *now = *now + every;
            pace.came(CHUNK, Time::default() + (*now - Time::default() - own.min(*now - Time::default())), *now);
        }
    }

    #[test]
    fn who_waits_is_not_slow_and_who_is_slow_is_found() {
        let (mut pace, mut now) = (Pace::default(), Time::default());
        answers(&mut pace, &mut now, 200, MS * 10, MS * 10);
        assert!(!pace.is_slow());
        // All before it are slow: it sends at once what it gets.
        answers(&mut pace, &mut now, 50, MS * 100, MS * 11);
        assert!(!pace.is_slow());
        // It is slow itself, whether it has what it is asked for or not.
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
        // Three more who share its link.
        answers(&mut pace, &mut now, 200, MS * 40, MS * 40);
        assert!(!pace.is_slow());
    }

    #[test]
    fn bursts_of_an_idle_link_are_no_measure() {
        let (mut pace, mut now) = (Pace::default(), Time::default());
        // It waits for what it passes on, and each chunk then leaves faster than the link could send two.
        answers(&mut pace, &mut now, 1000, MS * 20, MS);
        answers(&mut pace, &mut now, 200, MS * 30, MS * 30);
        assert!(!pace.is_slow());
        // It has fallen behind all the same if it delivers a tenth of what it did.
        answers(&mut pace, &mut now, 9, MS * 200, MS * 200);
        assert!(pace.is_slow());
    }
}

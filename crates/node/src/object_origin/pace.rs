//! The pace of requests to an object store: how many at once, and when after a failure.
//!
//! Requests at once grow by one for as many successes as there are requests, and are halved by a
//! failure. Invariant: after a failure there is no request before the pause is over, and one at a
//! time until one succeeds. A pause that the store asks for counts if it is longer. The time comes
//! from the caller.

use std::time::{Duration, Instant};
use vfield_block::object::ObjectError;
use vfield_core::doubling::Doubling;

/// Most requests at once. Eight of 4 MiB fill 1 Gbit/s at a delay of 200 ms.
const PARALLEL_MAX: f64 = 8.0;
/// Requests at once at the start.
const PARALLEL_FIRST: f64 = 4.0;
/// Pauses after failures. The first is shorter than the patience of a waiting peer. The longest
/// bounds the time until an origin sees that its store is back.
const PAUSES: Doubling = Doubling { first: Duration::from_millis(100), longest: Duration::from_secs(5) };
/// Part of a pause that is left to chance, so that origins of one bucket do not ask in step.
const CHANCE: f64 = 0.25;

/// When the next request may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It may begin. It counts as under way until [`Pace::ended`].
    Now,
    /// A request before this time would be refused a turn.
    At(Instant),
    /// When another one has ended.
    AfterAnother,
}

/// The pace of one object.
#[derive(Debug)]
pub struct Pace {
    parallel: f64,
    under_way: usize,
    failures: u32,
    not_before: Instant,
}

impl Pace {
    /// The pace of an object that was just opened.
    pub const fn new(now: Instant) -> Self {
        Self { parallel: PARALLEL_FIRST, under_way: 0, failures: 0, not_before: now }
    }

    /// True from a failure to the next success.
    pub const fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// True if a request may begin for bytes that nobody waits for. So many have begun or wait for
    /// their turn, and half of the places stay free.
    pub fn has_room(&self, begun: usize) -> bool {
        !self.is_failing() && ((begun + 1) as f64) <= (self.parallel / 2.0).max(2.0)
    }

    /// Asks for a turn.
    pub fn turn(&mut self, now: Instant) -> Turn {
        let parallel = if self.is_failing() { 1 } else { self.parallel as usize };
        if self.under_way >= parallel {
            return Turn::AfterAnother;
        }
        if now < self.not_before {
            return Turn::At(self.not_before);
        }
        self.under_way += 1;
        Turn::Now
    }

    /// A request has ended. `chance` is between 0 and 1.
    pub fn ended(&mut self, failure: Option<&ObjectError>, now: Instant, chance: f64) {
        self.under_way -= 1;
        let Some(ObjectError::Failed { after, lasting, .. }) = failure else {
            self.failures = 0;
            self.parallel = (self.parallel + 1.0 / self.parallel).min(PARALLEL_MAX);
            return;
        };
        // What began before the pause says nothing new.
        if now >= self.not_before {
            let pause = if *lasting { PAUSES.longest } else { PAUSES.pause(self.failures) };
            self.not_before = now + pause.mul_f64(1.0 - CHANCE * chance.clamp(0.0, 1.0));
            self.failures = self.failures.saturating_add(1);
            self.parallel = (self.parallel / 2.0).max(1.0);
        }
        if let Some(after) = after {
            self.not_before = self.not_before.max(now + *after);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(after: Option<u64>) -> ObjectError {
        ObjectError::Failed { why: String::new(), after: after.map(Duration::from_secs), lasting: false }
    }

    fn begin(pace: &mut Pace, now: Instant) -> usize {
        std::iter::from_fn(|| (pace.turn(now) == Turn::Now).then_some(())).count()
    }

    #[test]
    fn successes_widen_it_up_to_a_bound() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        assert_eq!(begin(&mut pace, now), 4);
        for _ in 0..100 {
            pace.ended(None, now, 0.0);
            assert_eq!(pace.turn(now), Turn::Now);
        }
        assert_eq!(begin(&mut pace, now), 4, "eight at once");
        assert_eq!(pace.turn(now), Turn::AfterAnother);
        assert!(pace.has_room(3) && !pace.has_room(4));
    }

    #[test]
    fn a_failing_store_is_asked_once_after_each_growing_pause() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        assert_eq!(begin(&mut pace, now), 4);
        (0..4).for_each(|_| pace.ended(Some(&failed(None)), now, 0.0));
        for pause_ms in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            assert!(pace.is_failing());
            let at = now + Duration::from_millis(pause_ms);
            assert_eq!(pace.turn(at - Duration::from_millis(1)), Turn::At(at));
            now = at;
            assert_eq!(begin(&mut pace, now), 1);
            pace.ended(Some(&failed(None)), now, 0.0);
        }
        now += Duration::from_secs(5);
        assert_eq!(begin(&mut pace, now), 1);
        pace.ended(None, now, 0.0);
        assert!(!pace.is_failing() && begin(&mut pace, now) >= 1);
    }

    #[test]
    fn the_store_may_ask_for_a_longer_pause() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        begin(&mut pace, now);
        pace.ended(Some(&failed(Some(30))), now, 1.0);
        pace.ended(Some(&failed(None)), now, 1.0);
        assert_eq!(begin(&mut pace, now), 0);
        pace.ended(None, now, 0.0);
        pace.ended(None, now, 0.0);
        assert_eq!(pace.turn(now + Duration::from_secs(29)), Turn::At(now + Duration::from_secs(30)));
    }
}

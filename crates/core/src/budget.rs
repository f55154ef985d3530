//! The budget of a disk: the bytes that stores take in during a day.
//!
//! It is a bucket of [`crate::bucket`]'s kind, whose debt may be a day long. So a whole day's bytes
//! may come at once, and after that a chunk as often as one is paid. It begins anew with the
//! process, and waits for nobody: fills ask when it opens.

use crate::time::Time;
use std::num::NonZeroU64;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Bytes for each day, or no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Budget {
    each_day: Option<NonZeroU64>,
    /// When all bytes so far are paid.
    paid: Time,
    told: bool,
}

impl Budget {
    /// Nothing of it is spent.
    pub fn new(each_day: Option<NonZeroU64>) -> Self {
        Self { each_day, paid: Time::ZERO, told: false }
    }

    /// The earliest time at which a chunk may come; in the past if one may come now.
    pub fn opens(&self) -> Time {
        Time::ZERO + self.paid.since_start().saturating_sub(DAY)
    }

    /// True if a chunk may come.
    pub fn is_open(&self, now: Time) -> bool {
        self.opens() <= now
    }

    /// True the first time that somebody is to hear that it is spent.
    pub fn is_to_tell(&mut self) -> bool {
        !std::mem::replace(&mut self.told, true)
    }

    /// Notes bytes that came.
    pub fn take(&mut self, bytes: u64, now: Time) {
        if let Some(each_day) = self.each_day {
            let nanos = u128::from(bytes) * DAY.as_nanos() / u128::from(each_day.get());
            let time = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            self.paid = self.paid.max(now) + time;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_days_bytes_come_at_once_and_then_as_they_are_paid() {
        let start = Time::ZERO + Duration::from_secs(5);
        let mut budget = Budget::new(NonZeroU64::new(24));
        assert!(budget.is_open(start));
        budget.take(24, start);
        assert!(budget.is_open(start), "all of it is just spent");
        budget.take(2, start);
        assert!(!budget.is_open(start));
        let hour = Duration::from_secs(3600);
        assert_eq!(budget.opens(), start + 2 * hour);
        assert!(budget.is_open(start + 2 * hour));
        // Days without a byte are not saved up.
        let later = start + 100 * DAY;
        budget.take(25, later);
        assert_eq!(budget.opens(), later + hour);
    }

    #[test]
    fn without_a_bound_it_is_open() {
        let mut budget = Budget::default();
        budget.take(u64::MAX, Time::ZERO);
        assert!(budget.is_open(Time::ZERO));
        let mut least = Budget::new(NonZeroU64::new(1));
        least.take(u64::MAX, Time::ZERO);
        assert!(!least.is_open(Time::ZERO + 1000 * DAY));
    }
}

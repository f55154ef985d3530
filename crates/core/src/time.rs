//! Time as core sees it: nanoseconds since some moment that the shell chose. Core never asks for
//! it.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment, in nanoseconds since the shell's own start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The shell's start.
    pub const ZERO: Self = Self(0);

    /// The time `elapsed` after the start; 584 years at most.
    pub fn after_start(elapsed: Duration) -> Self {
        Self(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The time from the start to this moment.
    pub const fn since_start(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// The time from `earlier` to this moment; zero if it is not earlier.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    fn add(self, wait: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Time {
    type Output = Duration;

    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}

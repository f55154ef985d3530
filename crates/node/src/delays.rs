//! For how long reads waited for chunks that were not here: a histogram. Relaxed atomics, for
//! display only. A read that finds its chunks here is not in it, and costs nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets in milliseconds, two in each power of ten. A chunk of a fast peer is
/// within the lowest; a person has long noticed the highest.
pub const BOUNDS_MS: [u64; 10] = [1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000];

/// The waits up to one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Delays {
    /// Waits within each of [`BOUNDS_MS`], those of lower bounds not counted again; longer ones
    /// last.
    pub counts: [u64; BOUNDS_MS.len() + 1],
    /// Sum of all waits in microseconds.
    pub sum_us: u64,
}

/// The counters behind [`Delays`].
#[derive(Debug, Default)]
pub struct DelayCounters {
    counts: [AtomicU64; BOUNDS_MS.len() + 1],
    sum_us: AtomicU64,
}

impl DelayCounters {
    /// A read has waited for so long.
    pub fn add(&self, wait: Duration) {
        let us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_MS.partition_point(|bound| us > bound * 1000);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// The waits so far.
    pub fn report(&self) -> Delays {
        let counts = self.counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        Delays { counts, sum_us: self.sum_us.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_counted_in_the_first_bucket_that_it_fits() {
        let counters = DelayCounters::default();
        for us in [0, 1000, 1001, 29_999, 40_000_000] {
            counters.add(Duration::from_micros(us));
        }
        let Delays { counts, sum_us } = counters.report();
        assert_eq!(counts, [2, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(sum_us, 40_032_000);
    }
}

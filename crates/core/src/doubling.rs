//! Pauses that double: after a failure something is tried again after the first pause. Each further
//! failure doubles the pause, up to the longest one.

use std::time::Duration;

/// A series of pauses, each twice as long as the one before.
#[derive(Debug, Clone, Copy)]
pub struct Doubling {
    /// The pause after the first time.
    pub first: Duration,
    /// The pause that is never exceeded.
    pub longest: Duration,
}

impl Doubling {
    /// The pause after one more time, when there were so many `before`.
    pub fn pause(&self, before: u32) -> Duration {
        self.first.saturating_mul(2u32.saturating_pow(before)).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pauses = Doubling { first: Duration::from_secs(3), longest: Duration::from_secs(20) };
        assert_eq!([0, 1, 2, 3, 4].map(|before| pauses.pause(before).as_secs()), [3, 6, 12, 20, 20]);
        assert_eq!(pauses.pause(u32::MAX), pauses.longest);
        let endless = Doubling { first: Duration::from_secs(u64::MAX), longest: Duration::MAX };
        assert_eq!(endless.pause(9), Duration::MAX);
    }
}

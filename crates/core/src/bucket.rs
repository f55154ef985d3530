//! A rate limit: a token bucket, as the time at which the debt of all bytes so far is paid.
//!
//! It is the generic cell rate algorithm (ITU-T I.371), in which a bucket is one moment instead of
//! a level and a timer. A shell asks it when bytes may go, and takes them. It owns no queue, and
//! knows no socket.

use crate::time::Time;
use std::num::NonZeroU64;
use std::time::Duration;

/// Unused time that counts: a timer that fires late loses nothing of the rate. It is 2 % of a
/// second, so no second has more than that above the limit. A machine that is busy for longer falls
/// behind its limit by the rest.
const CREDIT: Duration = Duration::from_millis(20);
/// Time of the bytes that go at once. A waiting peer wants a sign of life each 50 ms, which is well
/// above; the resolution of a timer is a millisecond, which is below.
const AT_ONCE: Duration = Duration::from_millis(5);
/// Fewest bytes that go at once: the payload of an Ethernet frame. Smaller packets cost the link
/// more than the limit saves.
const AT_ONCE_MIN: u64 = 1448;

const _: () = assert!(AT_ONCE.as_nanos() < CREDIT.as_nanos());

/// A bound on bytes a second, or none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bucket {
    rate: Option<NonZeroU64>,
    /// When all bytes that went are paid; before now if there is credit.
    paid: Time,
}

impl Bucket {
    /// The limit in bytes a second.
    pub const fn rate(&self) -> Option<NonZeroU64> {
        self.rate
    }

    /// Sets the limit. Debts of another limit are forgotten, since they may be minutes of the new.
    pub fn set_rate(&mut self, rate: Option<NonZeroU64>, now: Time) {
        if self.rate != rate {
            (self.rate, self.paid) = (rate, now);
        }
    }

    /// Time until bytes may go; zero if they may at once.
    pub fn wait(&self, now: Time) -> Duration {
        self.rate.map_or(Duration::ZERO, |_| self.paid - now)
    }

    /// Notes that bytes went, or are about to.
    pub fn take(&mut self, bytes: u64, now: Time) {
        let Some(rate) = self.rate else { return };
        let credit_from = Time::ZERO + now.since_start().saturating_sub(CREDIT);
        self.paid = self.paid.max(credit_from) + time_of(bytes, rate);
    }

    /// Takes back bytes that did not go after all.
    pub fn give_back(&mut self, bytes: u64) {
        let Some(rate) = self.rate else { return };
        self.paid = Time::ZERO + self.paid.since_start().saturating_sub(time_of(bytes, rate));
    }

    /// Most bytes that go at once while so many senders share the limit: each gets its next turn
    /// soon.
    pub fn at_once(&self, senders: usize) -> u64 {
        self.rate.map_or(u64::MAX, |rate| {
            let bytes = u128::from(rate.get()) * AT_ONCE.as_nanos() / 1_000_000_000;
            let share = u64::try_from(bytes).unwrap_or(u64::MAX) / senders.max(1) as u64;
            share.max(AT_ONCE_MIN)
        })
    }
}

/// Time that `bytes` take at this rate.
fn time_of(bytes: u64, rate: NonZeroU64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.get());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    fn bucket(rate: u64) -> Bucket {
        let mut bucket = Bucket::default();
        bucket.set_rate(NonZeroU64::new(rate), Time::ZERO);
        bucket
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let mut bucket = Bucket::default();
        bucket.take(u64::MAX, Time::ZERO);
        assert_eq!((bucket.wait(Time::ZERO), bucket.at_once(9)), (Duration::ZERO, u64::MAX));
    }

    #[test]
    fn the_bytes_of_a_second_take_a_second() {
        let (mut bucket, mut now, mut sent) = (bucket(1_000_000), Time::ZERO, 0);
        while now.since_start() < MS * 1000 {
            now = now + bucket.wait(now);
            bucket.take(bucket.at_once(1), now);
            sent += bucket.at_once(1);
        }
        assert!((1_000_000..1_010_000).contains(&sent), "{sent}");
    }

    #[test]
    fn an_idle_time_earns_little_credit() {
        let mut bucket = bucket(1_000_000);
        let now = Time::ZERO + MS * 60_000;
        bucket.take(20_000, now);
        assert_eq!(bucket.wait(now), Duration::ZERO, "20 ms of credit");
        bucket.take(5000, now);
        assert_eq!(bucket.wait(now), MS * 5);
        bucket.give_back(4000);
        assert_eq!(bucket.wait(now), MS);
    }

    #[test]
    fn a_new_limit_owes_nothing() {
        let mut bucket = bucket(1000);
        bucket.take(1_000_000, Time::ZERO);
        assert_eq!(bucket.wait(Time::ZERO), MS * 1_000_000);
        bucket.set_rate(NonZeroU64::new(1000), Time::ZERO);
        assert_eq!(bucket.wait(Time::ZERO), MS * 1_000_000, "the same limit is no new one");
        bucket.set_rate(NonZeroU64::new(2000), Time::ZERO);
        assert_eq!(bucket.wait(Time::ZERO), Duration::ZERO);
    }

    #[test]
    fn many_senders_have_short_turns() {
        assert_eq!(bucket(100_000_000).at_once(1), 500_000);
        assert_eq!(bucket(100_000_000).at_once(10), 50_000);
        assert_eq!(bucket(1000).at_once(1), 1448);
    }

    proptest! {
        /// However late a sender comes, a second never has more than 3 % above the limit.
        #[test]
        fn no_second_is_above_the_limit(rate in 131_072..1_000_000_000_u64, late in prop::collection::vec(0..40_u64, 400)) {
            let (mut bucket, mut now, mut sent) = (bucket(rate), Time::ZERO + MS * 1000, Vec::new());
            for late in late {
                now = now + bucket.wait(now) + MS * late as u32 / 4;
                if bucket.wait(now).is_zero() {
                    bucket.take(bucket.at_once(1), now);
                    sent.push((now, bucket.at_once(1)));
                }
            }
            for (at, (from, _)) in sent.iter().enumerate() {
                let second = sent[at..].iter().take_while(|(when, _)| *when - *from < MS * 1000);
                let bytes: u64 = second.map(|(_, bytes)| bytes).sum();
                prop_assert!(bytes as f64 <= rate as f64 * 1.03 + 1448.0, "{bytes} at {rate}");
            }
        }

        #[test]
        fn nothing_overflows(rate in 1..u64::MAX, bytes in any::<u64>(), at in any::<u64>()) {
            let (mut bucket, now) = (bucket(rate), Time::after_start(Duration::from_nanos(at)));
            bucket.take(bytes, now);
            bucket.give_back(bytes);
            let _ = (bucket.wait(now), bucket.at_once(usize::MAX));
        }
    }
}

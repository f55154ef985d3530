//! Meters: the rates at which answers come, from one peer and from all.
//!
//! A meter counts a window only if links were busy in it. It owns no speed of a node: that is
//! [`super::OwnSpeed`].

use super::Speed;
use crate::time::Time;
use std::time::Duration;

/// A window ends when answers have come for so long. In that time a burst makes no difference, and
/// neither does when a busy machine let this node read.
const WINDOW_BUSY: Duration = Duration::from_millis(100);

/// How an answer came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transit {
    /// The time from its first byte to its last.
    pub took: Duration,
    /// Bytes that came from other nodes meanwhile.
    pub beside: u64,
}

impl Transit {
    /// The transit of `bytes` at the rate at which `came` did. So a compressed chunk says of its
    /// links what a plain one would.
    pub fn stretched(self, bytes: u64, came: u64) -> Self {
        let stretch = |of: u128| u64::try_from(of * u128::from(bytes) / u128::from(came.max(1))).unwrap_or(u64::MAX);
        Self { took: Duration::from_nanos(stretch(self.took.as_nanos())), beside: stretch(u128::from(self.beside)) }
    }
}

/// The rate at which the answers of one peer come while they come.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    bytes: u64,
    beside: u64,
    busy: Duration,
    /// The length of the window so far.
    whole: Duration,
    /// The end of the last answer.
    until: Time,
}

/// A window without a result also ends when it has lasted for so long: chunks of 64 KiB pass a link
/// of 10 Mbit/s four times within it. Answers have then come for less than half of it.
const WINDOW_IDLE: Duration = Duration::from_millis(200);
const _: () = assert!(WINDOW_IDLE.as_millis() >= 2 * WINDOW_BUSY.as_millis());

/// What a window shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The rate of links that were busy.
    Rate(Window),
    /// The links were idle most of the time, and may carry more.
    Idle,
}

/// The result of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The rate from all nodes while the peer's answers came: this node's link carries it.
    pub all: Speed,
    /// The rate that the peer's link carries; `None` if so much came from others that it may be
    /// more.
    pub peers: Option<Speed>,
}

impl Meter {
    /// Notes an answer of `bytes`, whose last byte came now. Returns the result at the end of each
    /// window in which answers came most of the time: a shaped link that had a pause lets some of
    /// them pass at any speed.
    pub fn came(&mut self, bytes: u64, transit: Transit, now: Time) -> Option<Shown> {
        let Transit { took, beside } = transit;
        // An answer may begin before the end of another from the same peer.
        let own = took.min(now - self.until);
        self.whole += if self.bytes == 0 { own } else { now - self.until };
        let share = |bytes: u64| u128::from(bytes) * own.as_nanos() / took.as_nanos().max(1);
        self.beside = self.beside.saturating_add(u64::try_from(share(beside)).unwrap_or(u64::MAX));
        self.busy += own;
        self.until = now;
        self.bytes += bytes;
        if self.busy < WINDOW_BUSY && self.whole < WINDOW_IDLE {
            return None;
        }
        let Self { bytes, beside, busy, whole, .. } = std::mem::replace(self, Self { until: now, ..Self::default() });
        if busy * BUSY.1 < whole * BUSY.0 {
            return Some(Shown::Idle);
        }
        let us = busy.as_micros().max(1);
        let speed = |bytes: u64| Speed::of(u64::try_from(u128::from(bytes) * 1_000_000 / us).unwrap_or(u64::MAX));
        let alone = beside <= bytes / ALONE;
        Some(Shown::Rate(Window { all: speed(bytes.saturating_add(beside)), peers: alone.then(|| speed(bytes)) }))
    }
}

/// Bytes that pass within a time, at a rate in bytes a second.
pub fn bytes_in(rate: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(rate) * time.as_micros() / 1_000_000).unwrap_or(u64::MAX)
}

/// The part of a window in which answers have to come: three quarters. A link that is shaped by a
/// token bucket then seems at most a third faster than it is.
const BUSY: (u32, u32) = (3, 4);

/// Bytes from others are no reason for a low rate if they are below this part of the peer's.
const ALONE: u64 = 4;

/// Length of a window of all that comes: more than a busy machine reads late at once.
const STREAM_WINDOW: Duration = Duration::from_millis(250);

/// The bytes that come to a node from all peers. Their rate is a lower bound of the link's speed.
/// In a warm room each sender serves several nodes, so no single answer tells how fast a link is.
#[derive(Debug, Default)]
pub(super) struct Stream {
    bytes: u64,
    since: Time,
    /// The rate of the window before.
    before: Speed,
    /// What the last two windows reach.
    least: Speed,
}

impl Stream {
    /// Notes bytes. At the end of a window, returns the rate that this window and the one before
    /// it reach. A machine that was stopped for a moment takes in many bytes at once.
    pub(super) fn came(&mut self, bytes: u64, now: Time) -> Option<Speed> {
        self.bytes += bytes;
        let lasted = now - self.since;
        if lasted < STREAM_WINDOW {
            return None;
        }
        let us = lasted.as_micros().max(1);
        let rate = Speed::of(u64::try_from(u128::from(self.bytes) * 1_000_000 / us).unwrap_or(u64::MAX));
        *self = Self { bytes: 0, since: now, before: rate, least: rate.min(self.before) };
        Some(self.least)
    }

    /// What the last two windows reach.
    pub(super) const fn least(&self) -> Speed {
        self.least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(milliseconds: u32) -> Time {
        Time::after_start(MS * milliseconds)
    }

    fn transit(took: u32, beside: u64) -> Transit {
        Transit { took: MS * took, beside }
    }

    /// Busy links that carried so many bytes a second, from all and from the peer.
    fn busy(all: u64, peers: Option<u64>) -> Option<Shown> {
        Some(Shown::Rate(Window { all: Speed::of(all), peers: peers.map(Speed::of) }))
    }

    /// Answers that overlap count once, and bytes from others only for the answer's own part.
    #[test]
    fn overlapping_answers_share_their_time() {
        let mut meter = Meter::default();
        assert_eq!(meter.came(100_000, transit(60, 0), at(1000)), None);
        // Half of its time was that of the answer before, and so were half of the bytes beside it.
        assert_eq!(meter.came(100_000, transit(80, 200_000), at(1040)), busy(3_000_000, None));
    }

    #[test]
    fn a_window_with_long_pauses_shows_idle_links() {
        let mut meter = Meter::default();
        for second in 1..4 {
            assert_eq!(meter.came(100_000, transit(40, 0), at(1000 * second)), None, "after {second} s");
            assert_eq!(meter.came(100_000, transit(40, 0), at(1000 * second + 250)), Some(Shown::Idle));
        }
        let mut meter = Meter::default();
        assert_eq!(meter.came(100_000, transit(40, 0), at(1000)), None);
        assert_eq!(meter.came(100_000, transit(40, 0), at(1120)), None);
        assert_eq!(meter.came(100_000, transit(40, 0), at(1160)), Some(Shown::Idle), "120 of 200 ms");
        // Three quarters of the window have to be busy.
        for (end, shown) in [(1040, busy(1_500_000, Some(1_500_000))), (1050, Some(Shown::Idle))] {
            let mut meter = Meter::default();
            assert_eq!(meter.came(100_000, transit(90, 0), at(1000)), None);
            assert_eq!(meter.came(50_000, transit(10, 0), at(end)), shown, "{end} ms");
        }
    }
}

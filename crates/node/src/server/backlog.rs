//! Whether the answers of a connection wait for its link, and how fast that is.
//!
//! The bytes that a socket takes while it is full are all that its link carries. A slow link gets
//! compressed chunks, and a very slow one the shortest. So does one that the node's own limit holds
//! back. One chunk after the other fills no socket; there the peer's own measurement counts.

use std::time::{Duration, Instant};
use vfield_core::wire::Codec;

/// Links below this rate, in bytes a second, get compressed chunks: 1 Gbit/s. A processor
/// compresses four times as much. Above it answers would wait for the processor.
const SLOW_BELOW: u64 = 128 << 20;
/// Links below this rate, in bytes a second, get chunks by zstd: 200 Mbit/s. They carry chunks of
/// 60 MB in a second, of which a processor compresses four times as many, too.
const VERY_SLOW_BELOW: u64 = 24 << 20;
/// How long a socket has to be full before its rate counts: buffers on the way are full too then.
const WINDOW: Duration = Duration::from_millis(50);
/// How long a link stays slow after its socket was full: a relay has pauses when it waits itself.
const STAYS_SLOW: Duration = Duration::from_secs(10);

/// The answers of one connection that wait for its link.
#[derive(Debug, Default)]
pub struct Backlog {
    /// Since when the socket has been full at each look.
    since: Option<Instant>,
    /// Bytes that it took since then.
    bytes: u64,
    slow_until: Option<(Instant, Codec)>,
    /// The codec for the rate at which the peer says that answers come.
    told: Option<Codec>,
}

/// The codec that is worth its time where so many bytes pass in this time, if one is.
fn worth(bytes: u64, time: Duration) -> Option<Codec> {
    let below = |rate: u64| u128::from(bytes) * 1_000_000 < u128::from(rate) * time.as_micros();
    let codecs = [(VERY_SLOW_BELOW, Codec::Zstd), (SLOW_BELOW, Codec::Lz4)];
    codecs.into_iter().find(|(rate, _)| below(*rate)).map(|(_, codec)| codec)
}

impl Backlog {
    /// The socket took so many bytes, all of an answer.
    pub const fn sent(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// The socket takes no more for now.
    pub fn is_full(&mut self, now: Instant) {
        let Some(since) = self.since else {
            (self.since, self.bytes) = (Some(now), 0);
            return;
        };
        let whole = now.saturating_duration_since(since);
        if whole >= WINDOW {
            self.slow_until = worth(self.bytes, whole).map(|codec| (now + STAYS_SLOW, codec));
            (self.since, self.bytes) = (Some(now), 0);
        }
    }

    /// Nothing waits to be sent.
    pub const fn is_empty(&mut self) {
        self.since = None;
    }

    /// The peer says that answers come at this rate, in bytes a second.
    pub fn told(&mut self, rate: Option<u64>) {
        self.told = rate.and_then(|bytes| worth(bytes, Duration::from_secs(1)));
    }

    /// The codec that is worth its time on this link, if one is.
    pub fn codec(&self, now: Instant) -> Option<Codec> {
        let seen = self.slow_until.filter(|(until, _)| now < *until).map(|(_, codec)| codec);
        seen.or(self.told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A socket that takes so many bytes each millisecond, and is full after each.
    fn full(backlog: &mut Backlog, begin: Instant, bytes: u64, steps: u32) -> Instant {
        for step in 0..steps {
            backlog.is_full(begin + MS * step);
            backlog.sent(bytes);
        }
        begin + MS * steps
    }

    #[test]
    fn a_link_is_slow_if_its_socket_stays_full() {
        let (mut backlog, begin) = (Backlog::default(), Instant::now());
        // 12 MB/s, 100 Mbit/s.
        let now = full(&mut backlog, begin, 12 << 10, 50);
        assert_eq!(backlog.codec(now), None, "not yet");
        let now = full(&mut backlog, now, 12 << 10, 50);
        assert_eq!(backlog.codec(now), Some(Codec::Zstd));
        // A pause does not make it fast.
        backlog.is_empty();
        assert_eq!(backlog.codec(now + STAYS_SLOW / 2), Some(Codec::Zstd));
        assert_eq!(backlog.codec(now + STAYS_SLOW), None);
    }

    #[test]
    fn a_link_is_as_slow_as_its_peer_says() {
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        for (rate, codec) in [(2_500_000, Some(Codec::Zstd)), (60 << 20, Some(Codec::Lz4)), (1 << 30, None)] {
            backlog.told(Some(rate));
            assert_eq!(backlog.codec(now), codec, "{rate}");
        }
        backlog.told(None);
        assert_eq!(backlog.codec(now), None);
        // What the socket shows counts more.
        backlog.told(Some(60 << 20));
        let now = full(&mut backlog, now, 2 << 10, 200);
        assert_eq!(backlog.codec(now), Some(Codec::Zstd));
    }

    #[test]
    fn a_link_is_fast_if_its_socket_takes_much_or_is_never_full() {
        let (mut backlog, begin) = (Backlog::default(), Instant::now());
        backlog.sent(1 << 30);
        backlog.is_empty();
        assert_eq!(backlog.codec(begin), None);
        // 1 GB/s.
        let now = full(&mut backlog, begin, 1 << 20, 200);
        assert_eq!(backlog.codec(now), None);
        // 60 MB/s.
        let now = full(&mut backlog, now, 60 << 10, 200);
        assert_eq!(backlog.codec(now), Some(Codec::Lz4));
        // It has become slow, then fast again.
        let now = full(&mut backlog, now, 12 << 10, 200);
        assert_eq!(backlog.codec(now), Some(Codec::Zstd));
        let now = full(&mut backlog, now, 1 << 20, 200);
        assert_eq!(backlog.codec(now), None);
    }
}

//! What a core is told once: bounds in bytes and times, and what measurements may switch off.

use crate::chunk::ChunkSize;
use std::time::Duration;

/// Settings of a [`crate::node::Node`]. The defaults suit a LAN of 100 Mbit/s to 100 Gbit/s.
///
/// Bounds in bytes are those of images with chunks of up to 64 KiB; of larger ones see [`Config::chunks_ahead`].
#[derive(Debug, Clone)]
pub struct Config {
    /// Most bytes asked for and not received, of all peers together: above a LAN's bandwidth-delay
    /// product (10 Gbit/s x 1 ms = 1.2 MB), small enough that a reader's next wish does not queue for long.
    pub window_bytes: u64,
    /// Most bytes kept besides the store for each image: relayed, read ahead or read lately.
    pub transient_bytes: u64,
    /// Most bytes read ahead of a sequential reader; below `transient_bytes`, or they would push each
    /// other out before they are read.
    pub read_ahead_bytes: u64,
    /// How eagerly stores fill: 0 (a tenth of the time) to 9 (always).
    pub join_boost: u8,
    /// How long a read waits for bytes without a live holder; `None`: for ever.
    pub io_timeout: Option<Duration>,
    /// Ask several peers at once.
    pub parallel: bool,
    /// Take turns among holders.
    pub round_robin: bool,
    /// Read ahead of sequential readers.
    pub read_ahead: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            window_bytes: 8 << 20,
            transient_bytes: 24 << 20,
            read_ahead_bytes: 8 << 20,
            join_boost: 7,
            io_timeout: None,
            parallel: true,
            round_robin: true,
            read_ahead: true,
        }
    }
}

/// So many chunks are kept besides the store in any case: relaying one takes one.
const TRANSIENT_CHUNKS_MIN: u64 = 4;

impl Config {
    /// Most chunks read ahead of a sequential reader, if there are chunks of this size.
    ///
    /// What is read ahead has to be more than what is on its way through the trees and chains of a large field, and that is
    /// so many chunks, whatever their size. But most of it waits behind what is asked for next, so it is doubled for
    /// chunks four times as large: in a simulated field of 20 zones 16 MiB of chunks of 256 KiB, and 32 MiB of chunks of
    /// 1 MiB, did better than half of it and no worse than twice as much.
    pub const fn chunks_ahead(&self, chunk_bytes: u64) -> u64 {
        (self.read_ahead_bytes + self.wider(chunk_bytes)) / chunk_bytes
    }

    /// Most chunks of an image that are kept besides the store, of this size: as much more as is read ahead.
    pub fn transient_chunks(&self, chunk_bytes: u64) -> u64 {
        ((self.transient_bytes + self.wider(chunk_bytes)) / chunk_bytes).max(TRANSIENT_CHUNKS_MIN)
    }

    /// Most bytes asked for and not received of a node that has images with chunks of this size: a window below what is
    /// read ahead would leave gaps in front of the readers.
    pub const fn window_for(&self, chunk_bytes: u64) -> u64 {
        self.window_bytes + self.wider(chunk_bytes)
    }

    /// How many bytes more all bounds are than with chunks of the default size.
    const fn wider(&self, chunk_bytes: u64) -> u64 {
        let fourfold = chunk_bytes.div_ceil(ChunkSize::DEFAULT.bytes()).ilog2().div_ceil(2);
        self.read_ahead_bytes * ((1 << fourfold) - 1)
    }
}

/// A demand to a peer that has been silent for so long, which is half of what a stall takes, is asked for elsewhere too.
/// Above TCP's shortest wait for a lost packet (200 ms), well below the second that a reader may wait.
pub const HEDGE_AFTER: Duration = Duration::from_millis(300);
/// A demand later than this, and than the peer's usual delay, is asked for elsewhere too though the peer delivers
/// other things. Long: in a crowd all are late together, and asking twice would only make them later.
pub const HEDGE_LATE: Duration = Duration::from_secs(2);
/// Of each hundred requests at most so many may be hedges, unless the peer is silent altogether: retries
/// must not double the traffic of a field that is merely busy.
pub const HEDGE_PERCENT: u64 = 1;
/// So many hedges at most are under way at once, also when a peer is silent: those who wait behind a
/// stopped one are not all to turn to the next at once.
pub const HEDGES_MAX: u64 = 4;
/// Answers from one peer are to take about this long: the bytes asked for at once follow from its rate. Above
/// what a chunk takes on the way through a chain on a slow link, so that the next is always asked for in
/// time; well below the time that a read-ahead covers.
pub const PEER_DELAY: Duration = Duration::from_millis(400);
/// What a peer may be asked for before it has delivered anything.
pub const PEER_WINDOW_FIRST: u64 = 128 << 10;
/// A demand that could not be sent for so long, since those best asked owe us enough, may go elsewhere.
pub const OVERDUE_AFTER: Duration = Duration::from_millis(300);
/// The same for what nobody waits for yet.
pub const OVERDUE_AFTER_AT_LEISURE: Duration = Duration::from_secs(2);
/// How often chunks without a live holder are asked for again, besides at each change of the field.
pub const WAIT_RETRY: Duration = Duration::from_millis(250);
/// How often a node compares notes with a random other one, and how often right after joining.
pub const SYNC_EVERY: Duration = Duration::from_secs(10);
/// Notes grow with the members: this long, at least, for each of them, so that comparing costs half a kilobyte a second.
pub const SYNC_EVERY_MEMBER: Duration = Duration::from_millis(540);
/// See [`SYNC_EVERY`].
pub const SYNC_EVERY_EARLY: Duration = Duration::from_millis(700);
/// How often at most a fill's progress is announced: gossip needs about this long to reach everyone.
pub const ANNOUNCE_EVERY: Duration = Duration::from_millis(300);
/// All that is paced by the field's own talk (probes, gossip, announcements) is slowed down in larger fields, so
/// that the whole field's talk stays what it is with so many members.
pub const TALK_MEMBERS: u32 = 10;
/// The least by which it is slowed down while a room is switched on: as in one of 50.
pub const TALK_FORMING: u32 = 5;
/// A room is being switched on if so many members come within [`FORMING_FOR`].
pub const FORMING_MEMBERS: u32 = 8;
/// See [`FORMING_MEMBERS`].
pub const FORMING_FOR: Duration = Duration::from_secs(3);
/// Nodes that could move their arc to a bare place do so one after the other, this far apart, so that
/// one that moved is seen before the next decides.
pub const REPAIR_STEP: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_chunks_have_wider_bounds() {
        let config = Config::default();
        let in_mib = |chunk: u64| {
            let (ahead, transient) = (config.chunks_ahead(chunk) * chunk, config.transient_chunks(chunk) * chunk);
            [ahead, transient, config.window_for(chunk)].map(|bytes| bytes >> 20)
        };
        assert_eq!([16 << 10, 64 << 10].map(in_mib), [[8, 24, 8]; 2]);
        assert_eq!([128 << 10, 256 << 10].map(in_mib), [[16, 32, 16]; 2]);
        assert_eq!(in_mib(1 << 20), [32, 48, 32]);
    }

    #[test]
    fn a_few_chunks_are_always_kept() {
        let config = Config { transient_bytes: 0, read_ahead_bytes: 0, ..Config::default() };
        assert_eq!((config.transient_chunks(1 << 20), config.chunks_ahead(1 << 20)), (TRANSIENT_CHUNKS_MIN, 0));
    }
}

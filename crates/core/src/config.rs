//! Settings of a core: bounds in bytes, times, and switches for measurements.

use crate::chunk::ChunkSize;
use crate::rubbish;
use std::num::NonZeroU64;
use std::time::Duration;

/// Settings of a [`crate::node::Node`]. The defaults suit a LAN of 100 Mbit/s to 100 Gbit/s.
///
/// Bounds in bytes are for chunks of up to 64 KiB; for larger chunks see [`Config::chunks_ahead`].
#[derive(Debug, Clone)]
pub struct Config {
    /// Most bytes requested and not yet received, over all peers. The value is above a LAN's
    /// bandwidth-delay product (10 Gbit/s x 1 ms = 1.2 MB). A larger window queues new reads for
    /// longer.
    pub window_bytes: u64,
    /// Most bytes of an image in the transient cache: chunks relayed, read ahead or read recently.
    pub transient_bytes: u64,
    /// Most bytes read ahead of a sequential reader; below `transient_bytes`, or they would push
    /// each other out before they are read.
    pub read_ahead_bytes: u64,
    /// Share of time in which stores fill: 0 (a tenth of the time) to 9 (always).
    pub join_boost: u8,
    /// How long a read blocks while its chunk has no reachable holder; `None`: for ever.
    pub io_timeout: Option<Duration>,
    /// Ask several peers at once.
    pub parallel: bool,
    /// Take turns among holders.
    pub round_robin: bool,
    /// Read ahead of sequential readers.
    pub read_ahead: bool,
    /// Bytes a second that the machine's network card says its link carries; `None` if it does not
    /// say. The network behind may carry less, so it counts until something was measured.
    pub card_bytes_per_s: Option<u64>,
    /// Bytes a second that an earlier process of this node measured; `None` if it did not. It
    /// counts until more is measured.
    pub measured_bytes_per_s: Option<u64>,
    /// How long an image stays that nobody needs.
    pub rubbish_grace: Duration,
    /// Most bytes that the stores take in during a day; `None`: any number. Fills wait then, and
    /// readers get what passes through.
    pub stored_bytes_each_day: Option<NonZeroU64>,
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
            card_bytes_per_s: None,
            measured_bytes_per_s: None,
            rubbish_grace: rubbish::GRACE,
            stored_bytes_each_day: None,
        }
    }
}

/// Chunks that the transient cache holds at least. Relaying takes one.
const TRANSIENT_CHUNKS_MIN: u64 = 4;

impl Config {
    /// Most chunks of this size that are read ahead of a sequential reader, if the image has as
    /// many.
    ///
    /// A large field has many chunks under way in its trees and chains, and read-ahead has to
    /// exceed them. That number does not depend on the chunk size. Most of it waits behind more
    /// urgent requests, so the bytes only double when chunks are four times as large. In a
    /// simulated field of 20 zones half of that was slower, and twice as much was no faster.
    pub const fn chunks_ahead(&self, chunk_bytes: u64) -> u64 {
        (self.read_ahead_bytes + self.wider(chunk_bytes)) / chunk_bytes
    }

    /// Most chunks of an image in the transient cache: `transient_bytes`, plus the growth of the
    /// read-ahead for chunks of this size.
    pub fn transient_chunks(&self, chunk_bytes: u64) -> u64 {
        ((self.transient_bytes + self.wider(chunk_bytes)) / chunk_bytes).max(TRANSIENT_CHUNKS_MIN)
    }

    /// Most bytes requested and not yet received by a node that has images with chunks of this
    /// size. A window below the read-ahead would leave gaps in front of the readers.
    pub const fn window_for(&self, chunk_bytes: u64) -> u64 {
        self.window_bytes + self.wider(chunk_bytes)
    }

    /// Bytes by which all bounds grow for chunks of this size, beyond those for the default size.
    const fn wider(&self, chunk_bytes: u64) -> u64 {
        let fourfold = chunk_bytes.div_ceil(ChunkSize::DEFAULT.bytes()).ilog2().div_ceil(2);
        self.read_ahead_bytes * ((1 << fourfold) - 1)
    }
}

/// Interval at which a node exchanges snapshots with a random other node.
pub const SYNC_EVERY: Duration = Duration::from_secs(10);
/// The same interval for each member of the field, at least: snapshots grow with the members, and
/// this bounds their cost to half a kilobyte a second.
pub const SYNC_EVERY_MEMBER: Duration = Duration::from_millis(540);
/// Interval of the first snapshot exchanges after a join; see [`SYNC_EVERY`].
pub const SYNC_EVERY_EARLY: Duration = Duration::from_millis(700);
/// Shortest interval between announcements of a fill's progress. Gossip needs about as long to
/// reach all members.
pub const ANNOUNCE_EVERY: Duration = Duration::from_millis(300);
/// Members up to which the field's own messages (probes, gossip, announcements) keep their pace. In
/// a larger field each node slows down in proportion, so the total stays the same.
pub const TALK_MEMBERS: u32 = 10;
/// The least by which it is slowed down while a room is switched on: as in one of 50.
pub const TALK_FORMING: u32 = 5;
/// Members whose arrival within [`FORMING_FOR`] means that a whole room is being switched on.
pub const FORMING_MEMBERS: u32 = 8;
/// Time within which [`FORMING_MEMBERS`] arrive.
pub const FORMING_FOR: Duration = Duration::from_secs(3);
/// Interval between the moves of nodes that could take over a bare place: each node sees the last
/// move before it decides.
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

//! Filling a store: a cursor walks the image once around and fetches the chunks on the node's arc.
//!
//! [`crate::node::Node`] owns one for each joined image. [`Fill::filled`] is the announced
//! progress. Invariant: everything before it is held, so it advances only over chunks that have
//! arrived.

use crate::chunk::Chunk;
use crate::placement::{Arc, Filled};
use crate::time::Time;
use std::collections::BTreeSet;
use std::time::Duration;

/// Most chunk numbers checked in one go: the walk over a sparse TiB must not delay a reader.
const LOOK_MAX: u32 = 4096;
/// Longest answer time that counts for the pace. The clock may have jumped, or the machine was
/// suspended, and the next request must not wait for hours. A chunk of 1 MiB takes less at 10
/// Mbit/s.
const TOOK_MAX: Duration = Duration::from_secs(1);

/// A fill under way, or done.
#[derive(Debug)]
pub struct Fill {
    size: u64,
    arc: Arc,
    filled: Filled,
    /// Chunks passed by the cursor, counted from `filled.from`. Those before it are here or
    /// pending.
    looked: u64,
    /// Offsets from `filled.from` of chunks that are being fetched.
    pending: BTreeSet<u64>,
    /// Smoothed time a chunk takes, for pacing.
    service: Duration,
    /// When the last answer came that counts for it.
    counted: Time,
    not_before: Time,
}

/// The decision about the chunk under the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// It need not be fetched, nor any chunk after it up to and including this one.
    Through(Chunk),
    /// Fetch it from a peer.
    Fetch,
    /// Nothing can be done now.
    Stop,
}

impl Fill {
    /// A fill of `arc`, of an image of `size` chunks, that begins at chunk `from` and not before
    /// `start`.
    pub fn new(size: u64, arc: Arc, from: u64, start: Time) -> Self {
        let filled = Filled { from, count: if arc.length == 0 { size } else { 0 } };
        Self {
            size,
            arc,
            filled,
            looked: filled.count,
            pending: BTreeSet::new(),
            service: Duration::ZERO,
            counted: Time::ZERO,
            not_before: start,
        }
    }

    /// The arc of the ring that the store is to hold.
    pub const fn arc(&self) -> Arc {
        self.arc
    }

    /// The progress along the image.
    pub const fn filled(&self) -> Filled {
        self.filled
    }

    /// True once everything is here.
    pub const fn is_done(&self) -> bool {
        self.filled.count == self.size
    }

    /// True if the cursor comes to `chunk` within the next `chunks`.
    pub fn is_near(&self, chunk: Chunk, chunks: u64) -> bool {
        !self.is_done() && (self.filled.count..self.filled.count + chunks).contains(&self.offset(chunk))
    }

    /// Chunks being fetched for the fill.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The chunks being fetched for it.
    pub fn iter_pending(&self) -> impl Iterator<Item = Chunk> + '_ {
        self.pending.iter().map(|offset| self.chunk_at(*offset))
    }

    /// The earliest time of the next request, by the pace that `join_boost` sets.
    pub const fn not_before(&self) -> Time {
        self.not_before
    }

    /// Walks on. `look` decides about each chunk, until it says stop, a chunk is to be fetched, or
    /// enough chunks were passed. Returns the chunk to fetch, and whether the walk is unfinished.
    pub fn walk(&mut self, mut look: impl FnMut(Chunk) -> Look) -> (Option<Chunk>, bool) {
        for _ in 0..LOOK_MAX {
            if self.looked == self.size {
                break;
            }
            let chunk = self.chunk_at(self.looked);
            match look(chunk) {
                Look::Through(last) => {
                    let steps = last.0.max(chunk.0) - chunk.0 + 1;
                    self.looked = (self.looked + steps).min(self.size);
                }
                Look::Fetch => {
                    self.pending.insert(self.looked);
                    self.looked += 1;
                    return (Some(chunk), true);
                }
                Look::Stop => return (None, false),
            }
            self.settle();
        }
        self.settle();
        (None, self.looked < self.size)
    }

    /// Notes that a chunk of the arc has arrived, by whatever way.
    pub fn arrived(&mut self, chunk: Chunk) {
        self.pending.remove(&self.offset(chunk));
        self.settle();
    }

    /// Sets the pace after the answer to a request that was sent at `sent`, with `parallel` of them
    /// under way. At boost 9 there is no pause; at boost 0 the fill pauses for nine tenths of the
    /// time.
    pub fn pace(&mut self, sent: Time, parallel: u32, boost: u8, now: Time) {
        // Requests that were under way together are late together: one of them counts.
        if sent >= self.counted {
            // From zero on, so that all pauses together are in proportion, that of a first answer
            // that is late as well.
            self.service = (self.service * 7 + (now - sent).min(TOOK_MAX)) / 8;
            self.counted = now;
        }
        if boost < 9 {
            let each = self.service / parallel.max(1);
            self.not_before = now + each * u32::from(9 - boost) / u32::from(boost + 1);
        }
    }

    /// Pauses for so many times of what a chunk takes.
    pub fn rest(&mut self, times: u32, now: Time) {
        self.not_before = self.not_before.max(now + self.service * times);
    }

    fn settle(&mut self) {
        self.filled.count = self.pending.first().copied().unwrap_or(self.looked);
    }

    const fn offset(&self, chunk: Chunk) -> u64 {
        self.filled.distance(chunk, self.size)
    }

    fn chunk_at(&self, offset: u64) -> Chunk {
        Filled { count: offset, ..self.filled }.next(self.size).unwrap_or(Chunk(self.filled.from))
    }
}

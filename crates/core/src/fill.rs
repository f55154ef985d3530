//! Filling a store: a cursor that walks the image once around and fetches what lies on the node's arc.
//!
//! Owned by [`crate::node::Node`], one for each joined image. [`Fill::filled`] is what may be announced:
//! everything before it is held, so it advances only over what has arrived.

use crate::chunk::Chunk;
use crate::placement::{Arc, Filled};
use crate::time::Time;
use std::collections::BTreeSet;
use std::time::Duration;

/// Most chunk numbers looked at in one go: the walk over a sparse TiB must not hold up a reader.
const LOOK_MAX: u32 = 4096;
/// An answer that took longer counts as if it had taken this: the clock has jumped, or the machine was suspended, and the
/// next one is not to wait for hours. A chunk of 1 MiB takes less on a link of 10 Mbit/s.
const TOOK_MAX: Duration = Duration::from_secs(1);

/// A fill under way, or done.
#[derive(Debug)]
pub struct Fill {
    size: u64,
    arc: Arc,
    filled: Filled,
    /// Chunk numbers gone through, counted from `filled.from`; those before it are here or pending.
    looked: u64,
    /// Offsets from `filled.from` of chunks that are being fetched.
    pending: BTreeSet<u64>,
    /// Smoothed time a chunk takes, for pacing.
    service: Duration,
    not_before: Time,
}

/// What to do with the chunk under the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// It need not be fetched, nor any after it up to and including this one.
    Through(Chunk),
    /// It is to be fetched.
    Fetch,
    /// Nothing can be done now.
    Stop,
}

impl Fill {
    /// A fill of `arc`, of an image of `size` chunks, that begins at chunk `from` and not before `start`.
    pub fn new(size: u64, arc: Arc, from: u64, start: Time) -> Self {
        let filled = Filled { from, count: if arc.length == 0 { size } else { 0 } };
        Self {
            size,
            arc,
            filled,
            looked: filled.count,
            pending: BTreeSet::new(),
            service: Duration::ZERO,
            not_before: start,
        }
    }

    /// What the node's store is to hold.
    pub const fn arc(&self) -> Arc {
        self.arc
    }

    /// How far it has come.
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

    /// How many chunks are being fetched for it.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The chunks being fetched for it.
    pub fn iter_pending(&self) -> impl Iterator<Item = Chunk> + '_ {
        self.pending.iter().map(|offset| self.chunk_at(*offset))
    }

    /// When the next chunk may be asked for, by the pace that `join_boost` sets.
    pub const fn not_before(&self) -> Time {
        self.not_before
    }

    /// Walks on: `look` says what to do with each chunk, until it says stop, a chunk is to be fetched, or
    /// enough has been looked at. Returns the chunk to fetch, and whether there is more to walk.
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

    /// A chunk of the arc has come, for whatever reason.
    pub fn arrived(&mut self, chunk: Chunk) {
        self.pending.remove(&self.offset(chunk));
        self.settle();
    }

    /// Sets the pace after an answer that took `took`, with `parallel` requests under way: at boost 9
    /// there is none, at 0 nine tenths of the time are left to others.
    pub fn pace(&mut self, took: Duration, parallel: u32, boost: u8, now: Time) {
        let took = took.min(TOOK_MAX);
        self.service = if self.service.is_zero() { took } else { (self.service * 7 + took) / 8 };
        if boost < 9 {
            let each = self.service / parallel.max(1);
            self.not_before = now + each * u32::from(9 - boost) / u32::from(boost + 1);
        }
    }

    fn settle(&mut self) {
        self.filled.count = self.pending.first().copied().unwrap_or(self.looked);
    }

    fn offset(&self, chunk: Chunk) -> u64 {
        if chunk.0 >= self.filled.from { chunk.0 - self.filled.from } else { chunk.0 + self.size - self.filled.from }
    }

    fn chunk_at(&self, offset: u64) -> Chunk {
        Filled { count: offset, ..self.filled }.next(self.size).unwrap_or(Chunk(self.filled.from))
    }
}

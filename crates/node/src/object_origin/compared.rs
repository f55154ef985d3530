//! Chunks of an object, compared with their hashes when they come.

use bytes::Bytes;
use std::ops::Range;
use std::time::{Duration, Instant};
use vfield_core::chunk::Chunk;
use vfield_core::hash_tree::{HashTree, verify};

/// For so long a chunk that differs is not read again.
pub const BAD_FOR: Duration = Duration::from_secs(10);

/// Neighbouring chunks that one request brought, compared with their hashes.
#[derive(Debug)]
pub struct Compared {
    /// The number of the first one.
    pub first: u64,
    /// They, in order.
    pub parts: Vec<Part>,
}

/// One chunk of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Nobody asked for it.
    Unread,
    /// It comes, or it made room after it was sent.
    Away,
    /// Zeros, which are not read for themselves.
    Zero,
    /// Its bytes, and which node has got them.
    Here(Bytes, Whose),
    /// The object had other bytes there at that time.
    Bad(Instant),
}

/// The farthest that a chunk has come, in the order in which chunks make room: from the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// No node has got it.
    Nobodys,
    /// A node has got it that is not to store it. Others ask that node for a while.
    Readers,
    /// A store keeps it.
    Stores,
}

impl Part {
    /// Length of its bytes, if it is here.
    pub const fn length_bytes(&self) -> u64 {
        match self {
            Self::Here(bytes, _) => bytes.len() as u64,
            _ => 0,
        }
    }

    /// Its length in bytes, if it has come so far.
    pub fn bytes_of(&self, whose: Whose) -> u64 {
        if matches!(self, Self::Here(_, so_far) if *so_far == whose) { self.length_bytes() } else { 0 }
    }

    /// True if a read that passes here may bring it.
    pub fn is_missing(&self, now: Instant) -> bool {
        match self {
            Self::Unread | Self::Away | Self::Zero => true,
            Self::Here(..) => false,
            Self::Bad(at) => now.saturating_duration_since(*at) >= BAD_FOR,
        }
    }
}

impl Compared {
    /// Compares the bytes of `chunks` with their hashes, on the calling thread. Each chunk gets its
    /// own memory, so that it can go alone.
    pub fn new(chunks: Range<u64>, bytes: &[u8], tree: &HashTree, now: Instant) -> Self {
        let part = |(number, part): (u64, &[u8])| {
            if tree.is_zero(Chunk(number)) {
                Part::Zero
            } else if verify(&tree.hash(Chunk(number)), part) {
                Part::Here(Bytes::copy_from_slice(part), Whose::Nobodys)
            } else {
                Part::Bad(now)
            }
        };
        let parts = bytes.chunks(tree.geometry().chunk_bytes() as usize);
        Self { first: chunks.start, parts: chunks.zip(parts).map(part).collect() }
    }

    /// Chunks that the object does not have any more.
    pub fn lost(chunks: Range<u64>, now: Instant) -> Self {
        Self { first: chunks.start, parts: chunks.map(|_| Part::Bad(now)).collect() }
    }

    /// The chunks that differ.
    pub fn bad(&self) -> impl Iterator<Item = Chunk> + '_ {
        let numbered = (self.first..).zip(&self.parts);
        numbered.filter_map(|(number, part)| matches!(part, Part::Bad(_)).then_some(Chunk(number)))
    }
}

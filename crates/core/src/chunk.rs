//! Chunks: the fixed-size unit that is verified, held and sent.
//!
//! A [`Chunk`] numbers everything of an image that travels: the data first, then the pages of its
//! hash tree, leaf level first and the top page last. One numbering means that pages are placed,
//! fetched, verified, held and served exactly as data is. What a number means for an image of a
//! given length is answered by [`crate::image::Geometry`], the only maker of valid ones.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Index of a chunk within one image: data chunks, then hash pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Chunk(pub u64);

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Display for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Size of a chunk in bytes: a power of two from 16 KiB to 1 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkSize(u32);

/// A chunk size that is not a power of two between [`ChunkSize::MIN`] and [`ChunkSize::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("chunk size of {0} bytes is not a power of two from 16 KiB to 1 MiB")]
pub struct BadChunkSize(pub u32);

impl ChunkSize {
    /// Smallest allowed: below it the hashes and headers cost more than 0.2 % of the data.
    pub const MIN: Self = Self(16 << 10);
    /// Largest allowed: a reader of 4 KiB waits for a whole chunk, 8 ms of a Gbit/s link at this
    /// size.
    pub const MAX: Self = Self(1 << 20);
    /// The default, 64 KiB: hashing and `sendfile` reach their full rate from this size on.
    pub const DEFAULT: Self = Self(64 << 10);

    /// Accepts a power of two from 16 KiB to 1 MiB, in bytes.
    pub fn new(bytes: u32) -> Result<Self, BadChunkSize> {
        let allowed = Self::MIN.0..=Self::MAX.0;
        if bytes.is_power_of_two() && allowed.contains(&bytes) { Ok(Self(bytes)) } else { Err(BadChunkSize(bytes)) }
    }

    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        self.0 as u64
    }

    /// Hashes that fit into one page, which has the size of a chunk.
    pub const fn hashes_per_page(self) -> u64 {
        self.0 as u64 / HASH_BYTES as u64
    }
}

/// Length of a BLAKE3 hash.
pub const HASH_BYTES: usize = blake3::OUT_LEN;

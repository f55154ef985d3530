//! A cache of the last checked chunks, so that small sequential reads do not hash a chunk
//! repeatedly.
//!
//! Invariant: its chunks were compared with their hashes after they were copied. Checked reads use
//! it.

use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use vfield_core::chunk::{Chunk, ChunkSize};

/// Memory for it, in bytes; at least two chunks are kept. Enough for one chunk each of 16 readers
/// of 64 KiB chunks.
const CACHE_BYTES: u64 = 1 << 20;

/// Checked chunks, the latest first.
pub struct Cache {
    chunks: Mutex<VecDeque<(Chunk, Bytes)>>,
    capacity: usize,
}

impl Cache {
    /// An empty cache for chunks of this size.
    pub fn new(chunk_size: ChunkSize) -> Self {
        Self::of(chunk_size, CACHE_BYTES)
    }

    /// The same with so many bytes.
    pub fn of(chunk_size: ChunkSize, bytes: u64) -> Self {
        let capacity = (bytes / chunk_size.bytes()).max(2) as usize;
        Self { chunks: Mutex::new(VecDeque::with_capacity(capacity)), capacity }
    }

    /// The bytes of `chunk`, if they are here.
    pub fn find(&self, chunk: Chunk) -> Option<Bytes> {
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let at = chunks.iter().position(|(number, _)| *number == chunk)?;
        let found = chunks.remove(at)?;
        let bytes = found.1.clone();
        chunks.push_front(found);
        Some(bytes)
    }

    /// Keeps the checked bytes of `chunk` in place of the least recently used ones.
    pub fn keep(&self, chunk: Chunk, bytes: Bytes) {
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        chunks.truncate(self.capacity - 1);
        chunks.push_front((chunk, bytes));
    }
}

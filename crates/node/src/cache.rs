//! A cache of the last checked or unpacked chunks, so that small sequential reads do not hash or
//! unpack a chunk repeatedly, and reads through it.
//!
//! Invariant: a chunk that is compared with its hash is kept after that. Origins use it, and stores
//! on a disk or with compressed chunks.

use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use vfield_block::extent::Extent;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::image::Geometry;

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

/// The bytes of an extent of the image, out of whole chunks. `fill` is given the place of these,
/// and room for their bytes; or it says which chunk is not right. Chunks are found in the cache, if
/// one is given, and kept there, as long as the extent lies within one.
pub fn out_of_whole_chunks(
    geometry: &Geometry,
    extent: Extent,
    cache: Option<&Cache>,
    fill: impl FnOnce(Extent, &mut [u8]) -> Result<(), Chunk>,
) -> Result<Bytes, Chunk> {
    let chunks = geometry.covering(extent);
    let (first, last) = (Chunk(chunks.start), Chunk(chunks.end - 1));
    let cache = cache.filter(|_| first == last);
    let place = geometry.whole(extent);
    let part = |bytes: &Bytes| {
        let from = (extent.start() - place.start()) as usize;
        bytes.slice(from..from + extent.len() as usize)
    };
    if let Some(bytes) = cache.and_then(|cache| cache.find(first)) {
        return Ok(part(&bytes));
    }
    let mut bytes = vec![0; place.len() as usize];
    fill(place, &mut bytes)?;
    let bytes = Bytes::from(bytes);
    if let Some(cache) = cache {
        cache.keep(first, bytes.clone());
    }
    Ok(part(&bytes))
}

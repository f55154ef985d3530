//! Marked chunks of a store: a few, or none on a good disk. Readers ask about each chunk, and they
//! take no lock as long as there are none.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use vfield_core::chunk::Chunk;

/// Marked chunks, each with a value.
#[derive(Debug)]
pub struct Marked<T> {
    chunks: Mutex<BTreeMap<Chunk, T>>,
    number: AtomicU64,
}

impl<T> Default for Marked<T> {
    fn default() -> Self {
        Self { chunks: Mutex::default(), number: AtomicU64::new(0) }
    }
}

impl<T> Marked<T> {
    /// True if a chunk is marked.
    pub fn has(&self, chunk: Chunk) -> bool {
        self.number() > 0 && self.chunks().contains_key(&chunk)
    }

    /// The number of marked chunks.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Takes the mark off a chunk.
    pub fn remove(&self, chunk: Chunk) {
        if self.has(chunk) {
            self.change(|chunks| chunks.remove(&chunk));
        }
    }

    /// Changes the table, and counts it anew.
    pub fn change<R>(&self, change: impl FnOnce(&mut BTreeMap<Chunk, T>) -> R) -> R {
        let mut chunks = self.chunks();
        let changed = change(&mut chunks);
        self.number.store(chunks.len() as u64, Ordering::Release);
        changed
    }

    fn chunks(&self) -> MutexGuard<'_, BTreeMap<Chunk, T>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Transient chunks: they pass through, in buffers apart from the memory file.
//!
//! The memory file is for chunks to keep. New pages of it cost a relayed chunk more than its hash,
//! and nobody takes over a transient chunk after a restart.
//! The store asks here for a chunk whose slot is empty. Hash pages are not among them: their bytes
//! are read with each chunk below.
//!
//! Invariant: a chunk has at most one buffer. An evicted chunk that is still read is known until
//! its last reader drops it, so it comes back without another copy.

use crate::buffers::Buffer;
use bytes::Bytes;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use vfield_core::chunk::Chunk;

/// The transient chunks of one image.
#[derive(Debug, Default)]
pub struct Transients {
    chunks: Mutex<HashMap<Chunk, State>>,
    bytes: AtomicU64,
}

#[derive(Debug)]
enum State {
    Here(Arc<Held>),
    /// Evicted, and still read.
    Evicted(Weak<Held>),
}

/// A chunk in its buffer, shared by the table and the readers.
#[derive(Debug)]
struct Held {
    chunk: Chunk,
    buffer: Buffer,
    table: Weak<Transients>,
}

/// A reader's share of a chunk.
struct Share(Arc<Held>);

impl AsRef<[u8]> for Share {
    fn as_ref(&self) -> &[u8] {
        self.0.buffer.as_ref()
    }
}

impl Transients {
    /// Takes in the right bytes of a chunk; false if it is here.
    pub fn insert(self: &Arc<Self>, chunk: Chunk, buffer: Buffer) -> bool {
        self.bytes.fetch_add(buffer.as_ref().len() as u64, Ordering::Relaxed);
        // If it is not taken, its drop takes the same lock, after this function's.
        let held = Arc::new(Held { chunk, buffer, table: Arc::downgrade(self) });
        match self.chunks().entry(chunk) {
            Entry::Occupied(mut entry) => match entry.get() {
                State::Here(_) => return false,
                State::Evicted(before) => {
                    if let Some(before) = before.upgrade() {
                        entry.insert(State::Here(before));
                        return true;
                    }
                    entry.insert(State::Here(held));
                }
            },
            Entry::Vacant(entry) => {
                entry.insert(State::Here(held));
            }
        }
        true
    }

    /// The bytes of a chunk, which stay in their buffer as long as this value lives.
    pub fn get(&self, chunk: Chunk) -> Option<Bytes> {
        let held = match self.chunks().get(&chunk)? {
            State::Here(held) => Arc::clone(held),
            State::Evicted(_) => return None,
        };
        Some(Bytes::from_owner(Share(held)))
    }

    /// True if a chunk is here.
    pub fn has(&self, chunk: Chunk) -> bool {
        matches!(self.chunks().get(&chunk), Some(State::Here(_)))
    }

    /// No new reader sees a chunk; false if it was not here.
    pub fn evict(&self, chunk: Chunk) -> bool {
        // Its drop takes the same lock.
        let _evicted = match self.chunks().entry(chunk) {
            Entry::Occupied(mut entry) => match entry.get() {
                State::Here(held) => {
                    let held = Arc::clone(held);
                    entry.insert(State::Evicted(Arc::downgrade(&held)));
                    held
                }
                State::Evicted(_) => return false,
            },
            Entry::Vacant(_) => return false,
        };
        true
    }

    /// Takes back an evicted chunk that is still read; false if it is gone.
    pub fn revive(&self, chunk: Chunk) -> bool {
        let mut chunks = self.chunks();
        let Some(State::Evicted(held)) = chunks.get(&chunk) else { return false };
        let Some(held) = held.upgrade() else { return false };
        chunks.insert(chunk, State::Here(held));
        true
    }

    /// Bytes of all chunks that are here, and of evicted ones that are still read.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn chunks(&self) -> MutexGuard<'_, HashMap<Chunk, State>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(table) = self.table.upgrade() else { return };
        table.bytes.fetch_sub(self.buffer.as_ref().len() as u64, Ordering::Relaxed);
        let mut chunks = table.chunks();
        // Another buffer may have come for the chunk meanwhile.
        if matches!(chunks.get(&self.chunk), Some(State::Evicted(held)) if held.strong_count() == 0) {
            chunks.remove(&self.chunk);
        }
    }
}

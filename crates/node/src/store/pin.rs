//! Pins: they keep chunks in place while they are read.
//!
//! Invariant: as long as a [`Pin`] lives the slots of its chunks keep their bytes; the last one
//! dropped after an eviction gives their pages back. The store makes them; its pieces hold them.

use super::Store;
use std::ops::Range;
use std::sync::Arc;
use vfield_core::chunk::Chunk;

/// Keeps a run of neighbouring chunks in the store.
pub struct Pin {
    store: Arc<Store>,
    chunks: Range<u64>,
}

impl Pin {
    /// `chunks` are pinned already, once each, for this value.
    pub(super) fn new(store: &Arc<Store>, chunks: Range<u64>) -> Self {
        Self { store: Arc::clone(store), chunks }
    }

    /// The store that has the bytes.
    pub(super) const fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Takes over the pins of the chunks that follow; gives them back if another store has those.
    pub(super) fn join(&mut self, mut next: Self) -> Option<Self> {
        if !Arc::ptr_eq(&self.store, &next.store) || self.chunks.end != next.chunks.start {
            return Some(next);
        }
        self.chunks.end = next.chunks.end;
        next.chunks.start = next.chunks.end;
        None
    }

    /// The pinned chunks.
    pub fn chunks(&self) -> Range<u64> {
        self.chunks.clone()
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        for number in self.chunks.clone() {
            self.store.unpin(Chunk(number));
        }
    }
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "pin of chunks {:?}", self.chunks)
    }
}

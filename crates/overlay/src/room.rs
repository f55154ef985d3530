//! The room of an overlay: the held granules and their hard bound.
//!
//! Room is taken before a granule is held and returned when its bytes are gone. Only the overlay
//! uses it.

use crate::granule::GRANULE_BYTES;
use std::sync::atomic::{AtomicU64, Ordering};

/// Room for granules.
#[derive(Debug)]
pub struct Room {
    held: AtomicU64,
    granules_max: u64,
}

impl Room {
    /// Room for `bytes`, whole granules of it.
    pub fn new(bytes: u64) -> Self {
        Self { held: AtomicU64::new(0), granules_max: bytes / GRANULE_BYTES }
    }

    /// Takes room for `granules`; if there is less, returns false and takes none.
    pub fn take(&self, granules: u64) -> bool {
        let taken = |held: u64| held.checked_add(granules).filter(|held| *held <= self.granules_max);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }

    /// True if there is room for `granules` at this moment.
    pub fn has(&self, granules: u64) -> bool {
        let held = self.held.load(Ordering::Relaxed);
        held.checked_add(granules).is_some_and(|held| held <= self.granules_max)
    }

    /// Gives room back.
    pub fn give_back(&self, granules: u64) {
        let before = self.held.fetch_sub(granules, Ordering::Relaxed);
        assert!(before >= granules, "more room given back than was taken");
    }

    /// Bytes held now.
    pub fn held_bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed) * GRANULE_BYTES
    }

    /// Bytes that may be held.
    pub fn max_bytes(&self) -> u64 {
        self.granules_max * GRANULE_BYTES
    }
}

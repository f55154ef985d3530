//! Counts of misconduct by strangers and peers on connections. Relaxed atomics, for display only.

use std::sync::atomic::{AtomicU64, Ordering};

/// All counts; [`vfield_core::standing::Tally`] has those of the core.
#[derive(Debug, Default)]
pub struct Misdeeds {
    /// Connections that did not greet in time.
    pub silent: Count,
    /// Frames that did not come whole in time.
    pub slow_frames: Count,
    /// Answers that were requested and not read.
    pub unread: Count,
    /// Invalid frames, and valid ones out of place.
    pub broken_frames: Count,
}

/// A number that grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds one to the count.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The count so far.
    pub fn so_far(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

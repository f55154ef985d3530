//! How often strangers and peers did on connections what they should not have. Relaxed atomics: read by people only.

use std::sync::atomic::{AtomicU64, Ordering};

/// See the module; what the core counts is [`vfield_core::standing::Tally`].
#[derive(Debug, Default)]
pub struct Misdeeds {
    /// Connections that did not greet in time.
    pub silent: Count,
    /// Frames that did not come whole in time.
    pub slow_frames: Count,
    /// Answers that were asked for and not read.
    pub unread: Count,
    /// What was no frame, or one that does not belong there.
    pub broken_frames: Count,
}

/// A number that grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Once more.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How often.
    pub fn so_far(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

//! Counts of misconduct on connections: a tally that all tasks add to. Relaxed atomics, for display
//! only.

use std::sync::atomic::{AtomicU64, Ordering};
use vfield_core::misdeed::Misdeed;

/// The counts of this crate; the core has its own, of peers.
#[derive(Debug, Default)]
pub struct Misdeeds([AtomicU64; Misdeed::ALL.len()]);

impl Misdeeds {
    /// Counts one more.
    pub fn add(&self, misdeed: Misdeed) {
        self.0[misdeed as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often this kind happened so far.
    pub fn of(&self, misdeed: Misdeed) -> u64 {
        self.0[misdeed as usize].load(Ordering::Relaxed)
    }

    /// All kinds, each with its count so far.
    pub fn all(&self) -> impl Iterator<Item = (Misdeed, u64)> {
        Misdeed::ALL.into_iter().map(|misdeed| (misdeed, self.of(misdeed)))
    }
}

//! A bound in bytes that all connections of a server share.
//!
//! Counted in pages, as semaphores count no further than 32 bits. Nobody waits for it: what finds
//! no room does without.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Granularity of the budget in bytes.
const UNIT_BYTES: u64 = 4 << 10;

/// A bound on bytes that several connections share.
#[derive(Debug, Clone)]
pub(super) struct Budget(Arc<Semaphore>);

impl Budget {
    /// One of so many bytes.
    pub(super) fn new(bytes: u64) -> Self {
        Self(Arc::new(Semaphore::new(bytes.div_ceil(UNIT_BYTES).min(Semaphore::MAX_PERMITS as u64) as usize)))
    }

    /// Takes room for `bytes` until the result is dropped; `None` if there is none now.
    pub(super) fn take(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).ok()?;
        self.0.clone().try_acquire_many_owned(units).ok()
    }
}

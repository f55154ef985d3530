//! Looks at block devices of this daemon, for readers that have one open.
//!
//! A look opens a device, so one is made at a time: two of them would see each other. And no device
//! goes during a look: the kernel would look for partitions in it, and fill its log with errors.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// A first page that is on this machine or a few hops away; else nobody knows who reads a device.
const LOOKED_WITHIN: Duration = Duration::from_secs(1);

/// The looks of a daemon, of which each waits for the one before.
#[derive(Debug, Default)]
pub struct Looks(Arc<Mutex<()>>);

/// The right to look at devices, and to take them away.
#[derive(Debug)]
pub struct Look(Arc<OwnedMutexGuard<()>>);

impl Looks {
    /// Waits until nobody else looks. `None` if that takes long, since a device does not answer.
    pub async fn begin(&self) -> Option<Look> {
        let only = tokio::time::timeout(LOOKED_WITHIN, Arc::clone(&self.0).lock_owned());
        only.await.ok().map(|only| Look(Arc::new(only)))
    }
}

impl Look {
    /// True if anybody has one of the devices open, or a device does not answer soon. The reads
    /// may need whatever serves the devices.
    pub async fn is_any_open(&self, devices: Vec<PathBuf>) -> bool {
        // A thread that hangs is still looking when this has returned.
        let only = Arc::clone(&self.0);
        let look = tokio::task::spawn_blocking(move || {
            let is_open = devices.iter().any(|device| vfield_export::is_open(device));
            drop(only);
            is_open
        });
        // In doubt a device counts as open.
        tokio::time::timeout(LOOKED_WITHIN, look).await.unwrap_or(Ok(true)).unwrap_or(true)
    }
}

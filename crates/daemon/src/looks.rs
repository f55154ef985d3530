//! Looks at block devices of this daemon, for readers that have one open.
//!
//! A look opens a device, so one is made at a time: two of them would see each other. And no device
//! goes during a look: the kernel would look for partitions in it, and fill its log with errors.
//! The [`Onlooker`] opens it.

use crate::onlooker::Onlooker;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};

/// Somebody who looks at devices that answer is done by then.
const LOOKED_WITHIN: Duration = Duration::from_secs(1);

/// The looks of a daemon, of which each waits for the one before.
#[derive(Debug)]
pub struct Looks {
    onlooker: Arc<Onlooker>,
    only: Mutex<()>,
}

/// The right to look at devices, and to take them away.
#[derive(Debug)]
pub struct Look<'a> {
    onlooker: &'a Arc<Onlooker>,
    _only: MutexGuard<'a, ()>,
}

impl Looks {
    /// Of a daemon whose devices this process opens.
    pub fn by(onlooker: Arc<Onlooker>) -> Self {
        Self { onlooker, only: Mutex::default() }
    }

    /// Waits until nobody else looks. `None` if that takes long, since a device does not answer.
    pub async fn begin(&self) -> Option<Look<'_>> {
        let only = tokio::time::timeout(LOOKED_WITHIN, self.only.lock());
        only.await.ok().map(|only| Look { onlooker: &self.onlooker, _only: only })
    }
}

impl Look<'_> {
    /// True if anybody has one of the devices open, or a device does not answer soon. The reads
    /// may need whatever serves the devices.
    pub async fn is_any_open(&self, devices: Vec<PathBuf>) -> bool {
        let onlooker = Arc::clone(self.onlooker);
        let look = tokio::task::spawn_blocking(move || devices.iter().any(|device| onlooker.is_open(device)));
        look.await.unwrap_or(true)
    }
}

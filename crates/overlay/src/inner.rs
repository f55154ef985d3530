//! The shared state of an overlay's readers, writers and maintenance, and the locks between them.
//!
//! Invariants: the states and the bytes of an area change only under its lock held for writing.
//! Bytes are copied out of the medium only under the lock held for reading. No lock is held while
//! the base is read. Locks are taken in this order: the journal's, those of areas by number, the
//! set of uncommitted areas.
//!
//! The disk of a folder may stand still under a lock. So whoever touches its files, or waits for a
//! lock of an area, does so [`apart`](Inner::apart): the daemon's other tasks go on.

use crate::granule::{Area, Cut};
use crate::journal::Journal;
use crate::live::Live;
use crate::map::Map;
use crate::medium::Medium;
use crate::refused::Refused;
use crate::room::Room;
use crate::save::Saving;
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use tokio::runtime::{Handle, RuntimeFlavor};
use vfield_block::device::Users;
use vfield_block::source::BlockSource;
use vfield_core::image::ImageId;

/// Locks, shared by areas whose numbers differ by a multiple of it: more than there are writers.
const LOCKS: usize = 64;

/// The state of an overlay.
pub struct Inner {
    pub base: Arc<dyn BlockSource>,
    pub image: ImageId,
    pub cut: Cut,
    pub map: Map,
    pub medium: Medium,
    pub room: Room,
    /// Bytes whose last change failed.
    pub refused: Refused,
    /// The count of users.
    pub users: Users,
    /// Granules that are zeros.
    pub zeros: AtomicU64,
    locks: [RwLock<()>; LOCKS],
    /// Says which granules of the medium count after a power loss; none for a memory file.
    pub journal: Option<Mutex<Journal>>,
    /// Says it after a kill; none for a memory file.
    pub live: Option<Live>,
    /// Areas that have changed since the journal was written.
    pub uncommitted: Mutex<BTreeSet<u64>>,
    /// Held during a save, reset or restore.
    pub housekeeping: Mutex<()>,
    pub saving: Mutex<Option<Arc<Saving>>>,
    /// True while `saving` is something. Set and cleared under all areas' locks.
    pub is_saving: AtomicBool,
}

/// A panic elsewhere cannot leave anything half changed that these guard.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    pub fn new(base: Arc<dyn BlockSource>, image: ImageId, cut: Cut, medium: Medium, max_bytes: u64) -> Self {
        Self {
            base,
            image,
            cut,
            map: Map::new(cut),
            medium,
            room: Room::new(max_bytes),
            refused: Refused::default(),
            users: Users::default(),
            zeros: AtomicU64::new(0),
            locks: std::array::from_fn(|_| RwLock::new(())),
            journal: None,
            live: None,
            uncommitted: Mutex::default(),
            housekeeping: Mutex::default(),
            saving: Mutex::default(),
            is_saving: AtomicBool::new(false),
        }
    }

    /// Does something that may wait for the disk of a folder. Other tasks of the thread go on
    /// elsewhere.
    pub fn apart<T>(&self, work: impl FnOnce() -> T) -> T {
        let many = |handle: Handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread;
        let is_shared = !self.medium.is_volatile() && Handle::try_current().is_ok_and(many);
        if is_shared { tokio::task::block_in_place(work) } else { work() }
    }

    /// The lock of an area, unless it is to be waited for.
    pub fn try_lock_to_read(&self, area: u64) -> Option<RwLockReadGuard<'_, ()>> {
        match self.locks[area as usize % LOCKS].try_read() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub fn lock_to_read(&self, area: u64) -> RwLockReadGuard<'_, ()> {
        self.locks[area as usize % LOCKS].read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn lock_to_write(&self, area: u64) -> RwLockWriteGuard<'_, ()> {
        self.locks[area as usize % LOCKS].write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks all areas against changes.
    pub fn lock_all(&self) -> Vec<RwLockWriteGuard<'_, ()>> {
        (0..LOCKS as u64).map(|area| self.lock_to_write(area)).collect()
    }

    /// Writes the coming states of an area for the next process, before any answer. The caller
    /// holds the area's lock.
    pub fn tell(&self, area: u64, after: &Area) -> io::Result<()> {
        self.live.as_ref().map_or(Ok(()), |live| live.set(area, after))
    }

    /// Stores `after` as the states of an area whose lock the caller holds. The caller takes and
    /// returns room.
    pub fn settle(&self, area: u64, before: &Area, after: &Area) {
        self.map.store(area, after);
        self.zeros.fetch_add(after.zeros(), Ordering::Relaxed);
        self.zeros.fetch_sub(before.zeros(), Ordering::Relaxed);
        self.note(area);
    }

    /// Notes that an area is to be committed.
    pub fn note(&self, area: u64) {
        if self.journal.is_some() {
            lock(&self.uncommitted).insert(area);
        }
    }

    /// True if nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.map.changed().next().is_none()
    }
}

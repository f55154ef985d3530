//! Block sources that can be written: what exports need beyond [`BlockSource`].
//!
//! A source says through [`BlockSource::device`] that it can be written; exports then offer writes,
//! zeros, trims and flushes, and without it they stay read-only. Nothing here says where changes
//! go: the overlay is one that keeps them on this machine, and images themselves never change.

use crate::extent::Extent;
use crate::source::{BlockSource, ReadError};
use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Length of a granule, the unit in which changes are kept and come out whole: a page. Changes of
/// whole granules never wait, so this is the block size that clients should prefer.
pub const GRANULE_BYTES: u32 = 4 << 10;

/// Why a change was not made. Bytes of the same request may have been changed before it failed, as
/// on a disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// There is no room for more changes: `ENOSPC`. Bytes that were changed before can still be
    /// changed again.
    #[error("there is no room for more changes")]
    Full,
    /// A part of a granule was to be changed, and the rest of it could not be read: as for the read
    /// itself.
    #[error("what is around the change could not be read: {0}")]
    Read(#[from] ReadError),
    /// The medium failed: `EIO`.
    #[error("keeping changes failed: {0}")]
    Io(String),
}

/// The users of an open device: exports count them, and a change under them is refused.
#[derive(Debug, Clone, Default)]
pub struct Users(Arc<AtomicU64>);

impl Users {
    /// Counts one more, until the result is dropped.
    #[must_use]
    pub fn enter(&self) -> User {
        self.0.fetch_add(1, Ordering::Relaxed);
        User(self.clone())
    }

    /// How many there are now.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One of [`Users`].
#[derive(Debug)]
pub struct User(Users);

impl Drop for User {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a change gives back when it is done.
pub type Writing<'a> = Pin<Box<dyn Future<Output = Result<(), WriteError>> + Send + 'a>>;

/// A block source that can be written.
///
/// Extents must lie within `0..size_bytes()`, which of a device is a multiple of 512, so exports
/// have nothing to pad.
///
/// A change that is done is seen by every read that begins after it, on whatever connection or
/// export. Changes that overlap in time come out granule by granule as if one had come after the
/// other. A change that ended before a [`flush`](BlockDevice::flush) begins is durable when that
/// flush is done, as far as the medium lets anything be durable; before that a crash may undo any
/// part of it. "Force unit access" is a change and then a flush.
///
/// A change that failed is remembered: no flush succeeds while there are bytes whose last change
/// failed. A writer between an export and the file system may swallow a refusal, and a flush is
/// where the file system asks.
///
/// Dropping a future before it is done gives the change up, or leaves it made, granule by granule.
pub trait BlockDevice: BlockSource {
    /// Writes `bytes` at `offset` if nothing has to be waited for; `None` if something has, and
    /// nothing is written then. Takes no lock that the network side takes.
    fn try_write(&self, offset: u64, bytes: &[u8]) -> Option<Result<(), WriteError>>;

    /// Writes `bytes` at `offset`; may have to wait for the rest of the granules at its ends, as
    /// reads wait.
    fn write(&self, offset: u64, bytes: Bytes) -> Writing<'_>;

    /// Makes `extent` read as zeros, giving back the room of whole granules. Waits as
    /// [`write`](Self::write) does.
    fn zero(&self, extent: Extent) -> Writing<'_>;

    /// What `extent` holds is of no use any more: its whole granules read as zeros and their room
    /// is given back, others stay as they are. Never waits, and needs no room.
    fn discard(&self, extent: Extent) -> Result<(), WriteError>;

    /// Looks whether a change of all of `extent` finds room at this moment: for exports that make a
    /// change in parts, so that one that finds none is refused whole. Counts as a change that
    /// failed if there is none.
    ///
    /// # Errors
    /// [`WriteError::Full`] if there is none.
    fn admit(&self, extent: Extent) -> Result<(), WriteError> {
        let _ = extent;
        Ok(())
    }

    /// Makes all changes before it durable. Changes go on meanwhile. Fails while there are bytes
    /// whose last change failed.
    fn flush(&self) -> Writing<'_>;

    /// The users that have it open. An export counts each file and connection that somebody opened;
    /// not what it attaches by itself.
    fn users(&self) -> &Users;

    /// True if changes end with this process, flushed or not.
    fn is_volatile(&self) -> bool;
}

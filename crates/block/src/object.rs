//! Where nodes and object stores meet: an object as something to read by ranges.
//!
//! A node sees nothing but [`ObjectStore`] and [`Object`]. A web server, a bucket and a test's
//! vector of bytes can stand behind them. A read is one attempt: the caller decides about retries.

use crate::extent::Extent;
use bytes::Bytes;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

/// Why a range was not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// The object has no such bytes (any more).
    #[error("{0}")]
    Changed(String),
    /// The store did not deliver; a later attempt may succeed.
    #[error("{why}")]
    Failed {
        /// The reason, in words.
        why: String,
        /// The store asked for no attempt before this time has passed.
        after: Option<Duration>,
        /// True if a person has to change something first: a missing object, a refused credential.
        lasting: bool,
    },
}

impl ObjectError {
    /// A failure that may pass by itself.
    pub fn passing(why: impl Into<String>) -> Self {
        Self::Failed { why: why.into(), after: None, lasting: false }
    }

    /// A failure that a person has to mend.
    pub fn lasting(why: impl Into<String>) -> Self {
        Self::Failed { why: why.into(), after: None, lasting: true }
    }

    /// True for a failure that may pass by itself.
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::Failed { lasting: false, .. })
    }
}

/// What [`Object::read`] gives back when it is done.
pub type ObjectReading<'a> = Pin<Box<dyn Future<Output = Result<Bytes, ObjectError>> + Send + 'a>>;

/// What [`ObjectStore::open`] gives back when it is done.
pub type ObjectOpening<'a> = Pin<Box<dyn Future<Output = Result<Box<dyn Object>, ObjectError>> + Send + 'a>>;

/// An opened object of a fixed length.
///
/// Its bytes may change behind its back: a caller compares them with hashes of its own.
pub trait Object: Send + Sync + 'static {
    /// Length in bytes, as it was when the object was opened; above 0.
    fn length_bytes(&self) -> u64;

    /// How many bytes of it the store sends as one, rounded down, where they are compressed there.
    /// It only decides how much is read at once.
    fn compression(&self) -> u64 {
        1
    }

    /// Reads all of `extent`, which is not empty and lies within the object. One attempt, of
    /// bounded duration.
    fn read(&self, extent: Extent) -> ObjectReading<'_>;

    /// The difference between the object that was opened and the present one, in words, once a read
    /// has shown it. Later reads then read the present one.
    fn changed(&self) -> Option<String>;
}

/// The place of an object, and of those beside it.
pub trait ObjectStore: Send + Sync + std::fmt::Debug + 'static {
    /// Its address for people, without secrets.
    fn address(&self) -> &str;

    /// Files that it reads for each request.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// The id that the image has to have, as far as its address tells it. It is asked after the
    /// object was opened.
    fn image(&self) -> Option<[u8; 32]> {
        None
    }

    /// Opens the object whose address ends with `suffix` besides; the object itself if that is
    /// empty.
    fn open(&self, suffix: &str) -> ObjectOpening<'_>;
}

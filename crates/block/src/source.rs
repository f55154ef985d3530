//! Where node and exports meet: an image as something to read.
//!
//! Exports (NBD, FUSE...) see nothing but [`BlockSource`]; a node, a file and a test's vector of
//! bytes can stand behind it. An answer is a list of [`Piece`]s rather than a filled buffer, so
//! that an export may hand pages to the kernel (`sendfile`) instead of copying them.

use crate::device::BlockDevice;
use crate::extent::Extent;
use bytes::Bytes;
use std::any::Any;
use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;

/// One run of bytes of an answer, in the order of the image.
#[derive(Debug)]
pub enum Piece {
    /// So many zero bytes.
    Zero(u64),
    /// Bytes that lie in a file.
    File(FilePiece),
    /// Bytes in memory.
    Bytes(Bytes),
}

impl Piece {
    /// Length in bytes; never 0.
    pub fn len(&self) -> u64 {
        match self {
            Self::Zero(length) => *length,
            Self::File(piece) => piece.length_bytes,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// A piece holds at least one byte; clippy wants this beside `len`.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A run of bytes in a file. They are right, and stay as they are, until this value is dropped:
/// keep it until the kernel has taken the bytes (until `sendfile` or `read` returned, not until
/// they are sent).
pub struct FilePiece {
    file: Arc<OwnedFd>,
    offset_bytes: u64,
    length_bytes: u64,
    /// Keeps the bytes in place; what it is concerns only its maker.
    _pin: Option<Box<dyn Any + Send + Sync>>,
}

impl FilePiece {
    /// `length_bytes` at `offset_bytes` of `file`, kept in place for as long as `pin` lives.
    pub fn new(
        file: Arc<OwnedFd>,
        offset_bytes: u64,
        length_bytes: u64,
        pin: Option<Box<dyn Any + Send + Sync>>,
    ) -> Self {
        Self { file, offset_bytes, length_bytes, _pin: pin }
    }

    /// The file that holds the bytes.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Where they start in it.
    pub const fn offset(&self) -> u64 {
        self.offset_bytes
    }

    /// How many they are.
    pub const fn len(&self) -> u64 {
        self.length_bytes
    }

    /// True if there are none.
    pub const fn is_empty(&self) -> bool {
        self.length_bytes == 0
    }
}

impl std::fmt::Debug for FilePiece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "file bytes {}+{}", self.offset_bytes, self.length_bytes)
    }
}

/// Why bytes could not be had. Waiting for a holder is not among them: that is what `read` does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No live node had the bytes for as long as the node was told to wait.
    #[error("no copy of bytes {0:?} was to be had within the i/o timeout")]
    TimedOut(Extent),
    /// The file behind the image no longer has the bytes that were published, and nobody else has
    /// them.
    #[error("bytes {0:?} of the source are unreadable or no longer what was published")]
    SourceChanged(Extent),
    /// Reading the source failed.
    #[error("reading bytes {0:?} failed: {1}")]
    Io(Extent, String),
    /// The node takes part in the image no more.
    #[error("the image was dropped from this node")]
    Dropped,
    /// The node is leaving.
    #[error("the node is shutting down")]
    ShuttingDown,
}

/// How soon bytes are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Somebody waits for them.
    Now,
    /// Somebody will probably read them.
    Soon,
}

/// What `read` gives back when it is done.
pub type Reading<'a> = Pin<Box<dyn Future<Output = Result<Vec<Piece>, ReadError>> + Send + 'a>>;

/// A run of bytes that is either all zeros without being stored, or may hold data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// Length in bytes, above 0.
    pub length_bytes: u64,
    /// True if the bytes are known to be zeros; false says nothing about them.
    pub zero: bool,
}

/// What `allocation` gives back when it is done.
pub type Allocating<'a> = Pin<Box<dyn Future<Output = Result<Vec<Allocation>, ReadError>> + Send + 'a>>;

/// An image of a fixed length, read-only unless [`device`](BlockSource::device) says otherwise.
///
/// Extents must lie within the image: exports check what clients ask for, once, and implementations
/// may panic on anything else. What lies past the end up to a device's block size is the export's
/// to pad.
pub trait BlockSource: Send + Sync + 'static {
    /// Name for people and for clients to ask for; at most 255 bytes, no `/`, not empty.
    fn name(&self) -> &str;

    /// All its names; exports show it under each of them.
    fn names(&self) -> Vec<&str> {
        vec![self.name()]
    }

    /// A line that tells it from all others, such as one with the image's id.
    fn description(&self) -> String;

    /// Exact length in bytes; any number, not rounded.
    fn size_bytes(&self) -> u64;

    /// The unit in which reads cost least: the chunk size, a power of two.
    fn chunk_bytes(&self) -> u32;

    /// Appends the pieces of `extent` if all of it is here and answers true; otherwise leaves
    /// `pieces` as it was and answers false. Never waits, and takes no lock that the network side
    /// takes.
    fn try_read(&self, extent: Extent, pieces: &mut Vec<Piece>) -> bool;

    /// Waits until at least the first byte of `extent` (not empty) is here, and returns the pieces
    /// of as long a part from its start as is here without more waiting. Everything in `extent` is
    /// asked for at once, so a caller reads a long extent by calling again with the rest.
    fn read(&self, extent: Extent) -> Reading<'_>;

    /// Says that `extent` will be read; returns at once.
    fn prefetch(&self, extent: Extent, urgency: Urgency);

    /// Which parts of `extent` are known to be zeros, as runs from its start that cover all of it
    /// or a non-empty part of it. May have to fetch hash pages, never data.
    fn allocation(&self, extent: Extent) -> Allocating<'_>;

    /// True once every byte is here for good: reads will not wait any more.
    fn is_complete(&self) -> bool;

    /// The source as something that can be written, if it is.
    fn device(&self) -> Option<&dyn BlockDevice> {
        None
    }
}

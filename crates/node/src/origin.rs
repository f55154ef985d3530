//! An origin's file: publishing a regular file or block device as an image, and reading it
//! afterwards.
//!
//! It owns the open file, the image's [`HashTree`] and the read lease that keeps writers out.
//! Invariant: no byte leaves that differs from the published one. While the lease is held the file
//! cannot change, and its pages go out unchecked. Without one (block devices, other users' files,
//! or after a writer came) every chunk is copied, hashed and compared first ("checked"). The driver
//! calls it, for publishing at start and for each chunk requested of this origin, and so do exports
//! of the same node. It does not hold chunks (the store does) and never writes.
//!
//! If the hashes are those of an earlier start ([`kept_tree`]), a chunk is compared when it is read
//! for the first time.
//!
//! Two cases remain unprotected. First, bytes that a local reader's socket still holds when the
//! lease ends; [`guard`] says how long that is waited for. Second, a process that was stopped for
//! longer than the kernel holds writers back (45 s), after it handed out a piece and before its
//! bytes were taken.

mod comparison;
mod file;
pub mod guard;
mod hashing;
mod health;
pub mod kept_tree;
mod lease;
mod read;
pub mod tree_file;
mod walk;
mod watcher;
pub mod wrapping;

use crate::cache::Cache;
use crate::disk_reads::DiskReads;
use comparison::Comparison;
use file::{Fingerprint, SourceFile};
pub use file::{Moved, Stamp};
use guard::Guard;
pub use hashing::Progress;
pub(crate) use health::Health;
pub use health::OriginState;
use kept_tree::KeptTree;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::hash_tree::HashTree;
use vfield_core::image::{Geometry, Header, ImageId};
use vfield_core::names::is_image_name;

/// Why a file cannot be published. All but the last three are the caller's.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// Nothing is there.
    #[error("{0}: no such file")]
    Missing(PathBuf),
    /// The file is empty.
    #[error("{0}: is empty")]
    Empty(PathBuf),
    /// This user may not read it.
    #[error("{0}: permission denied")]
    Unreadable(PathBuf),
    /// The path is a directory.
    #[error("{0}: is a directory, not an image")]
    Directory(PathBuf),
    /// A socket, pipe or character device.
    #[error("{0}: is neither a regular file nor a block device")]
    NotAFile(PathBuf),
    /// No name for an image, see [`is_image_name`].
    #[error("{0}: {1:?} is no name for an image (1 to 255 bytes without '/' and control characters)")]
    BadName(PathBuf, String),
    /// The file changed while it was hashed; the image would match no moment of it.
    #[error("{0}: changed while it was read")]
    ChangedWhileHashing(PathBuf),
    /// An object cannot be opened or read.
    #[error("{address}: {why}")]
    Object {
        /// Its address, without secrets.
        address: String,
        /// The reason, in words.
        why: String,
    },
    /// A read failed.
    #[error("{path}: {source}")]
    Io {
        /// The file as given.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
}

/// Why a chunk of a published file cannot be had (any more).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The file has other bytes there than were published, or has become shorter.
    #[error("{path}: chunk {chunk} differs from the published one")]
    Changed {
        /// The file as given.
        path: PathBuf,
        /// The affected chunk.
        chunk: Chunk,
    },
    /// The kernel could not read it.
    #[error("{path}: reading chunk {chunk}: {error}")]
    Io {
        /// The file as given.
        path: PathBuf,
        /// The affected chunk.
        chunk: Chunk,
        /// The kernel's error.
        error: String,
    },
}

/// A published file. Cheap to share in an [`Arc`]; all methods may be called from several threads.
pub struct Origin {
    file: SourceFile,
    published: Fingerprint,
    stamp: Option<Stamp>,
    name: String,
    id: ImageId,
    tree: HashTree,
    guard: Arc<Guard>,
    health: Health,
    cache: Cache,
    /// The chunks still to compare, if the tree is one of an earlier start.
    comparison: Option<Comparison>,
    reads: DiskReads,
    looked: Mutex<Looked>,
}

/// What the last look at the file found.
#[derive(Debug, Clone, Copy, Default)]
struct Looked {
    is_written: bool,
    moved: Option<Moved>,
}

impl Origin {
    /// Hashes the file or block device at `path` with `threads` threads and serves it from then on.
    ///
    /// Takes as long as reading and hashing its data; holes of a regular file are not read. Blocks.
    /// `name` is the file's own name if `None`. `progress` is called from the hashing threads,
    /// about four times for each MiB.
    pub fn publish(
        path: &Path,
        name: Option<&str>,
        chunk_size: ChunkSize,
        threads: NonZeroUsize,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Self, PublishError> {
        Self::publish_file(SourceFile::open(path)?, name, chunk_size, threads, None, progress)
    }

    /// The same with the hashes of an earlier start, if `kept` has those of this very file. Else it
    /// hashes the file; [`KeptTree::keep`] then keeps the hashes.
    pub fn publish_kept(
        path: &Path,
        name: Option<&str>,
        chunk_size: ChunkSize,
        threads: NonZeroUsize,
        kept: &KeptTree,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Self, PublishError> {
        Self::publish_file(SourceFile::open(path)?, name, chunk_size, threads, Some(kept), progress)
    }

    /// Publishes a file that the caller has opened, under the name of `path`; with the hashes of an
    /// earlier start, if `kept` has those of this very file.
    pub fn publish_open(
        file: Arc<OwnedFd>,
        path: &Path,
        name: Option<&str>,
        chunk_size: ChunkSize,
        threads: NonZeroUsize,
        kept: Option<&KeptTree>,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Self, PublishError> {
        Self::publish_file(SourceFile::opened(file, path)?, name, chunk_size, threads, kept, progress)
    }

    fn publish_file(
        file: SourceFile,
        name: Option<&str>,
        chunk_size: ChunkSize,
        threads: NonZeroUsize,
        kept: Option<&KeptTree>,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Self, PublishError> {
        let name = image_name(file.path(), name)?;
        // The lease comes before the first look at length and content.
        let guard = Guard::new(&file);
        let (published, stamp) = (file.fingerprint()?, file.stamp());
        let (id, tree, comparison) = match kept.and_then(|kept| kept.take(stamp)) {
            Some((id, tree, comparison)) => (id, tree, Some(comparison)),
            None => {
                let (_, id, tree) = hashing::hash_file(&file, published.length_bytes, chunk_size, threads, progress)?;
                if !guard.is_leased() && file.fingerprint()? != published {
                    return Err(PublishError::ChangedWhileHashing(file.path().to_owned()));
                }
                (id, tree, None)
            }
        };
        let (cache, health, reads, looked) =
            (Cache::new(chunk_size), Health::default(), DiskReads::default(), Mutex::default());
        Ok(Self { file, published, stamp, name, id, tree, guard, health, cache, comparison, reads, looked })
    }

    /// The image's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file, as it was given.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The image's id.
    pub const fn id(&self) -> ImageId {
        self.id
    }

    /// The image's header.
    pub const fn header(&self) -> &Header {
        self.geometry().header()
    }

    /// The numbering of its chunks.
    pub const fn geometry(&self) -> &Geometry {
        self.tree.geometry()
    }

    /// All hashes of the image.
    pub const fn tree(&self) -> &HashTree {
        &self.tree
    }

    /// The known state of the file now. Asks nobody, and does not read the file.
    pub fn state(&self) -> OriginState {
        if let Some(changed) = self.health.changed() {
            changed
        } else if let Some(why) = self.still() {
            OriginState::Unreachable { why }
        } else if self.is_compared() && self.guard.is_leased() {
            OriginState::Intact
        } else {
            OriginState::Checked
        }
    }

    /// That the disk stands still, in words.
    pub fn still(&self) -> Option<String> {
        self.reads.still().map(|still| format!("no read has ended for {} s", still.as_secs()))
    }

    /// The stamp of the file when it was published; see [`Stamp`].
    pub const fn stamp(&self) -> Option<Stamp> {
        self.stamp
    }

    /// The file of the tree, if that is one of an earlier start.
    pub fn kept_tree(&self) -> Option<&Path> {
        self.comparison.as_ref().map(|comparison| comparison.path().as_path())
    }

    /// True if nothing has written to the file since it was published, as its stamp tells. False if
    /// it has none.
    pub(crate) fn is_untouched(&self) -> bool {
        self.stamp.is_some() && self.file.stamp() == self.stamp
    }

    /// True once each chunk was compared with its hash since this start.
    pub fn is_compared(&self) -> bool {
        self.comparison.as_ref().is_none_or(Comparison::is_done)
    }

    /// Looks whether the file was written to, and what its name leads to. Does not read it, but may
    /// wait for the machine that serves it.
    pub fn look(&self) {
        // An empty file has no fingerprint.
        let is_written = !self.file.fingerprint().is_ok_and(|now| now.has_same_bytes(&self.published));
        *self.looked() = Looked { is_written, moved: self.file.moved() };
    }

    fn looked(&self) -> MutexGuard<'_, Looked> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the file's times or length differed from the published ones at the last look.
    pub fn is_written(&self) -> bool {
        self.looked().is_written
    }

    /// The state of the name under which the file was opened, at the last look; `None` if it was
    /// still this file.
    pub fn moved(&self) -> Option<Moved> {
        self.looked().moved
    }

    /// The lease, for callers that hand the file's pages to sockets.
    pub const fn guard(&self) -> &Arc<Guard> {
        &self.guard
    }
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "origin of {:?} from {}", self.id, self.path().display())
    }
}

/// `name`, or the file's own name, if an image may be called so.
fn image_name(path: &Path, name: Option<&str>) -> Result<String, PublishError> {
    let own = || path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = name.map_or_else(own, str::to_owned);
    if is_image_name(&name) { Ok(name) } else { Err(PublishError::BadName(path.to_owned(), name)) }
}

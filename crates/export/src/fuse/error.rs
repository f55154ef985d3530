//! Errors of a mount, and the errno of a read or a change that fails.
//!
//! Owns the two error enums of the FUSE export and the two functions that turn errors of a source
//! into an errno. Called by the rest of `fuse` and by the command line, which adds what to do about
//! it.

use fuser::Errno;
use std::io;
use std::path::PathBuf;
use vfield_block::device::WriteError;
use vfield_block::source::ReadError;

/// Why a directory could not be mounted. Nothing is mounted when it is returned.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount point does not exist.
    #[error("mount point {0} does not exist")]
    Missing(PathBuf),
    /// The mount point is something else than a directory.
    #[error("mount point {0} is not a directory")]
    NotADirectory(PathBuf),
    /// There are files in the directory, which the mount would hide.
    #[error("mount point {0} is not empty")]
    NotEmpty(PathBuf),
    /// Another live process of ours exports images there.
    #[error("{0} is already mounted by a running export")]
    AlreadyMounted(PathBuf),
    /// A dead file system is mounted there that is not ours, or that may not be unmounted.
    #[error("{path} is mounted by something that no longer answers: {source}")]
    Stale {
        /// The mount point.
        path: PathBuf,
        /// What the system said when it was looked at or cleared away.
        source: io::Error,
    },
    /// The mount point cannot be looked at.
    #[error("mount point {path} cannot be used: {source}")]
    Unusable {
        /// The mount point.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel has no FUSE, or this process may not use it.
    #[error("FUSE is not available: /dev/fuse: {0}")]
    FuseUnavailable(io::Error),
    /// The kernel or `fusermount3` refused.
    #[error("mounting on {path} failed: {source}")]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A source's name cannot be a file name.
    #[error("image name {0:?} cannot be a file name")]
    BadName(String),
    /// Two sources have one name.
    #[error("two images have the name {0:?}")]
    SameName(String),
    /// A source is longer than a file can be.
    #[error("image {name:?} of {size_bytes} bytes is longer than a file can be")]
    TooLong {
        /// The source's name.
        name: String,
        /// Its length in bytes.
        size_bytes: u64,
    },
}

/// Why a mount that an earlier process has left could not be gone on with.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    /// The table is none, or one of another version.
    #[error("its table is not one of this version")]
    Unknown,
    /// It is not, or no longer, where this process is to mount.
    #[error("it is not mounted there: {0}")]
    Elsewhere(PathBuf),
    /// Its images cannot be files together.
    #[error(transparent)]
    Files(MountError),
    /// The kernel refused.
    #[error("taking over the mount on {path} failed: {source}")]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The mount could not be removed; it ends with the process.
#[derive(Debug, thiserror::Error)]
#[error("unmounting {path} failed: {source}")]
pub struct UnmountError {
    /// The mount point.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// What the kernel is told. The page cache turns all but the last into `EIO` anyway, so they are
/// `EIO` for direct readers, too; the difference is in the node's log and status.
pub(super) fn errno(error: &ReadError) -> Errno {
    match error {
        ReadError::TimedOut(_) | ReadError::SourceChanged(_) | ReadError::Io(..) => Errno::EIO,
        ReadError::ShuttingDown | ReadError::Dropped => Errno::ESHUTDOWN,
    }
}

/// As [`errno`], of a change.
pub(super) fn write_errno(error: &WriteError) -> Errno {
    match error {
        WriteError::Full => Errno::ENOSPC,
        WriteError::Read(error) => errno(error),
        WriteError::Io(_) => Errno::EIO,
    }
}

//! Errors around an overlay's files, with the path at fault. Failed changes are the core's
//! `WriteError`.

use std::io;
use std::path::{Path, PathBuf};
use vfield_core::image::ImageId;

/// Why an overlay could not be opened. Nothing was changed when it is returned.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No memory file is available.
    #[error("no memory for an overlay: {0}")]
    Memory(io::Error),
    /// The system refused something.
    #[error("{}: {source}", path.display())]
    System {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process has the folder.
    #[error("another daemon keeps its changes in {}", .0.display())]
    InUse(PathBuf),
    /// The changes belong to another image.
    #[error("{} holds changes to image {}, not to {}", path.display(), found.short(), wanted.short())]
    OtherImage {
        /// The path of the file.
        path: PathBuf,
        /// The image of its changes.
        found: ImageId,
        /// The wanted image.
        wanted: ImageId,
    },
    /// A later version of this program wrote it.
    #[error("{} has format {version}, newer than this program knows", path.display())]
    Newer {
        /// The path of the file.
        path: PathBuf,
        /// Its format's version.
        version: u32,
    },
    /// Its content is damaged.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// The damage in words.
        what: &'static str,
    },
    /// It holds more than the bound.
    #[error("{} holds {held_bytes} bytes of changes, and {max_bytes} are allowed", path.display())]
    TooLarge {
        /// The path of the file.
        path: PathBuf,
        /// Bytes that it holds.
        held_bytes: u64,
        /// Most bytes that may be held.
        max_bytes: u64,
    },
}

/// Why a saved overlay could not be restored. The overlay is empty, as it was.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The system refused something.
    #[error("{}: {source}", path.display())]
    System {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is another kind of file.
    #[error("{} is no saved overlay", .0.display())]
    Foreign(PathBuf),
    /// A later version of this program wrote it.
    #[error("{} is a saved overlay of format {version}, newer than this program knows", path.display())]
    Newer {
        /// The path of the file.
        path: PathBuf,
        /// Its format's version.
        version: u32,
    },
    /// It was saved over another image.
    #[error("{} was saved over image {}, not over {}", path.display(), found.short(), wanted.short())]
    OtherImage {
        /// The path of the file.
        path: PathBuf,
        /// The image of its changes.
        found: ImageId,
        /// Over which they were to be laid.
        wanted: ImageId,
    },
    /// Its length is not what its header says.
    #[error("{} is truncated: it has {found_bytes} bytes of {wanted_bytes}", path.display())]
    Truncated {
        /// The path of the file.
        path: PathBuf,
        /// Its length in bytes.
        found_bytes: u64,
        /// The length it should have.
        wanted_bytes: u64,
    },
    /// Its checksum is wrong, or its content impossible.
    #[error("{} is corrupt: {what}", path.display())]
    Corrupt {
        /// The path of the file.
        path: PathBuf,
        /// The damage in words.
        what: &'static str,
    },
    /// It holds more than the bound.
    #[error("{} holds {held_bytes} bytes of changes, and {max_bytes} are allowed", path.display())]
    TooLarge {
        /// The path of the file.
        path: PathBuf,
        /// Bytes that it holds.
        held_bytes: u64,
        /// Most bytes that may be held.
        max_bytes: u64,
    },
    /// The overlay has changes already, which would be lost.
    #[error("there are changes already, which {} would replace", .0.display())]
    NotEmpty(PathBuf),
}

/// Why an overlay could not be saved or reset.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The file to save in cannot be written.
    #[error("writing the file: {0}")]
    File(io::Error),
    /// A save or a reset is under way.
    #[error("another save or reset of this overlay is under way")]
    Busy,
    /// The changes themselves could not be read or dropped.
    #[error("the overlay's own file failed: {0}")]
    Medium(io::Error),
}

/// Why a file could not be replaced. The old file is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// The system refused something.
    #[error("{}: {source}", path.display())]
    System {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file at the path must not be replaced.
    #[error("{} exists and is no saved overlay", .0.display())]
    Foreign(PathBuf),
}

impl OpenError {
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::System { path, source }
    }
}

impl RestoreError {
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::System { path, source }
    }
}

impl ReplaceError {
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::System { path, source }
    }
}

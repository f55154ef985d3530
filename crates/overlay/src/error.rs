//! What can go wrong around an overlay's files, with the path at fault. What goes wrong with a change is the
//! core's `WriteError`.

use std::io;
use std::path::{Path, PathBuf};
use vfield_core::image::ImageId;

/// Why an overlay could not be opened. Nothing was changed when it is returned.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no memory file to be had.
    #[error("no memory for an overlay: {0}")]
    Memory(io::Error),
    /// The system refused something.
    #[error("{}: {source}", path.display())]
    System {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has the folder.
    #[error("another daemon keeps its changes in {}", .0.display())]
    InUse(PathBuf),
    /// The changes belong to another image.
    #[error("{} holds changes to image {}, not to {}", path.display(), found.short(), wanted.short())]
    OtherImage {
        /// The file.
        path: PathBuf,
        /// Whose changes they are.
        found: ImageId,
        /// Whose changes were looked for.
        wanted: ImageId,
    },
    /// A later version of this program wrote it.
    #[error("{} has format {version}, newer than this program knows", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// It is not what was written.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// There is more in it than may be held.
    #[error("{} holds {held_bytes} bytes of changes, and {max_bytes} are allowed", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// What it holds.
        held_bytes: u64,
        /// What may be held.
        max_bytes: u64,
    },
}

/// Why a saved overlay could not be restored. The overlay is empty, as it was.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The system refused something.
    #[error("{}: {source}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is no saved overlay", .0.display())]
    Foreign(PathBuf),
    /// A later version of this program wrote it.
    #[error("{} is a saved overlay of format {version}, newer than this program knows", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// It was saved over another image.
    #[error("{} was saved over image {}, not over {}", path.display(), found.short(), wanted.short())]
    OtherImage {
        /// The file.
        path: PathBuf,
        /// Whose changes they are.
        found: ImageId,
        /// Over which they were to be laid.
        wanted: ImageId,
    },
    /// Its length is not what its header says.
    #[error("{} is truncated: it has {found_bytes} bytes of {wanted_bytes}", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its length.
        found_bytes: u64,
        /// The length it should have.
        wanted_bytes: u64,
    },
    /// Its checksum is wrong, or it says what cannot be.
    #[error("{} is corrupt: {what}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// There is more in it than may be held.
    #[error("{} holds {held_bytes} bytes of changes, and {max_bytes} are allowed", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// What it holds.
        held_bytes: u64,
        /// What may be held.
        max_bytes: u64,
    },
    /// There are changes already, which would be lost.
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

/// Why a file could not take another's place. What was there is still there.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// The system refused something.
    #[error("{}: {source}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is something at the path that must not be replaced.
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

//! Why a tree could not be packed, sorted by fault: the source's, the earlier image's, the
//! output's. Each is one line, with what to do next.

use std::io;
use std::path::{Path, PathBuf};
use vfield_console::failure::{Failure, plain};

/// A source that was not packed. Nothing was written under the output's name.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// Something of the source cannot be read.
    #[error("{}: {}", .0.display(), plain(.1))]
    Source(PathBuf, #[source] io::Error),
    /// The source was written to while it was packed.
    #[error("{}: it changed while it was packed", .0.display())]
    Changed(PathBuf),
    /// The source has something that an image cannot hold.
    #[error("{}: {}", .0.display(), .1)]
    Misfit(PathBuf, String),
    /// The source is none.
    #[error("{}: {}", .0.display(), .1)]
    NoSource(PathBuf, String),
    /// The earlier image is none to pack like.
    #[error("--like: {}: {}", .0.display(), .1)]
    Like(PathBuf, String),
    /// The output cannot be written.
    #[error("{}: {}", .0.display(), plain(.1))]
    Output(PathBuf, #[source] io::Error),
    /// The output would be a part of the source.
    #[error("{}: it lies inside the source, and would be a part of the image", .0.display())]
    Inside(PathBuf),
    /// The tree is larger than an image.
    #[error("the tree needs more than 16 TiB, the most that an EROFS image holds")]
    TooLarge,
}

impl PackError {
    /// A misfit at a path of raw bytes.
    pub fn misfit(path: &[u8], why: impl Into<String>) -> Self {
        Self::Misfit(path_of(path), why.into())
    }

    /// For people: the fact, and what to do next.
    pub fn explain(self) -> Failure {
        let hint = match &self {
            Self::Source(_, error) if error.kind() == io::ErrorKind::PermissionDenied => {
                "the files must be readable for the user who runs vfield"
            }
            Self::Source(_, error) if error.kind() == io::ErrorKind::NotFound => {
                "check the path; a source must not change while it is packed"
            }
            Self::Source(..) => "check the source",
            Self::Changed(_) => "pack again when nothing writes to the source, or pack a snapshot of it",
            Self::Misfit(..) => "change or remove it in the source",
            Self::NoSource(..) => "give a directory, a tar, or a directory made by `skopeo copy … oci:DIR`",
            Self::Like(..) => "give the last image that `vfield pack` made, or pack without --like",
            Self::Output(_, error) if error.kind() == io::ErrorKind::StorageFull => {
                "nothing was left behind; make room, or choose another place with --output"
            }
            Self::Output(..) => "check --output or --layers; the directory must be writable",
            Self::Inside(_) => "write it to another directory with --output",
            Self::TooLarge => "pack it as several images",
        };
        Failure::failed(self.to_string()).hint(hint)
    }
}

/// Bytes as a path.
pub fn path_of(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    Path::new(std::ffi::OsStr::from_bytes(bytes)).to_owned()
}

//! A file that is to take another's place: at once, when it is complete and on the disk, or not at all.
//!
//! Apart from the overlay, because the two need not be in one process: a daemon that may open no files writes into one that
//! its client has opened.

use crate::error::ReplaceError;
use crate::saved::{Bad, HEADER_BYTES, Header};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A new file, without a name that means anything yet. Gone with this value unless it was completed.
#[derive(Debug)]
pub struct Replacement {
    new: NamedTempFile,
    path: PathBuf,
}

impl Replacement {
    /// A new file that can become the one at `path`, where there may be a saved overlay, an empty file, or nothing.
    ///
    /// # Errors
    /// If something else is there, or nothing can be made beside it.
    pub fn begin(path: &Path) -> Result<Self, ReplaceError> {
        let path = target(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let new = tempfile::Builder::new().prefix(&format!(".{name}.")).tempfile_in(parent(&path));
        Ok(Self { new: new.map_err(ReplaceError::at(&path))?, path })
    }

    /// Open for reading and writing, and empty at first.
    pub fn file(&self) -> &File {
        self.new.as_file()
    }

    /// Puts it on the disk and in its place.
    ///
    /// # Errors
    /// If the system refuses; what was there before is still there then.
    pub fn complete(self) -> Result<(), ReplaceError> {
        self.new.as_file().sync_all().map_err(ReplaceError::at(&self.path))?;
        self.new.persist(&self.path).map_err(|error| ReplaceError::at(&self.path)(error.error))?;
        // The new name is on the disk with the directory.
        let parent = parent(&self.path);
        File::open(parent).and_then(|directory| directory.sync_all()).map_err(ReplaceError::at(parent))
    }
}

/// The path that is replaced, and whether it may be.
fn target(path: &Path) -> Result<PathBuf, ReplaceError> {
    let failed = || ReplaceError::at(path);
    // Links lead to what is replaced, which is not the link.
    let path = match std::fs::canonicalize(path) {
        Ok(path) => path,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(path.to_owned()),
        Err(error) => return Err(failed()(error)),
    };
    let metadata = std::fs::metadata(&path).map_err(failed())?;
    if !metadata.is_file() {
        return Err(ReplaceError::Foreign(path));
    }
    let mut front = Vec::new();
    File::open(&path).and_then(|file| file.take(HEADER_BYTES as u64).read_to_end(&mut front)).map_err(failed())?;
    let ours = front.is_empty() || !matches!(Header::parse(&front), Err(Bad::Foreign));
    if ours { Ok(path) } else { Err(ReplaceError::Foreign(path)) }
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

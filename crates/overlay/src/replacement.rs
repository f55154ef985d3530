//! Atomic replacement of a file: the new one takes the path once it is complete and on the disk, or
//! never.
//!
//! It is apart from the overlay, because the two may be in different processes. A daemon that may
//! open no files writes into one that its client has opened.

use crate::error::ReplaceError;
use crate::saved::{Bad, HEADER_BYTES, Header};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A new file that takes another's place when it is complete. Gone with this value unless it was
/// completed.
#[derive(Debug)]
pub struct Replacement {
    new: New,
    path: PathBuf,
}

#[derive(Debug)]
enum New {
    /// Without a name, so that nothing is left of it however the process ends.
    Nameless(File),
    /// A hidden named file, on file systems without unnamed ones.
    Named(NamedTempFile),
}

impl Replacement {
    /// Begins a file that can replace the one at `path`: a saved overlay, an empty file, or none.
    ///
    /// # Errors
    /// If another kind of file is there, or the folder is not writable.
    pub fn begin(path: &Path) -> Result<Self, ReplaceError> {
        let path = target(path)?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let new = match rustix::fs::open(parent(&path), flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Ok(New::Nameless(file.into())),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                tempfile::Builder::new().prefix(&hidden(&path)).tempfile_in(parent(&path)).map(New::Named)
            }
            Err(errno) => Err(errno.into()),
        };
        Ok(Self { new: new.map_err(ReplaceError::at(&path))?, path })
    }

    /// Open for reading and writing, and empty at first.
    pub fn file(&self) -> &File {
        match &self.new {
            New::Nameless(file) => file,
            New::Named(file) => file.as_file(),
        }
    }

    /// Writes the file to the disk and moves it to its path.
    ///
    /// # Errors
    /// If the system refuses; the old file is still there then.
    pub fn complete(self) -> Result<(), ReplaceError> {
        let named = self.file().sync_all().and_then(|()| match self.new {
            New::Named(file) => Ok(file.into_temp_path()),
            // Another's name can only be taken by a file that has one.
            New::Nameless(file) => {
                let name = |name: &Path| link(&file, name);
                let named = tempfile::Builder::new().prefix(&hidden(&self.path)).make_in(parent(&self.path), name);
                named.map(NamedTempFile::into_temp_path)
            }
        });
        named.and_then(|new| Ok(new.persist(&self.path)?)).map_err(ReplaceError::at(&self.path))?;
        // The new name is on the disk with the directory.
        let parent = parent(&self.path);
        File::open(parent).and_then(|directory| directory.sync_all()).map_err(ReplaceError::at(parent))
    }
}

/// The path that is replaced, and whether it may be.
fn target(path: &Path) -> Result<PathBuf, ReplaceError> {
    let failed = || ReplaceError::at(path);
    // Links are followed: their target is replaced.
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

/// The prefix of the names of incomplete files.
fn hidden(path: &Path) -> String {
    format!(".{}.", path.file_name().unwrap_or_default().to_string_lossy())
}

/// Gives an open file a name (open(2), `O_TMPFILE`).
fn link(file: &File, name: &Path) -> std::io::Result<()> {
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(CWD, open, CWD, name, AtFlags::SYMLINK_FOLLOW)?)
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

//! A folder of overlays: one process at a time, and three files for each image.
//!
//! - `NAME.data` holds granules.
//! - `NAME.index` is the [`journal`](crate::journal) of the granules that count.
//! - `NAME.live` has the granules that counted when the last process of this boot ended
//!   ([`live`](crate::live)).
//!
//! The folder is locked as long as this value or an overlay in it lives. The kernel drops the lock
//! with the process, however that ends.

use crate::error::OpenError;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A folder that this process has for itself.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Holds the lock.
    dir: OwnedFd,
}

impl Folder {
    /// Opens and locks the folder at `path`. A missing one is created, readable by its owner only.
    ///
    /// # Errors
    /// [`OpenError::InUse`] if another process has it, [`OpenError::System`] if the system refuses.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let failed = OpenError::at;
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(path)(error)),
            _ => {}
        }
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let dir = open(path, flags, Mode::empty()).map_err(|errno| failed(path)(errno.into()))?;
        match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path: path.to_owned(), dir }),
            Err(Errno::WOULDBLOCK) => Err(OpenError::InUse(path.to_owned())),
            Err(errno) => Err(failed(path)(errno.into())),
        }
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the journal of an image.
    pub(crate) fn index(&self, image: &str) -> PathBuf {
        self.path.join(format!("{image}.index"))
    }

    /// The path of the live file of an image.
    pub(crate) fn live(&self, image: &str) -> PathBuf {
        self.path.join(format!("{image}.live"))
    }

    /// The file that holds them.
    pub(crate) fn data(&self, image: &str) -> PathBuf {
        self.path.join(format!("{image}.data"))
    }

    /// Makes created and renamed files durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.dir)?)
    }
}

/// Opens a file for this process's user alone, and makes it if it is not there.
pub(crate) fn open_private(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

//! The published file itself: opened once, read only, by position.
//!
//! Invariant: it is a regular file or a block device, and the descriptor stays on it whatever
//! happens to its name. The other parts of the origin use it. It does not judge the bytes.

use super::PublishError;
use crate::disk_reads::{self, TMPFS, is_on_tmpfs};
use rustix::fs::{FileType, Mode, OFlags, SeekFrom, Stat, fstat, fstatfs, open, seek, stat};
use rustix::io::{Errno, pread, retry_on_intr};
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfield_block::extent::Extent;

/// An open file or block device.
pub struct SourceFile {
    fd: Arc<OwnedFd>,
    path: PathBuf,
    regular: bool,
    /// True if no disk is ever waited for.
    in_memory: bool,
    /// True if the path led to this file when it was opened; otherwise it says nothing about it.
    named: bool,
}

/// The present state of an open file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// Nothing is there.
    Unlinked,
    /// Another file is there.
    Replaced,
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unlinked => "unlinked",
            Self::Replaced => "replaced",
        })
    }
}

/// Metadata that a write to a regular file changes. Of a block device it has the length only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    /// Length in bytes.
    pub length_bytes: u64,
    modified_ns: i128,
    status_changed_ns: i128,
}

/// A file, and a state of it: any write through this kernel makes it another stamp, and so does
/// another file in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The number of the file system.
    pub device: u64,
    /// The file's number in there.
    pub inode: u64,
    /// When its bytes were written last, as anybody may have set it.
    pub modified_ns: i128,
    /// When its bytes, times, owner or names changed last, as the kernel set it.
    pub status_changed_ns: i128,
}

impl Fingerprint {
    /// True if nobody has written in between: a new name, or none, is no change of the bytes.
    pub const fn has_same_bytes(&self, other: &Self) -> bool {
        self.length_bytes == other.length_bytes && self.modified_ns == other.modified_ns
    }
}

impl SourceFile {
    /// Opens `path` for reading if it is something that can be published.
    pub fn open(path: &Path) -> Result<Self, PublishError> {
        let failed = |errno| failure(path, errno);
        // Before opening: opening a pipe would wait for a writer.
        check_type(path, &stat(path).map_err(failed)?)?;
        let fd = retry_on_intr(|| open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())).map_err(failed)?;
        let regular = check_type(path, &fstat(&fd).map_err(failed)?)?;
        let in_memory = is_on_tmpfs(&fd);
        Ok(Self { fd: Arc::new(fd), path: path.to_owned(), regular, in_memory, named: true })
    }

    /// Takes a file that the caller has opened for reading, under the name of `path`. If this
    /// process finds another file there, or none, it does not watch the name: it may see other
    /// directories. See [`SourceFile::moved`].
    pub fn opened(fd: Arc<OwnedFd>, path: &Path) -> Result<Self, PublishError> {
        let own = fstat(&fd).map_err(|errno| failure(path, errno))?;
        let regular = check_type(path, &own)?;
        let named = stat(path).is_ok_and(|there| (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino));
        let in_memory = is_on_tmpfs(&fd);
        Ok(Self { fd, path: path.to_owned(), regular, in_memory, named })
    }

    /// The open descriptor.
    pub const fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// False for block devices.
    pub const fn is_regular(&self) -> bool {
        self.regular
    }

    /// Its length, which is not 0, and times, now.
    pub fn fingerprint(&self) -> Result<Fingerprint, PublishError> {
        let failed = |errno| failure(&self.path, errno);
        let stat = fstat(&self.fd).map_err(failed)?;
        let print = if self.regular {
            let [modified_ns, status_changed_ns] = times_ns(&stat);
            Fingerprint { length_bytes: stat.st_size as u64, modified_ns, status_changed_ns }
        } else {
            let length_bytes = seek(&self.fd, SeekFrom::End(0)).map_err(failed)?;
            Fingerprint { length_bytes, modified_ns: 0, status_changed_ns: 0 }
        };
        if print.length_bytes == 0 { Err(PublishError::Empty(self.path.clone())) } else { Ok(print) }
    }

    /// Its stamp now; `None` if a write could leave it as it is. That is so for block devices, and
    /// where another machine or a FUSE daemon may write.
    pub fn stamp(&self) -> Option<Stamp> {
        let stat = fstat(&self.fd).ok().filter(|_| self.regular && self.changes_are_local())?;
        let [modified_ns, status_changed_ns] = times_ns(&stat);
        Some(Stamp { device: stat.st_dev, inode: stat.st_ino, modified_ns, status_changed_ns })
    }

    /// True for file systems whose files change through this kernel only. Numbers from statfs(2).
    pub fn changes_are_local(&self) -> bool {
        const EXT: u64 = 0xEF53;
        const XFS: u64 = 0x5846_5342;
        const BTRFS: u64 = 0x9123_683E;
        const F2FS: u64 = 0xF2F5_2010;
        const BCACHEFS: u64 = 0xCA45_1A4E;
        fstatfs(&self.fd).is_ok_and(|fs| [EXT, XFS, BTRFS, TMPFS, F2FS, BCACHEFS].contains(&(fs.f_type as u64)))
    }

    /// The present state of its name, as far as this process may look.
    pub fn moved(&self) -> Option<Moved> {
        let own = fstat(&self.fd).ok().filter(|_| self.named)?;
        match stat(&self.path) {
            Ok(there) if (there.st_dev, there.st_ino) != (own.st_dev, own.st_ino) => Some(Moved::Replaced),
            Err(Errno::NOENT | Errno::NOTDIR) => Some(Moved::Unlinked),
            _ => None,
        }
    }

    /// True if an extent can be read without a wait for the disk; see
    /// [`disk_reads::is_in_memory`].
    pub fn is_in_memory(&self, extent: Extent) -> bool {
        self.in_memory || disk_reads::is_in_memory(&self.fd, extent)
    }

    /// Reads `bytes` from `offset`; a short read happens only at the end of the file.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        let mut done = 0;
        while done < bytes.len() {
            match retry_on_intr(|| pread(&self.fd, &mut bytes[done..], offset + done as u64))? {
                0 => break,
                count => done += count,
            }
        }
        Ok(done)
    }
}

/// When a file's bytes, and when its state, changed last.
fn times_ns(stat: &Stat) -> [i128; 2] {
    let ns = |seconds: i64, rest: u64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    [ns(stat.st_mtime, stat.st_mtime_nsec), ns(stat.st_ctime, stat.st_ctime_nsec)]
}

/// True for a regular file, false for a block device.
fn check_type(path: &Path, stat: &Stat) -> Result<bool, PublishError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(true),
        FileType::BlockDevice => Ok(false),
        FileType::Directory => Err(PublishError::Directory(path.to_owned())),
        _ => Err(PublishError::NotAFile(path.to_owned())),
    }
}

/// The error for what the kernel said about `path`.
pub fn failure(path: &Path, errno: Errno) -> PublishError {
    let path = path.to_owned();
    match errno {
        Errno::NOENT | Errno::NOTDIR => PublishError::Missing(path),
        Errno::ACCESS | Errno::PERM => PublishError::Unreadable(path),
        _ => PublishError::Io { path, source: errno.into() },
    }
}

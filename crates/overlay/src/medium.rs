//! The sparse file that holds granules, each at its own place: in memory, or in a folder.
//!
//! Invariant: bytes count only for granules that the map has as held; all other bytes are never
//! read. The overlay orders accesses to a range. The file's pages are never handed to sockets:
//! unlike those of a store they change in place.

use rustix::fs::{FallocateFlags, MemfdFlags, SeekFrom, fallocate, fdatasync, ftruncate, memfd_create, seek};
use rustix::io::{Errno, ReadWriteFlags, preadv2, retry_on_intr};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// A file for granules.
#[derive(Debug)]
pub struct Medium {
    file: File,
    volatile: bool,
}

impl Medium {
    /// A memory file of `length_bytes` of nothing.
    pub fn in_memory(length_bytes: u64) -> io::Result<Self> {
        let file = memfd_create("vfield-overlay", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, length_bytes)?;
        Ok(Self { file: file.into(), volatile: true })
    }

    /// A file on a disk.
    pub const fn on_disk(file: File) -> Self {
        Self { file, volatile: false }
    }

    /// True if its changes end with the process.
    pub const fn is_volatile(&self) -> bool {
        self.volatile
    }

    /// Fills `bytes` from `offset`.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    /// The same without a wait for a disk.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is something to wait for, besides those of a read.
    pub fn read_now(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        if self.volatile {
            return self.read(offset, bytes);
        }
        let length = bytes.len();
        let read = preadv2(&self.file, &mut [IoSliceMut::new(bytes)], offset, ReadWriteFlags::NOWAIT)?;
        if read == length { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    /// Writes all of `bytes` at `offset`.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Gives the room of a range back; it reads as zeros. On a file system that cannot do that the
    /// room stays taken.
    pub fn punch(&self, range: Range<u64>) -> io::Result<()> {
        let (offset, length) = (range.start, range.end - range.start);
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match retry_on_intr(|| fallocate(&self.file, mode, offset, length)) {
            // Only held granules are read, so this wastes room and nothing else.
            Err(Errno::OPNOTSUPP) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Writes all changes to the disk.
    pub fn sync(&self) -> io::Result<()> {
        if self.volatile { Ok(()) } else { Ok(fdatasync(&self.file)?) }
    }

    /// The first range at or after `from` that takes up room.
    pub fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        let start = match seek(&self.file, SeekFrom::Data(from)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        Ok(Some(start..seek(&self.file, SeekFrom::Hole(start))?))
    }
}

/// True if an error says that there is no room, rather than that something is broken.
pub fn is_full(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::NOMEM | Errno::DQUOT | Errno::FBIG))
}

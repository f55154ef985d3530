//! The sparse file of a store, in memory or on a disk, and the few operations on it.
//!
//! Invariants of one in memory: bytes of chunks are written only into holes. To replace them a
//! range is punched first. That gives its pages back to the kernel, and leaves those that a socket
//! still holds to the socket. One in large pages is not punched: a range gets the same bytes again,
//! or its first ones. The length is sealed, so a mapping by another process stays valid.
//! Only the store uses it, and orders the operations.

use super::large_pages::LargePages;
use rustix::fs::{
    FallocateFlags, MemfdFlags, OFlags, SealFlags, SeekFrom, fallocate, fcntl_add_seals, fcntl_get_seals, fcntl_getfl,
    fstat, fstatvfs, ftruncate, memfd_create, readlink, seek,
};
use rustix::io::{Errno, FdFlags, ReadWriteFlags, fcntl_setfd, pread, preadv2, pwrite, retry_on_intr};
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::sync::Arc;

/// Neither shorter nor longer, for good.
const LENGTH: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
/// With one of these nothing can be put into it.
const READ_ONLY: SealFlags = SealFlags::WRITE.union(SealFlags::FUTURE_WRITE);

/// Names of memory files, by which the next process knows the size of their pages.
const NAME: &str = "vfield-store";
const LARGE_NAME: &str = "vfield-store-2m";

/// A sparse file.
#[derive(Debug)]
pub struct SparseFile {
    fd: Arc<OwnedFd>,
    large_pages: Option<LargePages>,
}

impl SparseFile {
    /// `length_bytes` of nothing, in memory and without a name.
    pub fn new(length_bytes: u64) -> io::Result<Self> {
        Self::named(NAME, length_bytes)
    }

    /// The same in pages of 2 MiB, as far as the kernel has them.
    pub fn in_large_pages(length_bytes: u64) -> io::Result<Self> {
        let file = Self::named(LARGE_NAME, length_bytes)?;
        Ok(Self { large_pages: Some(LargePages::new(length_bytes)), ..file })
    }

    fn named(name: &str, length_bytes: u64) -> io::Result<Self> {
        let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        retry_on_intr(|| ftruncate(&fd, length_bytes))?;
        fcntl_add_seals(&fd, LENGTH | SealFlags::SEAL)?;
        Ok(Self::of(fd))
    }

    fn of(fd: OwnedFd) -> Self {
        Self { fd: Arc::new(fd), large_pages: None }
    }

    /// The file that an earlier process made with [`SparseFile::new`], and its length in bytes;
    /// `None` for any other file.
    pub fn made_before(fd: OwnedFd) -> io::Result<Option<(Self, u64)>> {
        // Only memory files have seals.
        let Ok(seals) = fcntl_get_seals(&fd) else { return Ok(None) };
        let writable = fcntl_getfl(&fd)?.contains(OFlags::RDWR) && !seals.intersects(READ_ONLY);
        if !writable || !seals.contains(LENGTH) {
            return Ok(None);
        }
        fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
        let length_bytes = fstat(&fd)?.st_size.cast_unsigned();
        let link = readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new())?;
        let is_large = link.to_bytes().starts_with(format!("/memfd:{LARGE_NAME} ").as_bytes());
        let large_pages = is_large.then(|| LargePages::new(length_bytes));
        Ok(Some((Self { large_pages, ..Self::of(fd) }, length_bytes)))
    }

    /// True if it is in large pages, and so is never punched.
    pub const fn is_in_large_pages(&self) -> bool {
        self.large_pages.is_some()
    }

    /// A file on a disk, of this length from now on; the caller has locked out other processes.
    pub fn on_disk(fd: OwnedFd, length_bytes: u64) -> io::Result<Self> {
        retry_on_intr(|| ftruncate(&fd, length_bytes))?;
        Ok(Self::of(fd))
    }

    /// A file on a disk as an earlier process left it, and its length in bytes.
    pub fn left_on_disk(fd: OwnedFd) -> io::Result<(Self, u64)> {
        let length_bytes = fstat(&fd)?.st_size.cast_unsigned();
        Ok((Self::of(fd), length_bytes))
    }

    /// Bytes that it takes, holes not counted.
    pub fn taken_bytes(&self) -> u64 {
        // Unknown is none: nothing but a bound depends on it.
        fstat(&self.fd).map_or(0, |about| about.st_blocks.cast_unsigned() * 512)
    }

    /// Bytes that its file system has left.
    pub fn free_bytes(&self) -> io::Result<u64> {
        free_bytes(&self.fd)
    }

    /// False if a range is a hole.
    pub fn has_bytes(&self, range: Range<u64>) -> io::Result<bool> {
        match seek(&self.fd, SeekFrom::Data(range.start)) {
            Ok(start) => Ok(start < range.end),
            Err(Errno::NXIO) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Fills `bytes` from `offset` if no disk has to be waited for; false if one has.
    pub fn read_cached(&self, offset: u64, bytes: &mut [u8]) -> bool {
        let length = bytes.len();
        let read = preadv2(&self.fd, &mut [IoSliceMut::new(bytes)], offset, ReadWriteFlags::NOWAIT);
        read.is_ok_and(|count| count == length)
    }

    /// The ranges of the file that have bytes, in order; a hole between two of them is at least a
    /// page.
    pub fn ranges(&self) -> io::Result<Vec<Range<u64>>> {
        let mut ranges = Vec::new();
        let mut at = 0;
        loop {
            let start = match seek(&self.fd, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => return Ok(ranges),
                Err(error) => return Err(error.into()),
            };
            at = seek(&self.fd, SeekFrom::Hole(start))?;
            ranges.push(start..at);
        }
    }

    /// The descriptor, for `sendfile`, and for the keeper.
    pub fn fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    /// Fills `bytes` from `offset`.
    pub fn read(&self, mut offset: u64, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = retry_on_intr(|| pread(&self.fd, &mut *bytes, offset))?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes = &mut bytes[count..];
            offset += count as u64;
        }
        Ok(())
    }

    /// Writes `bytes` at `offset`, where there are none unless nobody is handed the pages there.
    pub fn write(&self, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
        if let Some(pages) = &self.large_pages {
            pages.take(self.fd.as_fd(), offset..offset + bytes.len() as u64)?;
        }
        while !bytes.is_empty() {
            let count = retry_on_intr(|| pwrite(&self.fd, bytes, offset))?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            bytes = &bytes[count..];
            offset += count as u64;
        }
        Ok(())
    }

    /// Gives the pages of a range back to the kernel, unless they are large.
    pub fn punch(&self, offset: u64, length_bytes: u64) -> Result<(), Errno> {
        if self.is_in_large_pages() {
            return Ok(());
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        retry_on_intr(|| fallocate(&self.fd, mode, offset, length_bytes))
    }
}

/// Bytes that a file system has left.
pub fn free_bytes(on: impl AsFd) -> io::Result<u64> {
    let system = fstatvfs(on)?;
    Ok(system.f_bavail.saturating_mul(system.f_frsize))
}

/// True if the kernel keeps memory files in pages of the ordinary size only, as is its default. A
/// part of a huge page cannot be given back while a socket holds the page. The kernel zeroes it in
/// place instead, and so changes bytes under way.
pub fn pages_are_small() -> bool {
    const SETTINGS: &str = "/sys/kernel/mm/transparent_hugepage";
    let chosen = |path: &std::path::Path| std::fs::read_to_string(path).unwrap_or_default();
    let harmless = |setting: &str| {
        let word = setting.split(['[', ']']).nth(1).unwrap_or("never");
        matches!(word, "never" | "advise" | "deny" | "inherit")
    };
    let sizes = std::fs::read_dir(SETTINGS).into_iter().flatten().flatten().map(|entry| entry.path());
    let own = sizes.map(|size| size.join("shmem_enabled"));
    std::iter::once(std::path::Path::new(SETTINGS).join("shmem_enabled"))
        .chain(own)
        .all(|path| harmless(&chosen(&path)))
}

//! The memory file of a store: a sparse memfd, with the three things that are done to it.
//!
//! Invariant: bytes are written only where there are none; to replace them a range is punched first, which
//! gives its pages back to the kernel and leaves those that a socket still holds to the socket. Used by
//! the store only, which says who may do what when.

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::io::{Errno, pread, pwrite, retry_on_intr};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A sparse file without a name, in memory.
pub struct MemoryFile {
    fd: Arc<OwnedFd>,
}

impl MemoryFile {
    /// `length_bytes` of nothing.
    pub fn new(length_bytes: u64) -> io::Result<Self> {
        let fd = memfd_create("vfield-store", MemfdFlags::CLOEXEC)?;
        retry_on_intr(|| ftruncate(&fd, length_bytes))?;
        Ok(Self { fd: Arc::new(fd) })
    }

    /// The file, for `sendfile`.
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

    /// Writes `bytes` at `offset`, where there are none.
    pub fn write(&self, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
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

    /// Gives the pages of a range back to the kernel.
    pub fn punch(&self, offset: u64, length_bytes: u64) -> Result<(), Errno> {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        retry_on_intr(|| fallocate(&self.fd, mode, offset, length_bytes))
    }
}

/// True if the kernel keeps memory files in pages of the ordinary size only, as it does unless told
/// otherwise. A part of a huge page cannot be given back while a socket holds the page: the kernel zeroes
/// it in place instead, under the feet of what is being sent.
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

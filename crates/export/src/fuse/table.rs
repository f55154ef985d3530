//! What the kernel knows of a mount, in memory that outlives the process: which image is which
//! inode, and how often each is open.
//!
//! A keeper of this file and of the mount's descriptor keeps the mount. Invariant: a found file is
//! hostile until parsed. If its process was killed in the middle of a write, its checksum is wrong.

use crate::packed::{Packer, Unpacker};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::{pread, pwrite, retry_on_intr};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// Raised when the content changes its meaning.
const VERSION: u8 = 1;
/// Length of the file; a thousand files fit. Only written pages take memory.
const FILE_BYTES: u64 = 1 << 20;
/// Length and checksum of what follows them.
const HEAD_BYTES: usize = 4 + 8;
/// Neither shorter nor longer, for good.
const LENGTH: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// What the kernel knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// The directory, as it was asked for, and absolute.
    pub asked: PathBuf,
    /// Where the mount is: without symbolic links.
    pub path: PathBuf,
    /// The mount's device number.
    pub device: String,
    /// How many files there have ever been.
    pub made: u64,
    pub files: Vec<KnownFile>,
}

/// A file that the kernel knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownFile {
    pub inode: u64,
    /// How often it is open.
    pub opens: u64,
    /// The description of its source, which tells images apart.
    pub image: String,
}

impl Known {
    fn encode(&self) -> Vec<u8> {
        let mut out = Packer::default();
        out.byte(VERSION);
        out.run(self.asked.as_os_str().as_bytes());
        out.run(self.path.as_os_str().as_bytes());
        out.run(self.device.as_bytes());
        out.number(self.made);
        out.word(self.files.len() as u32);
        for file in &self.files {
            out.number(file.inode);
            out.number(file.opens);
            out.run(file.image.as_bytes());
        }
        out.finish()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = Unpacker(bytes);
        (rest.byte()? == VERSION).then_some(())?;
        let path = |rest: &mut Unpacker<'_>| rest.run().map(|run| PathBuf::from(OsStr::from_bytes(run)));
        let known = Self {
            asked: path(&mut rest)?,
            path: path(&mut rest)?,
            device: rest.text()?.to_owned(),
            made: rest.number()?,
            files: rest.list(|rest| {
                Some(KnownFile { inode: rest.number()?, opens: rest.number()?, image: rest.text()?.to_owned() })
            })?,
        };
        rest.is_done().then_some(known)
    }
}

/// A memory file with all that the kernel knows of a mount.
#[derive(Debug)]
pub(super) struct Record(OwnedFd);

impl Record {
    /// An empty one.
    pub fn new() -> io::Result<Self> {
        let file = memfd_create("vfield-mount", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        retry_on_intr(|| ftruncate(&file, FILE_BYTES))?;
        fcntl_add_seals(&file, LENGTH | SealFlags::SEAL)?;
        Ok(Self(file))
    }

    /// The record of an earlier process, with its content; `None` for any other file.
    pub fn found(file: OwnedFd) -> Option<(Self, Known)> {
        let whole = fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(LENGTH))
            && fstat(&file).is_ok_and(|stat| stat.st_size.cast_unsigned() == FILE_BYTES);
        let mut bytes = vec![0; if whole { FILE_BYTES as usize } else { 0 }];
        // A memory file is read at once.
        let read = retry_on_intr(|| pread(&file, &mut bytes[..], 0)).ok()?;
        let mut rest = Unpacker(&bytes[..read]);
        let (length, sum) = (rest.word()? as usize, rest.number()?);
        let content = bytes.get(HEAD_BYTES..)?.get(..length)?;
        let known = (checksum(content) == sum).then(|| Known::decode(content))??;
        Some((Self(file), known))
    }

    /// Replaces the content. If that fails, the mount ends with the process.
    pub fn write(&self, known: &Known) {
        let content = known.encode();
        let mut out = Packer::default();
        out.word(content.len() as u32);
        out.number(checksum(&content));
        let mut bytes = out.finish();
        bytes.extend(content);
        if bytes.len() as u64 > FILE_BYTES || retry_on_intr(|| pwrite(&self.0, &bytes, 0)) != Ok(bytes.len()) {
            tracing::warn!("the mount cannot be kept for the next process");
            let _ = retry_on_intr(|| pwrite(&self.0, &[0; HEAD_BYTES], 0));
        }
    }
}

impl AsFd for Record {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// FNV-1a: against half a write, not against anybody.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        let file = |inode, opens| KnownFile { inode, opens, image: format!("image {inode}") };
        let (asked, path) = (PathBuf::from("/mnt/a"), PathBuf::from("/mnt/b"));
        Known { asked, path, device: "0:51".into(), made: 3, files: vec![file(2, 0), file(4, 7)] }
    }

    #[test]
    fn the_next_process_finds_the_last_content() {
        let record = Record::new().unwrap();
        record.write(&Known::default());
        record.write(&known());
        let file = record.as_fd().try_clone_to_owned().unwrap();
        assert_eq!(Record::found(file).map(|(_, found)| found), Some(known()));
    }

    #[test]
    fn half_a_write_and_other_files_are_none() {
        let record = Record::new().unwrap();
        let found = || Record::found(record.as_fd().try_clone_to_owned().unwrap()).map(|(_, found)| found);
        assert_eq!(found(), None, "nothing was written");
        record.write(&known());
        pwrite(&record, b"x", 40).unwrap();
        assert_eq!(found(), None, "a byte has changed");
        record.write(&known());
        pwrite(&record, &[VERSION + 1], HEAD_BYTES as u64).unwrap();
        assert_eq!(found(), None, "another version");
        assert!(Record::found(tempfile::tempfile().unwrap().into()).is_none());
    }
}

//! Puts the pieces of an answer into a request, with as few calls and copies as possible.
//!
//! Owns the mappings of the files in which pieces lie, most often one: the store's memory. Bytes go
//! from the file's own pages to the request's in one copy, which the kernel makes; `pread` into a
//! buffer would make two of it. Invariant: mapped bytes are touched by the kernel only, on our
//! behalf, so a file that was cut short is an error and no signal. Called by the queue and by the
//! tasks that wait; knows nothing of requests.

#![expect(unsafe_code, reason = "pwritev from mapped files: a slice over bytes that others change would be unsound")]

use crate::zeros::zeros;
use rustix::fs::Stat;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr;
use vfield_block::source::{FilePiece, Piece};

/// Files that stay mapped: the store's, the origin's and some more; the oldest one goes.
const MAPPINGS_MAX: usize = 4;
/// How much is copied at a time where a file cannot be mapped: what fits into a core's own cache
/// with room to spare.
const COPY_BYTES: usize = 64 << 10;
/// Parts in one call; the kernel's limit is 1024. A request of 1 MiB in chunks of 16 KiB has 64.
const PARTS_MAX: usize = 256;

/// Writes pieces, and remembers what it has mapped for that.
#[derive(Default)]
pub(super) struct Gather {
    mappings: Vec<Mapping>,
    parts: Vec<libc::iovec>,
    copy: Vec<u8>,
    maps: bool,
}

impl Gather {
    /// For a thread that answers many requests: maps files.
    pub fn mapping() -> Self {
        Self { maps: true, ..Self::default() }
    }

    /// For a single answer: copies.
    pub fn copying() -> Self {
        Self::default()
    }

    /// Writes `pieces`, one behind the other, to `to` from offset `at` on.
    ///
    /// # Errors
    /// If a piece's file does not have its bytes, or `to` does not take them.
    pub fn write(&mut self, to: BorrowedFd<'_>, mut at: u64, pieces: &[Piece]) -> io::Result<()> {
        self.parts.clear();
        for piece in pieces {
            if self.parts.len() >= PARTS_MAX {
                at = self.flush(to, at)?;
            }
            match piece {
                Piece::Bytes(bytes) => self.push(bytes.as_ptr(), bytes.len()),
                Piece::Zero(length) => {
                    let mut left = *length;
                    while left > 0 {
                        if self.parts.len() >= PARTS_MAX {
                            at = self.flush(to, at)?;
                        }
                        let zeros = zeros();
                        let part = left.min(zeros.len() as u64);
                        self.push(zeros.as_ptr(), part as usize);
                        left -= part;
                    }
                }
                Piece::File(file) => match self.find(file) {
                    Some(start) => self.push(start, file.len() as usize),
                    None => {
                        at = self.flush(to, at)?;
                        at = self.copy(to, at, file)?;
                    }
                },
            }
        }
        self.flush(to, at).map(drop)
    }

    fn push(&mut self, start: *const u8, length: usize) {
        self.parts.push(libc::iovec { iov_base: start.cast_mut().cast(), iov_len: length });
    }

    /// Writes all parts and forgets them; returns the offset behind them.
    fn flush(&mut self, to: BorrowedFd<'_>, mut at: u64) -> io::Result<u64> {
        let mut first = 0;
        while first < self.parts.len() {
            let parts = &self.parts[first..];
            // SAFETY: the parts lie in mappings that `self` keeps, in pieces that the caller of
            // `write` lends, or in statics, and the kernel only reads them. There are at most
            // `PARTS_MAX`.
            let count = unsafe { libc::pwritev(to.as_raw_fd(), parts.as_ptr(), parts.len() as i32, at as i64) };
            let Ok(mut written) = usize::try_from(count) else {
                match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => continue,
                    error => return Err(error),
                }
            };
            if written == 0 {
                return Err(io::Error::from(Errno::FAULT));
            }
            at += written as u64;
            while let Some(part) = self.parts.get_mut(first)
                && written > 0
            {
                let done = written.min(part.iov_len);
                part.iov_base = part.iov_base.wrapping_byte_add(done);
                part.iov_len -= done;
                written -= done;
                first += usize::from(part.iov_len == 0);
            }
        }
        self.parts.clear();
        Ok(at)
    }

    /// Copies a piece through a buffer; returns the offset behind it.
    fn copy(&mut self, to: BorrowedFd<'_>, at: u64, piece: &FilePiece) -> io::Result<u64> {
        let length = piece.len().min(COPY_BYTES as u64) as usize;
        if self.copy.len() < length {
            self.copy.resize(length, 0);
        }
        let mut done = 0;
        while done < piece.len() {
            let room = (piece.len() - done).min(length as u64) as usize;
            let read = rustix::io::retry_on_intr(|| {
                rustix::io::pread(piece.fd(), &mut self.copy[..room], piece.offset() + done)
            })?;
            if read == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("the file of {piece:?} ends early")));
            }
            let mut written = 0;
            while written < read {
                let from = &self.copy[written..read];
                written += match rustix::io::retry_on_intr(|| rustix::io::pwrite(to, from, at + done + written as u64))?
                {
                    0 => return Err(io::Error::from(Errno::FAULT)),
                    count => count,
                };
            }
            done += read as u64;
        }
        Ok(at + done)
    }

    /// Where a piece lies in memory; `None` if its file cannot be mapped.
    fn find(&mut self, piece: &FilePiece) -> Option<*const u8> {
        if !self.maps {
            return None;
        }
        // A mapped file lives as long as its mapping, so no other file can have its number
        // meanwhile.
        let stat = rustix::fs::fstat(piece.fd()).ok()?;
        if let Some(known) = self.mappings.iter().find(|mapping| mapping.is_of(&stat)) {
            return known.place(piece);
        }
        let mapping = Mapping::new(piece.fd(), &stat)?;
        if self.mappings.len() == MAPPINGS_MAX {
            // Parts may still point into the one that would go.
            if !self.parts.is_empty() {
                return None;
            }
            self.mappings.remove(0);
        }
        let place = mapping.place(piece);
        self.mappings.push(mapping);
        place
    }
}

/// A whole file in memory, to be read by the kernel.
struct Mapping {
    device: u64,
    inode: u64,
    start: *mut std::ffi::c_void,
    length: usize,
}

impl Mapping {
    fn new(file: BorrowedFd<'_>, stat: &Stat) -> Option<Self> {
        let length = usize::try_from(stat.st_size).ok().filter(|length| *length > 0)?;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let start = unsafe { mmap(ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, file, 0) }.ok()?;
        Some(Self { device: stat.st_dev, inode: stat.st_ino, start, length })
    }

    fn is_of(&self, stat: &Stat) -> bool {
        (self.device, self.inode) == (stat.st_dev, stat.st_ino)
    }

    /// Where a piece lies; `None` beyond what the file had when it was mapped.
    fn place(&self, piece: &FilePiece) -> Option<*const u8> {
        let end = piece.offset().checked_add(piece.len())?;
        let within = end <= self.length as u64;
        within.then(|| self.start.cast::<u8>().cast_const().wrapping_add(piece.offset() as usize))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; whoever holds the value has no parts that point
        // here. Failing would leak it.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;
    use std::sync::Arc;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn written(gather: &mut Gather, pieces: &[Piece]) -> io::Result<Vec<u8>> {
        let to = file(b"");
        gather.write(to.as_fd(), 0, pieces)?;
        let mut bytes = Vec::new();
        std::io::Seek::rewind(&mut &to)?;
        (&to).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn piece(file: &File, offset: u64, length: u64) -> Piece {
        Piece::File(FilePiece::new(Arc::new(file.try_clone().unwrap().into()), offset, length, None))
    }

    #[test]
    fn pieces_of_all_kinds_come_in_their_order() {
        let data: Vec<u8> = (0..200_000_u32).map(|n| ((n * 31) >> 3) as u8).collect();
        let from = file(&data);
        let pieces = || {
            vec![
                piece(&from, 5, 150_000),
                Piece::Zero(100_001),
                Piece::Bytes(Bytes::from_static(b"between")),
                piece(&from, 0, 3),
            ]
        };
        let expected = [&data[5..150_005], &vec![0; 100_001], b"between", &data[..3]].concat();
        for mut gather in [Gather::mapping(), Gather::copying()] {
            assert_eq!(written(&mut gather, &pieces()).unwrap(), expected);
            assert_eq!(written(&mut gather, &pieces()).unwrap(), expected);
            assert_eq!(gather.mappings.len(), usize::from(gather.maps));
        }
    }

    #[test]
    fn more_files_and_parts_than_are_kept_are_no_mistake() {
        let files: Vec<File> = (0..10_u8).map(|n| file(&[n; 5000])).collect();
        let pieces: Vec<Piece> = (0..1000).map(|n| piece(&files[n % 10], n as u64, 2)).collect();
        let expected: Vec<u8> = (0..1000).flat_map(|n| [(n % 10) as u8; 2]).collect();
        assert_eq!(written(&mut Gather::mapping(), &pieces).unwrap(), expected);
    }

    #[test]
    fn a_file_that_was_cut_short_is_an_error() {
        let from = file(&[1; 50_000]);
        let mut gather = Gather::mapping();
        assert_eq!(written(&mut gather, &[piece(&from, 0, 50_000)]).unwrap().len(), 50_000);
        from.set_len(10).unwrap();
        for mut gather in [gather, Gather::mapping(), Gather::copying()] {
            assert!(written(&mut gather, &[piece(&from, 20_000, 10_000)]).is_err());
        }
    }
}

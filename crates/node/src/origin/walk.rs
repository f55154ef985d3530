//! Finds the data of a file, in batches of whole chunks.
//!
//! Invariant: each byte outside holes lies in exactly one batch; batches ascend and start at chunk
//! boundaries. The hashing threads share one walk behind a lock. It does not read.

use super::file::SourceFile;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::ops::Range;

/// A walk over a file's data from its start.
pub struct Walk<'a> {
    file: &'a SourceFile,
    length_bytes: u64,
    chunk_bytes: u64,
    batch_bytes: u64,
    /// All bytes before it were given out or are holes.
    at: u64,
    /// End of the run of data that `at` lies in; not after `at` if unknown.
    data_end: u64,
}

impl<'a> Walk<'a> {
    /// Over the first `length_bytes` of `file`. `batch_bytes` is a multiple of `chunk_bytes`.
    pub fn new(file: &'a SourceFile, length_bytes: u64, chunk_bytes: u64, batch_bytes: u64) -> Self {
        assert!(batch_bytes.is_multiple_of(chunk_bytes), "batches of {batch_bytes} bytes");
        Self { file, length_bytes, chunk_bytes, batch_bytes, at: 0, data_end: 0 }
    }

    /// The next bytes to hash: whole chunks, but for the end of the file.
    pub fn next_batch(&mut self) -> Result<Option<Range<u64>>, Errno> {
        if self.at >= self.data_end && !self.find_data()? {
            return Ok(None);
        }
        let start = self.at;
        let data_end = self.data_end.next_multiple_of(self.chunk_bytes);
        self.at = data_end.min(start.saturating_add(self.batch_bytes)).min(self.length_bytes);
        Ok(Some(start..self.at))
    }

    /// Moves on to the next run of data; false if there is none.
    fn find_data(&mut self) -> Result<bool, Errno> {
        if self.at >= self.length_bytes {
            return Ok(false);
        }
        if !self.file.is_regular() {
            self.data_end = self.length_bytes;
            return Ok(true);
        }
        match seek(self.file.fd(), SeekFrom::Data(self.at)) {
            // Nothing but a hole up to the end (or the file has become shorter: the publisher finds
            // out).
            Err(Errno::NXIO) => {
                self.at = self.length_bytes;
                return Ok(false);
            }
            // A file system that does not know holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => self.data_end = self.length_bytes,
            Err(errno) => return Err(errno),
            Ok(data) => {
                self.data_end = seek(self.file.fd(), SeekFrom::Hole(data))?.min(self.length_bytes);
                self.at = self.at.max(data / self.chunk_bytes * self.chunk_bytes);
            }
        }
        Ok(self.at < self.data_end)
    }
}

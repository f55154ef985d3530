//! The bytes of an image in ascending order, from where they are made to where they are written.
//!
//! Owns the buffers between two threads: one fills them and compares them with the earlier image,
//! the other hashes and writes them, which takes longer. A buffer of zeros is skipped, so the
//! image's file has holes there. The first buffer is written last, since its superblock has a
//! number that all others decide.

use crate::Written;
use crate::earlier::Earlier;
use crate::erofs::{BLOCK_BYTES, Superblock};
use crate::error::PackError;
use crate::report::Shared;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender};

/// Bytes of a buffer: a multiple of every chunk, and few enough to stay in a processor's cache.
pub const BUFFER_BYTES: usize = 1 << 20;
/// Buffers that wait to be written: the two threads then rarely wait for each other.
pub const BUFFERS: usize = 4;

/// A buffer and the offset of its first byte, a multiple of [`BUFFER_BYTES`].
#[derive(Debug)]
pub struct Filled {
    offset: u64,
    bytes: Vec<u8>,
    /// What it has in common with the earlier image; nothing yet for the first buffer.
    shared: Shared,
}

/// Counts the chunks with data, and those that an earlier image has at the same place.
#[derive(Debug)]
pub struct Comparison<'a> {
    earlier: Option<&'a Earlier>,
    chunk_bytes: usize,
    length_bytes: u64,
    /// What the earlier image has where a buffer goes.
    before: Vec<u8>,
}

impl<'a> Comparison<'a> {
    /// For an image of `length_bytes`, with the earlier one if there is any.
    pub const fn new(earlier: Option<&'a Earlier>, chunk_bytes: u64, length_bytes: u64) -> Self {
        Self { earlier, chunk_bytes: chunk_bytes as usize, length_bytes, before: Vec::new() }
    }

    /// The chunks of a buffer.
    fn compare(&mut self, offset: u64, bytes: &[u8]) -> Result<Shared, PackError> {
        let bytes = within(bytes, offset, self.length_bytes);
        if let Some(earlier) = self.earlier {
            let there = earlier.length_bytes.saturating_sub(offset).min(bytes.len() as u64) as usize;
            self.before.resize(there, 0);
            earlier.read(offset, &mut self.before)?;
        }
        let mut shared = Shared::default();
        for (index, chunk) in bytes.chunks(self.chunk_bytes).enumerate().filter(|(_, chunk)| !is_zero(chunk)) {
            let at = index * self.chunk_bytes;
            shared.with_data += 1;
            shared.same += u64::from(self.before.get(at..at + chunk.len()) == Some(chunk));
        }
        Ok(shared)
    }
}

/// The part of a buffer that lies within an image.
fn within(bytes: &[u8], offset: u64, length_bytes: u64) -> &[u8] {
    &bytes[..bytes.len().min((length_bytes - offset) as usize)]
}

/// The end of the stream that is filled.
#[derive(Debug)]
pub struct Filler<'a> {
    /// Offset of the buffer's first byte.
    offset: u64,
    /// Bytes of the buffer that are filled; those behind are zeros.
    used: usize,
    bytes: Vec<u8>,
    comparison: Comparison<'a>,
    to: SyncSender<Filled>,
    empty: Receiver<Vec<u8>>,
}

/// Why the bytes of an image ended.
#[derive(Debug)]
pub enum Ended {
    /// The writer is gone and says why.
    Stopped,
    /// The source or the earlier image could not be read.
    Failed(PackError),
}

impl From<PackError> for Ended {
    fn from(error: PackError) -> Self {
        Self::Failed(error)
    }
}

impl<'a> Filler<'a> {
    /// A stream at offset 0. `empty` gives back buffers that were sent to `to`.
    pub fn new(comparison: Comparison<'a>, to: SyncSender<Filled>, empty: Receiver<Vec<u8>>) -> Self {
        Self { offset: 0, used: 0, bytes: vec![0; BUFFER_BYTES], comparison, to, empty }
    }

    /// Leaves zeros up to an offset.
    ///
    /// # Errors
    /// If the other end is gone, or the earlier image cannot be read; the same holds for
    /// [`Filler::room`], [`Filler::put`] and [`Filler::finish`].
    ///
    /// # Panics
    /// If the stream is already beyond it.
    pub fn skip_to(&mut self, offset: u64) -> Result<(), Ended> {
        assert!(offset >= self.offset + self.used as u64, "bytes come in ascending order");
        if offset >= self.offset + BUFFER_BYTES as u64 {
            self.send()?;
            self.offset = offset / BUFFER_BYTES as u64 * BUFFER_BYTES as u64;
        }
        self.used = (offset - self.offset) as usize;
        Ok(())
    }

    /// The next bytes to be filled: at least one and at most `wanted`.
    pub fn room(&mut self, wanted: u64) -> Result<&mut [u8], Ended> {
        if self.used == BUFFER_BYTES {
            self.send()?;
            self.offset += BUFFER_BYTES as u64;
        }
        let start = self.used;
        self.used += wanted.min((BUFFER_BYTES - start) as u64) as usize;
        Ok(&mut self.bytes[start..self.used])
    }

    /// Copies `bytes` into the stream.
    pub fn put(&mut self, mut bytes: &[u8]) -> Result<(), Ended> {
        while !bytes.is_empty() {
            let room = self.room(bytes.len() as u64)?;
            let (now, later) = bytes.split_at(room.len());
            room.copy_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    /// Ends the stream.
    pub fn finish(mut self) -> Result<(), Ended> {
        self.send()
    }

    fn send(&mut self) -> Result<(), Ended> {
        if self.used == 0 {
            return Ok(());
        }
        let mut next = self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(BUFFER_BYTES));
        next.clear();
        next.resize(BUFFER_BYTES, 0);
        let bytes = std::mem::replace(&mut self.bytes, next);
        self.used = 0;
        let offset = self.offset;
        // The superblock is still to come.
        let shared = if offset == 0 { Shared::default() } else { self.comparison.compare(offset, &bytes)? };
        self.to.send(Filled { offset, bytes, shared }).map_err(|_| Ended::Stopped)
    }
}

/// The end of the stream that writes.
#[derive(Debug)]
pub struct Writer<'a> {
    file: &'a fs::File,
    path: &'a Path,
    /// Of the first buffer.
    comparison: Comparison<'a>,
    hasher: blake3::Hasher,
    shared: Shared,
}

impl<'a> Writer<'a> {
    /// Writes an image to an empty file; `path` is its name, for messages.
    pub fn new(file: &'a fs::File, path: &'a Path, comparison: Comparison<'a>) -> Self {
        let chunks = comparison.length_bytes / comparison.chunk_bytes as u64;
        let shared = Shared { chunks, ..Shared::default() };
        Self { file, path, comparison, hasher: blake3::Hasher::new(), shared }
    }

    /// Writes all that comes, and then `superblock` with the number that the bytes decide. Returns
    /// what the image has in common with the earlier one.
    ///
    /// # Errors
    /// If a file cannot be written or read.
    pub fn run(
        mut self,
        filled: &Receiver<Filled>,
        emptied: &std::sync::mpsc::Sender<Vec<u8>>,
        superblock: Superblock,
        progress: &dyn Fn(Written),
    ) -> Result<Shared, PackError> {
        let (mut first, length_bytes) = (vec![0; BUFFER_BYTES], self.comparison.length_bytes);
        self.file.set_len(length_bytes).map_err(|error| PackError::Output(self.path.to_owned(), error))?;
        for Filled { offset, bytes, shared } in filled {
            if offset > 0 && is_zero(&bytes) {
                continue;
            }
            self.hasher.update(&offset.to_le_bytes());
            self.hasher.update(&bytes);
            if offset == 0 {
                first = bytes;
                continue;
            }
            self.write(offset, &bytes, shared)?;
            progress(Written { position_bytes: offset, length_bytes });
            // The other end may have ended.
            let _ = emptied.send(bytes);
        }
        self.hasher.update(&length_bytes.to_le_bytes());
        let mut uuid: [u8; 16] = self.hasher.finalize().as_bytes()[..16].try_into().expect("a hash has 32 bytes");
        // Version 8 of RFC 9562: a number that the application chooses.
        uuid[6] = uuid[6] & 0x0f | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        Superblock { uuid, ..superblock }.seal(&mut first[..BLOCK_BYTES as usize]);
        let shared = self.comparison.compare(0, &first)?;
        self.write(0, &first, shared)?;
        Ok(self.shared)
    }

    fn write(&mut self, offset: u64, bytes: &[u8], shared: Shared) -> Result<(), PackError> {
        self.shared.with_data += shared.with_data;
        self.shared.same += shared.same;
        let bytes = within(bytes, offset, self.comparison.length_bytes);
        // Runs of chunks with data are written at once.
        let (mut from, chunk_bytes) = (None, self.comparison.chunk_bytes);
        for (index, chunk) in bytes.chunks(chunk_bytes).enumerate() {
            let at = index * chunk_bytes;
            if is_zero(chunk) {
                self.write_run(offset, bytes, from.take(), at)?;
            } else {
                from = from.or(Some(at));
            }
        }
        self.write_run(offset, bytes, from, bytes.len())
    }

    fn write_run(&self, offset: u64, bytes: &[u8], from: Option<usize>, to: usize) -> Result<(), PackError> {
        let Some(from) = from else { return Ok(()) };
        let written = self.file.write_all_at(&bytes[from..to], offset + from as u64);
        written.map_err(|error| PackError::Output(self.path.to_owned(), error))
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

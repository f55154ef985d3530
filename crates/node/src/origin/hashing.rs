//! Hashes a file's data with several threads into a tree.
//!
//! Each thread reads a batch of adjacent chunks into a buffer of its own, which stays in the CPU's
//! cache, and hashes chunk by chunk. Invariant: the first failure stops all threads, and the
//! publisher gets it. Publishing calls it; it blocks until all is hashed.

use super::PublishError;
use super::file::{SourceFile, failure};
use super::walk::Walk;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::hash_tree::{Hash, HashTree, TreeBuilder, hash_chunk};
use vfield_core::image::{Header, ImageId};

/// Bytes read at once, or one chunk if that is more. Measured: 64 KiB to 512 KiB cost the same,
/// 0.76 to 0.94 of `b3sum`'s rate with as many threads (the rest is the copy that a mapping saves).
const BATCH_BYTES: u64 = 256 << 10;

/// Buffers start at a page: the kernel copies faster into it, and it could be used for direct i/o.
const ALIGNMENT: usize = 4096;

/// The progress of a publisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read and hashed so far.
    pub hashed_bytes: u64,
    /// All bytes before this one are hashed, being hashed, or a hole.
    pub position_bytes: u64,
    /// Length of the file.
    pub length_bytes: u64,
}

/// The state shared by the threads.
struct Work<'a> {
    file: &'a SourceFile,
    length_bytes: u64,
    chunk_bytes: u64,
    batch_bytes: u64,
    walk: Mutex<Walk<'a>>,
    builder: Mutex<TreeBuilder>,
    hashed_bytes: AtomicU64,
    stop: AtomicBool,
    progress: &'a (dyn Fn(Progress) + Sync),
}

/// The tree of the first `length_bytes` (not 0) of `file`.
pub fn hash_file(
    file: &SourceFile,
    length_bytes: u64,
    chunk_size: ChunkSize,
    threads: NonZeroUsize,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(Header, ImageId, HashTree), PublishError> {
    let builder = TreeBuilder::new(length_bytes, chunk_size)
        .map_err(|bad| PublishError::Io { path: file.path().to_owned(), source: std::io::Error::other(bad) })?;
    let batch_bytes = BATCH_BYTES.max(chunk_size.bytes());
    let work = Work {
        file,
        length_bytes,
        chunk_bytes: chunk_size.bytes(),
        batch_bytes,
        walk: Mutex::new(Walk::new(file, length_bytes, chunk_size.bytes(), batch_bytes)),
        builder: Mutex::new(builder),
        hashed_bytes: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        progress,
    };
    let batches = length_bytes.div_ceil(batch_bytes);
    let threads = threads.get().min(usize::try_from(batches).unwrap_or(usize::MAX));
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(|| work.run())).collect();
        let own = work.run();
        let joined =
            others.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.fold(own, Result::and)
    })?;
    Ok(work.builder.into_inner().unwrap_or_else(PoisonError::into_inner).finish())
}

impl Work<'_> {
    /// The work of one thread.
    fn run(&self) -> Result<(), PublishError> {
        let result = self.hash_batches();
        if result.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        result
    }

    fn hash_batches(&self) -> Result<(), PublishError> {
        let mut memory = vec![0; self.batch_bytes as usize + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let buffer = &mut memory[start..start + self.batch_bytes as usize];
        let mut hashes: Vec<(Chunk, Hash)> = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            let batch = lock(&self.walk).next_batch().map_err(|errno| failure(self.file.path(), errno))?;
            let Some(batch) = batch else { break };
            let bytes = self.read(&batch, buffer)?;
            let first = batch.start / self.chunk_bytes;
            hashes.extend((first..).map(Chunk).zip(bytes.chunks(self.chunk_bytes as usize).map(hash_chunk)));
            {
                let mut builder = lock(&self.builder);
                hashes.drain(..).for_each(|(chunk, hash)| builder.add(chunk, hash));
            }
            self.report(&batch);
        }
        Ok(())
    }

    fn read<'b>(&self, batch: &Range<u64>, buffer: &'b mut [u8]) -> Result<&'b [u8], PublishError> {
        let bytes = &mut buffer[..(batch.end - batch.start) as usize];
        let count = self.file.read(batch.start, bytes).map_err(|errno| failure(self.file.path(), errno))?;
        if count < bytes.len() {
            return Err(PublishError::ChangedWhileHashing(self.file.path().to_owned()));
        }
        Ok(bytes)
    }

    fn report(&self, batch: &Range<u64>) {
        let length = batch.end - batch.start;
        let hashed_bytes = self.hashed_bytes.fetch_add(length, Ordering::Relaxed) + length;
        (self.progress)(Progress { hashed_bytes, position_bytes: batch.end, length_bytes: self.length_bytes });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere is passed on when the threads are joined.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

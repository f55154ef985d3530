//! Answers to reads: the bytes of hits at once, those of misses when they have come.
//!
//! Owns the buffers in which replies are put together and the budget of bytes that wait. Invariant:
//! a reply is exactly as long as the part of the request that lies within the file, or an error;
//! never short, because the kernel takes a short reply for the end of the file. Called by
//! [`super::directory`]; knows nothing of names, inodes or mounts.

use super::error::errno;
use fuser::{Errno, ReplyData};
use rustix::io::Errno as SystemErrno;
use std::cell::RefCell;
use std::future::Future;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use vfield_block::extent::Extent;
use vfield_block::source::{BlockSource, FilePiece, Piece, ReadError};

/// Longest read the kernel may ask for: 256 pages, its own default limit
/// (`fs.fuse.max_pages_limit`).
pub(super) const READ_BYTES_MAX: u32 = 1 << 20;

/// Granularity of the budget of waiting reads: a page, the smallest read of the page cache.
const BUDGET_UNIT_BYTES: u32 = 4 << 10;

/// The sector that the file's length is rounded up to; loop devices drop a rest that is shorter.
const SECTOR_BYTES: u64 = 512;

/// An image as the file it is exported as.
pub(super) struct ImageFile {
    /// Where its bytes come from.
    pub source: Arc<dyn BlockSource>,
    /// Length of the file in bytes: the source's, rounded up to [`SECTOR_BYTES`]; fits into an
    /// `i64`.
    pub size_bytes: u64,
}

impl ImageFile {
    /// `None` if the file would be longer than an offset can say.
    pub fn new(source: Arc<dyn BlockSource>) -> Option<Self> {
        let size_bytes = source.size_bytes().checked_next_multiple_of(SECTOR_BYTES)?;
        i64::try_from(size_bytes).ok()?;
        Some(Self { source, size_bytes })
    }

    /// True if its source can be written.
    pub fn is_writable(&self) -> bool {
        self.source.device().is_some()
    }

    /// The part of an extent that the source has; what the file has beyond it is zeros.
    pub fn held(&self, extent: Extent) -> Extent {
        extent.clip(Extent::from(0..self.source.size_bytes()))
    }
}

/// Reads, searches and changes that wait for the source, bounded in bytes and ended together.
#[derive(Debug)]
pub(super) struct Waiting {
    runtime: Handle,
    budget: Arc<Semaphore>,
    budget_units: u32,
    closing: watch::Sender<bool>,
}

impl Waiting {
    /// At most `bytes_max` (at least one longest read) have a buffer at a time; others queue for
    /// one.
    pub fn new(runtime: Handle, bytes_max: u32) -> Self {
        let budget_units = bytes_max.max(READ_BYTES_MAX) / BUDGET_UNIT_BYTES;
        let budget = Arc::new(Semaphore::new(budget_units as usize));
        Self { runtime, budget, budget_units, closing: watch::Sender::new(false) }
    }

    /// Ends everything that waits, and all that comes later, with `ESHUTDOWN`.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// True after [`Self::close`].
    pub fn is_closed(&self) -> bool {
        *self.closing.borrow()
    }

    /// Runs `work` on the runtime once `bytes` of the budget are free, and hands its result to
    /// `reply`; [`ReadError::ShuttingDown`] if the export closes before it is done.
    pub fn spawn<T, E, W, R>(&self, bytes: u32, work: W, reply: R)
    where
        T: Send + 'static,
        E: From<ReadError> + Send + 'static,
        W: Future<Output = Result<T, E>> + Send + 'static,
        R: FnOnce(Result<T, E>) + Send + 'static,
    {
        let units = bytes.div_ceil(BUDGET_UNIT_BYTES).clamp(1, self.budget_units);
        let budget = self.budget.clone();
        let mut closing = self.closing.subscribe();
        self.runtime.spawn(async move {
            let within_budget = async {
                // The semaphore is never closed: failing to get a permit cannot happen while `self`
                // lives.
                let _permit = budget.acquire_many(units).await.map_err(|_| ReadError::ShuttingDown)?;
                work.await
            };
            tokio::select! {
                biased;
                result = within_budget => reply(result),
                _ = closing.wait_for(|closing| *closing) => reply(Err(ReadError::ShuttingDown.into())),
            }
        });
    }
}

/// What a thread of the session needs to answer a hit without allocating.
struct Scratch {
    buffer: Vec<u8>,
    pieces: Vec<Piece>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = const { RefCell::new(Scratch { buffer: Vec::new(), pieces: Vec::new() }) };
}

/// Answers a read of `asked`, which must lie within `file` and not exceed [`READ_BYTES_MAX`]: now
/// if the source has all of it, else from a task of the runtime.
pub(super) fn read(file: &ImageFile, asked: Extent, reply: ReplyData, waiting: &Waiting) {
    SCRATCH.with_borrow_mut(|scratch| {
        let held = file.held(asked);
        if !held.is_empty() && !file.source.try_read(held, &mut scratch.pieces) {
            return miss(file.source.clone(), held, asked, reply, waiting);
        }
        if let [Piece::Bytes(bytes)] = scratch.pieces.as_slice()
            && bytes.len() as u64 == asked.len()
        {
            reply.data(bytes);
        } else {
            let length = length_of(asked);
            if scratch.buffer.len() < length {
                scratch.buffer.resize(length, 0);
            }
            let mut filling = Filling { buffer: &mut scratch.buffer[..length], filled: 0, held };
            match filling.push_all(scratch.pieces.drain(..)).and_then(|()| filling.finish()) {
                Ok(()) => reply.data(&scratch.buffer[..length]),
                Err(error) => fail(&error, reply),
            }
        }
        scratch.pieces.clear();
    });
}

/// Waits for `held` on the runtime, then answers.
fn miss(source: Arc<dyn BlockSource>, held: Extent, asked: Extent, reply: ReplyData, waiting: &Waiting) {
    let length = length_of(asked);
    let work = async move {
        // Copied as they come rather than kept as pieces: a piece may keep room in the source's
        // cache.
        let mut buffer = vec![0; length];
        let mut filling = Filling { buffer: &mut buffer, filled: 0, held };
        while let rest = held.skip(filling.filled as u64)
            && !rest.is_empty()
        {
            let pieces = source.read(rest).await?;
            let before = filling.filled;
            filling.push_all(pieces)?;
            if filling.filled == before {
                return Err(ReadError::Io(rest, "the source answered nothing".into()));
            }
        }
        filling.finish()?;
        Ok(buffer)
    };
    waiting.spawn(length as u32, work, |result: Result<Vec<u8>, ReadError>| match result {
        Ok(buffer) => reply.data(&buffer),
        Err(error) => fail(&error, reply),
    });
}

fn fail(error: &ReadError, reply: ReplyData) {
    // A daemon that ends says itself whose readers it disconnects.
    if !matches!(error, ReadError::ShuttingDown) {
        tracing::warn!(%error, "read failed");
    }
    reply.error(errno(error));
}

/// Length of an extent that is not longer than [`READ_BYTES_MAX`].
fn length_of(extent: Extent) -> usize {
    assert!(extent.len() <= u64::from(READ_BYTES_MAX), "the edge lets no longer read in");
    extent.len() as usize
}

/// A reply's buffer, filled from its start.
struct Filling<'a> {
    buffer: &'a mut [u8],
    filled: usize,
    /// The extent of the source that is to come; the buffer may be longer, never shorter.
    held: Extent,
}

impl Filling<'_> {
    fn push_all(&mut self, pieces: impl IntoIterator<Item = Piece>) -> Result<(), ReadError> {
        pieces.into_iter().try_for_each(|piece| self.push(&piece))
    }

    fn push(&mut self, piece: &Piece) -> Result<(), ReadError> {
        let left = self.held.len() - self.filled as u64;
        if piece.len() > left {
            return Err(ReadError::Io(self.held, "the source answered more than was asked for".into()));
        }
        // At most `left`, which is at most the buffer's length.
        let length = piece.len() as usize;
        let room = &mut self.buffer[self.filled..self.filled + length];
        match piece {
            Piece::Zero(_) => room.fill(0),
            Piece::Bytes(bytes) => room.copy_from_slice(bytes),
            Piece::File(file) => pread_all(file, room).map_err(|error| ReadError::Io(self.held, error))?,
        }
        self.filled += length;
        Ok(())
    }

    /// Zeros what the file has beyond the source; an error if the source gave less than it should.
    fn finish(&mut self) -> Result<(), ReadError> {
        if (self.filled as u64) < self.held.len() {
            return Err(ReadError::Io(self.held, "the source answered less than was asked for".into()));
        }
        self.buffer[self.filled..].fill(0);
        Ok(())
    }
}

/// Reads all of a file piece into `room`, which has its length.
fn pread_all(piece: &FilePiece, room: &mut [u8]) -> Result<(), String> {
    let mut done = 0;
    while done < room.len() {
        match rustix::io::pread(piece.fd(), &mut room[done..], piece.offset() + done as u64) {
            Ok(0) => return Err(format!("the file of {piece:?} ends early")),
            Ok(count) => done += count,
            Err(SystemErrno::INTR) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// The answer to a request that is longer than was agreed on.
pub(super) const TOO_LONG: Errno = Errno::EINVAL;

//! Parts of packs, and the blocks around them that hold chunks of later runs.
//!
//! A version has its few new chunks in packs of its own, in the order of the image. A run of the
//! image needs some kilobytes of them, and the next run those behind. So a part of a pack that is
//! less than half a block is read with the whole block around it, which is kept.
//!
//! Owns the kept blocks. Invariants: a block has at most one read under way. A chunk is given out
//! of a kept block once. A second reader may have found it to be wrong, and gets the store's
//! present bytes. Memory is bounded. An image that was opened calls it.

use crate::pack::{PackName, Stored};
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OnceCell;
use tokio::try_join;
use vfield_block::extent::Extent;
use vfield_block::object::ObjectError;
use vfield_object::Bucket;

/// Length of a block in bytes: 4 ms at 1 Gbit/s, where a request takes more. If 2.5 % of an image
/// are new, a block has the new chunks of 50 MiB of it.
pub const BLOCK_BYTES: u32 = 512 << 10;
/// Blocks that are kept, in 32 MiB: enough for an image with chunks of sixty versions.
const BLOCKS_KEPT: usize = 64;

/// The packs of a bucket.
pub struct Blocks {
    bucket: Arc<Bucket>,
    /// The last one was used last.
    kept: Mutex<VecDeque<Block>>,
}

/// The place of a block: its pack, and its number in it.
type Position = (PackName, u32);
/// The bytes of a block, once they have come; fewer where the pack ends.
type Coming = Arc<OnceCell<Bytes>>;

struct Block {
    position: Position,
    coming: Coming,
    /// Where the chunks begin that were given out.
    given: BTreeSet<u32>,
    given_bytes: usize,
}

impl Block {
    fn new(position: Position) -> Self {
        Self { position, coming: Coming::default(), given: BTreeSet::new(), given_bytes: 0 }
    }

    /// True if most of it was given out, so that somebody reads the image once more.
    fn is_used(&self) -> bool {
        self.given_bytes >= self.coming.get().map_or(BLOCK_BYTES as usize, Bytes::len) / 2
    }

    fn has_given(&self, chunks: &[Stored]) -> bool {
        chunks.iter().any(|chunk| self.given.contains(&chunk.offset))
    }

    fn give(&mut self, chunks: &[Stored]) {
        let fresh = chunks.iter().filter(|chunk| self.given.insert(chunk.offset));
        self.given_bytes += fresh.map(|chunk| chunk.length as usize).sum::<usize>();
    }
}

impl Blocks {
    /// None is kept yet.
    pub fn new(bucket: Arc<Bucket>) -> Self {
        Self { bucket, kept: Mutex::default() }
    }

    /// Reads a range of a pack, for these chunks in it, or the part of it before the pack's end.
    ///
    /// # Errors
    /// As those of [`Bucket::read_up_to_end`].
    pub async fn read(&self, pack: PackName, range: Range<u32>, chunks: &[Stored]) -> Result<Bytes, ObjectError> {
        let [first, last] = [range.start, range.end - 1].map(|byte| (pack, byte / BLOCK_BYTES));
        let is_small = range.end - range.start < BLOCK_BYTES / 2;
        let Some(one) = is_small.then(|| self.coming(first, chunks)).flatten() else {
            return self.fetch(pack, range).await;
        };
        let bytes = if first == last {
            self.bring(first, &one).await?
        } else {
            let Some(next) = self.coming(last, chunks) else { return self.fetch(pack, range).await };
            let (one, next) = try_join!(self.bring(first, &one), self.bring(last, &next))?;
            [one, next].concat().into()
        };
        let at = |byte: u32| bytes.len().min((byte - first.1 * BLOCK_BYTES) as usize);
        Ok(bytes.slice(at(range.start)..at(range.end)))
    }

    /// A block that is kept from now on, for these chunks; `None` if one was given out already.
    fn coming(&self, position: Position, chunks: &[Stored]) -> Option<Coming> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|block| block.position == position);
        let mut block = at.and_then(|at| kept.remove(at)).unwrap_or_else(|| Block::new(position));
        if block.has_given(chunks) && block.is_used() {
            block = Block::new(position);
        }
        let coming = (!block.has_given(chunks)).then(|| Arc::clone(&block.coming));
        block.give(chunks);
        if kept.len() == BLOCKS_KEPT {
            kept.pop_front();
        }
        kept.push_back(block);
        coming
    }

    /// The bytes of a block, which are read if they have not come.
    async fn bring(&self, (pack, number): Position, coming: &Coming) -> Result<Bytes, ObjectError> {
        let begin = number * BLOCK_BYTES;
        coming.get_or_try_init(|| self.fetch(pack, begin..begin + BLOCK_BYTES)).await.cloned()
    }

    async fn fetch(&self, pack: PackName, range: Range<u32>) -> Result<Bytes, ObjectError> {
        let extent = Extent::from(u64::from(range.start)..u64::from(range.end));
        Ok(self.bucket.read_up_to_end(&pack.object(), extent).await?.bytes)
    }
}

//! Learned prefetch: what a machine reads first of an image, in order, for all that come after it.
//!
//! A machine that boots reads small parts all over an image, and each next one alike machine reads
//! the same. The first one notes them ([`Recorder`]) as a [`PrefetchList`]. Others take its list
//! for a hint, and have chunks fetched shortly before their own readers come to them
//! ([`Prefetcher`]). A wrong list costs bytes, and never a wrong byte.
//!
//! It is beside the export, like [`crate::read_ahead`], and sees every read. Pure arithmetic over
//! numbers of data chunks.

mod prefetcher;
mod recorder;

pub use prefetcher::Prefetcher;
pub use recorder::Recorder;

use crate::bits::Bits;
use crate::chunk::Chunk;
use crate::wire::{WireError, decode, encode};
use std::collections::BTreeMap;
use std::ops::Range;

/// Most lists that a node keeps of an image, its own among them. Most machines read the chunks that
/// half of so many read.
pub const LISTS_MAX: usize = 8;
/// Most runs of a list. A Linux boot reads some hundred to two thousand.
pub const RUNS_MAX: usize = 4096;
/// Most chunks of a list: 1 GiB in chunks of the usual size.
pub const CHUNKS_MAX: u64 = 16 << 10;
/// A list has at most this part of its image. A reader of more reads all of it, and no order of its
/// own is to be learned.
const PART: u64 = 4;
/// Longest encoded list: two numbers for each run, of 5 bytes at most for images below 8 TiB.
pub const BYTES_MAX: usize = RUNS_MAX * 10;

/// Data chunks in the order in which a machine read them first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrefetchList {
    /// Not empty, and no chunk twice.
    runs: Vec<Range<u64>>,
}

impl PrefetchList {
    /// The runs, in order.
    pub fn runs(&self) -> &[Range<u64>] {
        &self.runs
    }

    /// All chunks, in order.
    pub fn chunks(&self) -> impl Iterator<Item = u64> + '_ {
        self.runs.iter().cloned().flatten()
    }

    /// Number of chunks.
    pub fn len(&self) -> u64 {
        self.runs.iter().map(|run| run.end - run.start).sum()
    }

    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Appends a chunk that is not in it.
    fn push(&mut self, chunk: u64) {
        append(&mut self.runs, chunk);
    }

    /// Its bytes: for each run the distance from the end of the one before, and the length.
    pub fn encode(&self) -> Vec<u8> {
        let mut end = 0;
        let runs = self.runs.iter().map(|run| {
            let from = run.start.wrapping_sub(end) as i64;
            end = run.end;
            (from, run.end - run.start)
        });
        encode(&runs.collect::<Vec<(i64, u64)>>())
    }

    /// The inverse, for an image of `chunks` data chunks. Chunks that the image does not have, that
    /// come twice, or that are too many, are left out.
    ///
    /// # Errors
    ///
    /// If the bytes are too many, or no runs.
    pub fn decode(bytes: &[u8], chunks: u64) -> Result<Self, WireError> {
        if bytes.len() > BYTES_MAX {
            return Err(WireError::Payload);
        }
        let runs: Vec<(i64, u64)> = decode(bytes)?;
        let (mut list, mut seen, mut end) = (Self::default(), Bits::default(), 0u64);
        let runs = runs.into_iter().take(RUNS_MAX).flat_map(|(from, length)| {
            let start = end.wrapping_add_signed(from);
            end = start.wrapping_add(length);
            start..end
        });
        for chunk in runs.take(longest(chunks) as usize) {
            if chunk < chunks && seen.insert(Chunk(chunk)) {
                list.push(chunk);
            }
        }
        Ok(list)
    }

    /// What at least half of these machines read, in the middle of their orders.
    pub fn agreed(lists: &[&Self]) -> Self {
        let mut ranks: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for list in lists {
            for (chunk, rank) in list.chunks().zip(0..) {
                ranks.entry(chunk).or_default().push(rank);
            }
        }
        let mut order: Vec<(u32, u64)> = ranks
            .into_iter()
            .filter(|(_, ranks)| ranks.len() * 2 >= lists.len())
            .map(|(chunk, mut ranks)| {
                let middle = (ranks.len() - 1) / 2;
                (*ranks.select_nth_unstable(middle).1, chunk)
            })
            .collect();
        order.sort_unstable();
        let mut agreed = Self::default();
        order.into_iter().for_each(|(_, chunk)| agreed.push(chunk));
        agreed
    }
}

/// Appends a chunk to runs of chunks, as a run of its own unless it goes on with the last one.
fn append(runs: &mut Vec<Range<u64>>, chunk: u64) {
    match runs.last_mut() {
        Some(last) if last.end == chunk => last.end += 1,
        _ => runs.push(chunk..chunk + 1),
    }
}

/// Most chunks of a list of an image of `chunks`.
const fn longest(chunks: u64) -> u64 {
    let part = chunks.div_ceil(PART);
    if part < CHUNKS_MAX { part } else { CHUNKS_MAX }
}

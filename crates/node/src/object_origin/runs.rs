//! Runs: neighbouring chunks of an object that one request reads, and those that are here.
//!
//! Owns the cached runs. Invariant: a chunk is given out only if it was compared with its hash when
//! its run came. Memory is bounded by [`CACHE_BYTES`]; the least recently used run goes first. It
//! reads nothing, and the time comes from the caller.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};
use vfield_block::extent::Extent;
use vfield_core::chunk::Chunk;
use vfield_core::hash_tree::{HashTree, verify};

/// Length of a run in bytes: 256 requests for each GiB. At a delay of 50 ms and 1 Gbit/s, half the
/// time of a request is the delay; longer runs delay a reader's first chunk.
const RUN_BYTES: u64 = 4 << 20;
/// Memory for runs, in bytes. Nodes that fill walk along the image at different speeds; a run that
/// went too early is read twice.
const CACHE_BYTES: u64 = 128 << 20;
/// Most runs without bytes: those of an object that became shorter.
const ENTRIES_MAX: usize = 4096;
/// For so long a chunk that differs is not read again.
const BAD_FOR: Duration = Duration::from_secs(10);

const _: () = assert!(CACHE_BYTES >= 8 * RUN_BYTES);

/// Position of a run in the image, counted in runs from 0.
pub type Run = u64;

/// A chunk among the runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Its bytes, compared with its hash.
    Here(Bytes),
    /// The object has other bytes there.
    Bad,
    /// It has to be read.
    Missing,
}

/// Where the chunks of one image lie in runs.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    chunk_bytes: u64,
    data_chunks: u64,
}

impl Layout {
    /// That of the image with this tree.
    pub fn of(tree: &HashTree) -> Self {
        Self { chunk_bytes: tree.geometry().chunk_bytes(), data_chunks: tree.geometry().data_chunks() }
    }

    const fn chunks(self) -> u64 {
        RUN_BYTES / self.chunk_bytes
    }

    /// The run of a data chunk.
    pub const fn run(self, chunk: Chunk) -> Run {
        chunk.0 / self.chunks()
    }

    /// True for a chunk in the second half of its run.
    pub const fn is_late(self, chunk: Chunk) -> bool {
        chunk.0 % self.chunks() >= self.chunks() / 2
    }

    /// The runs of these data chunks.
    pub const fn runs(self, chunks: Range<u64>) -> Range<Run> {
        chunks.start / self.chunks()..chunks.end.div_ceil(self.chunks())
    }

    /// The chunks of a run from its first to its last one with data; none if all are zeros or the
    /// image ends before.
    pub fn chunks_of(self, run: Run, tree: &HashTree) -> Range<u64> {
        let end = run.saturating_add(1).saturating_mul(self.chunks()).min(self.data_chunks);
        let mut chunks = run.saturating_mul(self.chunks()).min(end)..end;
        while !chunks.is_empty() && tree.is_zero(Chunk(chunks.start)) {
            chunks.start += 1;
        }
        while !chunks.is_empty() && tree.is_zero(Chunk(chunks.end - 1)) {
            chunks.end -= 1;
        }
        chunks
    }
}

/// A run that was read and compared.
#[derive(Debug)]
pub struct Compared {
    first: u64,
    chunk_bytes: u64,
    bytes: Bytes,
    bad: Vec<u64>,
}

impl Compared {
    /// Compares the bytes of `chunks` with their hashes, on the calling thread.
    pub fn new(chunks: Range<u64>, bytes: Bytes, tree: &HashTree) -> Self {
        let chunk_bytes = tree.geometry().chunk_bytes();
        let parts = chunks.clone().zip(bytes.chunks(chunk_bytes as usize));
        let bad = |(number, part): (u64, &[u8])| {
            let is_right = tree.is_zero(Chunk(number)) || verify(&tree.hash(Chunk(number)), part);
            (!is_right).then_some(number)
        };
        let bad = parts.filter_map(bad).collect();
        Self { first: chunks.start, chunk_bytes, bytes, bad }
    }

    /// A run that the object does not have any more.
    pub fn lost(chunks: Range<u64>, chunk_bytes: u64) -> Self {
        Self { first: chunks.start, chunk_bytes, bytes: Bytes::new(), bad: chunks.collect() }
    }

    /// The chunks that differ.
    pub fn bad(&self) -> &[u64] {
        &self.bad
    }
}

#[derive(Debug)]
struct Cached {
    run: Compared,
    came: Instant,
    used: u64,
}

/// The cached runs of an object.
#[derive(Debug, Default)]
pub struct Runs {
    cached: BTreeMap<Run, Cached>,
    bytes: u64,
    uses: u64,
}

impl Runs {
    /// The chunk with this number, of this run.
    pub fn find(&mut self, run: Run, chunk: Chunk, now: Instant) -> Found {
        let Some(cached) = self.cached.get_mut(&run) else { return Found::Missing };
        self.uses += 1;
        cached.used = self.uses;
        let Compared { first, chunk_bytes, bytes, bad } = &cached.run;
        if bad.contains(&chunk.0) {
            return if now.saturating_duration_since(cached.came) < BAD_FOR { Found::Bad } else { Found::Missing };
        }
        let at = chunk.0.checked_sub(*first).and_then(|index| index.checked_mul(*chunk_bytes));
        let part = at.map(|at| Extent::from(at..at + chunk_bytes).clip(Extent::from(0..bytes.len() as u64)));
        match part.filter(|part| !part.is_empty()) {
            Some(part) => Found::Here(bytes.slice(part.start() as usize..part.end() as usize)),
            None => Found::Missing,
        }
    }

    /// True if something of a run is here.
    pub fn has(&self, run: Run) -> bool {
        self.cached.contains_key(&run)
    }

    /// Keeps a run, in place of those that were used least recently.
    pub fn keep(&mut self, run: Run, compared: Compared, now: Instant) {
        self.uses += 1;
        self.bytes += compared.bytes.len() as u64;
        let before = self.cached.insert(run, Cached { run: compared, came: now, used: self.uses });
        self.bytes -= before.map_or(0, |cached| cached.run.bytes.len() as u64);
        while self.bytes > CACHE_BYTES || self.cached.len() > ENTRIES_MAX {
            let Some(oldest) = self.cached.iter().min_by_key(|(_, cached)| cached.used).map(|(run, _)| *run) else {
                return;
            };
            let gone = self.cached.remove(&oldest);
            self.bytes -= gone.map_or(0, |cached| cached.run.bytes.len() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfield_core::chunk::ChunkSize;
    use vfield_core::hash_tree::{TreeBuilder, hash_chunk};

    const CHUNK: usize = 1 << 20;

    /// An image of chunks with one byte each; 0 is a hole.
    fn tree(chunks: &[u8]) -> (Vec<u8>, HashTree) {
        let bytes: Vec<u8> = chunks.iter().flat_map(|byte| vec![*byte; CHUNK]).collect();
        let mut builder = TreeBuilder::new(bytes.len() as u64, ChunkSize::new(CHUNK as u32).unwrap()).unwrap();
        for (number, chunk) in (0..).zip(bytes.chunks(CHUNK)) {
            builder.add(Chunk(number), hash_chunk(chunk));
        }
        (bytes, builder.finish().2)
    }

    #[test]
    fn holes_at_the_ends_of_a_run_are_not_read() {
        let (_, tree) = tree(&[0, 1, 0, 2, 0, 0, 0, 0, 3, 0]);
        let layout = Layout::of(&tree);
        let runs: Vec<_> = (0..4).map(|run| layout.chunks_of(run, &tree)).collect();
        assert_eq!(
            (runs[0].clone(), runs[1].is_empty(), runs[2].clone(), runs[3].is_empty()),
            (1..4, true, 8..9, true)
        );
        assert_eq!((layout.run(Chunk(7)), layout.runs(3..5)), (1, 0..2));
        assert!(layout.chunks_of(u64::MAX, &tree).is_empty());
    }

    #[test]
    fn only_compared_chunks_are_found() {
        let (mut bytes, tree) = tree(&[1, 2, 0, 3]);
        bytes[CHUNK + 7] ^= 1;
        let compared = Compared::new(0..4, bytes.clone().into(), &tree);
        assert_eq!(compared.bad(), [1]);
        let (mut runs, now) = (Runs::default(), Instant::now());
        assert_eq!(runs.find(0, Chunk(0), now), Found::Missing);
        runs.keep(0, compared, now);
        assert_eq!(runs.find(0, Chunk(0), now), Found::Here(Bytes::from(vec![1; CHUNK])));
        assert_eq!(runs.find(0, Chunk(1), now), Found::Bad);
        assert_eq!(runs.find(0, Chunk(1), now + BAD_FOR), Found::Missing, "it may have been restored");
        assert_eq!(runs.find(0, Chunk(9), now), Found::Missing);
    }

    #[test]
    fn the_least_recently_used_run_goes_first() {
        let (bytes, tree) = tree(&[1, 2, 3, 4]);
        let (mut runs, now) = (Runs::default(), Instant::now());
        let most = CACHE_BYTES / RUN_BYTES;
        for run in 0..=most {
            runs.keep(run, Compared::new(0..4, bytes.clone().into(), &tree), now);
            runs.find(0, Chunk(0), now);
        }
        assert!(runs.has(0) && !runs.has(1) && runs.has(2) && runs.bytes <= CACHE_BYTES);
        for run in 0..2 * ENTRIES_MAX as u64 {
            runs.keep(run, Compared::lost(0..4, CHUNK as u64), now);
        }
        assert!(runs.cached.len() <= ENTRIES_MAX);
    }
}

//! Where the chunks of an object's image lie in runs, and how long runs are.

use super::runs::Run;
use std::ops::Range;
use vfield_core::chunk::Chunk;
use vfield_core::hash_tree::HashTree;

/// Bytes that the store sends for a run: 256 requests for each GiB. At a delay of 50 ms and 1
/// Gbit/s, half the time of a request is the delay.
const RUN_BYTES: u64 = 4 << 20;
/// A run has so many pieces, and readers from elsewhere get one at first. 512 KiB take 43 ms on a
/// link of 100 Mbit/s, about as long as a request's delay.
const PIECES: u64 = 8;
/// So many runs fit into the memory of an origin. As many can be under way, and each is to stay
/// until its askers were answered.
const RUNS_MIN: u64 = 8;
/// Memory for runs, in bytes, unless another size is asked for. Nodes that fill walk along the
/// image at different speeds; a run whose chunks went before a node got them is read twice.
pub const CACHE_BYTES: u64 = 128 << 20;
/// Least memory for runs, in bytes.
pub const CACHE_BYTES_MIN: u64 = RUNS_MIN * RUN_BYTES;

const _: () = assert!(CACHE_BYTES >= CACHE_BYTES_MIN);

/// Where the chunks of one image lie in runs.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    data_chunks: u64,
    chunk_bytes: u64,
    /// A power of two.
    run_chunks: u64,
    cache_bytes: u64,
}

impl Layout {
    /// That of the image with this tree. One byte brings so many bytes of the object, and an origin
    /// has so much memory for runs.
    pub fn of(tree: &HashTree, compression: u64, cache_bytes: u64) -> Self {
        let (chunk_bytes, data_chunks) = (tree.geometry().chunk_bytes(), tree.geometry().data_chunks());
        let cache_bytes = cache_bytes.max(CACHE_BYTES_MIN);
        let run_bytes = RUN_BYTES.saturating_mul(compression.max(1)).min(cache_bytes / RUNS_MIN);
        Self { data_chunks, chunk_bytes, run_chunks: 1 << (run_bytes / chunk_bytes).ilog2(), cache_bytes }
    }

    /// Memory for runs, in bytes.
    pub const fn cache_bytes(self) -> u64 {
        self.cache_bytes
    }

    /// Length of a run in bytes.
    pub const fn run_bytes(self) -> u64 {
        self.run_chunks * self.chunk_bytes
    }

    /// Length of a run in chunks.
    pub const fn run_chunks(self) -> u64 {
        self.run_chunks
    }

    /// Length of a piece in chunks.
    pub const fn piece_chunks(self) -> u64 {
        let chunks = self.run_chunks / PIECES;
        if chunks == 0 { 1 } else { chunks }
    }

    /// The run of a data chunk.
    pub const fn run(self, chunk: Chunk) -> Run {
        chunk.0 / self.run_chunks
    }

    /// True for a chunk in the second half of its run.
    pub const fn is_late(self, chunk: Chunk) -> bool {
        chunk.0 % self.run_chunks >= self.run_chunks / 2
    }

    /// The runs of these data chunks.
    pub const fn runs(self, chunks: Range<u64>) -> Range<Run> {
        chunks.start / self.run_chunks..chunks.end.div_ceil(self.run_chunks)
    }

    /// The chunks of a run from its first to its last one with data; none if all are zeros or the
    /// image ends before.
    pub fn chunks_of(self, run: Run, tree: &HashTree) -> Range<u64> {
        let end = run.saturating_add(1).saturating_mul(self.run_chunks).min(self.data_chunks);
        let mut chunks = run.saturating_mul(self.run_chunks).min(end)..end;
        while !chunks.is_empty() && tree.is_zero(Chunk(chunks.start)) {
            chunks.start += 1;
        }
        while !chunks.is_empty() && tree.is_zero(Chunk(chunks.end - 1)) {
            chunks.end -= 1;
        }
        chunks
    }
}

#[cfg(test)]
mod tests {
    use super::super::runs::tests::{CHUNK, tree};
    use super::*;

    #[test]
    fn holes_at_the_ends_of_a_run_are_not_read() {
        let (_, tree) = tree(&[0, 1, 0, 2, 0, 0, 0, 0, 3, 0]);
        let layout = Layout::of(&tree, 1, CACHE_BYTES);
        let runs: Vec<_> = (0..4).map(|run| layout.chunks_of(run, &tree)).collect();
        assert_eq!(
            (runs[0].clone(), runs[1].is_empty(), runs[2].clone(), runs[3].is_empty()),
            (1..4, true, 8..9, true)
        );
        assert_eq!((layout.run(Chunk(7)), layout.runs(3..5)), (1, 0..2));
        assert!(layout.chunks_of(u64::MAX, &tree).is_empty());
    }

    #[test]
    fn a_run_is_longer_if_the_store_has_it_compressed_and_the_memory_holds_eight() {
        let (_, tree) = tree(&[1]);
        let run_mib = |compression, cache_bytes| Layout::of(&tree, compression, cache_bytes).run_bytes() / CHUNK as u64;
        let lengths = [0, 1, 2, 3, 4, 100, u64::MAX].map(|compression| run_mib(compression, CACHE_BYTES));
        assert_eq!(lengths, [4, 4, 8, 8, 16, 16, 16]);
        assert_eq!([0, CACHE_BYTES_MIN, CACHE_BYTES / 2].map(|bytes| run_mib(9, bytes)), [4, 4, 8]);
    }
}

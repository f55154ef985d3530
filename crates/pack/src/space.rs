//! Which blocks of an image are free, and which of them new contents get.
//!
//! Owns every block: an address is given out once, and no two extents overlap. The space is first
//! told of taken runs, and then asked for more. Contents of a chunk and more begin at a chunk.
//! Smaller ones never cross the end of a chunk, and fill the rest of chunks that are new anyway.
//! Knows no files.

use std::collections::{BTreeMap, BTreeSet};

/// A half-open run of blocks, never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// Number of the first block.
    pub start: u64,
    /// Number of blocks.
    pub blocks: u64,
}

impl Run {
    /// The first block behind the run.
    pub const fn end(self) -> u64 {
        self.start + self.blocks
    }
}

/// Runs that stay taken, apart from each other.
#[derive(Debug, Default)]
pub struct Claims(BTreeMap<u64, u64>);

impl Claims {
    /// Takes a run; false if a part of it is taken.
    pub fn claim(&mut self, run: Run) -> bool {
        let before = self.0.range(..run.end()).next_back();
        let free = run.blocks > 0 && before.is_none_or(|(start, blocks)| start + blocks <= run.start);
        if free {
            self.0.insert(run.start, run.blocks);
        }
        free
    }

    /// The runs in ascending order.
    pub fn runs(&self) -> impl Iterator<Item = Run> {
        self.0.iter().map(|(start, blocks)| Run { start: *start, blocks: *blocks })
    }
}

/// Free blocks: by their number, and then by their place.
type Gap = (u64, u64);

/// The free blocks of an image.
#[derive(Debug)]
pub struct Space {
    chunk_blocks: u64,
    /// Runs of chunks that are wholly free, below the end.
    whole: BTreeSet<Gap>,
    /// Gaps in chunks that get new bytes in any case.
    changed: BTreeSet<Gap>,
    /// Gaps in all other chunks.
    unchanged: BTreeSet<Gap>,
    /// A multiple of `chunk_blocks`; all blocks from here on are free.
    end: u64,
}

impl Space {
    /// The space beside `claims`, in chunks of `chunk_blocks` blocks. `is_changed` says of the
    /// number of a chunk whether it gets new bytes in any case.
    pub fn new(claims: &Claims, chunk_blocks: u64, is_changed: impl Fn(u64) -> bool) -> Self {
        let end = claims.runs().last().map_or(0, |run| run.end().next_multiple_of(chunk_blocks));
        let mut space =
            Self { chunk_blocks, whole: BTreeSet::new(), changed: BTreeSet::new(), unchanged: BTreeSet::new(), end };
        let mut free_from = 0;
        let last = Run { start: end, blocks: 0 };
        for run in claims.runs().chain([last]) {
            space.free(free_from, run.start, &is_changed);
            free_from = run.end();
        }
        space
    }

    /// Takes a half-open range of blocks for free, which is next to no other free one.
    fn free(&mut self, start: u64, end: u64, is_changed: &impl Fn(u64) -> bool) {
        if start >= end {
            return;
        }
        let (first, last) = (start.next_multiple_of(self.chunk_blocks), end / self.chunk_blocks * self.chunk_blocks);
        if first >= last && start / self.chunk_blocks == (end - 1) / self.chunk_blocks {
            return self.free_gap(start, end, is_changed(start / self.chunk_blocks));
        }
        self.free_gap(start, first, is_changed(start / self.chunk_blocks));
        if first < last {
            self.whole.insert((last - first, first));
        }
        self.free_gap(last, end, is_changed(last / self.chunk_blocks));
    }

    fn free_gap(&mut self, start: u64, end: u64, changed: bool) {
        if start < end {
            let gaps = if changed { &mut self.changed } else { &mut self.unchanged };
            gaps.insert((end - start, start));
        }
    }

    /// The first block behind all that is taken, at the start of a chunk.
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Takes `blocks` blocks from the start of a chunk on: the shortest run of free chunks that is
    /// long enough, or the end.
    ///
    /// # Panics
    /// If `blocks` is 0; the same holds for [`Space::take_small`].
    pub fn take_large(&mut self, blocks: u64) -> Run {
        assert!(blocks > 0, "a run is never empty");
        let needed = blocks.next_multiple_of(self.chunk_blocks);
        let best = self.whole.range((needed, 0)..).next().copied();
        let start = match best {
            Some((free, start)) => {
                self.whole.remove(&(free, start));
                if free > needed {
                    self.whole.insert((free - needed, start + needed));
                }
                start
            }
            None => {
                self.end += needed;
                self.end - needed
            }
        };
        self.free_gap(start + blocks, start + needed, true);
        Run { start, blocks }
    }

    /// Takes whole chunks, of `blocks` blocks or more.
    ///
    /// # Panics
    /// If `blocks` is 0.
    pub fn take_whole(&mut self, blocks: u64) -> Run {
        self.take_large(blocks.next_multiple_of(self.chunk_blocks))
    }

    /// Takes `blocks` blocks, at most a chunk's, within one chunk. The shortest gap that is long
    /// enough is taken. Chunks that get new bytes anyway come first; then free chunks, other chunks
    /// and the end.
    pub fn take_small(&mut self, blocks: u64) -> Run {
        assert!((1..=self.chunk_blocks).contains(&blocks), "a small run is a part of a chunk");
        let fitting = |gaps: &BTreeSet<Gap>| gaps.range((blocks, 0)..).next().copied();
        let elsewhere = || fitting(&self.unchanged).filter(|_| self.whole.is_empty());
        if let Some((free, start)) = fitting(&self.changed).or_else(elsewhere) {
            self.changed.remove(&(free, start));
            self.unchanged.remove(&(free, start));
            self.free_gap(start + blocks, start + free, true);
            return Run { start, blocks };
        }
        self.take_large(blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHUNK: u64 = 16;

    fn run(start: u64, blocks: u64) -> Run {
        Run { start, blocks }
    }

    #[test]
    fn small_runs_fill_chunks_that_change_first() {
        let mut claims = Claims::default();
        assert!(claims.claim(run(0, 10)) && claims.claim(run(16, 12)) && claims.claim(run(32, 16)));
        let mut space = Space::new(&claims, CHUNK, |chunk| chunk == 1);
        assert_eq!(space.take_small(4), run(28, 4), "in the chunk that changes");
        assert_eq!(space.take_small(4), run(10, 4), "in the other chunk");
        assert_eq!(space.take_small(4), run(48, 4), "at the end");
        assert_eq!(space.take_small(12), run(52, 12));
    }

    #[test]
    fn freed_chunks_are_used_before_chunks_that_stay() {
        let mut claims = Claims::default();
        assert!(claims.claim(run(0, 10)) && claims.claim(run(64, 16)));
        let mut space = Space::new(&claims, CHUNK, |_| false);
        assert_eq!(space.take_small(2), run(16, 2));
        assert_eq!(space.take_large(20), run(32, 20));
        assert_eq!(space.take_large(17), run(80, 17));
        assert_eq!(space.end(), 112);
    }

    #[test]
    fn claims_do_not_overlap() {
        let mut claims = Claims::default();
        assert!(claims.claim(run(4, 4)));
        for taken in [run(4, 4), run(0, 5), run(7, 1), run(2, 9), run(9, 0)] {
            assert!(!claims.claim(taken), "{taken:?}");
        }
        assert!(claims.claim(run(8, 1)) && claims.claim(run(0, 4)));
    }

    proptest! {
        #[test]
        fn no_block_is_given_out_twice(
            taken in proptest::collection::vec((0_u64..200, 1_u64..40), 0..20),
            wanted in proptest::collection::vec((1_u64..=16, any::<bool>()), 0..60),
        ) {
            let mut claims = Claims::default();
            for (start, blocks) in taken {
                claims.claim(run(start, blocks));
            }
            let mut space = Space::new(&claims, CHUNK, |chunk| chunk % 2 == 0);
            for (blocks, large) in wanted {
                let got = if large { space.take_large(blocks * 3) } else { space.take_small(blocks) };
                prop_assert!(claims.claim(got), "{got:?} was taken");
                prop_assert!(got.end() <= space.end());
                if large {
                    prop_assert_eq!(got.start % CHUNK, 0);
                } else {
                    prop_assert_eq!(got.start / CHUNK, (got.end() - 1) / CHUNK);
                }
            }
        }
    }
}

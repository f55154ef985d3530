//! Which slots of an image's metadata are free, and which of them inodes get.
//!
//! Owns the metadata area: the front of the image, and chunks behind it when the front is full. A
//! slot has 32 bytes; its number is that of the inode that begins there. What fits into a block
//! never crosses the end of one, and longer runs begin at a block. New inodes lie near a given
//! slot, so a directory and what it holds share chunks.

use crate::erofs::{BLOCK_BYTES, SLOT_BYTES, SUPERBLOCK_AT, SUPERBLOCK_BYTES};
use crate::space::{Claims, Run, Space};
use std::collections::BTreeMap;

/// Slots in a block.
pub const SLOTS_PER_BLOCK: u64 = BLOCK_BYTES / SLOT_BYTES;
/// Slots that the superblock and the room before it take.
const RESERVED: u64 = (SUPERBLOCK_AT + SUPERBLOCK_BYTES) as u64 / SLOT_BYTES;
/// Free runs that are looked at before a new block is taken. More of them fill blocks better and
/// take longer: at 64, a tree of small files leaves 2 % of its metadata empty.
const LOOKS: usize = 64;

/// Slots of `bytes` bytes.
pub const fn slots(bytes: u64) -> u64 {
    bytes.div_ceil(SLOT_BYTES)
}

/// True if a run of slots may stand there: in one block, or from the start of one.
pub const fn is_placed_well(run: Run) -> bool {
    let within = run.start % SLOTS_PER_BLOCK;
    within == 0 || within + run.blocks <= SLOTS_PER_BLOCK
}

/// Claims of slots, with those of the superblock among them.
pub fn claims() -> Claims {
    let mut claims = Claims::default();
    claims.claim(Run { start: 0, blocks: RESERVED });
    claims
}

/// The free slots of an image's metadata.
#[derive(Debug)]
pub struct Slots {
    /// Runs of free slots in one block each, shorter than a block.
    partial: BTreeMap<u64, u64>,
    /// Runs of free blocks, in slots.
    whole: BTreeMap<u64, u64>,
    /// The slot behind all taken ones.
    end: u64,
}

impl Slots {
    /// The slots beside `claims` in `areas`, half-open runs of slots that begin and end at blocks,
    /// ascending and apart.
    pub fn new(claims: &Claims, areas: &[Run]) -> Self {
        let mut free = Self { partial: BTreeMap::new(), whole: BTreeMap::new(), end: 0 };
        let mut taken = claims.runs().peekable();
        for area in areas {
            let mut from = area.start;
            while let Some(run) = taken.next_if(|run| run.start < area.end()) {
                free.give(from, run.start);
                from = from.max(run.end());
                free.end = free.end.max(run.end());
            }
            free.give(from, area.end());
        }
        free
    }

    /// Takes a half-open range of slots for free.
    fn give(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let (first, last) = (start.next_multiple_of(SLOTS_PER_BLOCK), end / SLOTS_PER_BLOCK * SLOTS_PER_BLOCK);
        if first > last {
            self.partial.insert(start, end - start);
            return;
        }
        for (map, from, to) in [(&mut self.partial, start, first), (&mut self.whole, first, last)] {
            if from < to {
                map.insert(from, to - from);
            }
        }
        if last < end {
            self.partial.insert(last, end - last);
        }
    }

    /// The slot behind all taken ones.
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Takes `wanted` slots, as near to `near` as a short look finds them: in its chunk of
    /// `chunk_slots` or behind it. A full area grows by chunks of `space`.
    ///
    /// # Panics
    /// If `wanted` is 0.
    pub fn take(&mut self, wanted: u64, near: u64, chunk_slots: u64, space: &mut Option<Space>) -> Run {
        assert!(wanted > 0, "a run is never empty");
        let from = near / chunk_slots * chunk_slots;
        let run = if wanted < SLOTS_PER_BLOCK { self.partial_run(wanted, from) } else { None };
        let run = run.unwrap_or_else(|| self.whole_run(wanted, from, space));
        self.end = self.end.max(run.end());
        run
    }

    fn partial_run(&mut self, wanted: u64, from: u64) -> Option<Run> {
        let behind = self.partial.range(from..).take(LOOKS);
        let (start, free) = behind.map(|(start, free)| (*start, *free)).find(|(_, free)| *free >= wanted)?;
        self.partial.remove(&start);
        self.give(start + wanted, start + free);
        Some(Run { start, blocks: wanted })
    }

    fn whole_run(&mut self, wanted: u64, from: u64, space: &mut Option<Space>) -> Run {
        let needed = wanted.next_multiple_of(SLOTS_PER_BLOCK);
        let mut around = self.whole.range(from..).chain(self.whole.range(..from));
        let found = around.find(|(_, free)| **free >= needed).map(|(start, free)| (*start, *free));
        let (start, free) = found.unwrap_or_else(|| {
            let space = space.as_mut().expect("an area without an end has room");
            let run = space.take_whole(needed / SLOTS_PER_BLOCK);
            (run.start * SLOTS_PER_BLOCK, run.blocks * SLOTS_PER_BLOCK)
        });
        self.whole.remove(&start);
        self.give(start + wanted, start + free);
        Run { start, blocks: wanted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_superblock_keeps_its_place() {
        let mut slots = Slots::new(&claims(), &[Run { start: 0, blocks: SLOTS_PER_BLOCK * 4 }]);
        assert_eq!(slots.take(2, 0, 2048, &mut None), Run { start: 36, blocks: 2 });
    }

    proptest! {
        #[test]
        fn no_slot_is_given_out_twice(
            wanted in proptest::collection::vec((1_u64..300, 0_u64..4000), 1..200),
            taken in proptest::collection::vec((0_u64..2000, 1_u64..60), 0..20),
        ) {
            let (mut claims, areas) = (claims(), [Run { start: 0, blocks: 2048 }]);
            for (start, blocks) in taken {
                claims.claim(Run { start, blocks });
            }
            let mut chunks = Claims::default();
            chunks.claim(Run { start: 0, blocks: 32 });
            let mut space = Some(Space::new(&chunks, 16, |_| false));
            let mut slots = Slots::new(&claims, &areas);
            for (wanted, near) in wanted {
                let run = slots.take(wanted, near, 2048, &mut space);
                prop_assert!(claims.claim(run), "{run:?} was taken");
                prop_assert!(is_placed_well(run) && run.blocks == wanted);
            }
        }
    }
}

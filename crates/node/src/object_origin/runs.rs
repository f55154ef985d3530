//! Runs: neighbouring chunks of an object that few requests read, and those that are here.
//!
//! A run is read at once if readers walk into it from the one before. Else a piece of it is read,
//! and twice as much for each next read of a missing chunk. So random reads do not pay for whole
//! runs, and readers that stay soon have them.
//!
//! Owns the cached runs. Invariant: a chunk is given out only if it was compared with its hash when
//! it came. Memory is bounded. Chunks that a store keeps go first, then those that a node has got,
//! then the least recently used run. It reads nothing, and the time comes from the caller.

use super::compared::{Compared, Part, Whose};
use super::layout::Layout;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;
use vfield_core::chunk::Chunk;
use vfield_core::hash_tree::HashTree;

/// Most chunks of runs that are known, here or not, in 10 MiB: 16 GiB of an image with chunks of 64
/// KiB.
const KNOWN_MAX: u64 = 256 << 10;
/// Most chunks that are looked at before they make room: homes come for fewer in a second.
const LOOSE_MAX: usize = 4096;

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

/// The state of one run.
#[derive(Debug)]
struct Known {
    /// Its first chunk with data.
    first: u64,
    /// Its chunks from there to the last one with data.
    parts: Vec<Part>,
    /// Length in chunks of the next read of a part of it.
    next: u64,
    used: u64,
}

impl Known {
    fn part(&mut self, number: u64) -> Option<&mut Part> {
        let index = number.checked_sub(self.first)?;
        self.parts.get_mut(usize::try_from(index).ok()?)
    }

    /// The part with this number, which is one of [`Known::chunks`].
    fn at(&self, number: u64) -> &Part {
        &self.parts[(number - self.first) as usize]
    }

    /// True if all of it was asked for.
    fn is_whole(&self) -> bool {
        !self.parts.contains(&Part::Unread)
    }

    const fn chunks(&self) -> Range<u64> {
        self.first..self.first + self.parts.len() as u64
    }

    fn length_bytes(&self) -> u64 {
        self.parts.iter().map(Part::length_bytes).sum()
    }

    fn bytes_of(&self, whose: Whose) -> u64 {
        self.parts.iter().map(|part| part.bytes_of(whose)).sum()
    }

    /// Drops the chunks that have come so far.
    fn drop_all(&mut self, whose: Whose) {
        for part in self.parts.iter_mut().filter(|part| part.bytes_of(whose) > 0) {
            *part = Part::Away;
        }
    }
}

/// The runs of an object that are known.
#[derive(Debug)]
pub struct Runs {
    layout: Layout,
    known: BTreeMap<Run, Known>,
    bytes: u64,
    /// Those of them that a store keeps.
    kept_bytes: u64,
    uses: u64,
}

impl Runs {
    /// None is known yet.
    pub const fn new(layout: Layout) -> Self {
        Self { layout, known: BTreeMap::new(), bytes: 0, kept_bytes: 0, uses: 0 }
    }

    /// Bytes beyond half of the memory that no store keeps.
    pub const fn loose_bytes(&self) -> u64 {
        (self.bytes - self.kept_bytes).saturating_sub(self.layout.cache_bytes() / 2)
    }

    /// True if one more run would take the place of chunks that no store keeps.
    pub const fn is_full_of_loose(&self) -> bool {
        self.bytes - self.kept_bytes + self.layout.run_bytes() > self.layout.cache_bytes()
    }

    /// The first [`LOOSE_MAX`] chunks that no store keeps, in the order in which they make room.
    pub fn loose(&self) -> Vec<Chunk> {
        let mut by_use: Vec<&Known> = self.known.values().collect();
        by_use.sort_unstable_by_key(|known| known.used);
        let numbered = by_use.into_iter().flat_map(|known| (known.first..).zip(&known.parts));
        let loose = numbered.filter(|(_, part)| matches!(part, Part::Here(_, whose) if *whose < Whose::Stores));
        loose.map(|(number, _)| Chunk(number)).take(LOOSE_MAX).collect()
    }

    /// The chunk with this number.
    pub fn find(&mut self, chunk: Chunk, now: Instant) -> Found {
        let Some(known) = self.known.get_mut(&self.layout.run(chunk)) else { return Found::Missing };
        self.uses += 1;
        known.used = self.uses;
        match known.part(chunk.0) {
            Some(Part::Here(bytes, _)) => Found::Here(bytes.clone()),
            Some(part) if !part.is_missing(now) => Found::Bad,
            _ => Found::Missing,
        }
    }

    /// True if all of a run was asked for; also if it has no data.
    pub fn is_whole(&self, run: Run, tree: &HashTree) -> bool {
        match self.known.get(&run) {
            Some(known) => known.is_whole(),
            None => self.layout.chunks_of(run, tree).is_empty(),
        }
    }

    /// True if the run before was read, or there is none: readers walk along the image.
    pub fn is_walked_into(&self, run: Run, tree: &HashTree) -> bool {
        run.checked_sub(1).is_none_or(|before| self.is_whole(before, tree))
    }

    /// The first of these chunks, which are of one run, that has data and that nobody asked for.
    pub fn unread(&self, mut chunks: Range<u64>, tree: &HashTree) -> Option<Chunk> {
        let known = self.known.get(&self.layout.run(Chunk(chunks.start)));
        let is_unread = |number: &u64| match known {
            Some(known) => known.chunks().contains(number) && *known.at(*number) == Part::Unread,
            None => !tree.is_zero(Chunk(*number)),
        };
        chunks.find(is_unread).map(Chunk)
    }

    /// Chooses the chunks to read for `chunk`, which has data and is missing, and for those up to
    /// `end` of the same run: the missing ones around it among `free`. They count as asked for.
    pub fn ask(&mut self, chunk: Chunk, end: u64, free: Range<u64>, tree: &HashTree, now: Instant) -> Range<u64> {
        let run = self.layout.run(chunk);
        let (was_whole, is_walked_into) = (self.is_whole(run, tree), self.is_walked_into(run, tree));
        let longest = self.layout.run_chunks();
        let known = self.known(run, tree);
        let length = if is_walked_into && !was_whole { longest } else { known.next };
        let all = known.chunks();
        let from = all.start.max(free.start).max(chunk.0 - chunk.0 % length);
        let to = all.end.min(free.end).min(end.next_multiple_of(length));
        let mut chunks = chunk.0..chunk.0 + 1;
        while chunks.start > from && known.at(chunks.start - 1).is_missing(now) {
            chunks.start -= 1;
        }
        while chunks.end < to && known.at(chunks.end).is_missing(now) {
            chunks.end += 1;
        }
        // Zeros at the ends are not read.
        while tree.is_zero(Chunk(chunks.start)) {
            chunks.start += 1;
        }
        while tree.is_zero(Chunk(chunks.end - 1)) {
            chunks.end -= 1;
        }
        for number in chunks.clone() {
            if let Some(part @ Part::Unread) = known.part(number) {
                *part = Part::Away;
            }
        }
        // A chunk of a whole run that is wanted again is an exception: nodes that have got it are
        // asked.
        let turns_whole = !was_whole && known.is_whole();
        known.next = if turns_whole || length >= longest { 1 } else { length * 2 };
        self.make_room();
        chunks
    }

    /// A read of these chunks, which are of one run, has failed, and nobody waits for them.
    pub fn give_up(&mut self, chunks: Range<u64>) {
        let Some(known) = self.known.get_mut(&self.layout.run(Chunk(chunks.start))) else { return };
        known.next = known.next.max(self.layout.piece_chunks());
        for number in chunks {
            if let Some(part @ Part::Away) = known.part(number) {
                *part = Part::Unread;
            }
        }
    }

    /// The state of a run, from now on at least.
    fn known(&mut self, run: Run, tree: &HashTree) -> &mut Known {
        self.uses += 1;
        let (layout, used) = (self.layout, self.uses);
        let known = self.known.entry(run).or_insert_with(|| {
            let chunks = layout.chunks_of(run, tree);
            let part = |number| if tree.is_zero(Chunk(number)) { Part::Zero } else { Part::Unread };
            Known { first: chunks.start, parts: chunks.map(part).collect(), next: layout.piece_chunks(), used }
        });
        known.used = used;
        known
    }

    /// A node has got this chunk.
    pub fn sent(&mut self, chunk: Chunk, whose: Whose) {
        let Some(known) = self.known.get_mut(&self.layout.run(chunk)) else { return };
        if let Some(Part::Here(bytes, so_far)) = known.part(chunk.0)
            && *so_far < whose
        {
            *so_far = whose;
            self.kept_bytes += if whose == Whose::Stores { bytes.len() as u64 } else { 0 };
        }
    }

    /// Keeps chunks of a run. In their place go chunks that were sent, then the run that was used
    /// least recently.
    pub fn keep(&mut self, chunks: Compared, tree: &HashTree) {
        let run = self.layout.run(Chunk(chunks.first));
        let known = self.known(run, tree);
        let mut bytes = 0;
        for (number, part) in (chunks.first..).zip(chunks.parts) {
            match known.part(number) {
                // The bytes are the same.
                None | Some(Part::Here(..)) => {}
                Some(before) => {
                    bytes += part.length_bytes();
                    *before = part;
                }
            }
        }
        self.bytes += bytes;
        self.make_room();
    }

    fn make_room(&mut self) {
        let known_max = KNOWN_MAX / self.layout.run_chunks();
        while self.bytes > self.layout.cache_bytes() || self.known.len() as u64 > known_max {
            let crowded = self.known.len() as u64 > known_max;
            let drops = |whose| !crowded && self.drop_oldest(whose);
            if [Whose::Stores, Whose::Readers].into_iter().any(drops) {
                continue;
            }
            let Some((&oldest, _)) = self.known.iter().min_by_key(|(_, known)| known.used) else { return };
            if let Some(gone) = self.known.remove(&oldest) {
                self.bytes -= gone.length_bytes();
                self.kept_bytes -= gone.bytes_of(Whose::Stores);
            }
        }
    }

    /// Drops the chunks that have come so far, of the least recently used run that has some. False
    /// if there is none.
    fn drop_oldest(&mut self, whose: Whose) -> bool {
        let having = self.known.values_mut().filter(|known| known.bytes_of(whose) > 0);
        let Some(known) = having.min_by_key(|known| known.used) else { return false };
        let bytes = known.bytes_of(whose);
        known.drop_all(whose);
        self.bytes -= bytes;
        self.kept_bytes -= if whose == Whose::Stores { bytes } else { 0 };
        true
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::compared::BAD_FOR;
    use super::super::layout::{CACHE_BYTES, CACHE_BYTES_MIN};
    use super::*;
    use vfield_core::chunk::ChunkSize;
    use vfield_core::hash_tree::{TreeBuilder, hash_chunk};

    pub const CHUNK: usize = 1 << 20;

    /// An image of chunks with one byte each; 0 is a hole.
    pub fn tree(chunks: &[u8]) -> (Vec<u8>, HashTree) {
        let bytes: Vec<u8> = chunks.iter().flat_map(|byte| vec![*byte; CHUNK]).collect();
        let mut builder = TreeBuilder::new(bytes.len() as u64, ChunkSize::new(CHUNK as u32).unwrap()).unwrap();
        for (number, chunk) in (0..).zip(bytes.chunks(CHUNK)) {
            builder.add(Chunk(number), hash_chunk(chunk));
        }
        (bytes, builder.finish().2)
    }

    fn runs(tree: &HashTree, cache_bytes: u64) -> Runs {
        Runs::new(Layout::of(tree, 1, cache_bytes))
    }

    /// The chunks of `run`, which is four, all of which are read.
    fn read(runs: &mut Runs, run: Run, (bytes, tree): &(Vec<u8>, HashTree), now: Instant) {
        let (from, to) = (run as usize * 4 * CHUNK, (run as usize + 1) * 4 * CHUNK);
        runs.keep(Compared::new(run * 4..run * 4 + 4, &bytes[from..to], tree, now), tree);
    }

    #[test]
    fn only_compared_chunks_are_found() {
        let (mut bytes, tree) = tree(&[1, 2, 0, 3]);
        bytes[CHUNK + 7] ^= 1;
        let now = Instant::now();
        let compared = Compared::new(0..4, &bytes, &tree, now);
        assert!(compared.bad().eq([Chunk(1)]));
        let mut runs = runs(&tree, CACHE_BYTES);
        assert_eq!(runs.find(Chunk(0), now), Found::Missing);
        runs.keep(compared, &tree);
        assert_eq!(runs.find(Chunk(0), now), Found::Here(Bytes::from(vec![1; CHUNK])));
        assert_eq!(runs.find(Chunk(1), now), Found::Bad);
        assert_eq!(runs.find(Chunk(1), now + BAD_FOR), Found::Missing, "it may have been restored");
        assert_eq!(runs.find(Chunk(9), now), Found::Missing);
    }

    #[test]
    fn a_run_is_read_by_growing_parts_until_readers_walk_into_it() {
        let now = Instant::now();
        let mut builder = TreeBuilder::new(64 * 8 * 65536, ChunkSize::DEFAULT).unwrap();
        // Runs of 64 chunks; every fourth is zeros.
        (0..64 * 8).for_each(|number| {
            builder.add(Chunk(number), if number % 4 == 0 { hash_chunk(&[0; 65536]) } else { hash_chunk(&[1]) })
        });
        let (_, _, tree) = builder.finish();
        let mut runs = runs(&tree, CACHE_BYTES);
        let free = || 0..u64::MAX;
        let mut ask = |number: u64| runs.ask(Chunk(number), number + 1, free(), &tree, now);
        // Pieces of 8, then twice as many, without zeros at the ends.
        assert_eq!([ask(64 * 3 + 9), ask(64 * 3 + 16 + 15)], [64 * 3 + 9..64 * 3 + 16, 64 * 3 + 17..64 * 3 + 32]);
        assert_eq!(ask(64 * 3 + 33), 64 * 3 + 33..64 * 3 + 64);
        assert_eq!(runs.unread(64 * 3..64 * 4, &tree), Some(Chunk(64 * 3 + 1)));
        let mut ask = |number: u64| runs.ask(Chunk(number), number + 1, free(), &tree, now);
        assert_eq!(ask(64 * 3 + 1), 64 * 3 + 1..64 * 3 + 64, "what did not come is read again");
        // All of that run was asked for.
        assert_eq!(ask(64 * 4 + 30), 64 * 4 + 1..64 * 5);
        assert_eq!([ask(64 * 3 + 5), ask(64 * 3 + 10)], [64 * 3 + 5..64 * 3 + 6, 64 * 3 + 10..64 * 3 + 12]);
        assert!(runs.is_whole(3, &tree) && runs.is_walked_into(0, &tree) && !runs.is_walked_into(3, &tree));
        assert_eq!(
            (runs.unread(64 * 3..64 * 4, &tree), runs.unread(64 * 7..64 * 8, &tree)),
            (None, Some(Chunk(64 * 7 + 1)))
        );
        // A read ahead that failed is as if nobody had asked.
        runs.give_up(64 * 4 + 1..64 * 5);
        assert_eq!(runs.unread(64 * 4..64 * 5, &tree), Some(Chunk(64 * 4 + 1)));
        assert_eq!(runs.ask(Chunk(64 * 4 + 9), 64 * 4 + 10, free(), &tree, now), 64 * 4 + 1..64 * 5);
        // No part of what other reads bring, and all that is asked for at once.
        assert_eq!(
            runs.ask(Chunk(64 * 6 + 2), 64 * 6 + 12, 64 * 6 + 2..64 * 6 + 11, &tree, now),
            64 * 6 + 2..64 * 6 + 11
        );
    }

    #[test]
    fn the_least_recently_used_run_goes_first() {
        let most = CACHE_BYTES / (4 * CHUNK as u64);
        let image = tree(&vec![1; 4 * (most as usize + 1)]);
        let (mut runs, now) = (runs(&image.1, CACHE_BYTES), Instant::now());
        for run in 0..=most {
            read(&mut runs, run, &image, now);
            runs.find(Chunk(0), now);
        }
        assert!(runs.is_whole(0, &image.1) && !runs.is_whole(1, &image.1) && runs.is_whole(2, &image.1));
        assert!(runs.bytes <= CACHE_BYTES);
    }

    #[test]
    fn known_runs_are_bounded() {
        let chunks = KNOWN_MAX + (KNOWN_MAX >> 8);
        let mut builder = TreeBuilder::new(chunks << 16, ChunkSize::DEFAULT).unwrap();
        (0..chunks).for_each(|number| builder.add(Chunk(number), hash_chunk(&[1])));
        let (_, _, tree) = builder.finish();
        let (mut runs, now) = (runs(&tree, CACHE_BYTES), Instant::now());
        for run in 0..chunks / 64 {
            let asked = runs.ask(Chunk(run * 64), run * 64 + 1, 0..u64::MAX, &tree, now);
            runs.keep(Compared::lost(asked, now), &tree);
        }
        assert_eq!(runs.known.values().map(|known| known.parts.len() as u64).sum::<u64>(), KNOWN_MAX);
    }

    #[test]
    fn chunks_that_were_sent_make_room_for_others() {
        let most = CACHE_BYTES / (4 * CHUNK as u64);
        let image = tree(&vec![1; 4 * (most as usize + 1)]);
        let (mut runs, now) = (runs(&image.1, CACHE_BYTES), Instant::now());
        (0..most).for_each(|run| read(&mut runs, run, &image, now));
        // Run 2 is not the oldest, but only it has such chunks.
        (8..11).for_each(|number| runs.sent(Chunk(number), Whose::Readers));
        let one = |number: u64| Compared::new(number..number + 1, &image.0[..CHUNK], &image.1, now);
        runs.keep(one(4 * most), &image.1);
        assert!((0..most).all(|run| runs.is_whole(run, &image.1)) && runs.bytes < CACHE_BYTES);
        let here = Found::Here(vec![1; CHUNK].into());
        assert_eq!([9, 11].map(|number| runs.find(Chunk(number), now)), [Found::Missing, here.clone()]);

        // It comes back alone, then with the others of its run that are missing.
        let before = runs.bytes;
        let ask = |runs: &mut Runs, number| runs.ask(Chunk(number), number + 1, 0..u64::MAX, &image.1, now);
        assert_eq!(ask(&mut runs, 9), 9..10);
        runs.keep(one(9), &image.1);
        assert_eq!(runs.find(Chunk(9), now), here);
        assert_eq!(ask(&mut runs, 8), 8..9);
        assert_eq!(runs.bytes, before + CHUNK as u64);
        read(&mut runs, 2, &image, now);
        assert_eq!(runs.bytes, runs.known.values().map(Known::length_bytes).sum::<u64>());
        assert_eq!(runs.find(Chunk(8), now), here);
    }

    #[test]
    fn what_stores_keep_makes_room_before_what_readers_got() {
        let most = CACHE_BYTES_MIN / (4 * CHUNK as u64);
        let image = tree(&vec![1; 4 * (most as usize + 3)]);
        let (mut runs, now) = (runs(&image.1, CACHE_BYTES_MIN), Instant::now());
        (0..most).for_each(|run| read(&mut runs, run, &image, now));
        assert_eq!((runs.loose_bytes(), runs.loose().len() as u64), (CACHE_BYTES_MIN / 2, 4 * most));
        runs.sent(Chunk(0), Whose::Readers);
        runs.sent(Chunk(5), Whose::Stores);
        runs.sent(Chunk(5), Whose::Readers);
        assert_eq!(runs.loose_bytes(), CACHE_BYTES_MIN / 2 - CHUNK as u64);
        let numbers: Vec<u64> = runs.loose().iter().map(|chunk| chunk.0).collect();
        assert_eq!(numbers[..7], [0, 1, 2, 3, 4, 6, 7]);
        let one = |number: u64| Compared::new(number..number + 1, &image.0[..CHUNK], &image.1, now);
        runs.keep(one(4 * most), &image.1);
        assert_eq!(runs.find(Chunk(5), now), Found::Missing);
        assert_eq!(runs.find(Chunk(0), now), Found::Here(vec![1; CHUNK].into()));
        runs.keep(one(4 * most + 4), &image.1);
        assert_eq!(runs.find(Chunk(0), now), Found::Missing);
        runs.keep(one(4 * most + 8), &image.1);
        let is_known = |run: Run| runs.known.contains_key(&run);
        assert!(!is_known(2) && is_known(0) && is_known(1), "nothing was sent any more, and these were used later");
        assert!(runs.kept_bytes == 0 && runs.bytes <= CACHE_BYTES_MIN);
    }
}

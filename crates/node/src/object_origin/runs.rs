//! Runs: neighbouring chunks of an object that one request reads, and those that are here.
//!
//! Owns the cached runs. Invariant: a chunk is given out only if it was compared with its hash when
//! its run came. Memory is bounded. Chunks that a store keeps go first, then those that a node has
//! got, then the least recently used run. It reads nothing, and the time comes from the caller.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};
use vfield_core::chunk::Chunk;
use vfield_core::hash_tree::{HashTree, verify};

/// Length of a run in bytes: 256 requests for each GiB. At a delay of 50 ms and 1 Gbit/s, half the
/// time of a request is the delay; longer runs delay a reader's first chunk.
const RUN_BYTES: u64 = 4 << 20;
/// Memory for runs, in bytes, unless another size is asked for. Nodes that fill walk along the
/// image at different speeds; a run whose chunks went before a node got them is read twice.
pub const CACHE_BYTES: u64 = 128 << 20;
/// Least memory for runs, in bytes. So many runs can be under way, and each is to stay until its
/// askers were answered.
pub const CACHE_BYTES_MIN: u64 = 8 * RUN_BYTES;
/// Most runs without bytes: those of an object that became shorter.
const ENTRIES_MAX: usize = 4096;
/// Most chunks that are looked at before they make room: homes come for fewer in a second.
const LOOSE_MAX: usize = 4096;
/// For so long a chunk that differs is not read again.
const BAD_FOR: Duration = Duration::from_secs(10);

const _: () = assert!(CACHE_BYTES >= CACHE_BYTES_MIN);

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

/// Neighbouring chunks that one request brought, compared with their hashes.
#[derive(Debug)]
pub struct Compared {
    first: u64,
    parts: Vec<Part>,
}

/// One chunk of a run.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    /// Its bytes, and which node has got them.
    Here(Bytes, Whose),
    /// It made room after it was sent.
    Gone,
    /// The object has other bytes there.
    Bad,
}

/// The farthest that a chunk has come, in the order in which chunks make room: from the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// No node has got it.
    Nobodys,
    /// A node has got it that is not to store it. Others ask that node for a while.
    Readers,
    /// A store keeps it.
    Stores,
}

impl Part {
    const fn length_bytes(&self) -> u64 {
        match self {
            Self::Here(bytes, _) => bytes.len() as u64,
            Self::Gone | Self::Bad => 0,
        }
    }

    /// Its length in bytes, if it has come so far.
    fn bytes_of(&self, whose: Whose) -> u64 {
        if matches!(self, Self::Here(_, so_far) if *so_far == whose) { self.length_bytes() } else { 0 }
    }
}

impl Compared {
    /// Compares the bytes of `chunks` with their hashes, on the calling thread. Each chunk gets its
    /// own memory, so that it can go alone.
    pub fn new(chunks: Range<u64>, bytes: &[u8], tree: &HashTree) -> Self {
        let part = |(number, part): (u64, &[u8])| {
            let is_right = tree.is_zero(Chunk(number)) || verify(&tree.hash(Chunk(number)), part);
            if is_right { Part::Here(Bytes::copy_from_slice(part), Whose::Nobodys) } else { Part::Bad }
        };
        let parts = bytes.chunks(tree.geometry().chunk_bytes() as usize);
        Self { first: chunks.start, parts: chunks.zip(parts).map(part).collect() }
    }

    /// Chunks that the object does not have any more.
    pub fn lost(chunks: Range<u64>) -> Self {
        Self { first: chunks.start, parts: chunks.map(|_| Part::Bad).collect() }
    }

    /// The chunks that differ.
    pub fn bad(&self) -> impl Iterator<Item = Chunk> + '_ {
        let numbered = (self.first..).zip(&self.parts);
        numbered.filter_map(|(number, part)| (*part == Part::Bad).then_some(Chunk(number)))
    }

    fn part(&mut self, number: u64) -> Option<&mut Part> {
        let index = number.checked_sub(self.first)?;
        self.parts.get_mut(usize::try_from(index).ok()?)
    }

    fn length_bytes(&self) -> u64 {
        self.parts.iter().map(Part::length_bytes).sum()
    }
}

#[derive(Debug)]
struct Cached {
    chunks: Compared,
    came: Instant,
    used: u64,
    /// A chunk of it was read again, alone.
    mended: bool,
}

impl Cached {
    fn bytes_of(&self, whose: Whose) -> u64 {
        self.chunks.parts.iter().map(|part| part.bytes_of(whose)).sum()
    }

    /// Drops the chunks that have come so far.
    fn drop_all(&mut self, whose: Whose) {
        for part in self.chunks.parts.iter_mut().filter(|part| part.bytes_of(whose) > 0) {
            *part = Part::Gone;
        }
    }
}

/// The cached runs of an object.
#[derive(Debug)]
pub struct Runs {
    cached: BTreeMap<Run, Cached>,
    most_bytes: u64,
    bytes: u64,
    /// Those of them that a store keeps.
    kept_bytes: u64,
    uses: u64,
}

impl Runs {
    /// None yet, of at most so many bytes.
    pub const fn new(most_bytes: u64) -> Self {
        Self { cached: BTreeMap::new(), most_bytes, bytes: 0, kept_bytes: 0, uses: 0 }
    }

    /// Bytes beyond half of the memory that no store keeps.
    pub const fn loose_bytes(&self) -> u64 {
        (self.bytes - self.kept_bytes).saturating_sub(self.most_bytes / 2)
    }

    /// True if one more run would take the place of chunks that no store keeps.
    pub const fn is_full_of_loose(&self) -> bool {
        self.bytes - self.kept_bytes + RUN_BYTES > self.most_bytes
    }

    /// The first [`LOOSE_MAX`] chunks that no store keeps, in the order in which they make room.
    pub fn loose(&self) -> Vec<Chunk> {
        let mut by_use: Vec<&Cached> = self.cached.values().collect();
        by_use.sort_unstable_by_key(|cached| cached.used);
        let numbered = by_use.into_iter().flat_map(|cached| (cached.chunks.first..).zip(&cached.chunks.parts));
        let loose = numbered.filter(|(_, part)| matches!(part, Part::Here(_, whose) if *whose < Whose::Stores));
        loose.map(|(number, _)| Chunk(number)).take(LOOSE_MAX).collect()
    }

    /// The chunk with this number, of this run.
    pub fn find(&mut self, run: Run, chunk: Chunk, now: Instant) -> Found {
        let Some(cached) = self.cached.get_mut(&run) else { return Found::Missing };
        self.uses += 1;
        cached.used = self.uses;
        match cached.chunks.part(chunk.0) {
            Some(Part::Here(bytes, _)) => Found::Here(bytes.clone()),
            Some(Part::Bad) if now.saturating_duration_since(cached.came) < BAD_FOR => Found::Bad,
            Some(Part::Bad | Part::Gone) | None => Found::Missing,
        }
    }

    /// True for a chunk that is to be read alone. Nodes that have got it are asked for it, so
    /// whoever still comes here is an exception. The second one of a run is none.
    pub fn is_alone(&mut self, run: Run, chunk: Chunk) -> bool {
        let cached = self.cached.get_mut(&run).filter(|cached| !cached.mended);
        cached.is_some_and(|cached| cached.chunks.part(chunk.0) == Some(&mut Part::Gone))
    }

    /// True if a run was read lately.
    pub fn has(&self, run: Run) -> bool {
        self.cached.contains_key(&run)
    }

    /// A node has got this chunk.
    pub fn sent(&mut self, run: Run, chunk: Chunk, whose: Whose) {
        let Some(cached) = self.cached.get_mut(&run) else { return };
        if let Some(Part::Here(bytes, so_far)) = cached.chunks.part(chunk.0)
            && *so_far < whose
        {
            *so_far = whose;
            self.kept_bytes += if whose == Whose::Stores { bytes.len() as u64 } else { 0 };
        }
    }

    /// Keeps chunks of a run: all of it, or one. In their place go chunks that were sent, then the
    /// run that was used least recently.
    pub fn keep(&mut self, run: Run, chunks: Compared, now: Instant) {
        self.uses += 1;
        self.bytes += chunks.length_bytes();
        let fresh = Cached { chunks, came: now, used: self.uses, mended: false };
        let before = self.cached.get_mut(&run);
        if let Some(cached) = before.filter(|before| fresh.chunks.parts.len() < before.chunks.parts.len()) {
            (cached.came, cached.used, cached.mended) = (fresh.came, fresh.used, true);
            for (number, part) in (fresh.chunks.first..).zip(fresh.chunks.parts) {
                // A part that is not Gone has its bytes, which are the same.
                match cached.chunks.part(number) {
                    Some(before @ (Part::Gone | Part::Bad)) => *before = part,
                    _ => self.bytes -= part.length_bytes(),
                }
            }
        } else if let Some(before) = self.cached.insert(run, fresh) {
            self.leaves(&before);
        }
        self.make_room();
    }

    fn leaves(&mut self, cached: &Cached) {
        self.bytes -= cached.chunks.length_bytes();
        self.kept_bytes -= cached.bytes_of(Whose::Stores);
    }

    fn make_room(&mut self) {
        while self.bytes > self.most_bytes || self.cached.len() > ENTRIES_MAX {
            let crowded = self.cached.len() > ENTRIES_MAX;
            let drops = |whose| !crowded && self.drop_oldest(whose);
            if [Whose::Stores, Whose::Readers].into_iter().any(drops) {
                continue;
            }
            let Some((&oldest, _)) = self.cached.iter().min_by_key(|(_, cached)| cached.used) else { return };
            if let Some(gone) = self.cached.remove(&oldest) {
                self.leaves(&gone);
            }
        }
    }

    /// Drops the chunks that have come so far, of the least recently used run that has some. False
    /// if there is none.
    fn drop_oldest(&mut self, whose: Whose) -> bool {
        let having = self.cached.values_mut().filter(|cached| cached.bytes_of(whose) > 0);
        let Some(cached) = having.min_by_key(|cached| cached.used) else { return false };
        let bytes = cached.bytes_of(whose);
        cached.drop_all(whose);
        self.bytes -= bytes;
        self.kept_bytes -= if whose == Whose::Stores { bytes } else { 0 };
        true
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
        let compared = Compared::new(0..4, &bytes, &tree);
        assert!(compared.bad().eq([Chunk(1)]));
        let (mut runs, now) = (Runs::new(CACHE_BYTES), Instant::now());
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
        let (mut runs, now) = (Runs::new(CACHE_BYTES), Instant::now());
        let most = CACHE_BYTES / RUN_BYTES;
        for run in 0..=most {
            runs.keep(run, Compared::new(0..4, &bytes, &tree), now);
            runs.find(0, Chunk(0), now);
        }
        assert!(runs.has(0) && !runs.has(1) && runs.has(2) && runs.bytes <= CACHE_BYTES);
        for run in 0..2 * ENTRIES_MAX as u64 {
            runs.keep(run, Compared::lost(0..4), now);
        }
        assert!(runs.cached.len() <= ENTRIES_MAX);
    }
    #[test]
    fn chunks_that_were_sent_make_room_for_others() {
        let (bytes, tree) = tree(&[1, 2, 3, 4]);
        let (mut runs, now) = (Runs::new(CACHE_BYTES), Instant::now());
        let most = CACHE_BYTES / RUN_BYTES;
        for run in 0..most {
            runs.keep(run, Compared::new(0..4, &bytes, &tree), now);
        }
        // Run 2 is not the oldest, but only it has such chunks.
        (0..3).for_each(|number| runs.sent(2, Chunk(number), Whose::Readers));
        runs.keep(most, Compared::new(0..1, &bytes[..CHUNK], &tree), now);
        assert!((0..=most).all(|run| runs.has(run)) && runs.bytes < CACHE_BYTES);
        assert_eq!(runs.find(2, Chunk(1), now), Found::Missing);
        assert_eq!(runs.find(2, Chunk(3), now), Found::Here(bytes[3 * CHUNK..].to_vec().into()));
        assert!(runs.is_alone(2, Chunk(1)) && !runs.is_alone(2, Chunk(3)) && !runs.is_alone(99, Chunk(1)));

        // The first one is read alone, then all of it: it is read a second time.
        let before = runs.bytes;
        runs.keep(2, Compared::new(1..2, &bytes[CHUNK..2 * CHUNK], &tree), now);
        assert_eq!(runs.find(2, Chunk(1), now), Found::Here(bytes[CHUNK..2 * CHUNK].to_vec().into()));
        assert!(!runs.is_alone(2, Chunk(0)) && runs.bytes == before + CHUNK as u64);
        runs.keep(2, Compared::new(0..4, &bytes, &tree), now);
        assert_eq!(runs.bytes, runs.cached.values().map(|cached| cached.chunks.length_bytes()).sum::<u64>());
        assert_eq!(runs.find(2, Chunk(0), now), Found::Here(bytes[..CHUNK].to_vec().into()));
    }

    #[test]
    fn what_stores_keep_makes_room_before_what_readers_got() {
        let (bytes, tree) = tree(&[1, 2, 3, 4]);
        let (mut runs, now) = (Runs::new(CACHE_BYTES_MIN), Instant::now());
        let most = CACHE_BYTES_MIN / RUN_BYTES;
        for run in 0..most {
            runs.keep(run, Compared::new(0..4, &bytes, &tree), now);
        }
        assert_eq!((runs.loose_bytes(), runs.loose().len() as u64), (CACHE_BYTES_MIN / 2, 4 * most));
        runs.sent(0, Chunk(0), Whose::Readers);
        runs.sent(1, Chunk(1), Whose::Stores);
        runs.sent(1, Chunk(1), Whose::Readers);
        assert_eq!(runs.loose_bytes(), CACHE_BYTES_MIN / 2 - CHUNK as u64);
        let numbers: Vec<u64> = runs.loose().iter().map(|chunk| chunk.0).collect();
        assert_eq!(numbers[..8], [0, 1, 2, 3, 0, 2, 3, 0], "without chunk 1 of run 1");
        let one = || Compared::new(0..1, &bytes[..CHUNK], &tree);
        runs.keep(most, one(), now);
        assert_eq!(runs.find(1, Chunk(1), now), Found::Missing);
        assert_eq!(runs.find(0, Chunk(0), now), Found::Here(vec![1; CHUNK].into()));
        runs.keep(most + 1, one(), now);
        assert_eq!(runs.find(0, Chunk(0), now), Found::Missing);
        runs.keep(most + 2, one(), now);
        assert!(!runs.has(2) && runs.has(0) && runs.has(1), "nothing was sent any more, and these were used later");
        assert!(runs.kept_bytes == 0 && runs.bytes <= CACHE_BYTES_MIN);
    }
}

//! All slots of an image: one atomic word for each chunk, allocated a page of words at a time.
//!
//! Invariant: an unchanged word is as all were first, and costs nothing. So an empty store for an
//! image of 1 TiB costs 16 KiB. Readers take no lock: they find a word or learn that it was never
//! changed. Only the store uses it.

use super::slot::Slot;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use vfield_core::chunk::Chunk;

/// Words allocated at once: 64 KiB of them, for 1 GiB of an image in chunks of 64 KiB. Smaller
/// pages make the directory larger (16 bytes for each page of words). Larger ones waste more on
/// scattered chunks.
const WORDS: u64 = 1 << 14;

/// The slots of one image.
pub struct Slots {
    pages: Vec<OnceLock<Box<[AtomicU32]>>>,
    chunks: u64,
    first: Slot,
}

impl Slots {
    /// Most chunks: 4 PiB in chunks of 64 KiB, whose empty directory takes 64 MiB.
    pub const CHUNKS_MAX: u64 = 1 << 36;

    /// All slots as `first` is. `chunks` is at most [`Slots::CHUNKS_MAX`].
    pub fn new(chunks: u64, first: Slot) -> Self {
        assert!(chunks <= Self::CHUNKS_MAX, "{chunks} slots");
        Self { pages: (0..chunks.div_ceil(WORDS)).map(|_| OnceLock::new()).collect(), chunks, first }
    }

    /// The present state of the slot. Acquire: everything written before it is visible.
    pub fn load(&self, chunk: Chunk) -> Slot {
        self.word(chunk).map_or(self.first, |word| Slot::from_bits(word.load(Ordering::Acquire)))
    }

    /// Replaces a slot by what `transition` makes of it, and returns the new one; `None` if
    /// `transition` refused. Called again when another thread was faster.
    pub fn change(&self, chunk: Chunk, transition: impl Fn(Slot) -> Option<Slot>) -> Option<Slot> {
        let word = match self.word(chunk) {
            Some(word) => word,
            None => {
                transition(self.first)?;
                self.allocate(chunk)
            }
        };
        let mut old = word.load(Ordering::Acquire);
        loop {
            let new = transition(Slot::from_bits(old))?;
            match word.compare_exchange_weak(old, new.bits(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(new),
                Err(now) => old = now,
            }
        }
    }

    /// The chunks whose slots `is_it` accepts, ascending.
    pub fn matching(&self, is_it: impl Fn(Slot) -> bool) -> impl Iterator<Item = Chunk> {
        let unchanged = is_it(self.first);
        let pages = (0..).zip(&self.pages).filter(move |(_, page)| unchanged || page.get().is_some());
        let chunks = pages.flat_map(|(page, _)| page * WORDS..self.chunks.min((page + 1) * WORDS)).map(Chunk);
        chunks.filter(move |chunk| is_it(self.load(*chunk)))
    }

    fn word(&self, chunk: Chunk) -> Option<&AtomicU32> {
        assert!(chunk.0 < self.chunks, "{chunk} of {}", self.chunks);
        self.pages[(chunk.0 / WORDS) as usize].get().map(|page| &page[(chunk.0 % WORDS) as usize])
    }

    fn allocate(&self, chunk: Chunk) -> &AtomicU32 {
        let start = chunk.0 / WORDS * WORDS;
        let page = self.pages[(chunk.0 / WORDS) as usize]
            .get_or_init(|| (0..WORDS.min(self.chunks - start)).map(|_| AtomicU32::new(self.first.bits())).collect());
        &page[(chunk.0 % WORDS) as usize]
    }
}

//! A sparse set of chunk numbers. Empty pages cost no memory: a 1 TiB image has 16 million chunks.

use crate::chunk::Chunk;
use std::collections::BTreeMap;
use std::ops::Range;

/// Words of 64 bits in a page: 4096 chunks, which are 256 MiB in chunks of the usual size.
const WORDS: usize = 64;
const BITS: u64 = WORDS as u64 * 64;

/// A set of chunks.
#[derive(Debug, Default, Clone)]
pub struct Bits {
    pages: BTreeMap<u64, Box<[u64; WORDS]>>,
    count: u64,
}

impl Bits {
    /// Number of chunks in the set.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// True if it holds `chunk`.
    pub fn contains(&self, chunk: Chunk) -> bool {
        let (page, word, bit) = split(chunk.0);
        self.pages.get(&page).is_some_and(|words| words[word] & bit != 0)
    }

    /// Adds `chunk`; true if it was not there.
    pub fn insert(&mut self, chunk: Chunk) -> bool {
        let (page, word, bit) = split(chunk.0);
        let words = self.pages.entry(page).or_insert_with(|| Box::new([0; WORDS]));
        let new = words[word] & bit == 0;
        words[word] |= bit;
        self.count += u64::from(new);
        new
    }

    /// Adds a run of chunks.
    pub fn insert_range(&mut self, range: Range<u64>) {
        for number in range {
            self.insert(Chunk(number));
        }
    }

    /// Takes `chunk` out; true if it was there.
    pub fn remove(&mut self, chunk: Chunk) -> bool {
        let (page, word, bit) = split(chunk.0);
        let Some(words) = self.pages.get_mut(&page) else { return false };
        let old = words[word] & bit != 0;
        words[word] &= !bit;
        self.count -= u64::from(old);
        old
    }

    /// All chunks of the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Chunk> + '_ {
        self.pages.iter().flat_map(|(page, words)| {
            words.iter().enumerate().filter(|(_, word)| **word != 0).flat_map(move |(at, word)| {
                (0..64)
                    .filter(move |bit| word >> bit & 1 != 0)
                    .map(move |bit| Chunk(page * BITS + at as u64 * 64 + bit))
            })
        })
    }
}

const fn split(number: u64) -> (u64, usize, u64) {
    (number / BITS, (number % BITS / 64) as usize, 1 << (number % 64))
}

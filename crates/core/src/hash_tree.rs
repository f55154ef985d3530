//! The hash tree of an image: the hash of every chunk, down from the image id.
//!
//! It owns the arithmetic of hashes and does no I/O. A publisher gives a [`TreeBuilder`] the hashes
//! of data chunks and gets the [`HashTree`]. A reader gets single pages from others and uses
//! [`verify`] and [`zero_children`]. Invariant: a chunk's hash depends on its bytes only, never on
//! its place, and a chunk that was never added is all zeros. Origins and stores use it. It holds no
//! data, and does not check the top page: [`ImageId::of`] does.

mod assembly;
mod shared;

pub use assembly::{Assembly, NotTheTree};
pub use shared::Shared;

use crate::chunk::{Chunk, ChunkSize, HASH_BYTES};
use crate::hex::write_hex;
use crate::image::{BadHeader, Geometry, Header, ImageId};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// BLAKE3 of a chunk's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; HASH_BYTES]);

impl Hash {
    /// The hash at place `index` of a page; `None` past its end.
    pub fn in_page(page: &[u8], index: usize) -> Option<Self> {
        let start = index.checked_mul(HASH_BYTES)?;
        let bytes = page.get(start..start.checked_add(HASH_BYTES)?)?;
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0[..6])
    }
}

/// The hash of a chunk or page with these bytes. About 0.3 ms a MiB, on the calling thread.
pub fn hash_chunk(bytes: &[u8]) -> Hash {
    Hash(*blake3::hash(bytes).as_bytes())
}

/// True if `bytes` hash to `expected`. Their length needs no check of its own: other lengths hash
/// to something else.
pub fn verify(expected: &Hash, bytes: &[u8]) -> bool {
    hash_chunk(bytes) == *expected
}

/// Hashes of the all-zero chunks and pages of one level.
#[derive(Clone, Copy, Debug)]
struct ZeroLevel {
    /// The hash at full length.
    full: Hash,
    /// The hash of the last one, which may be shorter.
    last: Hash,
    /// Number of the last one.
    last_number: u64,
}

impl ZeroLevel {
    fn of(&self, number: u64) -> Hash {
        if number == self.last_number { self.last } else { self.full }
    }
}

/// The hash of each chunk of an image, if everything below it is zero.
#[derive(Clone, Debug)]
pub struct ZeroHashes {
    geometry: Geometry,
    /// Data first, then the levels of pages from the leaves up.
    levels: Vec<ZeroLevel>,
}

impl ZeroHashes {
    /// Hashes two chunks for each level: below 5 ms for the largest image.
    pub fn new(geometry: &Geometry) -> Self {
        let last_data = Chunk(geometry.data_chunks() - 1);
        let zeros = vec![0; geometry.chunk_bytes() as usize];
        let data = ZeroLevel {
            full: hash_chunk(&zeros),
            last: hash_chunk(&zeros[..geometry.length(last_data) as usize]),
            last_number: last_data.0,
        };
        let mut levels = vec![data];
        for level in 0..geometry.levels() {
            let below = levels[level];
            let last_page = Chunk(geometry.pages(level).end - 1);
            let full = below.full.0.repeat(geometry.header().chunk_size().hashes_per_page() as usize);
            let last = fill_page(geometry.children(last_page), |child| below.of(child));
            levels.push(ZeroLevel { full: hash_chunk(&full), last: hash_chunk(&last), last_number: last_page.0 });
        }
        Self { geometry: *geometry, levels }
    }

    /// The numbering of the image's chunks.
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The hash of `chunk`, data or page, if everything below it is zero.
    pub fn of(&self, chunk: Chunk) -> Hash {
        self.level(chunk).of(chunk.0)
    }

    /// The bytes of a page below which everything is zero; they are hashes, so not zeros
    /// themselves.
    ///
    /// # Panics
    /// For a data chunk.
    pub fn page(&self, page: Chunk) -> Bytes {
        assert!(!self.geometry.is_data(page), "{page} is data");
        fill_page(self.geometry.children(page), |child| self.of(Chunk(child))).into()
    }

    fn level(&self, chunk: Chunk) -> &ZeroLevel {
        &self.levels[self.geometry.level(chunk).map_or(0, |level| level + 1)]
    }
}

/// The page that holds the hash of each of `children`.
fn fill_page(children: Range<u64>, hash: impl Fn(u64) -> Hash) -> Vec<u8> {
    let mut page = Vec::with_capacity((children.end - children.start) as usize * HASH_BYTES);
    children.for_each(|child| page.extend_from_slice(&hash(child).0));
    page
}

/// The children of a verified page that are known to be zero, as ascending, disjoint ranges of
/// chunk numbers.
///
/// `page_bytes` has the page's length. Above the leaves the children are pages: zero means that
/// everything below them is zero.
pub fn zero_children(geometry: &Geometry, zeros: &ZeroHashes, page: Chunk, page_bytes: &[u8]) -> Vec<Range<u64>> {
    let children = geometry.children(page);
    assert_eq!(page_bytes.len() as u64, geometry.length(page), "length of page {page}");
    if children.is_empty() {
        return Vec::new();
    }
    let level = zeros.level(Chunk(children.start));
    let mut runs: Vec<Range<u64>> = Vec::new();
    for (child, hash) in children.zip(page_bytes.chunks_exact(HASH_BYTES)) {
        if level.of(child).0 != hash {
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.end == child => run.end += 1,
            _ => runs.push(child..child + 1),
        }
    }
    runs
}

/// Collects the hashes of an image's data chunks, in any order, into a [`HashTree`].
#[derive(Debug)]
pub struct TreeBuilder {
    zeros: ZeroHashes,
    /// Leaf pages that have a child with data.
    leaves: BTreeMap<u64, Vec<u8>>,
    populated: u64,
}

impl TreeBuilder {
    /// An image of `length_bytes`, all zeros so far.
    pub fn new(length_bytes: u64, chunk_size: ChunkSize) -> Result<Self, BadHeader> {
        let geometry = Geometry::new(Header::new(length_bytes, chunk_size, 0)?);
        Ok(Self { zeros: ZeroHashes::new(&geometry), leaves: BTreeMap::new(), populated: 0 })
    }

    /// The numbering of the image; its header's count of chunks with data is not final.
    pub const fn geometry(&self) -> &Geometry {
        self.zeros.geometry()
    }

    /// Adds the hash of a data chunk. A hash of zeros counts as zero.
    ///
    /// # Panics
    /// If `chunk` is not data of this image, or was added before.
    pub fn add(&mut self, chunk: Chunk, hash: Hash) {
        let geometry = self.zeros.geometry;
        assert!(geometry.is_data(chunk), "{chunk} is not data");
        let zero = self.zeros.of(chunk);
        if hash == zero {
            return;
        }
        let Some((leaf, index)) = geometry.parent(chunk) else { unreachable!("data has a parent") };
        let zeros = &self.zeros;
        let page = self.leaves.entry(leaf.0).or_insert_with(|| zeros.page(leaf).into());
        let place = &mut page[index * HASH_BYTES..(index + 1) * HASH_BYTES];
        assert!(place == zero.0, "{chunk} was told twice");
        place.copy_from_slice(&hash.0);
        self.populated += 1;
    }

    /// Hashes the pages that have data below them, level by level.
    pub fn finish(self) -> (Header, ImageId, HashTree) {
        let Self { mut zeros, leaves, populated } = self;
        let empty = *zeros.geometry.header();
        let Ok(header) = Header::new(empty.length_bytes(), empty.chunk_size(), populated) else {
            unreachable!("{populated} chunks of {}", zeros.geometry.data_chunks())
        };
        let geometry = Geometry::new(header);
        zeros.geometry = geometry;
        let mut pages: BTreeMap<u64, Bytes> = BTreeMap::new();
        let mut level = leaves;
        while !level.is_empty() {
            let mut above: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
            for (number, page) in level {
                if let Some((parent, index)) = geometry.parent(Chunk(number)) {
                    let bytes = above.entry(parent.0).or_insert_with(|| zeros.page(parent).into());
                    bytes[index * HASH_BYTES..(index + 1) * HASH_BYTES].copy_from_slice(&hash_chunk(&page).0);
                }
                pages.insert(number, page.into());
            }
            level = above;
        }
        let top = pages.entry(geometry.top().0).or_insert_with(|| zeros.page(geometry.top())).clone();
        let id = ImageId::of(&header, &top);
        (header, id, HashTree { zeros, pages })
    }
}

/// All hashes of a published image. Only pages that have data below them cost memory.
#[derive(Debug)]
pub struct HashTree {
    zeros: ZeroHashes,
    /// By chunk number: the top page, and every other page that has data below it.
    pages: BTreeMap<u64, Bytes>,
}

impl HashTree {
    /// The numbering of the image.
    pub const fn geometry(&self) -> &Geometry {
        self.zeros.geometry()
    }

    /// The hashes of zeros for this image.
    pub const fn zeros(&self) -> &ZeroHashes {
        &self.zeros
    }

    /// The bytes of a page. `None` for data, and for pages below the top with only zeros below
    /// them, whose bytes are [`ZeroHashes::page`].
    pub fn page(&self, page: Chunk) -> Option<&Bytes> {
        self.pages.get(&page.0)
    }

    /// The expected hash of a chunk, data or page.
    pub fn hash(&self, chunk: Chunk) -> Hash {
        match self.geometry().parent(chunk) {
            None => self.page(chunk).map_or_else(|| self.zeros.of(chunk), |top| hash_chunk(top)),
            Some((parent, index)) => {
                self.page(parent).and_then(|page| Hash::in_page(page, index)).unwrap_or_else(|| self.zeros.of(chunk))
            }
        }
    }

    /// True if a data chunk is all zeros, or if everything below a page is.
    pub fn is_zero(&self, chunk: Chunk) -> bool {
        self.hash(chunk) == self.zeros.of(chunk)
    }

    /// The end of the longest run from data chunk `from`, not beyond `end`, that is all zero or all
    /// non-zero; and true if it is zero. A whole leaf page of zeros costs one step.
    ///
    /// # Panics
    /// If `from..end` is empty or not all data.
    pub fn run(&self, from: u64, end: u64) -> (u64, bool) {
        assert!(from < end && end <= self.geometry().data_chunks(), "data chunks {from}..{end}");
        let zero = self.is_zero(Chunk(from));
        let mut at = from;
        while at < end {
            let Some((leaf, _)) = self.geometry().parent(Chunk(at)) else { unreachable!("data has a parent") };
            if self.page(leaf).is_none() {
                if !zero {
                    break;
                }
                at = self.geometry().children(leaf).end;
            } else if self.is_zero(Chunk(at)) == zero {
                at += 1;
            } else {
                break;
            }
        }
        (at.min(end), zero)
    }

    /// The pages it holds, in ascending order of their numbers: the top page comes last.
    pub fn pages(&self) -> impl DoubleEndedIterator<Item = (Chunk, &Bytes)> {
        self.pages.iter().map(|(number, page)| (Chunk(*number), page))
    }

    /// Bytes of the pages it holds.
    pub fn resident_bytes(&self) -> u64 {
        self.pages.values().map(|page| page.len() as u64).sum()
    }
}

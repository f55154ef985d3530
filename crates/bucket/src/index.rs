//! The index of an image: in which pack, and where in it, each chunk lies.
//!
//! ```text
//! head, 112 bytes: magic, version, count of packs, id, header, hash
//! for each pack: its name (32 bytes)
//! for each page: its stored length (4 bytes), BLAKE3 of its plain bytes (32 bytes)
//! the pages, in the same order
//! a page, for each of 4096 chunks: pack, offset, stored length (4 bytes each)
//! ```
//!
//! Integers are little-endian. The hash is that of all before the pages, itself left out. A page is
//! stored like a chunk of a [`crate::pack`]; if it is about zeros only, it has no bytes. A stored
//! length of 0 means zeros. Invariant: a read index names ranges inside of packs, and its memory is
//! bounded by its length. It says where chunks are and not whether they are right: they are
//! verified by the image's hashes. Publishers write it, [`crate::packed`] reads it by parts.

use crate::pack::{HEAD_BYTES as PACK_HEAD_BYTES, PACK_BYTES_MAX, PackName, Packer, Stored, Unpacker};
use std::io;
use vfield_core::chunk::Chunk;
use vfield_core::hash_tree::{Hash, hash_chunk};
use vfield_core::image::{BadHeader, Geometry, Header, ImageId};

/// Chunks of a page: 256 MiB of an image with chunks of 64 KiB. A page has 48 KiB in memory, and
/// less than half of that in the bucket.
pub const PAGE_CHUNKS: u64 = 4096;
/// Most pages of an index: 256 TiB of an image with chunks of 64 KiB. So a chunk's number has 32
/// bits.
pub const PAGES_MAX: u64 = 1 << 20;
/// Most packs of an index: 32 TiB of them.
pub const PACKS_MAX: usize = 1 << 20;
/// Length of the head in bytes.
pub const HEAD_BYTES: usize = 112;

const MAGIC: [u8; 8] = *b"VFINDEX\0";
/// Raised when the format or the meaning of a byte changes.
const VERSION: u32 = 1;
const HASH_AT: usize = HEAD_BYTES - 32;
const NAME_BYTES: usize = 32;
const PAGE_ROW_BYTES: usize = 36;
const ROW_BYTES: usize = 12;

/// Where a chunk lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Position of its pack in the index's list.
    pub pack: u32,
    /// Its bytes in that pack.
    pub stored: Stored,
}

/// Why bytes are no index.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadIndex {
    /// It begins like something else.
    #[error("it is no index of this version")]
    Foreign,
    /// It is about another image than its name says.
    #[error("it is the index of another image")]
    Other,
    /// Its header is none.
    #[error(transparent)]
    Header(#[from] BadHeader),
    /// More than an index may have.
    #[error("it names more packs or chunks than an index can")]
    TooLarge,
    /// It ends too early, or its bytes are others than those that were written.
    #[error("it is cut short or damaged")]
    Torn,
    /// A range that no pack has.
    #[error("it places chunk {0} outside of every pack")]
    Outside(Chunk),
}

/// The part of an index before its pages.
#[derive(Debug)]
pub struct Front {
    geometry: Geometry,
    packs: Vec<PackName>,
    pages: Vec<PageRow>,
}

/// A page in the list of pages.
#[derive(Debug, Clone, Copy)]
struct PageRow {
    /// From the index's beginning, in bytes.
    offset: u64,
    /// 0 if all its chunks are zeros.
    length: u32,
    hash: Hash,
}

/// Number of pages of an image.
fn pages_of(geometry: &Geometry) -> u64 {
    geometry.data_chunks().div_ceil(PAGE_CHUNKS)
}

/// Length in bytes of the part before the pages, by the head.
///
/// # Errors
/// If it is no head of this image's index, or claims too much.
pub fn front_bytes(head: &[u8], id: &ImageId) -> Result<usize, BadIndex> {
    Head::read(head, id).map(|head| head.front_bytes())
}

struct Head {
    geometry: Geometry,
    packs: usize,
}

impl Head {
    fn read(bytes: &[u8], id: &ImageId) -> Result<Self, BadIndex> {
        let own = bytes.first_chunk::<HEAD_BYTES>().ok_or(BadIndex::Torn)?;
        if own[..8] != MAGIC || own[8..12] != VERSION.to_le_bytes() {
            return Err(BadIndex::Foreign);
        }
        if own[16..48] != id.0 {
            return Err(BadIndex::Other);
        }
        let packs = u32::from_le_bytes([own[12], own[13], own[14], own[15]]) as usize;
        let geometry = Geometry::new(Header::decode(&own[48..HASH_AT])?);
        if packs > PACKS_MAX || pages_of(&geometry) > PAGES_MAX {
            return Err(BadIndex::TooLarge);
        }
        Ok(Self { geometry, packs })
    }

    fn front_bytes(&self) -> usize {
        HEAD_BYTES + self.packs * NAME_BYTES + pages_of(&self.geometry) as usize * PAGE_ROW_BYTES
    }
}

impl Front {
    /// Reads the part before the pages of the index of an image; the index has so many bytes.
    ///
    /// # Errors
    /// If it is none, is damaged, or does not fit that length.
    pub fn read(bytes: &[u8], id: &ImageId, length_bytes: u64) -> Result<Self, BadIndex> {
        let head = Head::read(bytes, id)?;
        let bytes = bytes.get(..head.front_bytes()).ok_or(BadIndex::Torn)?;
        let (own, lists) = bytes.split_at(HEAD_BYTES);
        if hash_of(&own[..HASH_AT], lists).0 != own[HASH_AT..] {
            return Err(BadIndex::Torn);
        }
        let (names, rows) = lists.split_at(head.packs * NAME_BYTES);
        let packs = names.chunks_exact(NAME_BYTES).map(|name| PackName(array(name))).collect();
        let mut offset = bytes.len() as u64;
        let page = |row: &[u8]| {
            let row = PageRow { offset, length: u32::from_le_bytes(array(row)), hash: Hash(array(&row[4..])) };
            offset += u64::from(row.length);
            row
        };
        let pages: Vec<PageRow> = rows.chunks_exact(PAGE_ROW_BYTES).map(page).collect();
        let longest = PAGE_CHUNKS as usize * ROW_BYTES;
        if offset != length_bytes || pages.iter().any(|page| page.length as usize > longest) {
            return Err(BadIndex::Torn);
        }
        Ok(Self { geometry: head.geometry, packs, pages })
    }

    /// The numbering of the image.
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The packs that it names.
    pub fn packs(&self) -> &[PackName] {
        &self.packs
    }

    /// The number of its pages.
    pub const fn pages(&self) -> u64 {
        self.pages.len() as u64
    }

    /// The page about a data chunk.
    pub const fn page(&self, chunk: Chunk) -> u64 {
        chunk.0 / PAGE_CHUNKS
    }

    /// Where a page lies in the index, in bytes; `None` if all its chunks are zeros.
    ///
    /// # Panics
    /// If there is no such page.
    pub fn range(&self, page: u64) -> Option<std::ops::Range<u64>> {
        let PageRow { offset, length, .. } = self.pages[page as usize];
        (length > 0).then(|| offset..offset + u64::from(length))
    }

    /// Reads the stored bytes of a page: the place of each of its chunks, `None` for zeros.
    ///
    /// # Errors
    /// If they are damaged, or name a range that no pack has.
    pub fn read_page(&self, page: u64, stored: &[u8]) -> Result<Vec<Option<Place>>, BadIndex> {
        let first = page * PAGE_CHUNKS;
        let chunks = first..(first + PAGE_CHUNKS).min(self.geometry.data_chunks());
        let mut plain = vec![0; (chunks.end - chunks.start) as usize * ROW_BYTES];
        let is_whole = Unpacker::new().is_ok_and(|mut unpacker| unpacker.unpack(stored, &mut plain));
        if !is_whole || hash_chunk(&plain) != self.pages[page as usize].hash {
            return Err(BadIndex::Torn);
        }
        chunks.map(Chunk).zip(plain.chunks_exact(ROW_BYTES)).map(|(chunk, row)| self.place(chunk, row)).collect()
    }

    fn place(&self, chunk: Chunk, row: &[u8]) -> Result<Option<Place>, BadIndex> {
        let number = |at: usize| u32::from_le_bytes(array(&row[at..]));
        let (pack, offset, length) = (number(0), number(4), number(8));
        if length == 0 {
            return Ok(None);
        }
        let end = u64::from(offset) + u64::from(length);
        let is_inside = (pack as usize) < self.packs.len()
            && offset as usize >= PACK_HEAD_BYTES
            && end <= PACK_BYTES_MAX as u64
            && u64::from(length) <= self.geometry.length(chunk);
        let place = Place { pack, stored: Stored { offset, length } };
        if is_inside { Ok(Some(place)) } else { Err(BadIndex::Outside(chunk)) }
    }
}

/// Writes the index of an image whose chunks lie in these packs; `place` tells where, and `None`
/// for zeros.
///
/// # Errors
/// If `to` fails, or the image has too many chunks or packs.
pub fn write(
    geometry: &Geometry,
    id: &ImageId,
    packs: &[PackName],
    place: impl Fn(Chunk) -> Option<Place>,
    to: &mut impl io::Write,
) -> io::Result<()> {
    if packs.len() > PACKS_MAX || pages_of(geometry) > PAGES_MAX {
        return Err(io::Error::other(BadIndex::TooLarge));
    }
    let mut packer = Packer::new()?;
    let (mut rows, mut pages) = (Vec::new(), Vec::new());
    for page in 0..pages_of(geometry) {
        let first = page * PAGE_CHUNKS;
        let chunks = first..(first + PAGE_CHUNKS).min(geometry.data_chunks());
        let places: Vec<Option<Place>> = chunks.map(|number| place(Chunk(number))).collect();
        if places.iter().all(Option::is_none) {
            rows.extend([0; PAGE_ROW_BYTES]);
            continue;
        }
        let mut plain = Vec::with_capacity(places.len() * ROW_BYTES);
        for place in places {
            let place = place.unwrap_or(Place { pack: 0, stored: Stored { offset: 0, length: 0 } });
            for number in [place.pack, place.stored.offset, place.stored.length] {
                plain.extend(number.to_le_bytes());
            }
        }
        let stored = packer.pack(&plain)?;
        rows.extend((stored.len() as u32).to_le_bytes());
        rows.extend(hash_chunk(&plain).0);
        pages.extend(stored);
    }
    let mut head = Vec::with_capacity(HEAD_BYTES);
    head.extend(MAGIC);
    head.extend(VERSION.to_le_bytes());
    head.extend((packs.len() as u32).to_le_bytes());
    head.extend(id.0);
    head.extend(geometry.header().encode());
    let names = packs.iter().flat_map(|name| name.0);
    let lists: Vec<u8> = names.chain(rows).collect();
    head.extend(hash_of(&head, &lists).0);
    [head, lists, pages].iter().try_for_each(|part| to.write_all(part))
}

fn hash_of(head: &[u8], lists: &[u8]) -> Hash {
    hash_chunk(&[head, lists].concat())
}

/// The first bytes of a slice that has as many.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|at| bytes[at])
}

//! Images: their identity, and the numbering of their bytes.
//!
//! A [`Header`] has the image's length and chunk size; together with the top page of the hash tree
//! it makes the [`ImageId`]. [`Geometry`] turns a header into the numbering of [`Chunk`]s: data,
//! hash pages, parents, lengths. Pure arithmetic; it holds no bytes.

use crate::chunk::{BadChunkSize, Chunk, ChunkSize, HASH_BYTES};
use crate::hex::write_hex;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use vfield_block::extent::Extent;

/// The id of an image, made of its content: BLAKE3 of its [`Header`] and of the top page of its
/// hash tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ImageId(pub [u8; HASH_BYTES]);

impl ImageId {
    /// The id of an image with this header and this top page.
    pub fn of(header: &Header, top_page: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&header.encode());
        hasher.update(top_page);
        Self(*hasher.finalize().as_bytes())
    }

    /// The first 12 hexadecimal digits, for display.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_owned()
    }
}

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

/// Text that is no image id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an image id is 64 hexadecimal digits, not {0:?}")]
pub struct BadImageId(pub String);

impl FromStr for ImageId {
    type Err = BadImageId;

    fn from_str(text: &str) -> Result<Self, BadImageId> {
        let bad = || BadImageId(text.to_owned());
        let hash = blake3::Hash::from_hex(text).map_err(|_| bad())?;
        Ok(Self(*hash.as_bytes()))
    }
}

/// The first digits of an image id, as typed: at least [`IdDigits::MIN`], lower case.
///
/// An attacker can make an image whose id begins with given digits, at 16 times the work for each
/// digit. The 12 digits that are shown tell the images of a field apart; only all 64 identify the
/// bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdDigits(String);

impl IdDigits {
    /// Fewest digits that name an image. Shorter words are more likely names.
    pub const MIN: usize = 4;

    /// `text` as the beginning of an id, or all of one.
    pub fn new(text: &str) -> Option<Self> {
        let digits = (Self::MIN..=2 * HASH_BYTES).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
        digits.then(|| Self(text.to_ascii_lowercase()))
    }

    /// True if the id begins so.
    pub fn matches(&self, id: &ImageId) -> bool {
        id.to_string().starts_with(&self.0)
    }

    /// True if that is all of an id.
    pub fn is_whole(&self) -> bool {
        self.0.len() == 2 * HASH_BYTES
    }

    /// The number of digits, from [`IdDigits::MIN`] to 64.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for IdDigits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The fixed facts about an image, hashed into its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    length_bytes: u64,
    chunk_size: ChunkSize,
    populated: u64,
}

/// A header that no image can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadHeader {
    /// Not [`Header::BYTES`] long, or without the magic.
    #[error("not an image header")]
    NotAHeader,
    /// Written by another version.
    #[error("image format {0} is not supported (this is {version})", version = Header::VERSION)]
    Version(u32),
    /// The chunk size is not a power of two within the bounds; see [`BadChunkSize`].
    #[error(transparent)]
    ChunkSize(#[from] BadChunkSize),
    /// Zero, or above [`Header::MAX_LENGTH`].
    #[error("an image of {0} bytes: 1 byte to 8 EiB are possible")]
    Length(u64),
    /// More chunks with data than chunks.
    #[error("{0} chunks with data do not fit into the image")]
    Populated(u64),
}

impl Header {
    /// Bumped when the tree, the id or the header changes its meaning.
    pub const VERSION: u32 = 1;
    /// Length of its encoding.
    pub const BYTES: usize = 32;
    /// The kernel's own limit for files and devices (signed 64-bit offsets).
    pub const MAX_LENGTH: u64 = i64::MAX as u64;
    const MAGIC: [u8; 8] = *b"V-FIELD\0";

    /// An image of `length_bytes` in chunks of `chunk_size`, of which `populated` are not all
    /// zeros.
    pub fn new(length_bytes: u64, chunk_size: ChunkSize, populated: u64) -> Result<Self, BadHeader> {
        if length_bytes == 0 || length_bytes > Self::MAX_LENGTH {
            return Err(BadHeader::Length(length_bytes));
        }
        if populated > length_bytes.div_ceil(chunk_size.bytes()) {
            return Err(BadHeader::Populated(populated));
        }
        Ok(Self { length_bytes, chunk_size, populated })
    }

    /// Exact length of the image in bytes.
    pub const fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// Size of its chunks.
    pub const fn chunk_size(&self) -> ChunkSize {
        self.chunk_size
    }

    /// The number of data chunks that are not all zeros.
    pub const fn populated(&self) -> u64 {
        self.populated
    }

    /// Magic, version, chunk size, length, populated; integers little-endian.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..8].copy_from_slice(&Self::MAGIC);
        out[8..12].copy_from_slice(&Self::VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&(self.chunk_size.bytes() as u32).to_le_bytes());
        out[16..24].copy_from_slice(&self.length_bytes.to_le_bytes());
        out[24..].copy_from_slice(&self.populated.to_le_bytes());
        out
    }

    /// The inverse of [`Header::encode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, BadHeader> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().map_err(|_| BadHeader::NotAHeader)?;
        if bytes[..8] != Self::MAGIC {
            return Err(BadHeader::NotAHeader);
        }
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if word(8) != Self::VERSION {
            return Err(BadHeader::Version(word(8)));
        }
        Self::new(long(16), ChunkSize::new(word(12))?, long(24))
    }
}

/// At most this many levels of hash pages: 2^63 bytes in chunks of 16 KiB (512 hashes a page) need
/// 6.
const LEVELS_MAX: usize = 6;

/// The numbering of an image's chunks.
///
/// Numbers `0..data_chunks` are data. After them come the hash pages of level 0 (hashes of data
/// chunks), then those of level 1 (hashes of level-0 pages), and so on up to one page, the top,
/// which has the highest number. The last data chunk and the last page of each level may be shorter
/// than a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    header: Header,
    /// First number of each level of pages, and one past the last page after them.
    starts: [u64; LEVELS_MAX + 1],
    levels: usize,
}

impl Geometry {
    /// The numbering that follows from a header.
    pub fn new(header: Header) -> Self {
        let fanout = header.chunk_size.hashes_per_page();
        let mut below = header.length_bytes.div_ceil(header.chunk_size.bytes());
        let mut starts = [below; LEVELS_MAX + 1];
        let mut levels = 0;
        loop {
            below = below.div_ceil(fanout);
            starts[levels + 1] = starts[levels] + below;
            levels += 1;
            if below == 1 {
                break;
            }
        }
        Self { header, starts, levels }
    }

    /// The header it was made from.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Size of a full chunk in bytes.
    pub const fn chunk_bytes(&self) -> u64 {
        self.header.chunk_size.bytes()
    }

    /// Number of data chunks, at least 1.
    pub const fn data_chunks(&self) -> u64 {
        self.starts[0]
    }

    /// Number of all chunks, hash pages included.
    pub const fn chunks(&self) -> u64 {
        self.starts[self.levels]
    }

    /// Most chunks that can be in a store: chunks of zeros are in none, and neither are pages over
    /// nothing else. Of each level there are at most as many pages as there are data chunks below
    /// them. At least 1.
    pub fn stored_max(&self) -> u64 {
        let populated = self.header.populated();
        let pages =
            (0..self.levels).map(|level| self.pages(level)).map(|pages| (pages.end - pages.start).min(populated));
        (populated + pages.sum::<u64>()).max(1)
    }

    /// The number of stored chunks among `chunks` of all, hash pages and zeros included, if zeros
    /// are spread evenly.
    pub fn stored_share(&self, chunks: u64) -> u64 {
        (u128::from(chunks) * u128::from(self.stored_max()) / u128::from(self.chunks())) as u64
    }

    /// Number of levels of hash pages, at least 1.
    pub const fn levels(&self) -> usize {
        self.levels
    }

    /// The numbers of the pages of one level.
    pub fn pages(&self, level: usize) -> Range<u64> {
        assert!(level < self.levels, "level {level} of {}", self.levels);
        self.starts[level]..self.starts[level + 1]
    }

    /// The top page, whose hash is in the image id.
    pub const fn top(&self) -> Chunk {
        Chunk(self.chunks() - 1)
    }

    /// `number` as a chunk of this image, if it is one.
    pub fn chunk(&self, number: u64) -> Option<Chunk> {
        (number < self.chunks()).then_some(Chunk(number))
    }

    /// True for data, false for hash pages.
    pub const fn is_data(&self, chunk: Chunk) -> bool {
        chunk.0 < self.starts[0]
    }

    /// The level of a hash page, `None` for data.
    pub fn level(&self, chunk: Chunk) -> Option<usize> {
        if self.is_data(chunk) {
            return None;
        }
        (0..self.levels).find(|&level| chunk.0 < self.starts[level + 1])
    }

    /// Length in bytes: that of a full chunk but for the last data chunk and the last page of a
    /// level.
    pub fn length(&self, chunk: Chunk) -> u64 {
        match self.level(chunk) {
            None => self.extent(chunk).len(),
            Some(level) => {
                let (below, page) = (self.children_total(level), chunk.0 - self.starts[level]);
                let fanout = self.header.chunk_size.hashes_per_page();
                (below - page * fanout).min(fanout) * HASH_BYTES as u64
            }
        }
    }

    /// The page that holds a chunk's hash, and the place of that hash in it; `None` for the top
    /// page.
    pub fn parent(&self, chunk: Chunk) -> Option<(Chunk, usize)> {
        let fanout = self.header.chunk_size.hashes_per_page();
        let (first, level) = match self.level(chunk) {
            None => (0, 0),
            Some(level) => (self.starts[level], level + 1),
        };
        if level == self.levels {
            return None;
        }
        let index = chunk.0 - first;
        Some((Chunk(self.starts[level] + index / fanout), (index % fanout) as usize))
    }

    /// The chunks whose hashes a page holds; empty for data.
    pub fn children(&self, page: Chunk) -> Range<u64> {
        let Some(level) = self.level(page) else { return 0..0 };
        let fanout = self.header.chunk_size.hashes_per_page();
        let first = if level == 0 { 0 } else { self.starts[level - 1] };
        let start = first + (page.0 - self.starts[level]) * fanout;
        start..(start + fanout).min(first + self.children_total(level))
    }

    /// The bytes of the image that a data chunk holds; empty, at the image's end, for hash pages.
    pub fn extent(&self, chunk: Chunk) -> Extent {
        let size = self.chunk_bytes();
        let length = self.header.length_bytes;
        let start = chunk.0.saturating_mul(size).min(length);
        Extent::from(start..start.saturating_add(size).min(length))
    }

    /// The data chunks that an extent of the image touches.
    pub fn covering(&self, extent: Extent) -> Range<u64> {
        if extent.is_empty() {
            return 0..0;
        }
        let size = self.chunk_bytes();
        extent.start() / size..extent.end().div_ceil(size).min(self.data_chunks())
    }

    /// The extent of all data chunks that an extent touches.
    pub fn whole(&self, extent: Extent) -> Extent {
        let chunks = self.covering(extent);
        match chunks.end.checked_sub(1).filter(|last| *last >= chunks.start) {
            Some(last) => Extent::from(self.extent(Chunk(chunks.start)).start()..self.extent(Chunk(last)).end()),
            None => extent,
        }
    }

    /// The number of chunks in the level below `level`.
    fn children_total(&self, level: usize) -> u64 {
        if level == 0 { self.starts[0] } else { self.starts[level] - self.starts[level - 1] }
    }
}

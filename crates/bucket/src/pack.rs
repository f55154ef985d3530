//! A pack: compressed chunks of any images in one object, with a table of their hashes in front.
//!
//! ```text
//! head, 16 bytes: magic, version, count of chunks
//! for each chunk: BLAKE3 of its plain bytes (32 bytes), its stored length (4 bytes)
//! the stored chunks, in the same order
//! ```
//!
//! Integers are little-endian. A pack's name is the BLAKE3 hash of head and table, so both verify
//! by the name, and each chunk by its hash. A stored chunk is a frame of zstd; one that would not
//! become shorter is plain. Invariant: a pack has at most [`PACK_BYTES_MAX`] bytes. This module
//! reads and writes bytes; publishers and origins call it.

use bytes::Bytes;
use std::fmt;
use std::io;
use std::str::FromStr;
use vfield_core::hash_tree::{Hash, hash_chunk};
use vfield_core::hex::{unhex, write_hex};
use zstd::bulk::{Compressor, Decompressor};

/// Longest pack in bytes: a bucket of a terabyte has 32 768, and a publish that is interrupted has
/// lost a few seconds.
pub const PACK_BYTES_MAX: usize = 32 << 20;
/// Most chunks of a pack: the table of chunks that are nearly nothing has half a megabyte.
pub const CHUNKS_MAX: usize = 1 << 14;
/// Length of the head in bytes.
pub const HEAD_BYTES: usize = 16;
/// Length of a row of the table in bytes.
pub const ROW_BYTES: usize = 36;
/// The level of zstd, at about 300 MB/s for each processor. Level 9 has a third of that speed, for
/// some percent.
const LEVEL: i32 = 3;

const MAGIC: [u8; 8] = *b"VFPACK\0\0";
/// Raised when the format or the meaning of a byte changes.
const VERSION: u32 = 1;

/// The name of a pack: 64 digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackName(pub [u8; 32]);

impl PackName {
    /// The name of its object.
    pub fn object(&self) -> String {
        format!("{DIR}{self}")
    }
}

/// What the names of packs' objects begin with.
pub const DIR: &str = "packs/";

impl FromStr for PackName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        // One name has one spelling.
        let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
        unhex(text).filter(|_| is_lower).map(Self).ok_or(())
    }
}

impl fmt::Display for PackName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for PackName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0[..6])
    }
}

/// Where a chunk lies in its pack, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// From the pack's beginning.
    pub offset: u32,
    /// At least 1.
    pub length: u32,
}

/// Compresses chunks on the calling thread.
pub struct Packer(Compressor<'static>);

impl Packer {
    /// # Errors
    /// If there is no memory for it.
    pub fn new() -> io::Result<Self> {
        Compressor::new(LEVEL).map(Self)
    }

    /// A chunk as it is stored.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn pack(&mut self, plain: &[u8]) -> io::Result<Vec<u8>> {
        let made = self.0.compress(plain)?;
        Ok(if made.len() < plain.len() { made } else { plain.to_vec() })
    }
}

/// Restores chunks on the calling thread.
pub struct Unpacker(Decompressor<'static>);

impl Unpacker {
    /// # Errors
    /// If there is no memory for it.
    pub fn new() -> io::Result<Self> {
        Decompressor::new().map(Self)
    }

    /// Restores a chunk into `plain`, which has its length; false if the stored bytes are no chunk
    /// of that length.
    pub fn unpack(&mut self, stored: &[u8], plain: &mut [u8]) -> bool {
        if stored.len() == plain.len() {
            plain.copy_from_slice(stored);
            return true;
        }
        self.0.decompress_to_buffer(stored, plain).is_ok_and(|length| length == plain.len())
    }
}

/// A pack that is being made.
#[derive(Debug, Default)]
pub struct Builder {
    rows: Vec<(Hash, u32)>,
    chunks: Vec<u8>,
}

impl Builder {
    /// True if a stored chunk of so many bytes has no room.
    pub fn is_full(&self, length: usize) -> bool {
        let table = HEAD_BYTES + (self.rows.len() + 1) * ROW_BYTES;
        self.rows.len() == CHUNKS_MAX || table + self.chunks.len() + length > PACK_BYTES_MAX
    }

    /// True if it has no chunk.
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a stored chunk with the hash of its plain bytes.
    ///
    /// # Panics
    /// If it has no room.
    pub fn add(&mut self, hash: Hash, stored: &[u8]) {
        assert!(!stored.is_empty() && !self.is_full(stored.len()), "{} bytes into a pack", stored.len());
        // It fits a pack.
        self.rows.push((hash, stored.len() as u32));
        self.chunks.extend_from_slice(stored);
    }

    /// The pack's name and bytes, and where its chunks lie, in their order.
    pub fn finish(self) -> (PackName, Bytes, Vec<Stored>) {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.rows.len() * ROW_BYTES + self.chunks.len());
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((self.rows.len() as u32).to_le_bytes());
        for (hash, length) in &self.rows {
            bytes.extend(hash.0);
            bytes.extend(length.to_le_bytes());
        }
        let name = PackName(hash_chunk(&bytes).0);
        let places = places(bytes.len() as u32, self.rows.iter().map(|(_, length)| *length)).collect();
        bytes.extend(self.chunks);
        (name, bytes.into(), places)
    }
}

/// Where chunks of these lengths lie, the first of them at `from`.
fn places(from: u32, lengths: impl Iterator<Item = u32>) -> impl Iterator<Item = Stored> {
    lengths.scan(from, |offset, length| {
        let stored = Stored { offset: *offset, length };
        *offset = offset.saturating_add(length);
        Some(stored)
    })
}

/// Why bytes are no beginning of a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPack {
    /// It begins like something else.
    #[error("it is no pack of this version")]
    Foreign,
    /// Its table is not the one that its name tells, or does not fit its length.
    #[error("its table is damaged")]
    Table,
}

/// Length in bytes of head and table of a pack that begins like this, with 16 bytes at least.
///
/// # Errors
/// If it is none, or has more chunks than a pack can have.
pub fn table_bytes(head: &[u8]) -> Result<usize, BadPack> {
    let own = head.first_chunk::<HEAD_BYTES>().ok_or(BadPack::Foreign)?;
    if own[..8] != MAGIC || own[8..12] != VERSION.to_le_bytes() {
        return Err(BadPack::Foreign);
    }
    let count = u32::from_le_bytes([own[12], own[13], own[14], own[15]]) as usize;
    if count == 0 || count > CHUNKS_MAX { Err(BadPack::Table) } else { Ok(HEAD_BYTES + count * ROW_BYTES) }
}

/// Reads head and table of a pack of this name and length; the bytes may go on behind.
///
/// # Errors
/// If they are those of another pack, or do not fit its length.
pub fn table(name: PackName, bytes: &[u8], length_bytes: u64) -> Result<Vec<(Hash, Stored)>, BadPack> {
    let bytes = bytes.get(..table_bytes(bytes)?).ok_or(BadPack::Table)?;
    if hash_chunk(bytes).0 != name.0 {
        return Err(BadPack::Table);
    }
    let rows = || bytes[HEAD_BYTES..].chunks_exact(ROW_BYTES).map(|row| row.split_at(32));
    let lengths = rows().map(|(_, length)| u32::from_le_bytes([length[0], length[1], length[2], length[3]]));
    let end = lengths.clone().fold(bytes.len() as u64, |end, length| end + u64::from(length));
    if end != length_bytes || end > PACK_BYTES_MAX as u64 || lengths.clone().any(|length| length == 0) {
        return Err(BadPack::Table);
    }
    let hashes = rows().map(|(hash, _)| Hash(std::array::from_fn(|at| hash[at])));
    Ok(hashes.zip(places(bytes.len() as u32, lengths)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(chunks: &[&[u8]]) -> (PackName, Bytes, Vec<Stored>) {
        let (mut builder, mut packer) = (Builder::default(), Packer::new().unwrap());
        for chunk in chunks {
            builder.add(hash_chunk(chunk), &packer.pack(chunk).unwrap());
        }
        builder.finish()
    }

    #[test]
    fn a_pack_is_read_by_its_name() {
        let chunks: [&[u8]; 3] = [&[7; 70_000], b"short", &[0, 1, 2, 3].repeat(9000)];
        let (name, bytes, places) = pack(&chunks);
        let rows = table(name, &bytes, bytes.len() as u64).unwrap();
        assert_eq!(rows.iter().map(|(_, stored)| *stored).collect::<Vec<_>>(), places);
        let mut unpacker = Unpacker::new().unwrap();
        for (chunk, (hash, Stored { offset, length })) in chunks.into_iter().zip(rows) {
            let stored = &bytes[offset as usize..][..length as usize];
            let mut plain = vec![0; chunk.len()];
            assert!(unpacker.unpack(stored, &mut plain) && plain == chunk && hash == hash_chunk(chunk));
            let mut longer = vec![0; chunk.len() + 1];
            assert!(!unpacker.unpack(stored, &mut longer));
        }
        assert!(bytes.len() < 1000, "{} bytes", bytes.len());
        assert_eq!(pack(&chunks).0, name);
        assert_eq!(name.to_string().parse(), Ok(name));
    }

    #[test]
    fn changed_packs_are_refused() {
        let (name, bytes, _) = pack(&[&[7; 70_000], b"short"]);
        let length = bytes.len() as u64;
        for at in 0..HEAD_BYTES + 2 * ROW_BYTES {
            let mut other = bytes.to_vec();
            other[at] ^= 1;
            assert!(table(name, &other, length).is_err(), "byte {at}");
        }
        for cut in [0, 1, HEAD_BYTES, HEAD_BYTES + 2 * ROW_BYTES - 1] {
            assert!(table(name, &bytes[..cut], length).is_err(), "{cut}");
        }
        assert_eq!(table(name, &bytes, length - 1), Err(BadPack::Table));
        assert_eq!(table(PackName([0; 32]), &bytes, length), Err(BadPack::Table));
    }

    #[test]
    fn a_pack_is_full_at_its_bounds() {
        let mut builder = Builder::default();
        let room = PACK_BYTES_MAX - HEAD_BYTES - ROW_BYTES;
        assert!(builder.is_empty() && !builder.is_full(room) && builder.is_full(room + 1));
        (0..CHUNKS_MAX).for_each(|_| builder.add(Hash([0; 32]), b"x"));
        assert!(builder.is_full(1));
    }

    #[test]
    fn a_name_has_one_spelling() {
        for text in ["", "ab", &"g".repeat(64), &"A".repeat(64), &"a".repeat(63)] {
            assert!(text.parse::<PackName>().is_err(), "{text}");
        }
    }
}

//! The label at the end of a memory file: its image, and the share that was to be held. A later
//! process needs no more, since chunk `i` lies at `i` times the chunk size and the file's holes are
//! the missing ones.
//!
//! Invariant: a label promises nothing. Its writer may have been another version, or have been
//! killed meanwhile; each chunk is verified before it counts. The store writes and reads it.

use vfield_core::image::{BadHeader, Geometry, Header, ImageId};
use vfield_core::names::Names;
use vfield_core::node::Commitment;

/// The content of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The image's id.
    pub id: ImageId,
    /// Its header; whether it belongs to `id` is found out with the top page.
    pub header: Header,
    /// Its names on that node; if not all fit, the first.
    pub names: Names,
    /// The share that the store was to hold.
    pub commitment: Commitment,
}

/// No label, or one that this version cannot use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadLabel {
    /// Wrong length, magic or checksum: never written, half written, or changed.
    #[error("it has no label")]
    NotALabel,
    /// Written by another version.
    #[error("its format {0} is not the one of this version ({version})", version = Label::VERSION)]
    Version(u32),
    /// The header is none.
    #[error(transparent)]
    Header(#[from] BadHeader),
    /// An arc that the image does not have, or a name that no image can have.
    #[error("its label is not about an image")]
    Unsound,
}

impl Label {
    /// Bumped when the label or the layout of the file changes.
    pub const VERSION: u32 = 1;
    /// Length of its encoding, the checksum included: less than a page, so that the kernel copies
    /// it in one go.
    pub const BYTES: usize = 512;
    const MAGIC: [u8; 8] = *b"VFSTORE\0";
    const HASH_AT: usize = Self::BYTES - 32;
    const NAME_AT: usize = 96;

    /// Magic, version, length of the name, id, header, arc start, fill start, name, zeros, BLAKE3
    /// of all that; integers little-endian.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        let name = self.names.joined();
        let name = if name.len() <= Self::HASH_AT - Self::NAME_AT { name } else { self.names.first() };
        out[..8].copy_from_slice(&Self::MAGIC);
        out[8..12].copy_from_slice(&Self::VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&(name.len() as u32).to_le_bytes());
        out[16..48].copy_from_slice(&self.id.0);
        out[48..80].copy_from_slice(&self.header.encode());
        out[80..88].copy_from_slice(&self.commitment.start.to_le_bytes());
        out[88..96].copy_from_slice(&self.commitment.from.to_le_bytes());
        out[Self::NAME_AT..][..name.len()].copy_from_slice(name.as_bytes());
        let hash = blake3::hash(&out[..Self::HASH_AT]);
        out[Self::HASH_AT..].copy_from_slice(hash.as_bytes());
        out
    }

    /// The inverse of [`Label::encode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, BadLabel> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().map_err(|_| BadLabel::NotALabel)?;
        let whole = blake3::hash(&bytes[..Self::HASH_AT]).as_bytes() == &bytes[Self::HASH_AT..];
        if !whole || bytes[..8] != Self::MAGIC {
            return Err(BadLabel::NotALabel);
        }
        let number = |at: usize, length: usize| {
            bytes[at..at + length].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let version = number(8, 4) as u32;
        if version != Self::VERSION {
            return Err(BadLabel::Version(version));
        }
        let id = ImageId(bytes[16..48].try_into().map_err(|_| BadLabel::NotALabel)?);
        let header = Header::decode(&bytes[48..80])?;
        let commitment = Commitment { start: number(80, 8), from: number(88, 8) };
        let name = bytes[Self::NAME_AT..Self::HASH_AT].get(..number(12, 4) as usize);
        let names = name.and_then(|name| str::from_utf8(name).ok()).map(Names::from).filter(Names::is_sound);
        match names {
            Some(names) if commitment.fits(Geometry::new(header).chunks()) => {
                Ok(Self { id, header, names, commitment })
            }
            _ => Err(BadLabel::Unsound),
        }
    }
}

//! The format of a saved overlay: one file with all changes, and their image.
//!
//! ```text
//! header    "VFOVERL\0"  version: u32  granule: u32  image id: 32 bytes  size: u64
//!           entries: u64  held: u64
//! entries   (area: u64, states: 64 bytes), in the order of areas, each once
//! granules  4096 bytes for each that is held, in the order of the device
//! checksum  BLAKE3 of all before it: 32 bytes
//! ```
//! Numbers are little-endian. `held` is the number of granules, so the header decides the length of
//! the file.

use crate::entry::{self, ENTRY_BYTES};
use crate::granule::{Cut, GRANULE_BYTES};
use vfield_core::image::ImageId;

const MAGIC: &[u8; 8] = b"VFOVERL\0";
/// Raised when the format changes its meaning.
const VERSION: u32 = 1;
/// Length of a header.
pub const HEADER_BYTES: usize = 8 + 4 + 4 + 32 + 8 + 8 + 8;
/// Length of the checksum.
pub const HASH_BYTES: usize = 32;

/// The header of a saved overlay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The image that was changed.
    pub image: ImageId,
    /// Length of the device, in bytes.
    pub size_bytes: u64,
    /// Number of areas with changes.
    pub entries: u64,
    /// Number of held granules.
    pub held: u64,
}

/// Why bytes are no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bad {
    /// They are something else.
    Foreign,
    /// A later version wrote them.
    Newer(u32),
    /// The values are impossible.
    Corrupt,
}

impl Header {
    /// As files have it.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(GRANULE_BYTES as u32).to_le_bytes());
        bytes.extend_from_slice(&self.image.0);
        for number in [self.size_bytes, self.entries, self.held] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// The inverse of [`Header::encode`], of the front of a file.
    ///
    /// # Errors
    /// For anything else, a header that is cut short included.
    pub fn parse(bytes: &[u8]) -> Result<Self, Bad> {
        let Some(bytes) = bytes.get(..HEADER_BYTES).filter(|bytes| bytes.starts_with(MAGIC)) else {
            return Err(Bad::Foreign);
        };
        let mut rest = &bytes[MAGIC.len()..];
        let (version, granule) = (entry::take_u32(&mut rest), entry::take_u32(&mut rest));
        if version > VERSION {
            return Err(Bad::Newer(version));
        }
        let (image, mut rest) = rest.split_first_chunk::<32>().ok_or(Bad::Foreign)?;
        let mut number = || entry::take_u64(&mut rest);
        let header = Self { image: ImageId(*image), size_bytes: number(), entries: number(), held: number() };
        let cut = Cut::new(header.size_bytes);
        let granules = header.size_bytes.div_ceil(GRANULE_BYTES);
        let sound = version == VERSION
            && u64::from(granule) == GRANULE_BYTES
            && header.entries <= cut.areas()
            && header.held <= granules
            && header.file_bytes().is_some();
        if sound { Ok(header) } else { Err(Bad::Corrupt) }
    }

    /// The offset of the granules in bytes.
    pub const fn granules_at(&self) -> u64 {
        HEADER_BYTES as u64 + self.entries * ENTRY_BYTES as u64
    }

    /// Length of the file; `None` if it does not fit into 63 bits, as lengths of files have to.
    pub fn file_bytes(&self) -> Option<u64> {
        let entries = self.entries.checked_mul(ENTRY_BYTES as u64)?;
        let granules = self.held.checked_mul(GRANULE_BYTES)?;
        let all = entries.checked_add(granules)?.checked_add((HEADER_BYTES + HASH_BYTES) as u64)?;
        i64::try_from(all).ok()?;
        Some(all)
    }
}

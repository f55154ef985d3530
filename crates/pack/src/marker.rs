//! The text in front of an image that says that this project laid it out, and how.
//!
//! EROFS leaves the first 1024 bytes of an image to others. The text has one word and one number on
//! each line, and zeros behind it.

use crate::erofs::SUPERBLOCK_AT;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use vfield_core::chunk::ChunkSize;

/// The first line: the text's name and its version.
const FIRST: &str = "vfield-pack 1";

/// How an image is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// The chunks that files begin at.
    pub chunk_size: ChunkSize,
    /// Bytes of the metadata in front: whole chunks.
    pub metadata_bytes: u64,
}

impl Marker {
    /// The text with its zeros.
    pub fn encode(&self) -> [u8; SUPERBLOCK_AT] {
        let text = format!("{FIRST}\nchunk-size {}\nmetadata {}\n", self.chunk_size.bytes(), self.metadata_bytes);
        let mut bytes = [0; SUPERBLOCK_AT];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        bytes
    }

    /// The marker in the file at `path`; `None` if there is none, or the file cannot be read.
    pub fn of_file(path: &Path) -> Option<Self> {
        // A named pipe is not to be waited for.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
        let mut bytes = [0; SUPERBLOCK_AT];
        file.read_exact_at(&mut bytes, 0).ok()?;
        Self::decode(&bytes)
    }

    /// The marker at the start of `bytes`; `None` if there is none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let text = bytes.get(..SUPERBLOCK_AT)?.split(|byte| *byte == 0).next()?;
        let mut lines = std::str::from_utf8(text).ok()?.lines();
        if lines.next() != Some(FIRST) {
            return None;
        }
        let mut number = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok();
        let chunk_size = ChunkSize::new(u32::try_from(number("chunk-size")?).ok()?).ok()?;
        let metadata_bytes = number("metadata")?;
        (metadata_bytes % chunk_size.bytes() == 0).then_some(Self { chunk_size, metadata_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_read_as_it_is_written() {
        let marker = Marker { chunk_size: ChunkSize::DEFAULT, metadata_bytes: 3 << 16 };
        assert_eq!(Marker::decode(&marker.encode()), Some(marker));
        for text in ["", "vfield-pack 2\nchunk-size 65536\nmetadata 0\n", "vfield-pack 1\nchunk-size 5\nmetadata 0\n"] {
            let mut bytes = [0; SUPERBLOCK_AT];
            bytes[..text.len()].copy_from_slice(text.as_bytes());
            assert_eq!(Marker::decode(&bytes), None, "{text:?}");
        }
    }
}

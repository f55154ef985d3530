//! The file in which a published tree is kept: its format.
//!
//! ```text
//! head, 192 bytes: magic, version, id, header, file, checksum
//! for each page, the top page first: its number (8 bytes), its bytes
//! ```
//!
//! Invariant: a file that can be read has the tree of the id in its head. A page that only covers
//! zeros is not there. [`super::kept_tree`] finds and judges such files. This module reads and
//! writes bytes, and knows no paths.

use super::file::Stamp;
use bytes::Bytes;
use std::io::{self, Read, Write};
use vfield_core::hash_tree::{Assembly, HashTree, NotTheTree};
use vfield_core::image::{BadHeader, Header, ImageId};

/// Why a tree is not read.
#[derive(Debug, thiserror::Error)]
pub enum BadTree {
    /// It does not begin like a tree: somebody's own file.
    #[error("it has no tree of an image")]
    Foreign,
    /// Written by another version.
    #[error("its format {0} is not the one of this version ({version})", version = Head::VERSION)]
    Version(u32),
    /// It ends too early, or goes on after its end.
    #[error("it is cut short or damaged")]
    Torn,
    /// The header is none.
    #[error(transparent)]
    Header(#[from] BadHeader),
    /// The pages are not those of the id.
    #[error(transparent)]
    Pages(#[from] NotTheTree),
    /// It was copied, or its file was replaced by another one.
    #[error("it has the hashes of another file")]
    OtherFile,
    /// The kernel could not read it.
    #[error("reading it: {0}")]
    Io(io::Error),
}

impl From<io::Error> for BadTree {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof { Self::Torn } else { Self::Io(error) }
    }
}

/// What a kept tree is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The image's id.
    pub id: ImageId,
    /// Its header, with the length of the file and the chunk size.
    pub header: Header,
    /// The file at the moment at which it was hashed.
    pub file: Stamp,
}

impl Head {
    /// Bumped when the format or the meaning of a page changes.
    pub const VERSION: u32 = 1;
    /// Length of its encoding, the checksum included.
    pub const BYTES: usize = 192;
    const MAGIC: [u8; 8] = *b"VFTREE\0\0";
    const HASH_AT: usize = Self::BYTES - 32;

    /// Magic, version, id, header, device, inode, both times in ns, zeros, BLAKE3 of all that;
    /// integers little-endian.
    fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..8].copy_from_slice(&Self::MAGIC);
        out[8..12].copy_from_slice(&Self::VERSION.to_le_bytes());
        out[16..48].copy_from_slice(&self.id.0);
        out[48..80].copy_from_slice(&self.header.encode());
        out[80..88].copy_from_slice(&self.file.device.to_le_bytes());
        out[88..96].copy_from_slice(&self.file.inode.to_le_bytes());
        out[96..112].copy_from_slice(&self.file.modified_ns.to_le_bytes());
        out[112..128].copy_from_slice(&self.file.status_changed_ns.to_le_bytes());
        let hash = blake3::hash(&out[..Self::HASH_AT]);
        out[Self::HASH_AT..].copy_from_slice(hash.as_bytes());
        out
    }

    /// Reads the head of a tree. An empty file is a torn tree, and not somebody's own file.
    pub fn read(from: &mut impl Read) -> Result<Self, BadTree> {
        let mut bytes = [0; Self::BYTES];
        let magic = &mut bytes[..8];
        from.read_exact(magic)?;
        if *magic != Self::MAGIC {
            return Err(BadTree::Foreign);
        }
        from.read_exact(&mut bytes[8..])?;
        let version = u32::from_le_bytes(at(&bytes, 8));
        if version != Self::VERSION {
            return Err(BadTree::Version(version));
        }
        if blake3::hash(&bytes[..Self::HASH_AT]).as_bytes() != &bytes[Self::HASH_AT..] {
            return Err(BadTree::Torn);
        }
        let file = Stamp {
            device: u64::from_le_bytes(at(&bytes, 80)),
            inode: u64::from_le_bytes(at(&bytes, 88)),
            modified_ns: i128::from_le_bytes(at(&bytes, 96)),
            status_changed_ns: i128::from_le_bytes(at(&bytes, 112)),
        };
        Ok(Self { id: ImageId(at(&bytes, 16)), header: Header::decode(&bytes[48..80])?, file })
    }

    /// Reads the pages after this head, up to the end. Hashes them on the calling thread: 0.05 % of
    /// a dense image. Memory is bounded by the file's length, and by the image's own pages.
    pub fn read_tree(&self, from: &mut impl Read) -> Result<HashTree, BadTree> {
        let mut assembly = Assembly::new(self.id, self.header);
        let mut number = [0; 8];
        while next(from, &mut number)? {
            let number = u64::from_le_bytes(number);
            let mut page = vec![0; assembly.length_of_next(number)? as usize];
            from.read_exact(&mut page)?;
            assembly.add(number, Bytes::from(page))?;
        }
        Ok(assembly.finish()?)
    }

    /// Writes the head and the pages of its tree.
    pub fn write(&self, tree: &HashTree, to: &mut impl Write) -> io::Result<()> {
        to.write_all(&self.encode())?;
        for (page, bytes) in tree.pages().rev() {
            to.write_all(&page.0.to_le_bytes())?;
            to.write_all(bytes)?;
        }
        to.flush()
    }
}

/// Fills `bytes`; false if nothing follows.
fn next(from: &mut impl Read, bytes: &mut [u8; 8]) -> io::Result<bool> {
    let mut have = 0;
    while have < bytes.len() {
        match from.read(&mut bytes[have..]) {
            Ok(0) if have == 0 => return Ok(false),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => have += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// `N` bytes from place `from` of a head.
fn at<const N: usize>(bytes: &[u8; Head::BYTES], from: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[from + index])
}

//! Images in memory that are published.

use std::io;
use std::sync::Arc;
use vfield_bucket::Source;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::hash_tree::{HashTree, TreeBuilder, hash_chunk};
use vfield_core::image::{Header, ImageId};
use vfield_node::origin::Stamp;
use vfield_node::origin::tree_file::Head;

/// Length of a chunk in bytes.
pub const CHUNK: usize = 16 << 10;

/// An image in memory.
pub struct Image {
    pub bytes: Vec<u8>,
    header: Header,
    id: ImageId,
    tree: HashTree,
}

impl Image {
    pub fn of(bytes: Vec<u8>) -> Arc<Self> {
        let mut builder = TreeBuilder::new(bytes.len() as u64, ChunkSize::new(CHUNK as u32).unwrap()).unwrap();
        for (number, chunk) in (0..).zip(bytes.chunks(CHUNK)) {
            builder.add(Chunk(number), hash_chunk(chunk));
        }
        let (header, id, tree) = builder.finish();
        Arc::new(Self { bytes, header, id, tree })
    }

    /// An image of chunks, each drawn from its number; 0 is a chunk of zeros. The last one is
    /// short.
    pub fn drawn(numbers: impl IntoIterator<Item = u32>) -> Arc<Self> {
        let mut bytes: Vec<u8> = numbers.into_iter().flat_map(chunk).collect();
        bytes.truncate(bytes.len() - 777);
        Self::of(bytes)
    }
}

/// A chunk that becomes shorter by a half.
fn chunk(number: u32) -> Vec<u8> {
    if number == 0 {
        return vec![0; CHUNK];
    }
    let mut state = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..CHUNK / 16).flat_map(|_| [random(), 7]).flat_map(u64::to_le_bytes).collect()
}

impl Source for Image {
    fn id(&self) -> ImageId {
        self.id
    }

    fn tree(&self) -> &HashTree {
        &self.tree
    }

    fn write_hashes(&self, to: &mut Vec<u8>) -> io::Result<()> {
        let file = Stamp { device: 0, inode: 0, modified_ns: 0, status_changed_ns: 0 };
        Head { id: self.id, header: self.header, file }.write(&self.tree, to)
    }

    fn has_hashes(&self, mut beginning: &[u8]) -> bool {
        Head::read(&mut beginning).is_ok_and(|head| head.id == self.id)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let from = self.bytes.get(offset as usize..).and_then(|rest| rest.get(..bytes.len()));
        bytes.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

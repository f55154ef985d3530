//! What two images have in common: the chunks that have the same data at the same place.
//!
//! Only those lie once in memory and keep their homes when a room moves from one image to the
//! other. The publisher's node asks. Equal pages are not walked.

use super::{HASH_BYTES, HashTree};
use crate::chunk::Chunk;

/// Chunks of an image, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shared {
    /// Chunks with data.
    pub with_data: u64,
    /// Those that the other image has too, under the same number.
    pub same: u64,
}

impl HashTree {
    /// What this image shares with `other`; nothing if their lengths or chunk sizes differ.
    pub fn shared_with(&self, other: &Self) -> Shared {
        let shape = |tree: &Self| (tree.geometry().header().length_bytes(), tree.geometry().chunk_bytes());
        let with_data = self.geometry().header().populated();
        if shape(self) != shape(other) {
            return Shared { with_data, same: 0 };
        }
        let leaves = self.pages().filter(|(page, _)| self.geometry().level(*page) == Some(0));
        let same = leaves.map(|(leaf, page)| other.page(leaf).map_or(0, |others| self.same_below(leaf, page, others)));
        Shared { with_data, same: same.sum() }
    }

    /// Children of a leaf page that have data, and the same hash in both pages.
    fn same_below(&self, leaf: Chunk, page: &[u8], others: &[u8]) -> u64 {
        let children = self.geometry().children(leaf).map(Chunk);
        let pairs = page.chunks_exact(HASH_BYTES).zip(others.chunks_exact(HASH_BYTES));
        let same =
            children.zip(pairs).filter(|(child, (one, other))| one == other && self.zeros().of(*child).0 != **one);
        same.count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::ChunkSize;
    use crate::hash_tree::{Hash, TreeBuilder};

    /// An image of these chunks, each of bytes of one kind.
    fn tree(length_bytes: u64, chunks: impl IntoIterator<Item = (u64, u8)>) -> HashTree {
        let mut builder = TreeBuilder::new(length_bytes, ChunkSize::MIN).unwrap();
        chunks.into_iter().for_each(|(chunk, kind)| builder.add(Chunk(chunk), Hash([kind; HASH_BYTES])));
        builder.finish().2
    }

    #[test]
    fn chunks_count_that_are_equal_at_the_same_place() {
        let length = 3000 * ChunkSize::MIN.bytes();
        let one = tree(length, [(0, 1), (1, 2), (600, 3), (2999, 4)]);
        for (other, same) in [
            (tree(length, [(0, 1), (1, 2), (600, 3), (2999, 4)]), 4),
            (tree(length, [(0, 1), (1, 9), (2999, 4)]), 2),
            (tree(length, [(1, 1), (0, 2), (601, 3)]), 0),
            (tree(length, []), 0),
            (tree(length - 1, [(0, 1), (1, 2)]), 0),
        ] {
            assert_eq!(one.shared_with(&other), Shared { with_data: 4, same }, "{other:?}");
        }
        assert_eq!(tree(length, []).shared_with(&one), Shared { with_data: 0, same: 0 });
        let large = tree(length, (0..3000).map(|chunk| (chunk, chunk as u8)));
        let changed = tree(length, (0..3000).map(|chunk| (chunk, chunk as u8 ^ u8::from(chunk % 7 == 0))));
        assert_eq!(large.shared_with(&changed), Shared { with_data: 3000, same: 3000 - 429 });
    }
}

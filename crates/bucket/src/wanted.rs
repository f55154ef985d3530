//! The chunks of an image that is being published, found by their hashes, and where each lies.
//!
//! Owns the places. Chunks of equal bytes have one place. Invariant: memory is 28 bytes for each
//! chunk, besides the image's hashes. It reads nothing.

use crate::index::Place;
use vfield_core::chunk::Chunk;
use vfield_core::hash_tree::{Hash, HashTree};

/// The chunks with data of an image.
pub struct Wanted<'a> {
    tree: &'a HashTree,
    /// The first bytes of a hash and the number of its chunk, in this order.
    by_hash: Vec<(u64, u32)>,
    places: Vec<Option<Place>>,
}

impl<'a> Wanted<'a> {
    /// Those of the image with this tree, without places. The image has at most 2³² chunks.
    pub fn new(tree: &'a HashTree) -> Self {
        let data_chunks = tree.geometry().data_chunks();
        let mut by_hash = Vec::new();
        let mut at = 0;
        while at < data_chunks {
            let (end, is_zero) = tree.run(at, data_chunks);
            if !is_zero {
                by_hash.extend((at..end).map(|number| (head(&tree.hash(Chunk(number))), number as u32)));
            }
            at = end;
        }
        by_hash.sort_unstable();
        Self { tree, by_hash, places: vec![None; data_chunks as usize] }
    }

    /// Number of chunks with data.
    pub const fn count(&self) -> usize {
        self.by_hash.len()
    }

    /// Number of chunks that have a place.
    pub fn placed(&self) -> u64 {
        self.places.iter().flatten().count() as u64
    }

    /// Where a chunk lies; `None` for zeros, and as long as that is not known.
    pub fn place(&self, chunk: Chunk) -> Option<Place> {
        self.places[chunk.0 as usize]
    }

    /// True if a chunk of this hash has no place yet.
    pub fn lacks(&self, hash: &Hash) -> bool {
        self.of(hash).next().is_some_and(|number| self.places[number as usize].is_none())
    }

    /// All chunks of this hash lie here.
    pub fn lies_at(&mut self, hash: &Hash, place: Place) {
        let numbers: Vec<u32> = self.of(hash).collect();
        numbers.into_iter().for_each(|number| self.places[number as usize] = Some(place));
    }

    /// Forgets the places in a pack.
    pub fn forget(&mut self, pack: u32) {
        self.places
            .iter_mut()
            .filter(|place| place.is_some_and(|place| place.pack == pack))
            .for_each(|place| *place = None);
    }

    /// The first chunk of each hash that has no place, in the order of the image.
    pub fn missing(&self) -> Vec<u32> {
        let is_missing = |(_, number): &&(u64, u32)| self.places[*number as usize].is_none();
        let mut missing: Vec<u32> = Vec::new();
        for group in self.by_hash.chunk_by(|one, next| one.0 == next.0) {
            // Nearly always a group has one hash.
            let mut told: Vec<Hash> = Vec::new();
            for (_, number) in group.iter().filter(is_missing) {
                let hash = self.tree.hash(Chunk(u64::from(*number)));
                if !told.contains(&hash) {
                    told.push(hash);
                    missing.push(*number);
                }
            }
        }
        missing.sort_unstable();
        missing
    }

    /// Numbers of the chunks with this hash.
    fn of(&self, hash: &Hash) -> impl Iterator<Item = u32> {
        let (head, hash) = (head(hash), *hash);
        let from = self.by_hash.partition_point(|(other, _)| *other < head);
        let alike = self.by_hash[from..].iter().take_while(move |(other, _)| *other == head);
        alike.map(|(_, number)| *number).filter(move |number| self.tree.hash(Chunk(u64::from(*number))) == hash)
    }
}

/// The first bytes of a hash.
fn head(hash: &Hash) -> u64 {
    u64::from_be_bytes(std::array::from_fn(|at| hash.0[at]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::Stored;
    use vfield_core::chunk::ChunkSize;
    use vfield_core::hash_tree::{TreeBuilder, hash_chunk};

    #[test]
    fn equal_chunks_have_one_place() {
        let size = ChunkSize::MIN.bytes() as usize;
        let bytes: Vec<u8> = [3, 0, 1, 3, 2, 1].iter().flat_map(|byte| vec![*byte; size]).collect();
        let mut builder = TreeBuilder::new(bytes.len() as u64, ChunkSize::MIN).unwrap();
        for (number, chunk) in (0..).zip(bytes.chunks(size)) {
            builder.add(Chunk(number), hash_chunk(chunk));
        }
        let tree = builder.finish().2;
        let mut wanted = Wanted::new(&tree);
        assert_eq!((wanted.count(), wanted.missing()), (5, vec![0, 2, 4]));
        let place = Place { pack: 7, stored: Stored { offset: 100, length: 5 } };
        let three = tree.hash(Chunk(3));
        assert!(wanted.lacks(&three) && !wanted.lacks(&tree.hash(Chunk(1))));
        wanted.lies_at(&three, place);
        assert_eq!([0, 1, 2, 3].map(|number| wanted.place(Chunk(number))), [Some(place), None, None, Some(place)]);
        assert_eq!(wanted.missing(), [2, 4]);
        assert!(!wanted.lacks(&three) && !wanted.lacks(&Hash([9; 32])));
        wanted.forget(7);
        assert_eq!(wanted.missing(), [0, 2, 4]);
    }
}

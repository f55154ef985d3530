//! An image for stores, and the bytes of their pieces.

use std::sync::Arc;
use vfield_block::extent::Extent;
use vfield_block::source::Piece;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::hash_tree::{HashTree, TreeBuilder, hash_chunk};
use vfield_core::image::ImageId;
use vfield_node::store::{Check, Store};

pub const SIZE: u64 = 16 << 10;

/// An image with its tree: what a store is filled from.
pub struct Image {
    pub bytes: Vec<u8>,
    pub id: ImageId,
    pub tree: HashTree,
}

impl Image {
    pub fn new(bytes: Vec<u8>) -> Self {
        let mut builder = TreeBuilder::new(bytes.len() as u64, ChunkSize::MIN).expect("a builder");
        for (number, chunk) in (0..).zip(bytes.chunks(SIZE as usize)) {
            builder.add(Chunk(number), hash_chunk(chunk));
        }
        let (_, id, tree) = builder.finish();
        Self { bytes, id, tree }
    }

    /// An image of `chunks` chunks, the last one short; those in `zeros` are zero, all others
    /// distinct.
    pub fn with_zeros(chunks: u64, zeros: &[u64]) -> Self {
        let mut bytes = vec![0; (chunks * SIZE - 100) as usize];
        for (number, chunk) in (0..).zip(bytes.chunks_mut(SIZE as usize)) {
            if !zeros.contains(&number) {
                let fill = (0u32..).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8 ^ number as u8 | 1);
                chunk.iter_mut().zip(fill).for_each(|(byte, fill)| *byte = fill);
            }
        }
        Self::new(bytes)
    }

    pub fn store(&self) -> Arc<Store> {
        Store::new(self.id, self.tree.geometry()).expect("a store")
    }

    pub fn chunk(&self, chunk: Chunk) -> Vec<u8> {
        let geometry = self.tree.geometry();
        if geometry.is_data(chunk) {
            self.slice(geometry.extent(chunk)).to_vec()
        } else {
            self.tree.page(chunk).cloned().unwrap_or_else(|| self.tree.zeros().page(chunk)).to_vec()
        }
    }

    pub fn slice(&self, extent: Extent) -> &[u8] {
        &self.bytes[extent.start() as usize..extent.end() as usize]
    }

    pub fn fill(&self, store: &Store) {
        (0..self.tree.geometry().chunks()).rev().map(Chunk).for_each(|chunk| {
            assert_eq!(store.check(chunk, &self.chunk(chunk)), Check::Good);
            store.insert(chunk, &self.chunk(chunk)).expect("memory");
        });
    }
}

pub fn bytes_of(piece: &Piece) -> Vec<u8> {
    match piece {
        Piece::Zero(length) => vec![0; *length as usize],
        Piece::Bytes(bytes) => bytes.to_vec(),
        Piece::File(file) => {
            let mut bytes = vec![0; file.len() as usize];
            let mut done = 0;
            while done < bytes.len() {
                let count =
                    rustix::io::pread(file.fd(), &mut bytes[done..], file.offset() + done as u64).expect("read");
                assert_ne!(count, 0, "the file ends in a piece");
                done += count;
            }
            bytes
        }
    }
}

pub fn concatenated(pieces: &[Piece]) -> Vec<u8> {
    pieces.iter().flat_map(bytes_of).collect()
}

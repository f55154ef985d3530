//! An image as the simulator knows it: its numbering and its zero chunks. It has no bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::image::{Geometry, Header, ImageId};

/// An image without bytes.
#[derive(Clone, Debug)]
pub struct Original {
    /// The image's id.
    pub id: ImageId,
    /// The image's name.
    pub name: String,
    /// The numbering of its chunks.
    pub geometry: Geometry,
    zero: BTreeSet<Chunk>,
    /// The image that it is a version of, by the number of its id.
    first: u8,
    /// The version that changed a chunk of data last; all others are as in the first one.
    changed: BTreeMap<Chunk, u8>,
}

impl Original {
    /// `data_chunks` chunks of 16 KiB, all with data.
    pub fn dense(number: u8, data_chunks: u64) -> Self {
        Self::sparse(number, data_chunks, std::slice::from_ref(&(0..data_chunks)))
    }

    /// `data_chunks` chunks of the usual size, all with data.
    pub fn usual(number: u8, data_chunks: u64) -> Self {
        Self::of(number, data_chunks, ChunkSize::DEFAULT, std::slice::from_ref(&(0..data_chunks)))
    }

    /// An image in chunks of 16 KiB, of which only those in `populated` have data.
    pub fn sparse(number: u8, data_chunks: u64, populated: &[Range<u64>]) -> Self {
        Self::of(number, data_chunks, ChunkSize::MIN, populated)
    }

    /// An image of `data_chunks` chunks of some size, of which only those in `populated` have data.
    pub fn of(number: u8, data_chunks: u64, size: ChunkSize, populated: &[Range<u64>]) -> Self {
        let count = populated.iter().map(|range| range.end - range.start).sum();
        let geometry = Geometry::new(Header::new(data_chunks * size.bytes(), size, count).expect("a header"));
        let mut zero: BTreeSet<Chunk> = (0..data_chunks)
            .filter(|number| !populated.iter().any(|range| range.contains(number)))
            .map(Chunk)
            .collect();
        for page in data_chunks..geometry.chunks() - 1 {
            if geometry.children(Chunk(page)).all(|child| zero.contains(&Chunk(child))) {
                zero.insert(Chunk(page));
            }
        }
        Self {
            id: ImageId([number; 32]),
            name: format!("image-{number}"),
            geometry,
            zero,
            first: number,
            changed: BTreeMap::new(),
        }
    }

    /// Its next version: of the same length, with other bytes in the chunks `changed`, which have
    /// data.
    pub fn next(&self, number: u8, changed: impl IntoIterator<Item = u64>) -> Self {
        let mut next = Self { id: ImageId([number; 32]), name: format!("image-{number}"), ..self.clone() };
        next.changed
            .extend(changed.into_iter().map(Chunk).filter(|chunk| !self.is_zero(*chunk)).map(|chunk| (chunk, number)));
        next
    }

    /// True if a chunk of data has the same bytes in both images.
    pub fn shares(&self, other: &Self, chunk: Chunk) -> bool {
        self.first == other.first
            && self.geometry.is_data(chunk)
            && !self.is_zero(chunk)
            && self.changed.get(&chunk) == other.changed.get(&chunk)
    }

    /// The number of chunks, pages included.
    pub fn chunks(&self) -> u64 {
        self.geometry.chunks()
    }

    /// Its chunks of data.
    pub fn data(&self) -> Range<u64> {
        0..self.geometry.data_chunks()
    }

    /// The number of chunks and pages that are not all zeros.
    pub fn populated(&self) -> u64 {
        self.chunks() - self.zero.len() as u64
    }

    /// True if any chunk is all zeros.
    pub fn is_sparse(&self) -> bool {
        !self.zero.is_empty()
    }

    /// True if the chunk is all zeros.
    pub fn is_zero(&self, chunk: Chunk) -> bool {
        self.zero.contains(&chunk)
    }

    /// The runs of a page's children that are all zeros.
    pub fn zero_children(&self, page: Chunk) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for child in self.geometry.children(page).filter(|child| self.is_zero(Chunk(*child))) {
            match runs.last_mut() {
                Some(run) if run.end == child => run.end += 1,
                _ => runs.push(child..child + 1),
            }
        }
        runs
    }
}

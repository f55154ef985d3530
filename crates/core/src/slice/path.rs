//! A slice and the way to it: the answer to a request for a part of a chunk of data.
//!
//! An asker that lacks the page with the chunk's hash asks for slices of pages too, so one round
//! trip brings the hash and the bytes. The answer has a part for each page, from the highest down,
//! and the chunk's own part at the end. A part is the siblings of its groups, and then their bytes.
//! Invariant: [`Slice::verified`] accepts exactly the image's bytes. Pure arithmetic.

use super::{GROUP_BYTES, Groups, SIBLING_BYTES, SLICE_BYTES_MAX, verify};
use crate::chunk::{Chunk, HASH_BYTES};
use crate::hash_tree::Hash;
use crate::image::Geometry;

/// Most pages of one answer: all levels below the top page of the longest image.
pub const PAGES_MAX: u8 = 4;
/// Most siblings of one group of a page: one for each level of the tree of 1 MiB.
const PAGE_SIBLINGS_MAX: usize = 8;
/// Most bytes of an answer.
pub const ANSWER_BYTES_MAX: usize =
    SLICE_BYTES_MAX + PAGES_MAX as usize * (GROUP_BYTES as usize + PAGE_SIBLINGS_MAX * SIBLING_BYTES);

/// A wanted part of a chunk of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slice {
    /// The groups of the chunk.
    pub groups: Groups,
    /// The number of pages above the chunk that the asker lacks, at most [`PAGES_MAX`].
    pub pages: u8,
}

/// Groups of one chunk of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// A page, or the chunk itself.
    pub chunk: Chunk,
    /// Of these groups.
    pub groups: Groups,
    /// Length of their siblings and bytes.
    length: usize,
}

impl Slice {
    /// The parts of the answer, from the highest page down to the chunk. `None` if `chunk` is none
    /// of data, lacks these groups, or has fewer pages above it and below the top page.
    pub fn parts(&self, geometry: &Geometry, chunk: Chunk) -> Option<Vec<Part>> {
        if self.pages > PAGES_MAX || geometry.chunk(chunk.0).is_none() || !geometry.is_data(chunk) {
            return None;
        }
        let mut parts = vec![part(geometry, chunk, self.groups)?];
        let mut below = chunk;
        for _ in 0..self.pages {
            let (page, index) = geometry.parent(below)?;
            let first = u16::try_from(index as u64 * HASH_BYTES as u64 / GROUP_BYTES).ok()?;
            if page == geometry.top() {
                return None;
            }
            parts.push(part(geometry, page, Groups::new(first, first.checked_add(1)?)?)?);
            below = page;
        }
        parts.reverse();
        Some(parts)
    }

    /// Length of the answer in bytes; `None` as for [`Slice::parts`].
    pub fn length(&self, geometry: &Geometry, chunk: Chunk) -> Option<usize> {
        self.parts(geometry, chunk).map(|parts| parts.iter().map(|part| part.length).sum())
    }

    /// The bytes of the slice in an answer, if all of it is right. `known` gives the hash of the
    /// first part's chunk, which the asker has. Hashes on the calling thread.
    pub fn verified<'a>(
        &self,
        geometry: &Geometry,
        chunk: Chunk,
        known: impl FnOnce(Chunk) -> Option<Hash>,
        answer: &'a [u8],
    ) -> Verified<'a> {
        let Some(parts) = self.parts(geometry, chunk) else { return Verified::Wrong };
        let Some(mut expected) = known(parts[0].chunk) else { return Verified::Unknown };
        let mut left = answer;
        for (at, part) in parts.iter().enumerate() {
            let length = geometry.length(part.chunk);
            let Some((own, rest)) = left.split_at_checked(part.length) else { return Verified::Wrong };
            let wanted = part.groups.bytes(length);
            let (siblings, bytes) = own.split_at(part.length - (wanted.end - wanted.start) as usize);
            if !verify(&expected, length, part.groups, siblings, bytes) {
                return Verified::Wrong;
            }
            left = rest;
            let Some(below) = parts.get(at + 1) else {
                return if left.is_empty() { Verified::Right(bytes) } else { Verified::Wrong };
            };
            // It has the group, or `parts` would have given none.
            let index = geometry.parent(below.chunk).map_or(0, |(_, index)| index * HASH_BYTES);
            let hash = bytes.get(index - wanted.start as usize..).and_then(<[u8]>::first_chunk);
            let Some(hash) = hash else { return Verified::Wrong };
            expected = Hash(*hash);
        }
        Verified::Wrong
    }
}

/// The result of [`Slice::verified`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verified<'a> {
    /// These are the bytes of the slice.
    Right(&'a [u8]),
    /// The answer is not that slice of that image.
    Wrong,
    /// The asker lacks the hash to compare with.
    Unknown,
}

fn part(geometry: &Geometry, chunk: Chunk, groups: Groups) -> Option<Part> {
    let length_bytes = geometry.length(chunk);
    let siblings = groups.siblings(length_bytes)?;
    let bytes = groups.bytes(length_bytes);
    Some(Part { chunk, groups, length: siblings * SIBLING_BYTES + (bytes.end - bytes.start) as usize })
}

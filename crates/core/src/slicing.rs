//! Slicing: recognises reads that are better served with a slice than with the whole chunk.
//!
//! It is beside the export, like [`crate::read_ahead`], and sees the reads that miss. A read that
//! is much shorter than its chunk asks for a slice. The next read in that chunk asks for all of it
//! if it begins where the slice ended; the third read does so anyway. The same holds for the chunk
//! after one that became whole. Pure arithmetic.

use crate::chunk::Chunk;
use crate::image::Geometry;
use crate::slice::{GROUP_BYTES, Groups};
use std::collections::VecDeque;
use vfield_block::extent::Extent;

/// Chunks remembered: as many readers at once as read-ahead tracks. Fewer would forget readers that
/// take turns. In an image of 256 MiB one random read in 256 finds its chunk here. So a second read
/// elsewhere in a chunk asks for a slice: whole chunks would be 6 % more bytes.
const RECENT_MAX: usize = 16;
/// A slice is at most this part of its chunk: with four of them the whole chunk is the same.
const PART_MAX: u64 = 4;

/// The reads that missed lately, of one image.
#[derive(Debug, Default)]
pub struct Slicing {
    /// Chunks, the latest last, and how they were asked for.
    recent: VecDeque<(Chunk, Asked)>,
}

/// How a chunk was asked for lately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// As a whole.
    Whole,
    /// With one slice, up to this group.
    Slice { end: u16 },
    /// With two slices.
    Slices,
}

impl Slicing {
    /// Notes that `extent` (not empty) is missing, and returns the slice to ask for; `None` to ask
    /// for whole chunks.
    pub fn note(&mut self, geometry: &Geometry, extent: Extent) -> Option<(Chunk, Groups)> {
        let chunks = geometry.covering(extent);
        let chunk = Chunk(chunks.start);
        let before = chunk.0.checked_sub(1).and_then(|before| self.find(Chunk(before)));
        let (known, wanted) = (self.find(chunk), short(geometry, chunks.end - chunks.start, chunk, extent));
        let asked = match (known, wanted) {
            (None, Some((_, groups))) if before != Some(Asked::Whole) => Asked::Slice { end: groups.end() },
            (Some(Asked::Slice { end }), Some((_, groups))) if groups.start() != end => Asked::Slices,
            _ => Asked::Whole,
        };
        for number in chunks.clone().take(RECENT_MAX) {
            self.recent.retain(|(known, _)| known.0 != number);
            self.recent.push_back((Chunk(number), asked));
        }
        let surplus = self.recent.len().saturating_sub(RECENT_MAX);
        self.recent.drain(..surplus);
        wanted.filter(|_| asked != Asked::Whole)
    }

    /// How a chunk was asked for lately.
    fn find(&self, chunk: Chunk) -> Option<Asked> {
        self.recent.iter().find(|(known, _)| *known == chunk).map(|(_, asked)| *asked)
    }
}

/// The groups of a read that is much shorter than its only chunk.
fn short(geometry: &Geometry, chunks: u64, chunk: Chunk, extent: Extent) -> Option<(Chunk, Groups)> {
    let whole = geometry.extent(chunk);
    if chunks != 1 || whole.len() <= GROUP_BYTES {
        return None;
    }
    let groups = Groups::covering(extent.start() - whole.start()..extent.end() - whole.start())?;
    let bytes = u64::from(groups.count()) * GROUP_BYTES;
    (bytes * PART_MAX <= geometry.chunk_bytes()).then_some((chunk, groups))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::ChunkSize;
    use crate::image::Header;

    const CHUNK: u64 = 64 << 10;

    fn geometry() -> Geometry {
        Geometry::new(Header::new(1000 * CHUNK + 5000, ChunkSize::DEFAULT, 1001).expect("a header"))
    }

    fn note(slicing: &mut Slicing, start: u64, length: u64) -> Option<(u64, u16, u16)> {
        let slice = slicing.note(&geometry(), Extent::from(start..start + length));
        slice.map(|(chunk, groups)| (chunk.0, groups.start(), groups.end()))
    }

    #[test]
    fn short_reads_ask_for_what_they_read() {
        let mut slicing = Slicing::default();
        assert_eq!(note(&mut slicing, 10 * CHUNK, 4096), Some((10, 0, 1)));
        assert_eq!(note(&mut slicing, 20 * CHUNK + 4095, 2), Some((20, 0, 2)));
        assert_eq!(note(&mut slicing, 30 * CHUNK + 49_152, 16_384), Some((30, 12, 16)));
        assert_eq!(note(&mut slicing, 1000 * CHUNK + 4096, 904), Some((1000, 1, 2)), "a short last chunk");
    }

    #[test]
    fn long_reads_ask_for_whole_chunks() {
        let mut slicing = Slicing::default();
        assert_eq!(note(&mut slicing, 10 * CHUNK, 16_385), None);
        assert_eq!(note(&mut slicing, 20 * CHUNK + 1, 16_384), None, "five groups");
        assert_eq!(note(&mut slicing, 31 * CHUNK - 1, 2), None, "two chunks");
        assert_eq!(note(&mut slicing, 100 * CHUNK, 64 * CHUNK), None);
    }

    #[test]
    fn a_chunk_read_piece_by_piece_becomes_whole_and_so_do_those_after_it() {
        let mut slicing = Slicing::default();
        assert_eq!(note(&mut slicing, 10 * CHUNK, 4096), Some((10, 0, 1)));
        assert_eq!(note(&mut slicing, 11 * CHUNK, 4096), Some((11, 0, 1)), "the one before it was a slice too");
        assert_eq!(note(&mut slicing, 10 * CHUNK + 32_768, 4096), Some((10, 8, 9)), "somewhere else");
        assert_eq!(note(&mut slicing, 10 * CHUNK + 16_384, 4096), None, "again and again");
        assert_eq!(note(&mut slicing, 11 * CHUNK + 4096, 4096), None, "it goes on");
        assert_eq!(note(&mut slicing, 12 * CHUNK, 4096), None);
        assert_eq!(note(&mut slicing, 13 * CHUNK, 4096), None);
        assert_eq!(note(&mut slicing, 15 * CHUNK, 4096), Some((15, 0, 1)));
    }

    #[test]
    fn what_was_read_long_ago_is_forgotten() {
        let mut slicing = Slicing::default();
        for chunk in 0..RECENT_MAX as u64 + 1 {
            assert!(note(&mut slicing, 2 * chunk * CHUNK, 4096).is_some());
        }
        assert_eq!(slicing.recent.len(), RECENT_MAX);
        assert_eq!(note(&mut slicing, 4096, 4096), Some((0, 1, 2)));
    }
}

//! Slicing: recognises reads that are better served with a slice than with the whole chunk.
//!
//! It is beside the export, like [`crate::read_ahead`], and sees the reads that miss. A read that
//! is much shorter than its chunk asks for a slice. The second one in a chunk asks for all of it: a
//! reader that comes back soon goes on. The same holds for the chunk after one that became whole.
//! Pure arithmetic.

use crate::chunk::Chunk;
use crate::image::Geometry;
use crate::slice::{GROUP_BYTES, Groups};
use std::collections::VecDeque;
use vfield_block::extent::Extent;

/// Chunks remembered: as many readers at once as read-ahead tracks. Each is a chance that a random
/// read brings a whole chunk: 0.4 % in an image of 256 MiB, or 6 % more bytes. Fewer would forget
/// readers that take turns.
const RECENT_MAX: usize = 16;
/// A slice is at most this part of its chunk: with four of them the whole chunk is the same.
const PART_MAX: u64 = 4;

/// The reads that missed lately, of one image.
#[derive(Debug, Default)]
pub struct Slicing {
    /// Chunks, the latest last, and whether they were asked for whole.
    recent: VecDeque<(Chunk, bool)>,
}

impl Slicing {
    /// Notes that `extent` (not empty) is missing, and returns the slice to ask for; `None` to ask
    /// for whole chunks.
    pub fn note(&mut self, geometry: &Geometry, extent: Extent) -> Option<(Chunk, Groups)> {
        let chunks = geometry.covering(extent);
        let chunk = Chunk(chunks.start);
        let goes_on = self.find(chunk).is_some()
            || chunk.0.checked_sub(1).is_some_and(|before| self.find(Chunk(before)) == Some(true));
        let slice = if goes_on { None } else { short(geometry, chunks.end - chunks.start, chunk, extent) };
        for number in chunks.clone().take(RECENT_MAX) {
            self.recent.retain(|(known, _)| known.0 != number);
            self.recent.push_back((Chunk(number), slice.is_none()));
        }
        let surplus = self.recent.len().saturating_sub(RECENT_MAX);
        self.recent.drain(..surplus);
        slice
    }

    /// True if a chunk was asked for lately as a whole, false if with a slice.
    fn find(&self, chunk: Chunk) -> Option<bool> {
        self.recent.iter().find(|(known, _)| *known == chunk).map(|(_, whole)| *whole)
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
        assert_eq!(note(&mut slicing, 10 * CHUNK + 32_768, 4096), None);
        assert_eq!(note(&mut slicing, 11 * CHUNK + 4096, 4096), None);
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

//! Slices of one image on this machine: the latest ones that came, and those that others ask for.
//!
//! A slice that comes is verified by its lane, and waits here for its readers. It is in no store:
//! the protocol core decides about whole chunks only. An answer is made of local chunks when its
//! turn comes. Memory is bounded by [`CAME_BYTES_MAX`] and by the table of [`Sliced`].

use crate::image::{Local, LocalImage};
use crate::pieces::bytes_of;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use vfield_block::extent::Extent;
use vfield_block::source::Piece;
use vfield_core::chunk::Chunk;
use vfield_core::slice::{Groups, Slice, SliceTree};
use vfield_core::sliced::Sliced;
use vfield_core::time::Time;

/// Most bytes of slices kept. They are for readers that wait for them now: a client with 256 reads
/// of 4 KiB under way. If one goes before its reader comes, that reads the whole chunk.
const CAME_BYTES_MAX: usize = 1 << 20;

/// The slices of one image.
#[derive(Debug, Default)]
pub struct Slices {
    came: Mutex<Came>,
    sent: Mutex<Sliced>,
}

/// Slices that came, the oldest first.
#[derive(Debug, Default)]
struct Came {
    slices: VecDeque<(Chunk, Groups, Bytes)>,
    bytes: usize,
}

impl Slices {
    /// Keeps the verified bytes of a slice for its readers.
    pub fn keep(&self, chunk: Chunk, groups: Groups, bytes: &[u8]) {
        let bytes = Bytes::copy_from_slice(bytes);
        let mut came = self.came.lock().unwrap_or_else(PoisonError::into_inner);
        came.bytes += bytes.len();
        came.slices.push_back((chunk, groups, bytes));
        while came.bytes > CAME_BYTES_MAX {
            let Some((.., oldest)) = came.slices.pop_front() else { return };
            came.bytes -= oldest.len();
        }
    }

    /// The bytes of an extent that lies within one chunk, if a slice that came has them. `start` is
    /// where the chunk begins.
    pub fn find(&self, chunk: Chunk, start: u64, extent: Extent) -> Option<Bytes> {
        let wanted = Groups::covering(extent.start() - start..extent.end() - start)?;
        let came = self.came.lock().unwrap_or_else(PoisonError::into_inner);
        let mut latest_first = came.slices.iter().rev();
        let (_, groups, bytes) = latest_first.find(|(known, groups, _)| *known == chunk && groups.contains(wanted))?;
        let first = start + groups.bytes(u64::MAX).start;
        Some(bytes.slice((extent.start() - first) as usize..(extent.end() - first) as usize))
    }

    /// True if a slice is to be sent, false if the asker is to request the whole chunk; see
    /// [`Sliced`].
    pub fn may_send(&self, chunk: Chunk, length_bytes: u64, groups: Groups, now: Time) -> bool {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).may_send(chunk, length_bytes, groups, now)
    }
}

/// The answer to a request for a slice, made of the local chunk and the pages above it. Hashes each
/// of them as a whole, on the calling thread.
pub fn answer(image: &LocalImage, chunk: Chunk, slice: Slice) -> Local {
    let Some(parts) = slice.parts(image.geometry(), chunk) else { return Local::Missing };
    let mut payload = Vec::with_capacity(slice.length(image.geometry(), chunk).unwrap_or_default());
    for part in parts {
        let piece = match image.chunk(part.chunk) {
            Local::Here(piece) => piece,
            other => return other,
        };
        let Ok(whole) = bytes_of(&piece) else { return Local::Missing };
        let Some(siblings) = SliceTree::new(&whole).siblings(part.groups) else { return Local::Missing };
        let wanted = part.groups.bytes(whole.len() as u64);
        payload.extend_from_slice(&siblings);
        payload.extend_from_slice(&whole[wanted.start as usize..wanted.end as usize]);
    }
    Local::Here(Piece::Bytes(payload.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    const CHUNK: u64 = 64 << 10;

    fn groups(start: u16, end: u16) -> Groups {
        Groups::new(start, end).expect("a range of groups")
    }

    #[test]
    fn a_part_of_a_slice_is_found() {
        let slices = Slices::default();
        let bytes: Vec<u8> = (0..8192_u32).map(|at| (at / 7) as u8).collect();
        slices.keep(Chunk(3), groups(2, 4), &bytes);
        let find = |chunk: u64, place: Range<u64>| {
            let extent = Extent::from(chunk * CHUNK + place.start..chunk * CHUNK + place.end);
            slices.find(Chunk(chunk), chunk * CHUNK, extent)
        };
        assert_eq!(find(3, 8192..16_384).as_deref(), Some(&bytes[..]));
        assert_eq!(find(3, 9000..9001).as_deref(), Some(&bytes[808..809]));
        assert_eq!(find(3, 8191..8193), None);
        assert_eq!(find(3, 16_383..16_385), None);
        assert_eq!(find(4, 8192..16_384), None);
    }

    #[test]
    fn the_oldest_slices_go() {
        let slices = Slices::default();
        let many = (CAME_BYTES_MAX / 4096) as u64;
        for chunk in 0..=many {
            slices.keep(Chunk(chunk), groups(0, 1), &[chunk as u8; 4096]);
        }
        let here =
            |chunk: u64| slices.find(Chunk(chunk), chunk * CHUNK, Extent::from(chunk * CHUNK..chunk * CHUNK + 1));
        assert_eq!((here(0), here(1).is_some(), here(many).is_some()), (None, true, true));
        let came = slices.came.lock().unwrap();
        assert_eq!(came.bytes, CAME_BYTES_MAX);
    }
}

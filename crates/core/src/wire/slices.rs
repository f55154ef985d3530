//! Requests for slices of chunks. The answer's payload is that of [`crate::slice::Slice`].

use super::{FrameHeader, HEADER, Kind, WireError, u64_at};
use crate::chunk::Chunk;
use crate::image::ImageId;
use crate::slice::{Groups, PAGES_MAX, Slice};

/// The first version of the protocol that has slices. A node of an earlier one is asked for whole
/// chunks.
pub const SLICES_SINCE: u32 = 9;
/// Image, chunk, first group, one past the last group, pages.
pub(super) const GET_SLICE_PAYLOAD: u32 = 32 + 8 + 2 + 2 + 1;
/// Length of a request for a slice with its header.
pub const GET_SLICE_FRAME: usize = HEADER + GET_SLICE_PAYLOAD as usize;

/// Asks for a slice of a chunk. A reader waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GetSlice {
    /// The image it belongs to.
    pub image: ImageId,
    /// The chunk; the receiver checks whether the image has it, and the slice.
    pub chunk: Chunk,
    /// The part of it, and the pages above.
    pub slice: Slice,
}

impl GetSlice {
    /// A whole request frame.
    pub fn frame(&self, request: u64) -> [u8; GET_SLICE_FRAME] {
        let Slice { groups, pages } = self.slice;
        let mut out = [0; GET_SLICE_FRAME];
        out[..HEADER].copy_from_slice(&FrameHeader::new(Kind::GetSlice, request, GET_SLICE_PAYLOAD).encode());
        let payload = &mut out[HEADER..];
        payload[..32].copy_from_slice(&self.image.0);
        payload[32..40].copy_from_slice(&self.chunk.0.to_le_bytes());
        payload[40..42].copy_from_slice(&groups.start().to_le_bytes());
        payload[42..44].copy_from_slice(&groups.end().to_le_bytes());
        payload[44] = pages;
        out
    }

    /// Reads the payload of a [`Kind::GetSlice`] frame.
    ///
    /// # Errors
    /// If there are no groups, or more groups or pages than a slice can have.
    pub fn decode(payload: &[u8]) -> Result<Self, WireError> {
        let payload: &[u8; GET_SLICE_PAYLOAD as usize] = payload.try_into().map_err(|_| WireError::Payload)?;
        let number = |at: usize| u16::from_le_bytes([payload[at], payload[at + 1]]);
        let mut image = [0; 32];
        image.copy_from_slice(&payload[..32]);
        let groups = Groups::new(number(40), number(42)).ok_or(WireError::Field("slice"))?;
        let pages = payload[44];
        if pages > PAGES_MAX {
            return Err(WireError::Field("slice"));
        }
        Ok(Self { image: ImageId(image), chunk: Chunk(u64_at(payload, 32)), slice: Slice { groups, pages } })
    }
}

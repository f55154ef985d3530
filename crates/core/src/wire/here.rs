//! Chunks that a node has in memory. An origin tells the nodes that are to store them, and these
//! nodes answer with the same kind of frame.

use super::{FrameHeader, Kind, WireError, u64_at};
use crate::chunk::Chunk;
use crate::image::ImageId;

/// Most chunk numbers in a frame; an origin tells a home of fewer at once.
pub const HERE_CHUNKS_MAX: usize = 256;
const IMAGE_BYTES: usize = 32;
const CHUNK_BYTES: usize = 8;
/// Longest payload, in bytes: an image id of 32 and each chunk number of 8.
pub(super) const HERE_MAX: u32 = (IMAGE_BYTES + CHUNK_BYTES * HERE_CHUNKS_MAX) as u32;

/// A whole frame that says which chunks of an image are here: the first [`HERE_CHUNKS_MAX`] of
/// them.
pub fn here_frame(image: ImageId, chunks: &[Chunk]) -> Vec<u8> {
    let chunks = &chunks[..chunks.len().min(HERE_CHUNKS_MAX)];
    let length = IMAGE_BYTES + CHUNK_BYTES * chunks.len();
    let mut out = FrameHeader::new(Kind::Here, 0, length as u32).encode().to_vec();
    out.extend_from_slice(&image.0);
    chunks.iter().for_each(|chunk| out.extend_from_slice(&chunk.0.to_le_bytes()));
    out
}

/// Reads the payload of a [`Kind::Here`] frame. The receiver checks whether there are such chunks.
pub fn decode_here(payload: &[u8]) -> Result<(ImageId, Vec<Chunk>), WireError> {
    let (image, chunks) = payload.split_first_chunk::<IMAGE_BYTES>().ok_or(WireError::Payload)?;
    if chunks.len() % CHUNK_BYTES != 0 || chunks.len() / CHUNK_BYTES > HERE_CHUNKS_MAX {
        return Err(WireError::Payload);
    }
    Ok((ImageId(*image), chunks.chunks_exact(CHUNK_BYTES).map(|chunk| Chunk(u64_at(chunk, 0))).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::HEADER;

    #[test]
    fn chunks_come_back_and_rubbish_is_refused() {
        let (image, chunks) = (ImageId([7; 32]), [Chunk(0), Chunk(u64::MAX), Chunk(9)]);
        let frame = here_frame(image, &chunks);
        assert_eq!(decode_here(&frame[HEADER..]), Ok((image, chunks.to_vec())));
        let all = here_frame(image, &[Chunk(1); HERE_CHUNKS_MAX + 1]);
        let header = FrameHeader::decode(all.first_chunk().expect("a header")).expect("it is within its bound");
        assert_eq!((header.kind, header.length), (Kind::Here, HERE_MAX));
        assert_eq!(decode_here(&all[HEADER..]).map(|(_, chunks)| chunks.len()), Ok(HERE_CHUNKS_MAX));
        for length in [0, 31, 33, 39] {
            assert_eq!(decode_here(&frame[HEADER..][..length]), Err(WireError::Payload));
        }
    }
}

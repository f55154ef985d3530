//! The question for the lists of first reads of an image, and the answer: see [`crate::prefetch`].

use super::{FrameHeader, HEADER, Kind, WireError, decode, encode};
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::prefetch::{BYTES_MAX, LISTS_MAX};

/// The first version of the protocol whose nodes may answer. Others skip the question.
pub const PREFETCH_SINCE: u32 = 11;
/// Bytes of an image id.
pub(super) const QUESTION_PAYLOAD: u32 = 32;
/// Longest answer: each list with the id of its node and its length, and their number.
pub(super) const LISTS_PAYLOAD_MAX: u32 = (LISTS_MAX * (BYTES_MAX + 16) + 8) as u32;

/// A whole frame that asks what machines read first of an image.
pub fn prefetch_question_frame(request: u64, image: ImageId) -> Vec<u8> {
    let mut out = FrameHeader::new(Kind::PrefetchQuestion, request, QUESTION_PAYLOAD).encode().to_vec();
    out.extend_from_slice(&image.0);
    debug_assert_eq!(out.len(), HEADER + QUESTION_PAYLOAD as usize);
    out
}

/// Reads the payload of a [`Kind::PrefetchQuestion`] frame.
pub fn decode_prefetch_question(payload: &[u8]) -> Result<ImageId, WireError> {
    payload.try_into().map(ImageId).map_err(|_| WireError::Payload)
}

/// A whole frame with the encoded lists of these nodes: the first [`LISTS_MAX`] of them.
pub fn prefetch_lists_frame(request: u64, lists: &[(NodeId, Vec<u8>)]) -> Vec<u8> {
    let body = encode(&lists[..lists.len().min(LISTS_MAX)].to_vec());
    let mut out = FrameHeader::new(Kind::PrefetchLists, request, body.len() as u32).encode().to_vec();
    out.extend_from_slice(&body);
    out
}

/// Reads the payload of a [`Kind::PrefetchLists`] frame. The receiver decodes each list for the
/// image that it asked about.
pub fn decode_prefetch_lists(payload: &[u8]) -> Result<Vec<(NodeId, Vec<u8>)>, WireError> {
    let lists: Vec<(NodeId, Vec<u8>)> = decode(payload)?;
    if lists.len() <= LISTS_MAX { Ok(lists) } else { Err(WireError::Payload) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_answer_fits_and_one_list_more_is_refused() {
        let lists = vec![(NodeId(u64::MAX), vec![7; BYTES_MAX]); LISTS_MAX + 1];
        let frame = prefetch_lists_frame(3, &lists);
        let header = FrameHeader::decode(frame.first_chunk().expect("a header")).expect("it is within its bound");
        assert_eq!((header.kind, header.request), (Kind::PrefetchLists, 3));
        assert_eq!(decode_prefetch_lists(&frame[HEADER..]), Ok(lists[1..].to_vec()));
        assert_eq!(decode_prefetch_lists(&encode(&vec![(NodeId(1), Vec::<u8>::new()); 9])), Err(WireError::Payload));
        let question = prefetch_question_frame(1, ImageId([7; 32]));
        assert_eq!(decode_prefetch_question(&question[HEADER..]), Ok(ImageId([7; 32])));
        assert_eq!(decode_prefetch_question(&question), Err(WireError::Payload));
    }
}

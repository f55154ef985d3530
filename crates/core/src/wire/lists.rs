//! Admission lists between nodes: a question that tells which list the asker has, and a list.

use super::{FrameHeader, Kind, WireError, decode, encode};
use crate::admission::Version;
use serde::{Deserialize, Serialize};

/// Most signers that a question names: an operator and some deputies.
pub const SIGNERS_MAX: usize = 8;
/// Longest question: two numbers of 10 bytes, and 8 signers.
pub(super) const QUESTION_MAX: u32 = 128;

/// Asks for an admission list. It tells the other which list the asker has, so it is an offer too.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListQuestion {
    /// The list that the asker has.
    pub version: Version,
    /// Digests of the signers that the asker trusts. A list of another signer is of no use to it.
    pub signers: Vec<u64>,
}

/// An admission list with its signature. It holds whoever passes it on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedList {
    /// The text, see [`crate::admission`].
    pub text: String,
    /// A signature of it in minisign's format.
    pub signature: String,
}

/// A whole frame that asks for a list.
pub fn list_question_frame(request: u64, question: &ListQuestion) -> Vec<u8> {
    frame(Kind::AdmissionQuestion, request, &encode(question))
}

/// Reads the payload of a [`Kind::AdmissionQuestion`] frame.
pub fn decode_list_question(payload: &[u8]) -> Result<ListQuestion, WireError> {
    let question: ListQuestion = decode(payload)?;
    if question.signers.len() > SIGNERS_MAX { Err(WireError::Payload) } else { Ok(question) }
}

/// A whole frame with a list.
pub fn list_frame(request: u64, list: &SignedList) -> Vec<u8> {
    frame(Kind::AdmissionList, request, &encode(list))
}

/// Reads the payload of a [`Kind::AdmissionList`] frame.
pub fn decode_list(payload: &[u8]) -> Result<SignedList, WireError> {
    decode(payload)
}

fn frame(kind: Kind, request: u64, body: &[u8]) -> Vec<u8> {
    let mut out = FrameHeader::new(kind, request, body.len() as u32).encode().to_vec();
    out.extend_from_slice(body);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::TEXT_MAX;
    use crate::wire::HEADER;

    #[test]
    fn the_longest_fit_and_are_read_back() {
        let version = Version { timestamp: u64::MAX, digest: u64::MAX };
        let question = ListQuestion { version, signers: vec![u64::MAX; SIGNERS_MAX] };
        let frame = list_question_frame(7, &question);
        let header = FrameHeader::decode(frame.first_chunk().unwrap()).unwrap();
        assert_eq!((header.kind, header.request), (Kind::AdmissionQuestion, 7));
        assert_eq!(decode_list_question(&frame[HEADER..]), Ok(question.clone()));
        let more = ListQuestion { signers: vec![1; SIGNERS_MAX + 1], ..question };
        assert_eq!(decode_list_question(&encode(&more)), Err(WireError::Payload));

        let list = SignedList { text: "x".repeat(TEXT_MAX), signature: "s".repeat(4096) };
        let frame = list_frame(8, &list);
        let header = FrameHeader::decode(frame.first_chunk().unwrap()).unwrap();
        assert_eq!((header.kind, header.length as usize), (Kind::AdmissionList, frame.len() - HEADER));
        assert_eq!(decode_list(&frame[HEADER..]), Ok(list));
        assert_eq!(decode_list(b"\x05none"), Err(WireError::Payload));
    }
}

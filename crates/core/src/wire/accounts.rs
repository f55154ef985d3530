//! Questions why a chunk has not come, and their answers: [`Account`].

use super::{FrameHeader, HEADER, Kind, WireError, decode, encode, u64_at};
use crate::chunk::Chunk;
use crate::fetch::STAGES;
use crate::image::ImageId;
use crate::pursuit::Account;

/// The first version of the protocol whose nodes may answer. Others skip the question.
pub const ACCOUNTS_SINCE: u32 = 10;
/// Bytes of an image id and a chunk number.
pub(super) const QUESTION_PAYLOAD: u32 = 32 + 8;
/// Longest answer, with room to spare.
pub(super) const ACCOUNT_MAX: u32 = 64;

/// A whole frame that asks why a chunk of an image is not there.
pub fn account_question_frame(request: u64, image: ImageId, chunk: Chunk) -> Vec<u8> {
    let mut out = FrameHeader::new(Kind::AccountQuestion, request, QUESTION_PAYLOAD).encode().to_vec();
    out.extend_from_slice(&image.0);
    out.extend_from_slice(&chunk.0.to_le_bytes());
    debug_assert_eq!(out.len(), HEADER + QUESTION_PAYLOAD as usize);
    out
}

/// Reads the payload of a [`Kind::AccountQuestion`] frame. The receiver checks whether there is
/// such a chunk.
pub fn decode_account_question(payload: &[u8]) -> Result<(ImageId, Chunk), WireError> {
    let payload: &[u8; QUESTION_PAYLOAD as usize] = payload.try_into().map_err(|_| WireError::Payload)?;
    let mut image = [0; 32];
    image.copy_from_slice(&payload[..32]);
    Ok((ImageId(image), Chunk(u64_at(payload, 32))))
}

/// A whole frame that carries an account.
pub fn account_frame(request: u64, account: &Account) -> Vec<u8> {
    let body = encode(account);
    let mut out = FrameHeader::new(Kind::Account, request, body.len() as u32).encode().to_vec();
    out.extend_from_slice(&body);
    out
}

/// Reads the payload of a [`Kind::Account`] frame.
pub fn decode_account(payload: &[u8]) -> Result<Account, WireError> {
    let account: Account = decode(payload)?;
    let known = account.wait.is_none_or(|wait| usize::from(wait.stage) < STAGES.len());
    if known { Ok(account) } else { Err(WireError::Field("stage")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::NodeId;
    use crate::pursuit::Wait;

    fn longest(stage: u8) -> Account {
        let wait = Wait { stage, in_stage_ms: u32::MAX, awaits: Some((NodeId(u64::MAX), u32::MAX)) };
        Account { chunk: u64::MAX, is_here: true, wait: Some(wait) }
    }

    #[test]
    fn the_longest_account_fits() {
        let frame = account_frame(7, &longest(5));
        let header = FrameHeader::decode(frame.first_chunk().expect("a header")).expect("it is within its bound");
        assert_eq!((header.kind, header.request), (Kind::Account, 7));
        assert_eq!(decode_account(&frame[HEADER..]), Ok(longest(5)));
    }

    #[test]
    fn rubbish_is_refused() {
        let frame = account_frame(7, &longest(6));
        assert_eq!(decode_account(&frame[HEADER..]), Err(WireError::Field("stage")));
        assert_eq!(decode_account(&[1, 0, 0, 9]), Err(WireError::Payload), "bytes at the end");
        assert_eq!(decode_account(&[]), Err(WireError::Payload));
        let question = account_question_frame(1, ImageId([7; 32]), Chunk(5));
        assert_eq!(decode_account_question(&question[HEADER..]), Ok((ImageId([7; 32]), Chunk(5))));
        assert_eq!(decode_account_question(&question), Err(WireError::Payload));
    }
}

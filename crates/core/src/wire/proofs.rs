//! Questions about an image, and their answers: its signature, and its header.

use super::{FrameHeader, HEADER_PAYLOAD, Kind, PROOF_MAX, PROVE_PAYLOAD, WireError, decode, encode};
use crate::header_proof::HeaderProof;
use crate::image::ImageId;
use serde::{Deserialize, Serialize};

/// The proof that a signer vouches for an image. It holds whoever passes it on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// The text of a [`crate::statement::Statement`].
    pub statement: String,
    /// A signature of it in minisign's format.
    pub signature: String,
}

impl Proof {
    /// True if it is short enough to be sent.
    pub fn fits(&self) -> bool {
        encode(self).len() <= PROOF_MAX as usize
    }
}

/// A whole frame that asks for an image's proof.
pub fn prove_frame(request: u64, image: ImageId) -> Vec<u8> {
    let mut out = FrameHeader::new(Kind::Prove, request, PROVE_PAYLOAD).encode().to_vec();
    out.extend_from_slice(&image.0);
    out
}

/// Reads the payload of a [`Kind::Prove`] frame.
pub fn decode_prove(payload: &[u8]) -> Result<ImageId, WireError> {
    payload.try_into().map(ImageId).map_err(|_| WireError::Payload)
}

/// A whole frame with a proof, which [`Proof::fits`].
pub fn proof_frame(request: u64, proof: &Proof) -> Vec<u8> {
    let body = encode(proof);
    let mut out = FrameHeader::new(Kind::Proof, request, body.len() as u32).encode().to_vec();
    out.extend_from_slice(&body);
    out
}

/// Reads the payload of a [`Kind::Proof`] frame.
pub fn decode_proof(payload: &[u8]) -> Result<Proof, WireError> {
    decode(payload)
}

/// A whole frame that asks for an image's header.
pub fn header_frame(request: u64, image: ImageId) -> Vec<u8> {
    let mut out = FrameHeader::new(Kind::Header, request, HEADER_PAYLOAD).encode().to_vec();
    out.extend_from_slice(&image.0);
    out
}

/// Reads the payload of a [`Kind::Header`] frame.
pub fn decode_header(payload: &[u8]) -> Result<ImageId, WireError> {
    payload.try_into().map(ImageId).map_err(|_| WireError::Payload)
}

/// A whole frame with a header proof.
pub fn header_proof_frame(request: u64, proof: &HeaderProof) -> Vec<u8> {
    let body = proof.encode();
    let mut out = FrameHeader::new(Kind::HeaderProof, request, body.len() as u32).encode().to_vec();
    out.extend_from_slice(body);
    out
}

/// Reads the payload of a [`Kind::HeaderProof`] frame.
pub fn decode_header_proof(payload: &[u8]) -> Result<HeaderProof, WireError> {
    HeaderProof::decode(payload).ok_or(WireError::Payload)
}

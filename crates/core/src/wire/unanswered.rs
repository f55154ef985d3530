//! Frames that a node sends without being asked, and that are not answered.

use super::{FrameHeader, HEADER, Kind, WireError};
use crate::membership::message::DATAGRAM_MAX;
use crate::speed::Speed;

pub(super) const SPEED_PAYLOAD: u32 = 1;
/// Longest message of gossip, in bytes: as in a datagram.
pub(super) const GOSSIP_MAX: u32 = DATAGRAM_MAX as u32;

/// A whole frame that tells a peer the speed at which its answers come.
pub fn speed_frame(speed: Speed) -> [u8; HEADER + SPEED_PAYLOAD as usize] {
    let mut out = [speed.0; HEADER + SPEED_PAYLOAD as usize];
    out[..HEADER].copy_from_slice(&FrameHeader::new(Kind::Speed, 0, SPEED_PAYLOAD).encode());
    out
}

/// Reads the payload of a [`Kind::Speed`] frame. Any byte is a speed.
pub fn decode_speed(payload: &[u8]) -> Result<Speed, WireError> {
    let &[speed] = payload else { return Err(WireError::Payload) };
    Ok(Speed(speed))
}

/// A whole frame with a message of gossip of at most [`DATAGRAM_MAX`] bytes. Its payload is read by
/// [`crate::membership::message::parse`].
pub fn gossip_frame(message: &[u8]) -> Vec<u8> {
    let header = FrameHeader::new(Kind::Gossip, 0, message.len() as u32);
    [&header.encode(), message].concat()
}

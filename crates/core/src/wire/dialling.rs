//! Dialling back: a node asks another one to connect to its address. Frames of one byte.

use super::{FrameHeader, Kind, WireError};

/// The result of connecting back to a node that asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DialledBack {
    /// The node answered.
    Reached,
    /// No answer: a firewall, or a wrong address.
    Silence,
    /// The connection was refused: no process listens there.
    Refused,
    /// Another node is there, or something else.
    Another,
}

impl DialledBack {
    const ALL: [Self; 4] = [Self::Reached, Self::Silence, Self::Refused, Self::Another];

    /// The name for display.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reached => "reached",
            Self::Silence => "no answer",
            Self::Refused => "connection refused",
            Self::Another => "somebody else is there",
        }
    }
}

/// A whole frame that asks to be connected to; `lost` if the other cannot be, at the address of its
/// greeting.
pub fn dial_back_frame(request: u64, lost: bool) -> Vec<u8> {
    byte_frame(Kind::DialBack, request, u8::from(lost))
}

/// Reads the payload of a [`Kind::DialBack`] frame.
pub fn decode_dial_back(payload: &[u8]) -> Result<bool, WireError> {
    match payload {
        [0] => Ok(false),
        [1] => Ok(true),
        _ => Err(WireError::Payload),
    }
}

/// A whole frame that reports the result.
pub fn dialled_back_frame(request: u64, what: DialledBack) -> Vec<u8> {
    let number = DialledBack::ALL.iter().position(|known| *known == what).unwrap_or_default();
    byte_frame(Kind::DialledBack, request, number as u8)
}

/// Reads the payload of a [`Kind::DialledBack`] frame.
pub fn decode_dialled_back(payload: &[u8]) -> Result<DialledBack, WireError> {
    match payload {
        [number] => DialledBack::ALL.get(usize::from(*number)).copied().ok_or(WireError::Payload),
        _ => Err(WireError::Payload),
    }
}

fn byte_frame(kind: Kind, request: u64, byte: u8) -> Vec<u8> {
    let mut out = FrameHeader::new(kind, request, 1).encode().to_vec();
    out.push(byte);
    out
}

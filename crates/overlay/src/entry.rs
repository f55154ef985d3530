//! An entry of a file: the number of an area, and the states of its granules.
//!
//! The unit of journals and saved overlays: 72 bytes, little-endian.

use crate::granule::{AREA_STATES_BYTES, Area, Cut};

/// Length of an entry.
pub const ENTRY_BYTES: usize = 8 + AREA_STATES_BYTES;

/// Appends an entry.
pub fn encode(area: u64, states: &Area, out: &mut Vec<u8>) {
    out.extend_from_slice(&area.to_le_bytes());
    out.extend_from_slice(&states.encode());
}

/// The entry in `bytes`; `None` unless it is about granules that a device of this cut has.
pub fn decode(bytes: &[u8; ENTRY_BYTES], cut: Cut) -> Option<(u64, Area)> {
    let (number, states) = bytes.split_first_chunk::<8>()?;
    let area = u64::from_le_bytes(*number);
    if area >= cut.areas() {
        return None;
    }
    Some((area, Area::decode(states.first_chunk()?, cut.granules_of(area))?))
}

/// Takes a number off the front of `bytes`; 0 if they are too short, which callers rule out.
pub fn take_u64(bytes: &mut &[u8]) -> u64 {
    let Some((number, rest)) = bytes.split_first_chunk() else { return 0 };
    *bytes = rest;
    u64::from_le_bytes(*number)
}

/// Like [`take_u64`], with 4 bytes.
pub fn take_u32(bytes: &mut &[u8]) -> u32 {
    let Some((number, rest)) = bytes.split_first_chunk() else { return 0 };
    *bytes = rest;
    u32::from_le_bytes(*number)
}

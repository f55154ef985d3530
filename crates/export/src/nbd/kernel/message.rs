//! Messages of generic netlink: put together and taken apart.
//!
//! Owns their layout (`include/uapi/linux/netlink.h` and `genetlink.h`), and knows no family of
//! them. Messages are parsed with care, though it comes from the kernel: nothing
//! outside of it is looked at, and a walk over it ends.

/// Kind of a message that ends an answer, with an error number or none.
pub(super) const ERROR: u16 = 2;
const REQUEST: u16 = 1;
const ACK: u16 = 4;
const HEADER: usize = 16;
/// Length of the header before the attributes in the body of a message.
pub const GENERIC_HEADER: usize = 4;

/// A message under construction.
#[derive(Debug)]
pub struct Message(Vec<u8>);

impl Message {
    /// A request to a family, to be acknowledged.
    pub fn new(family: u16, command: u8) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&family.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(REQUEST | ACK).to_ne_bytes());
        bytes.extend([command, 1, 0, 0]);
        Self(bytes)
    }

    /// Adds an attribute.
    pub fn attribute(&mut self, kind: u16, payload: &[u8]) {
        put(&mut self.0, kind, payload);
    }

    /// With its length in front.
    pub fn finish(mut self) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

/// Appends an attribute; all of them begin at multiples of four.
pub(super) fn put(bytes: &mut Vec<u8>, kind: u16, payload: &[u8]) {
    // A few sockets and a short name.
    let length = (4 + payload.len()) as u16;
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// The first received message: its kind, its body, and the rest.
pub fn next_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let body = bytes.get(HEADER..length)?;
    Some((kind, body, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// The payload of the first attribute of a kind.
pub fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let payload = bytes.get(4..length)?;
        if kind == wanted {
            return Some(payload);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_together_can_be_taken_apart() {
        let mut message = Message::new(31, 2);
        message.attribute(7, b"abc");
        message.attribute(2, &77_u64.to_ne_bytes());
        let bytes = message.finish();
        let (kind, body, rest) = next_message(&bytes).unwrap();
        assert_eq!((kind, body[0], rest), (31, 2, &[][..]));
        assert_eq!(attribute(&body[GENERIC_HEADER..], 7), Some(&b"abc"[..]));
        assert_eq!(attribute(&body[GENERIC_HEADER..], 2), Some(&77_u64.to_ne_bytes()[..]));
        assert_eq!(attribute(&body[GENERIC_HEADER..], 3), None);
    }

    #[test]
    fn answers_that_are_cut_are_nothing() {
        let mut message = Message::new(31, 2);
        message.attribute(7, b"abcdef");
        let bytes = message.finish();
        for length in 0..bytes.len() - 1 {
            if let Some((_, body, _)) = next_message(&bytes[..length]) {
                assert_eq!(body.get(GENERIC_HEADER..).and_then(|body| attribute(body, 7)), None);
            }
        }
    }
}

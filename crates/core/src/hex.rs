//! Hexadecimal digits of keys, ids and digests.

use std::fmt::{self, Write};

/// The digits of `bytes`, two for each.
pub fn hex(bytes: &[u8]) -> String {
    // Secrets are written too: the text has its room at once, so none of it stays behind elsewhere.
    let mut text = String::with_capacity(bytes.len() * 2);
    let _ = write_hex(&mut text, bytes);
    text
}

/// Writes the digits of `bytes`, in lower case.
///
/// # Errors
/// Those of `out`.
pub fn write_hex(out: &mut impl Write, bytes: &[u8]) -> fmt::Result {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value & 15)]);
    bytes.iter().try_for_each(|byte| {
        out.write_char(digit(byte >> 4))?;
        out.write_char(digit(*byte))
    })
}

/// The inverse of [`hex`]; `None` for anything but exactly 2 N digits, in either case.
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let mut bytes = [0; N];
    if digits.len() != N * 2 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_the_bytes() {
        assert_eq!(hex(&[0, 0x1f, 0xa0, 0xff]), "001fa0ff");
        assert_eq!(unhex("001fA0ff"), Some([0, 0x1f, 0xa0, 0xff]));
        assert_eq!([unhex::<2>("001"), unhex("00112"), unhex("001g"), unhex("0é1")], [None; 4]);
        assert_eq!((hex(&[]), unhex("")), (String::new(), Some([])));
    }
}

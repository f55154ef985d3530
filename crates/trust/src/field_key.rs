//! A field's key: 32 random bytes, and their form as a line of text.
//!
//! Its holders are members. It is wiped from memory when dropped, and never shown by accident: its
//! display form is the [`KeyId`], which tells keys apart and reveals nothing.

use crate::derive::{self, derive};
use std::fmt;
use vfield_core::hex::{hex, unhex, write_hex};
use zeroize::Zeroizing;

/// First word of a key's line: its kind, and the version of its form.
const WORD: &str = "vfield-field-key-1";
/// First word of the lines of any version.
const WORD_ANY: &str = "vfield-field-key-";
/// Bytes of a secret.
const SECRET_BYTES: usize = 32;
/// Bytes of the checksum: one mistyped digit in 4 billion goes unnoticed.
const CHECK_BYTES: usize = 4;

/// The public name of a key: shown in `status`, sent with gossip.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub [u8; 4]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A line that is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    /// The text is no key.
    #[error("not a field key")]
    NotAKey,
    /// Written by another version of this program.
    #[error("a field key of another version, {0}")]
    Version(String),
    /// Cut short, or mistyped.
    #[error("a damaged field key: its checksum does not fit")]
    Damaged,
}

/// The secret of a field.
#[derive(Clone, PartialEq, Eq)]
pub struct FieldKey {
    secret: Zeroizing<[u8; SECRET_BYTES]>,
    id: KeyId,
}

impl FieldKey {
    /// The key with this secret, 32 bytes of real randomness.
    pub fn new(secret: [u8; SECRET_BYTES]) -> Self {
        let [a, b, c, d, ..] = derive(derive::ID, &secret);
        Self { secret: Zeroizing::new(secret), id: KeyId([a, b, c, d]) }
    }

    /// The public name of the key.
    pub const fn id(&self) -> KeyId {
        self.id
    }

    /// Its line in a key file, without a newline. The line is as secret as the key.
    pub fn line(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{WORD} {} {}", hex(&*self.secret), hex(&self.check())))
    }

    /// The inverse of [`FieldKey::line`].
    pub fn parse(line: &str) -> Result<Self, BadKey> {
        let mut words = line.split_ascii_whitespace();
        let version = words.next().and_then(|word| word.strip_prefix(WORD_ANY)).ok_or(BadKey::NotAKey)?;
        if WORD.strip_prefix(WORD_ANY) != Some(version) {
            return Err(BadKey::Version(version.chars().take(8).filter(|letter| !letter.is_control()).collect()));
        }
        let (Some(secret), Some(check), None) = (words.next(), words.next(), words.next()) else {
            return Err(BadKey::Damaged);
        };
        let secret = Zeroizing::new(unhex::<SECRET_BYTES>(secret).ok_or(BadKey::Damaged)?);
        let key = Self::new(*secret);
        if unhex::<CHECK_BYTES>(check) != Some(key.check()) {
            return Err(BadKey::Damaged);
        }
        Ok(key)
    }

    /// 32 bytes for one purpose.
    pub(crate) fn derive(&self, purpose: &str) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(derive(purpose, &*self.secret))
    }

    fn check(&self) -> [u8; CHECK_BYTES] {
        let [a, b, c, d, ..] = derive(derive::CHECK, &*self.secret);
        [a, b, c, d]
    }
}

impl fmt::Debug for FieldKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FieldKey({})", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_is_read_back_and_does_not_show_itself() {
        let key = FieldKey::new([7; 32]);
        let line = key.line();
        assert_eq!(FieldKey::parse(&line).unwrap(), key);
        assert!(line.starts_with("vfield-field-key-1 0707"), "{}", *line);
        assert!(!format!("{key:?}").contains("0707"));
        assert_ne!(key.id(), FieldKey::new([8; 32]).id());
    }

    #[test]
    fn damage_is_found() {
        let line = FieldKey::new([7; 32]).line().to_string();
        let mistyped = line.replacen("07", "01", 1);
        assert_eq!(FieldKey::parse(&mistyped), Err(BadKey::Damaged));
        assert_eq!(FieldKey::parse(&line[..line.len() - 1]), Err(BadKey::Damaged));
        assert_eq!(FieldKey::parse(&format!("{line} more")), Err(BadKey::Damaged));
        assert_eq!(FieldKey::parse(&line.replace("key-1", "key-9")), Err(BadKey::Version("9".to_owned())));
        assert_eq!(FieldKey::parse("-----BEGIN PRIVATE KEY-----"), Err(BadKey::NotAKey));
        assert_eq!(FieldKey::parse(""), Err(BadKey::NotAKey));
    }

    proptest! {
        #[test]
        fn any_line_is_a_key_or_a_refusal(line in "(vfield-field-key-1 )?\\PC{0,100}") {
            let _ = FieldKey::parse(&line);
        }
    }
}

//! Signatures in minisign's file format, verified with a reader's trusted public keys.
//!
//! It knows text and keys, not the signed content. The `timestamp:` of the trusted comment is
//! signed too, and the `minisign` tool writes it. It orders the statements of one signer.

use crate::derive::{SIGNER, derive};
use minisign_verify::{PublicKey, Signature};
use std::path::Path;

/// Longest file accepted: keys and signatures are a few hundred bytes.
const LENGTH_MAX: u64 = 4 << 10;
/// Characters of a public key: base64 of 42 bytes.
const KEY_LENGTH: usize = 56;

/// Why a key cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum BadTrust {
    /// A file that cannot be read.
    #[error("trusted key {path}: {source}")]
    Io {
        /// The path of the file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// Something else is in it.
    #[error("trusted key {0}: not a public key of minisign")]
    NotAKey(String),
}

/// Why something is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The text is no signature.
    #[error("its signature is damaged")]
    Damaged,
    /// Not by a trusted signer, or of other content.
    #[error("it is not signed with a trusted key")]
    Untrusted,
    /// Nothing tells when, so nothing could tell an old one from a new one.
    #[error("its signature has no timestamp in its trusted comment")]
    NoTimestamp,
}

/// A signature that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// The public key, as it is written.
    pub key: String,
    /// Seconds since 1970, as the signer says.
    pub timestamp: u64,
}

/// The public keys of the trusted signers.
#[derive(Debug, Clone)]
pub struct TrustedKeys {
    keys: Vec<(String, PublicKey)>,
}

impl TrustedKeys {
    /// Each of `given` is a public key or the file with it; `None` if none is given.
    pub fn read(given: &[String]) -> Result<Option<Self>, BadTrust> {
        let keys: Result<Vec<_>, BadTrust> = given.iter().map(|text| read(text)).collect();
        Ok(Some(Self { keys: keys? }).filter(|trusted| !trusted.keys.is_empty()))
    }

    /// Each key as it is written.
    pub fn written(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|(key, _)| key.as_str())
    }

    /// A digest of each key, to tell others which signers are trusted.
    pub fn digests(&self) -> Vec<u64> {
        self.keys.iter().map(|(key, _)| digest(key)).collect()
    }

    /// The signer of `content`, and the signature's time.
    pub fn verify(&self, content: &[u8], signature: &str) -> Result<Signed, SignatureError> {
        let signature = Signature::decode(signature).map_err(|_| SignatureError::Damaged)?;
        let mut keys = self.keys.iter();
        // Signatures of minisign's older kind, without hashing first, are as good for so short a
        // text.
        let signer = keys.find(|(_, key)| key.verify(content, &signature, true).is_ok());
        let (key, _) = signer.ok_or(SignatureError::Untrusted)?;
        let timestamp = timestamp(signature.trusted_comment()).ok_or(SignatureError::NoTimestamp)?;
        Ok(Signed { key: key.clone(), timestamp })
    }
}

/// True if the holder of a public key, as it is written, signed the content.
pub fn verify_by(key: &str, content: &[u8], signature: &str) -> bool {
    let (Ok(key), Ok(signature)) = (PublicKey::from_base64(key), Signature::decode(signature)) else { return false };
    key.verify(content, &signature, true).is_ok()
}

/// The digest of a public key as it is written.
pub fn digest(key: &str) -> u64 {
    let hash = derive(SIGNER, key.as_bytes());
    u64::from_le_bytes(*hash.first_chunk().expect("it has 32 bytes"))
}

/// The time in a signature, which is not verified.
pub fn timestamp_of(signature: &str) -> Option<u64> {
    timestamp(Signature::decode(signature).ok()?.trusted_comment())
}

/// True for a well-formed signature of any signer.
pub fn is_one(text: &str) -> bool {
    Signature::decode(text).is_ok()
}

/// The number behind `timestamp:`, among arbitrary words.
fn timestamp(comment: &str) -> Option<u64> {
    comment.split_ascii_whitespace().find_map(|word| word.strip_prefix("timestamp:"))?.parse().ok()
}

fn read(given: &str) -> Result<(String, PublicKey), BadTrust> {
    if given.len() == KEY_LENGTH
        && let Ok(key) = PublicKey::from_base64(given)
    {
        return Ok((given.to_owned(), key));
    }
    let failed = |source| BadTrust::Io { path: given.to_owned(), source };
    let not_a_key = || BadTrust::NotAKey(given.to_owned());
    let text = read_short(Path::new(given)).map_err(failed)?.ok_or_else(not_a_key)?;
    let key = text.lines().map(str::trim).rfind(|line| !line.is_empty()).ok_or_else(not_a_key)?;
    let parsed = PublicKey::from_base64(key).map_err(|_| not_a_key())?;
    Ok((key.to_owned(), parsed))
}

/// The text of a small file; `None` if it is anything else.
pub fn read_short(path: &Path) -> std::io::Result<Option<String>> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() || metadata.len() > LENGTH_MAX {
        return Ok(None);
    }
    Ok(String::from_utf8(std::fs::read(path)?).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Made with the `minisign` tool: `minisign -GW`, `minisign -Sm hello`.
    const KEY: &str = include_str!("testdata/minisign.pub");
    const SIGNATURE: &str = include_str!("testdata/hello.minisig");

    fn trusted(keys: &[&str]) -> TrustedKeys {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        TrustedKeys::read(&keys).unwrap().unwrap()
    }

    fn key() -> &'static str {
        KEY.lines().nth(1).unwrap()
    }

    #[test]
    fn signatures_of_the_tool_are_accepted() {
        let signed = trusted(&[key()]).verify(b"hello\n", SIGNATURE).unwrap();
        assert_eq!(signed.key, key());
        assert!(verify_by(key(), b"hello\n", SIGNATURE) && !verify_by(key(), b"hallo\n", SIGNATURE));
        assert!(!verify_by("", b"hello\n", SIGNATURE) && !verify_by(key(), b"hello\n", ""));
        assert!(SIGNATURE.contains(&format!("timestamp:{}", signed.timestamp)));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.pub");
        std::fs::write(&path, KEY).unwrap();
        assert!(trusted(&[path.to_str().unwrap()]).verify(b"hello\n", SIGNATURE).is_ok());
    }

    #[test]
    fn everything_else_is_not() {
        let trusted = trusted(&[key()]);
        assert_eq!(trusted.verify(b"hello", SIGNATURE), Err(SignatureError::Untrusted));
        let later = SIGNATURE.replace("timestamp:1", "timestamp:2");
        assert_eq!(trusted.verify(b"hello\n", &later), Err(SignatureError::Untrusted));
        assert_eq!(trusted.verify(b"hello\n", ""), Err(SignatureError::Damaged));
        assert_eq!(timestamp("file:hello hashed"), None);
        assert_eq!(timestamp("timestamp:-5"), None);
    }

    #[test]
    fn garbage_is_no_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.pub");
        for garbage in [&b""[..], b"untrusted comment: x\n", b"hunter2", b"\xff\xff", &[b'a'; 9000]] {
            std::fs::write(&path, garbage).unwrap();
            let read = TrustedKeys::read(&[path.display().to_string()]);
            assert!(matches!(read, Err(BadTrust::NotAKey(_))), "{garbage:?}");
        }
        assert!(matches!(TrustedKeys::read(&["none.pub".to_owned()]), Err(BadTrust::Io { .. })));
        assert!(TrustedKeys::read(&[]).unwrap().is_none());
    }

    proptest! {
        #[test]
        fn any_text_is_refused(text in "(untrusted comment: \\PC{0,20}\n)?\\PC{0,120}\n?(trusted comment: )?\\PC{0,40}") {
            prop_assert!(trusted(&[key()]).verify(b"hello\n", &text).is_err());
        }
    }
}

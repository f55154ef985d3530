//! Admission lists and their signatures: a list counts if a trusted signer signed it.

use crate::node_key::NodeKey;
use crate::signature::{SignatureError, Signed, TrustedKeys};
use std::sync::Arc;
use vfield_core::admission::{self, Admission, BadList, Version};
use vfield_core::wire::SignedList;

/// Longest signature accepted: those of minisign have about 300 bytes.
const SIGNATURE_MAX: usize = 4 << 10;

/// Why a list is not taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadAdmission {
    /// No trusted signer signed it.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// A trusted signer signed something else, or a list of a later version of this program.
    #[error("{why}")]
    List {
        /// Why it cannot be read.
        why: BadList,
        /// Its place in the order of lists.
        version: Version,
    },
}

/// A list that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Its place in the order of lists.
    pub version: Version,
    /// The signer, and the signature's time.
    pub signed: Signed,
    /// The nodes that are admitted.
    pub admission: Arc<Admission>,
    /// The list itself, to be passed on.
    pub list: SignedList,
}

/// Verifies a list.
///
/// # Errors
///
/// If no trusted signer signed it, or it is no list.
pub fn verify(list: SignedList, trusted: &TrustedKeys) -> Result<Verified, BadAdmission> {
    if list.signature.len() > SIGNATURE_MAX {
        return Err(SignatureError::Damaged.into());
    }
    let signed = trusted.verify(list.text.as_bytes(), &list.signature)?;
    let version = Version::of(&list.text, signed.timestamp);
    let lines = admission::parse(&list.text).map_err(|why| BadAdmission::List { why, version })?;
    let admission = Arc::new(Admission::new(&lines, NodeKey::id));
    Ok(Verified { version, signed, admission, list })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with the `minisign` tool: `minisign -GW`, `minisign -Sm hello`.
    const KEY: &str = include_str!("testdata/minisign.pub");
    const SIGNATURE: &str = include_str!("testdata/hello.minisig");

    /// A trusted signer's word on something else, and a list that it did not sign.
    #[test]
    fn only_lists_of_trusted_signers_count() {
        let trusted = TrustedKeys::read(&[KEY.lines().nth(1).unwrap().to_owned()]).unwrap().unwrap();
        let verify = |text: &str, signature: &str| {
            verify(SignedList { text: text.to_owned(), signature: signature.to_owned() }, &trusted)
        };
        let unreadable = verify("hello\n", SIGNATURE);
        assert!(
            matches!(unreadable, Err(BadAdmission::List { why: BadList::NotAList, version }) if version.timestamp > 0)
        );
        assert_eq!(verify("vfield-admission 1\n", SIGNATURE), Err(SignatureError::Untrusted.into()));
        assert_eq!(verify("vfield-admission 1\n", ""), Err(SignatureError::Damaged.into()));
        assert_eq!(verify("vfield-admission 1\n", &"x".repeat(5000)), Err(SignatureError::Damaged.into()));
    }
}

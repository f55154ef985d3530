//! Files with the key of a node: a node that uses one has the same id after each start.
//!
//! Private like a file with a field key. A process that uses it holds a lock on it, so that two
//! processes of a machine do not have one identity.

use crate::derive::{IDENTITY_CHECK, derive};
use crate::node_key::NodeKey;
use crate::private_file::{self, Unfit};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfield_core::hex::{hex, unhex};
use zeroize::Zeroizing;

/// First word of an identity's line: its kind, and the version of its form.
const WORD: &str = "vfield-identity-1";
/// Name of the credential with the identity.
pub const CREDENTIAL: &str = "vfield-identity";

/// Why a file gives no identity. It names the file, and none of its bytes.
#[derive(Debug, thiserror::Error)]
#[error("identity {}: {why}", path.display())]
pub struct IdentityError {
    /// The path of the file.
    pub path: PathBuf,
    /// The fault of the file.
    pub why: IdentityFault,
}

/// The fault of a file that is to have an identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityFault {
    /// It cannot be read or written, or others can.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// Something else is in it.
    #[error("not an identity")]
    NotAnIdentity,
    /// Cut short, mistyped, or more than one.
    #[error("a damaged identity: its checksum does not fit")]
    Damaged,
    /// Another process of this machine holds its lock.
    #[error("another process of this machine uses it")]
    InUse,
}

/// The identity in a file, which is locked for as long as this lives.
#[derive(Debug)]
pub struct Identity {
    /// The node's key.
    pub key: Arc<NodeKey>,
    _locked: File,
}

/// Reads an identity and locks its file.
pub fn take(path: &Path) -> Result<Identity, IdentityError> {
    let failed = |why: IdentityFault| IdentityError { path: path.to_owned(), why };
    let (text, file) = private_file::read(path).map_err(|why| failed(why.into()))?;
    let key = parse(&text).map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Identity { key: Arc::new(key), _locked: file }),
        Err(Errno::WOULDBLOCK) => Err(failed(IdentityFault::InUse)),
        Err(errno) => Err(failed(Unfit::Io(errno.into()).into())),
    }
}

/// Makes a file with a new identity that only its owner can read; never replaces one.
pub fn create(path: &Path) -> Result<NodeKey, IdentityError> {
    let failed = |source| IdentityError { path: path.to_owned(), why: Unfit::Io(source).into() };
    let mut seed = Zeroizing::new([0; 32]);
    rustix::rand::getrandom(&mut seed[..], rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| failed(errno.into()))?;
    let head = "# The identity of one machine of a V-FIELD field. Do not copy it: each machine needs its own.";
    private_file::create(path, head, &line(&seed)).map_err(failed)?;
    Ok(NodeKey::from_seed(&seed))
}

/// The identity that the service manager gives to this service, if it gives one.
pub fn credential() -> Option<PathBuf> {
    private_file::credential(CREDENTIAL)
}

fn line(seed: &[u8; 32]) -> Zeroizing<String> {
    Zeroizing::new(format!("{WORD} {} {}", hex(seed), hex(&check(seed))))
}

fn check(seed: &[u8; 32]) -> [u8; 4] {
    let [a, b, c, d, ..] = derive(IDENTITY_CHECK, seed);
    [a, b, c, d]
}

/// The key in the text of a file.
pub fn parse(text: &str) -> Result<NodeKey, IdentityFault> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut words = lines.next().unwrap_or_default().split_ascii_whitespace();
    if words.next() != Some(WORD) {
        return Err(IdentityFault::NotAnIdentity);
    }
    let seed = words.next().and_then(unhex::<32>).map(Zeroizing::new).ok_or(IdentityFault::Damaged)?;
    let whole = words.next().and_then(unhex) == Some(check(&seed)) && words.next().is_none();
    if whole && lines.next().is_none() { Ok(NodeKey::from_seed(&seed)) } else { Err(IdentityFault::Damaged) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_identity_is_private_and_stays_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity");
        let node = create(&path).unwrap().node();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(take(&path).unwrap().key.node(), node);
        assert_eq!(take(&path).unwrap().key.node(), node, "the lock ends with its holder");
        assert!(create(&path).is_err(), "an identity was overwritten");
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(take(&path).unwrap_err().to_string().ends_with("open to others (mode 640)"));
    }

    #[test]
    fn one_process_at_a_time_uses_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity");
        create(&path).unwrap();
        let held = take(&path).unwrap();
        let error = take(&path).unwrap_err().to_string();
        assert!(error.ends_with("another process of this machine uses it"), "{error}");
        drop(held);
        assert!(take(&path).is_ok());
    }

    #[test]
    fn damage_is_found_and_not_shown() {
        let good = line(&[7; 32]).to_string();
        assert_eq!(parse(&good).unwrap().node(), NodeKey::from_seed(&[7; 32]).node());
        for (bad, why) in [
            (good.replacen("07", "01", 1), "damaged"),
            (good[..good.len() - 1].to_owned(), "damaged"),
            (format!("{good} more"), "damaged"),
            (format!("{good}\n{good}"), "damaged"),
            (good.replace("identity-1", "identity-9"), "not an identity"),
            ("vfield-field-key-1 07 07".to_owned(), "not an identity"),
            (String::new(), "not an identity"),
        ] {
            let error = parse(&bad).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("07"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_identity_or_a_refusal(text in "(vfield-identity-1 )?\\PC{0,100}") {
            let _ = parse(&text);
        }
    }
}

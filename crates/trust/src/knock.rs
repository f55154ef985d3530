//! The knock: the first bytes of a keyed connection. They show which of the field's keys the
//! dialling node uses.
//!
//! It travels as the server name of the TLS handshake: a random number and its keyed hash. If the
//! knock is invalid, the node closes the connection silently, before any public-key operation. An
//! eavesdropper can repeat a knock, but gains nothing: the handshake itself proves membership. A
//! knock does not reveal its field.

use crate::derive;
use crate::field_key::FieldKey;
use crate::key_ring::KeyRing;
use std::sync::Arc;
use vfield_core::hex::{hex, unhex};

/// Bytes of the random number and of the hash: as digits they fit into one label of a host name,
/// which has at most 63.
const NONCE: usize = 8;
const HASH: usize = 16;

/// A knock for the members that have `key`.
pub fn knock(key: &FieldKey, nonce: [u8; NONCE]) -> String {
    format!("{}{}", hex(&nonce), hex(&hash(key, &nonce)))
}

/// The key of the knock, if it is in the ring.
pub fn recognise<'a>(ring: &'a KeyRing, name: &str) -> Option<&'a Arc<FieldKey>> {
    let (nonce, given) = name.split_at_checked(NONCE * 2)?;
    let (nonce, given) = (unhex::<NONCE>(nonce)?, unhex::<HASH>(given)?);
    // Compared in constant time, or it could be guessed byte by byte.
    ring.keys().iter().find(|key| blake3::Hash::from(widen(hash(key, &nonce))) == blake3::Hash::from(widen(given)))
}

fn hash(key: &FieldKey, nonce: &[u8; NONCE]) -> [u8; HASH] {
    let full = blake3::keyed_hash(&key.derive(derive::KNOCK), nonce);
    let mut short = [0; HASH];
    short.copy_from_slice(&full.as_bytes()[..HASH]);
    short
}

fn widen(hash: [u8; HASH]) -> [u8; 32] {
    let mut wide = [0; 32];
    wide[..HASH].copy_from_slice(&hash);
    wide
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_recognised_by_any_of_their_keys() {
        let key = |byte| FieldKey::new([byte; 32]);
        let ring = KeyRing::new([key(1), key(2)]).unwrap();
        for byte in [1, 2] {
            let name = knock(&key(byte), [9; 8]);
            assert!(name.len() <= 63);
            assert_eq!(recognise(&ring, &name).map(|found| found.id()), Some(key(byte).id()));
        }
        assert!(recognise(&ring, &knock(&key(3), [9; 8])).is_none());
        let mut mistyped = knock(&key(1), [9; 8]);
        mistyped.replace_range(20..21, if &mistyped[20..21] == "0" { "1" } else { "0" });
        assert!(recognise(&ring, &mistyped).is_none());
        assert!(recognise(&ring, "localhost").is_none() && recognise(&ring, "").is_none());
        assert!(recognise(&ring, &"é".repeat(24)).is_none());
    }
}

//! Traffic secrets: the source of the keys of one direction of a link, one after the other (RFC
//! 8446, sections 7.2 and 7.3).
//!
//! rustls makes the first secret and reveals it only to a key log, so this module takes it from
//! there ([`Taken`]). The handshake passes it to the two ends of a record layer, which derive a key
//! and its successors. A replaced secret is wiped: a later one does not open earlier records.

use ring::aead::{Algorithm, LessSafeKey, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};
use rustls::KeyLog;
use std::sync::{Mutex, PoisonError};
use zeroize::Zeroizing;

/// Bytes of a secret: of SHA-256, which all suites of node links have.
const SECRET: usize = 32;
/// Bytes of the value that is combined with a record's number.
pub(crate) const IV: usize = 12;

/// The secret of one direction, as it is now.
pub(crate) struct Traffic(Zeroizing<[u8; SECRET]>);

impl Traffic {
    /// A secret; `None` if it has another length.
    pub(crate) fn new(secret: &[u8]) -> Option<Self> {
        Some(Self(Zeroizing::new(secret.try_into().ok()?)))
    }

    /// Becomes the next one, for good.
    pub(crate) fn advance(&mut self) {
        let mut next = Zeroizing::new([0; SECRET]);
        self.expand(b"traffic upd", &mut *next);
        self.0 = next;
    }

    /// The key of this secret.
    pub(crate) fn key(&self, algorithm: &'static Algorithm) -> LessSafeKey {
        let mut key = Zeroizing::new(vec![0; algorithm.key_len()]);
        self.expand(b"key", &mut key);
        LessSafeKey::new(UnboundKey::new(algorithm, &key).expect("a key of its algorithm's length"))
    }

    /// The first part of its nonces.
    pub(crate) fn iv(&self) -> [u8; IV] {
        let mut iv = [0; IV];
        self.expand(b"iv", &mut iv);
        iv
    }

    /// HKDF-Expand-Label without a context.
    fn expand(&self, label: &[u8], out: &mut [u8]) {
        const PREFIX: &[u8] = b"tls13 ";
        let length = u16::try_from(out.len()).expect("secrets, keys and nonces are short").to_be_bytes();
        let label_length = [(PREFIX.len() + label.len()) as u8];
        let info = [&length[..], &label_length, PREFIX, label, &[0]];
        let secret = Prk::new_less_safe(HKDF_SHA256, &*self.0);
        let expanded = secret.expand(&info, Length(out.len())).and_then(|bytes| bytes.fill(out));
        expanded.expect("shorter than 255 hashes");
    }
}

impl std::fmt::Debug for Traffic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Traffic").finish_non_exhaustive()
    }
}

/// The wanted number of bytes.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// The first secrets of one connection, once its handshake has made them: the dialling side's, and
/// that of the other.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    client: Mutex<Option<Traffic>>,
    server: Mutex<Option<Traffic>>,
}

impl Taken {
    fn place(&self, label: &str) -> Option<&Mutex<Option<Traffic>>> {
        match label {
            "CLIENT_TRAFFIC_SECRET_0" => Some(&self.client),
            "SERVER_TRAFFIC_SECRET_0" => Some(&self.server),
            _ => None,
        }
    }

    /// Both, in this order; `None` before they are there, and the second time.
    pub(crate) fn take(&self) -> Option<(Traffic, Traffic)> {
        let take = |place: &Mutex<Option<Traffic>>| place.lock().unwrap_or_else(PoisonError::into_inner).take();
        Some((take(&self.client)?, take(&self.server)?))
    }
}

impl KeyLog for Taken {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        if let Some(place) = self.place(label) {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Traffic::new(secret);
        }
    }

    fn will_log(&self, label: &str) -> bool {
        self.place(label).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn keys_are_made_as_in_the_example_of_rfc_8448() {
        // Section 3, the server's application traffic.
        let secret = bytes("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643");
        let traffic = Traffic::new(&secret).unwrap();
        let mut key = [0; 16];
        traffic.expand(b"key", &mut key);
        assert_eq!(key[..], bytes("9f02283b6c9c07efc26bb9f2ac92e356"));
        assert_eq!(traffic.iv()[..], bytes("cf782b88dd83549aadf1e984"));
    }

    #[test]
    fn secrets_of_other_hashes_are_none_of_ours() {
        assert!(Traffic::new(&[1; 48]).is_none());
    }
}

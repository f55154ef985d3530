//! Signatures of nodes: a statement of a node about itself carries its key and its signature, and
//! others pass it on as it is.
//!
//! The core decides which parts are signed, and when a signature is verified. It does not sign: the
//! shell brings [`Signatures`], which are ed25519 in a daemon. In simulations and tests they are
//! [`Simulated`].

use crate::identity::NodeId;
use crate::tags::SignedTag;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The public key of a node. Its id is a hash of the key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PublicKey(pub [u8; 32]);

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {:02x}{:02x}", self.0[0], self.0[1])
    }
}

/// A signature of 64 bytes, in two halves.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Signature(pub [[u8; 32]; 2]);

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "signature {:02x}{:02x}", self.0[0][0], self.0[0][1])
    }
}

impl From<[u8; 64]> for Signature {
    fn from(bytes: [u8; 64]) -> Self {
        let mut halves = [[0; 32]; 2];
        halves.as_flattened_mut().copy_from_slice(&bytes);
        Self(halves)
    }
}

impl Signature {
    /// All 64 bytes.
    pub const fn bytes(&self) -> &[u8] {
        self.0.as_flattened()
    }
}

/// Signs for one node, and verifies for all. Verifying takes some 50 us, so it is asked only about
/// news.
pub trait Signatures: fmt::Debug + Send + Sync {
    /// The public key of this node.
    fn key(&self) -> PublicKey;

    /// The signature of this node.
    fn sign(&self, message: &[u8]) -> Signature;

    /// True if the holder of `key` signed the message.
    fn verify(&self, key: &PublicKey, message: &[u8], signature: &Signature) -> bool;

    /// The id of the node with this key.
    fn id_of(&self, key: &PublicKey) -> NodeId;

    /// True if an operator with the public key `signer` signed the text; both are in minisign's
    /// form.
    fn signed_by(&self, signer: &str, text: &[u8], signature: &str) -> bool;
}

/// The purpose of a signature. It is signed too, so no message of one kind passes for another kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// A member's statement about itself, alive.
    Alive,
    /// A member's farewell.
    Left,
    /// The record of a member about an image.
    Record,
    /// The proof of an identity on a connection, by the side that dialled.
    Dialled,
    /// The same by the side that answered.
    Answered,
}

impl Context {
    /// The first bytes of the signed message.
    pub const fn prefix(self) -> &'static [u8; 16] {
        match self {
            Self::Alive => b"V-FIELD 8 alive\0",
            Self::Left => b"V-FIELD 8 left\0\0",
            Self::Record => b"V-FIELD 8 has\0\0\0",
            Self::Dialled => b"V-FIELD 8 dials\0",
            Self::Answered => b"V-FIELD 8 answer",
        }
    }

    /// The whole message: the context, then `said` in postcard.
    pub fn message(self, said: &impl Serialize) -> Vec<u8> {
        postcard::to_extend(said, self.prefix().to_vec()).expect("plain data without maps always encodes")
    }
}

/// Signatures for simulated nodes: a hash of the key and the message. The key is the id, so ids can
/// be chosen. Anybody could forge them; only code that uses this type's `sign` for another node
/// does.
#[derive(Debug, Clone, Copy)]
pub struct Simulated(pub NodeId);

impl Simulated {
    /// The key of the simulated node with this id.
    pub fn key_of(node: NodeId) -> PublicKey {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&node.0.to_le_bytes());
        PublicKey(key)
    }

    /// A tag of the simulated operator with this key.
    pub fn sign_tag(signer: &str, text: &str) -> SignedTag {
        let signature = Self::signature_by(signer, text.as_bytes());
        SignedTag { signer: signer.to_owned(), text: text.to_owned(), signature }
    }

    fn signature_by(signer: &str, text: &[u8]) -> String {
        blake3::Hasher::new().update(signer.as_bytes()).update(text).finalize().to_string()
    }

    fn of(key: &PublicKey, message: &[u8]) -> Signature {
        Signature([*blake3::keyed_hash(&key.0, message).as_bytes(), [0; 32]])
    }
}

impl Signatures for Simulated {
    fn key(&self) -> PublicKey {
        Self::key_of(self.0)
    }

    fn sign(&self, message: &[u8]) -> Signature {
        Self::of(&self.key(), message)
    }

    fn verify(&self, key: &PublicKey, message: &[u8], signature: &Signature) -> bool {
        Self::of(key, message) == *signature
    }

    fn id_of(&self, key: &PublicKey) -> NodeId {
        let mut id = [0; 8];
        id.copy_from_slice(&key.0[..8]);
        NodeId(u64::from_le_bytes(id))
    }

    fn signed_by(&self, signer: &str, text: &[u8], signature: &str) -> bool {
        Self::signature_by(signer, text) == signature
    }
}

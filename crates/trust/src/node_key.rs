//! The key of a node: ed25519. The node's id is a hash of the public part.
//!
//! Each process draws one at its start, unless it is given one in a file
//! ([`crate::identity_file`]). Nobody else has the private part. Two nodes with one id
//! would need a collision of 64 bits with a given id, 2^64 keys to try, while the node lives.

use crate::derive::{NODE_ID, derive};
use crate::signature;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use std::fmt;
use vfield_core::identity::NodeId;
use vfield_core::signing::{PublicKey, Signature, Signatures};

/// Private and public key of a node.
pub struct NodeKey {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

impl NodeKey {
    /// A new one.
    ///
    /// # Errors
    ///
    /// If the system has no randomness.
    pub fn draw() -> Result<Self, ring::error::Unspecified> {
        let mut seed = [0; 32];
        SystemRandom::new().fill(&mut seed)?;
        Ok(Self::from_seed(&seed))
    }

    /// The key that these bytes make.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).expect("any 32 bytes are a seed");
        let mut public = PublicKey([0; 32]);
        public.0.copy_from_slice(pair.public_key().as_ref());
        Self { pair, public }
    }

    /// The id of the node with this key.
    pub fn node(&self) -> NodeId {
        Self::id(&self.public)
    }

    /// The id of the node with this public key.
    pub fn id(key: &PublicKey) -> NodeId {
        let hash = derive(NODE_ID, &key.0);
        NodeId(u64::from_le_bytes(*hash.first_chunk().expect("it has 32 bytes")))
    }
}

impl Signatures for NodeKey {
    fn key(&self) -> PublicKey {
        self.public
    }

    fn sign(&self, message: &[u8]) -> Signature {
        let mut signature = [0; 64];
        signature.copy_from_slice(self.pair.sign(message).as_ref());
        signature.into()
    }

    fn verify(&self, key: &PublicKey, message: &[u8], signature: &Signature) -> bool {
        UnparsedPublicKey::new(&ED25519, key.0).verify(message, signature.bytes()).is_ok()
    }

    fn id_of(&self, key: &PublicKey) -> NodeId {
        Self::id(key)
    }

    fn signed_by(&self, signer: &str, text: &[u8], signature: &str) -> bool {
        signature::verify_by(signer, text, signature)
    }
}

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeKey({})", self.node())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids and signatures have to stay the same: nodes compare them.
    #[test]
    fn golden() {
        let key = NodeKey::from_seed(&[7; 32]);
        assert_eq!(key.node(), NodeId(9_963_112_471_463_958_505));
        assert_eq!(key.sign(b"said").bytes()[..4], [98, 21, 35, 61]);
    }

    #[test]
    fn only_the_private_part_signs() {
        let (key, other) = (NodeKey::draw().unwrap(), NodeKey::draw().unwrap());
        let signature = key.sign(b"said");
        let forged = other.sign(b"said");
        let verify = |key: PublicKey, message: &[u8], signature: &Signature| other.verify(&key, message, signature);
        assert!(verify(key.key(), b"said", &signature));
        assert!(!verify(other.key(), b"said", &signature) && !verify(key.key(), b"not said", &signature));
        assert!(!verify(key.key(), b"said", &forged));
        assert!(
            !verify(PublicKey([0; 32]), b"said", &signature) && !verify(PublicKey([0xff; 32]), b"said", &signature)
        );
        assert_ne!(key.node(), other.node());
    }
}

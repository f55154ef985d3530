//! This node's key, and the signatures of others: ed25519, each verified once.
//!
//! The core asks about each statement that is news to it, under its lock. So whoever receives a
//! frame full of statements verifies them [before](NodeSignatures::verify_ahead), in its own task.

use std::collections::{BTreeMap, HashSet};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::yield_now;
use vfield_core::identity::NodeId;
use vfield_core::signing::{PublicKey, Signature, Signatures};
use vfield_core::snapshot::Snapshot;
use vfield_trust::NodeKey;

/// Signatures remembered as good, in each of two halves: two for each member of a large zone. The
/// older half is dropped when the younger one is full. About 2 MB at worst.
const REMEMBERED: usize = 1 << 15;
/// Statements verified without letting other tasks run: about a millisecond.
const AT_ONCE: usize = 16;

/// Hash of a key, a message and its signature.
type Digest = [u8; 16];

/// Signs for this node, and verifies for all.
#[derive(Debug)]
pub struct NodeSignatures {
    key: NodeKey,
    good: Mutex<Good>,
}

/// Signatures that were found good.
#[derive(Debug, Default)]
struct Good {
    young: HashSet<Digest>,
    old: HashSet<Digest>,
}

impl Good {
    fn contains(&self, digest: &Digest) -> bool {
        self.young.contains(digest) || self.old.contains(digest)
    }

    fn insert(&mut self, digest: Digest) {
        if self.young.len() >= REMEMBERED {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(digest);
    }
}

impl NodeSignatures {
    /// Of a node with this key.
    pub fn new(key: NodeKey) -> Arc<Self> {
        Arc::new(Self { key, good: Mutex::default() })
    }

    /// The id of this node.
    pub fn node(&self) -> NodeId {
        self.key.node()
    }

    /// Verifies what a snapshot says, and remembers what is good. It decides nothing: the core asks
    /// again about what is news to it.
    pub async fn verify_ahead(&self, snapshot: &Snapshot) {
        let mut keys: BTreeMap<NodeId, PublicKey> = BTreeMap::new();
        for (at, member) in snapshot.members.iter().chain(&snapshot.gateways).enumerate() {
            if member.is_genuine(self) {
                keys.insert(member.identity.node, member.key);
            }
            pause(at).await;
        }
        for (at, record) in snapshot.records.iter().chain(&snapshot.outside).enumerate() {
            // A record of a node without a statement beside it: the core may know its key.
            if let Some(key) = keys.get(&record.node) {
                record.is_genuine(key, self);
            }
            pause(at).await;
        }
    }
}

async fn pause(at: usize) {
    if at % AT_ONCE == AT_ONCE - 1 {
        yield_now().await;
    }
}

impl Signatures for NodeSignatures {
    fn key(&self) -> PublicKey {
        self.key.key()
    }

    fn sign(&self, message: &[u8]) -> Signature {
        self.key.sign(message)
    }

    fn verify(&self, key: &PublicKey, message: &[u8], signature: &Signature) -> bool {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&key.0).update(signature.bytes()).update(message);
        let digest = *hasher.finalize().as_bytes().first_chunk().expect("a hash has 32 bytes");
        let good = || self.good.lock().unwrap_or_else(PoisonError::into_inner);
        if good().contains(&digest) {
            return true;
        }
        let verified = self.key.verify(key, message, signature);
        if verified {
            good().insert(digest);
        }
        verified
    }

    fn id_of(&self, key: &PublicKey) -> NodeId {
        self.key.id_of(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_verified_once_is_remembered_and_nothing_else() {
        let [one, other] = [NodeKey::draw(), NodeKey::draw()].map(|key| NodeSignatures::new(key.unwrap()));
        let (key, signature) = (one.key(), one.sign(b"said"));
        for _ in 0..2 {
            assert!(other.verify(&key, b"said", &signature));
            assert!(!other.verify(&key, b"not said", &signature));
            assert!(!other.verify(&other.key(), b"said", &signature));
            assert!(!other.verify(&key, b"said", &Signature::default()));
        }
        assert_eq!(other.good.lock().unwrap().young.len(), 1);
        assert_eq!(other.id_of(&key), one.node());
    }

    #[test]
    fn memory_is_bounded() {
        let mut good = Good::default();
        for number in 0..5 * REMEMBERED as u64 {
            let mut digest = [0; 16];
            digest[..8].copy_from_slice(&number.to_le_bytes());
            good.insert(digest);
            assert!(good.contains(&digest) && good.young.len() + good.old.len() <= 2 * REMEMBERED);
        }
    }
}

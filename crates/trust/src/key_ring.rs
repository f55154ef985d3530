//! The keys of a field, in order: the first one is used for sending, all are accepted.
//!
//! So a key can be changed while the field runs. First all nodes learn the new key, then all use it
//! first, then all drop the old one. A ring is never empty.

use crate::field_key::{FieldKey, KeyId};
use std::sync::Arc;

/// The accepted keys, the used one first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRing {
    keys: Vec<Arc<FieldKey>>,
}

impl KeyRing {
    /// More keys than this at once are a mistake: a change of keys needs two.
    pub const KEYS_MAX: usize = 16;

    /// These keys, doubles left out; `None` for none, and for more than [`KeyRing::KEYS_MAX`].
    pub fn new(keys: impl IntoIterator<Item = FieldKey>) -> Option<Self> {
        let mut ring: Vec<Arc<FieldKey>> = Vec::new();
        for key in keys {
            if !ring.iter().any(|other| **other == key) {
                ring.push(Arc::new(key));
            }
        }
        (1..=Self::KEYS_MAX).contains(&ring.len()).then_some(Self { keys: ring })
    }

    /// The key that is spoken.
    pub fn spoken(&self) -> &Arc<FieldKey> {
        &self.keys[0]
    }

    /// All accepted keys, the used one first.
    pub fn keys(&self) -> &[Arc<FieldKey>] {
        &self.keys
    }

    /// The key of this name.
    pub fn find(&self, id: KeyId) -> Option<&Arc<FieldKey>> {
        self.keys.iter().find(|key| key.id() == id)
    }

    /// Names of all keys, the spoken one first.
    pub fn ids(&self) -> Vec<KeyId> {
        self.keys.iter().map(|key| key.id()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_spoken_and_doubles_count_once() {
        let key = |byte| FieldKey::new([byte; 32]);
        let ring = KeyRing::new([key(1), key(2), key(1)]).unwrap();
        assert_eq!(ring.ids(), [key(1).id(), key(2).id()]);
        assert_eq!(**ring.spoken(), key(1));
        assert_eq!(ring.find(key(2).id()).map(|found| found.id()), Some(key(2).id()));
        assert!(ring.find(key(3).id()).is_none());
        assert!(KeyRing::new([]).is_none());
        assert!(KeyRing::new((0..17).map(key)).is_none());
    }
}

//! A bounded map: the entry that was noted longest ago makes room for the next one. A full map
//! costs no more than any other.

use std::collections::BTreeMap;

/// At most `MOST` entries, each noted under a key.
#[derive(Debug)]
pub struct Latest<K, V, const MOST: usize> {
    /// Each value with its place in the order.
    entries: BTreeMap<K, (u64, V)>,
    order: BTreeMap<u64, K>,
    noted: u64,
}

impl<K, V, const MOST: usize> Default for Latest<K, V, MOST> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), order: BTreeMap::new(), noted: 0 }
    }
}

impl<K: Ord + Copy, V, const MOST: usize> Latest<K, V, MOST> {
    /// The value under a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// The same, to be changed; its place in the order stays.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|(_, value)| value)
    }

    /// The value that was noted longest ago, if the next one displaces it.
    pub fn displaced(&self) -> Option<&V> {
        let (_, oldest) = self.order.first_key_value().filter(|_| self.entries.len() >= MOST)?;
        self.get(oldest)
    }

    /// Notes a value under a key, as the last one.
    pub fn note(&mut self, key: K, value: V) {
        self.noted += 1;
        if let Some((before, _)) = self.entries.insert(key, (self.noted, value)) {
            self.order.remove(&before);
        }
        self.order.insert(self.noted, key);
        if self.entries.len() > MOST
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.entries.remove(&oldest);
        }
    }

    /// Forgets the value under a key, if there is one.
    pub fn forget(&mut self, key: &K) {
        if let Some((place, _)) = self.entries.remove(key) {
            self.order.remove(&place);
        }
    }

    /// Forgets the values that do not pass; costs as much as there are.
    pub fn retain(&mut self, mut passes: impl FnMut(&V) -> bool) {
        let order = &mut self.order;
        self.entries.retain(|_, (place, value)| {
            let stays = passes(value);
            if !stays {
                order.remove(place);
            }
            stays
        });
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_longest_ago_makes_room() {
        let mut latest: Latest<u8, u8, 3> = Latest::default();
        assert!(latest.is_empty());
        (1..=3).for_each(|key| latest.note(key, key * 10));
        assert_eq!(latest.displaced(), Some(&10));
        latest.note(1, 11);
        latest.note(4, 40);
        assert_eq!([1, 2, 3, 4].map(|key| latest.get(&key).copied()), [Some(11), None, Some(30), Some(40)]);
        latest.get_mut(&3).into_iter().for_each(|value| *value = 31);
        latest.note(5, 50);
        assert_eq!([1, 3, 5].map(|key| latest.get(&key).copied()), [Some(11), None, Some(50)]);
        latest.retain(|value| *value != 40);
        assert_eq!(latest.displaced(), None);
        latest.note(6, 60);
        assert_eq!((latest.len(), latest.order.len()), (3, 3));
        assert_eq!([1, 5, 6].map(|key| latest.get(&key).copied()), [Some(11), Some(50), Some(60)]);
        latest.forget(&7);
        latest.forget(&1);
        assert_eq!((latest.get(&1), latest.len(), latest.order.len()), (None, 2, 2));
    }
}

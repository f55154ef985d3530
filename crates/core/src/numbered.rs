//! A table with ascending keys: few entries stay long while thousands come and go.
//!
//! Recent entries are in a row, where a lookup needs no search. Older ones move to a tree.

use std::collections::{BTreeMap, VecDeque};

/// Empty places that the row may have, besides half as many as there are entries. Beyond that its
/// oldest entries go to the tree.
const GAPS: usize = 32;

/// Entries by ascending number.
#[derive(Debug)]
pub struct Numbered<T> {
    old: BTreeMap<u64, T>,
    /// The number of the first place in the row.
    first: u64,
    row: VecDeque<Option<T>>,
    /// Entries in the row.
    count: usize,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { old: BTreeMap::new(), first: 0, row: VecDeque::new(), count: 0 }
    }
}

impl<T> Numbered<T> {
    /// Inserts an entry. Its number has to exceed all before; if not, returns false and changes
    /// nothing.
    pub fn insert(&mut self, number: u64, entry: T) -> bool {
        let next = self.first + self.row.len() as u64;
        if number < next {
            return false;
        }
        if number - next > GAPS as u64 {
            // A gap may be long: a number far ahead begins a new row.
            self.shorten(0);
            self.first = number;
        }
        let gap = number - (self.first + self.row.len() as u64);
        self.row.extend((0..gap).map(|_| None));
        self.row.push_back(Some(entry));
        self.count += 1;
        self.shorten(self.count + self.count / 2 + GAPS);
        true
    }

    /// Shortens the row to at most `most` places.
    fn shorten(&mut self, most: usize) {
        while self.row.len() > most
            && let Some(place) = self.row.pop_front()
        {
            if let Some(entry) = place {
                self.old.insert(self.first, entry);
                self.count -= 1;
            }
            self.first += 1;
        }
    }

    /// The entry with this number.
    pub fn get(&self, number: u64) -> Option<&T> {
        match number.checked_sub(self.first) {
            Some(at) => self.row.get(at as usize)?.as_ref(),
            None => self.old.get(&number),
        }
    }

    /// Like [`Numbered::get`], mutable.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        match number.checked_sub(self.first) {
            Some(at) => self.row.get_mut(at as usize)?.as_mut(),
            None => self.old.get_mut(&number),
        }
    }

    /// Takes an entry out.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        let Some(at) = number.checked_sub(self.first) else { return self.old.remove(&number) };
        let entry = self.row.get_mut(at as usize)?.take();
        self.count -= usize::from(entry.is_some());
        while let Some(None) = self.row.front() {
            self.row.pop_front();
            self.first += 1;
        }
        entry
    }

    /// Takes all out; their numbers remain used.
    pub fn clear(&mut self) {
        self.first += self.row.len() as u64;
        (self.count, self.row, self.old) = (0, VecDeque::new(), BTreeMap::new());
    }

    /// All entries, by number.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let row = self.row.iter().zip(self.first..);
        self.old
            .iter()
            .map(|(number, entry)| (*number, entry))
            .chain(row.filter_map(|(entry, number)| Some((number, entry.as_ref()?))))
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.old.len() + self.count
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::mix;

    #[test]
    fn it_does_what_a_tree_does() {
        let (mut table, mut tree) = (Numbered::default(), BTreeMap::new());
        let mut number = 0;
        for step in 0..20_000u64 {
            let dice = mix(step);
            match dice % 8 {
                0..4 => {
                    number += if dice.is_multiple_of(1009) { 500 } else { 1 + dice / 8 % 2 };
                    assert!(table.insert(number, step) && !table.insert(number, step));
                    tree.insert(number, step);
                }
                4..7 => {
                    // Mostly one of the oldest, but the very oldest stay long.
                    let skip = if dice.is_multiple_of(100) { 0 } else { 3 };
                    let victim = tree.keys().copied().nth(skip + (dice / 8 % 5) as usize).unwrap_or(number);
                    assert_eq!(table.remove(victim), tree.remove(&victim));
                }
                _ => {
                    let other = dice / 8 % (number + 2);
                    assert_eq!(table.get(other), tree.get(&other));
                    assert_eq!(table.get_mut(other), tree.get_mut(&other));
                }
            }
            assert_eq!(table.len(), tree.len());
        }
        assert!(table.iter().eq(tree.iter().map(|(number, entry)| (*number, entry))));
        table.clear();
        assert!(
            table.is_empty() && table.get(number).is_none() && !table.insert(number, 0) && table.insert(number + 1, 0)
        );
    }
}

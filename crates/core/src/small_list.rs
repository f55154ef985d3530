//! A list without an allocation for a single item. Thousands of chunks are under way at once, each
//! requested of one peer, for one reader or asker; and of most zones one node is known.

use std::ops::{Deref, DerefMut};

/// A list that stores one item inline. It dereferences to a slice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SmallList<T> {
    /// No item at all.
    #[default]
    None,
    /// One item, stored inline.
    One(T),
    /// Any number of items, on the heap.
    More(Vec<T>),
}

impl<T> SmallList<T> {
    /// Puts one more at the end.
    pub fn push(&mut self, item: T) {
        *self = match std::mem::take(self) {
            Self::None => Self::One(item),
            Self::One(first) => Self::More(vec![first, item]),
            Self::More(mut items) => {
                items.push(item);
                Self::More(items)
            }
        }
    }

    /// Keeps the items for which `keep` is true.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        match self {
            Self::None => {}
            Self::One(item) if keep(item) => {}
            Self::One(_) => *self = Self::None,
            Self::More(items) => items.retain(keep),
        }
    }

    /// Takes out all.
    pub fn clear(&mut self) {
        *self = Self::None;
    }
}

impl<T> Deref for SmallList<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::None => &[],
            Self::One(item) => std::slice::from_ref(item),
            Self::More(items) => items,
        }
    }
}

impl<T> DerefMut for SmallList<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::None => &mut [],
            Self::One(item) => std::slice::from_mut(item),
            Self::More(items) => items,
        }
    }
}

impl<'a, T> IntoIterator for &'a SmallList<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T> IntoIterator for SmallList<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, more) = match self {
            Self::None => (None, Vec::new()),
            Self::One(item) => (Some(item), Vec::new()),
            Self::More(items) => (None, items),
        };
        one.into_iter().chain(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_list_of_any_length() {
        for length in 0..5 {
            let mut list = SmallList::default();
            (0..length).for_each(|item| list.push(item));
            assert!(list.iter().copied().eq(0..length));
            list.iter_mut().for_each(|item| *item += 1);
            assert!(list.clone().into_iter().eq(1..=length));
            list.retain(|item| item % 2 == 0);
            assert!(list.iter().copied().eq((1..=length).filter(|item| item % 2 == 0)));
            list.clear();
            assert!(list.is_empty());
        }
    }
}

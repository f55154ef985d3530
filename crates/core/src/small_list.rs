//! A list that mostly has one item, which then needs no memory of its own: thousands of chunks are under way at once, each asked
//! of one peer, by one reader or for one other; and of most zones one node is known.

use std::ops::{Deref, DerefMut};

/// See the module. It is read as a slice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Few<T> {
    /// Nothing.
    #[default]
    None,
    /// One.
    One(T),
    /// Any number.
    More(Vec<T>),
}

impl<T> Few<T> {
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

    /// Keeps those that `keep` is true of.
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

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::None => &[],
            Self::One(item) => std::slice::from_ref(item),
            Self::More(items) => items,
        }
    }
}

impl<T> DerefMut for Few<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::None => &mut [],
            Self::One(item) => std::slice::from_mut(item),
            Self::More(items) => items,
        }
    }
}

impl<'a, T> IntoIterator for &'a Few<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T> IntoIterator for Few<T> {
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
            let mut few = Few::default();
            (0..length).for_each(|item| few.push(item));
            assert!(few.iter().copied().eq(0..length));
            few.iter_mut().for_each(|item| *item += 1);
            assert!(few.clone().into_iter().eq(1..=length));
            few.retain(|item| item % 2 == 0);
            assert!(few.iter().copied().eq((1..=length).filter(|item| item % 2 == 0)));
            few.clear();
            assert!(few.is_empty());
        }
    }
}

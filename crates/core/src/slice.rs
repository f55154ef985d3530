//! Slices: a part of a chunk that is verified alone, against the hash of the whole chunk.
//!
//! The hash of a chunk is BLAKE3, which is a binary tree over its bytes. A [`SliceTree`] has the
//! hash of each group of 4 KiB. The proof of a slice is the hashes beside the way from its groups
//! to the root, its siblings. No format changes: chunk hashes, pages and image ids stay as they
//! are. Invariant: [`verify`] accepts exactly the bytes that the chunk has in those groups. The
//! image's top page has no hash of this kind, and no slices. Pure arithmetic; holders and askers
//! call it.

mod path;

pub use path::{ANSWER_BYTES_MAX, PAGES_MAX, Part, Slice, Verified};

use crate::hash_tree::Hash;
use blake3::hazmat::{ChainingValue, HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root};
use std::ops::Range;

/// Length of a group in bytes: the page of a reader's kernel, and the block of most file systems.
/// With less than 4 KiB the siblings would outweigh the saved bytes.
pub const GROUP_BYTES: u64 = 4 << 10;
/// Most groups of one slice. A reader that wants more than 64 KiB gains nothing from a slice.
pub const GROUPS_MAX: u16 = 16;
/// Length of a sibling in bytes.
pub const SIBLING_BYTES: usize = blake3::OUT_LEN;
/// Most siblings of a slice: two for each level of the tree of a chunk of 1 MiB.
pub const SIBLINGS_MAX: usize = 16;
/// Most bytes of a slice with its siblings.
pub const SLICE_BYTES_MAX: usize = GROUPS_MAX as usize * GROUP_BYTES as usize + SIBLINGS_MAX * SIBLING_BYTES;

/// A half-open range of groups of a chunk, with 1 to [`GROUPS_MAX`] groups. Whether a chunk is as
/// long is asked with [`Groups::is_within`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Groups {
    start: u16,
    end: u16,
}

impl Groups {
    /// The first in their order.
    pub(crate) const FIRST: Self = Self { start: 0, end: 1 };
    /// The last in their order. No chunk is so long.
    pub(crate) const LAST: Self = Self { start: u16::MAX - 1, end: u16::MAX };

    /// The groups `start..end`; `None` if there are none, or too many.
    pub const fn new(start: u16, end: u16) -> Option<Self> {
        if start < end && end - start <= GROUPS_MAX { Some(Self { start, end }) } else { None }
    }

    /// The groups that `bytes` of a chunk touch; `None` if there are none, or too many.
    pub fn covering(bytes: Range<u64>) -> Option<Self> {
        if bytes.is_empty() {
            return None;
        }
        let (start, end) = (bytes.start / GROUP_BYTES, bytes.end.div_ceil(GROUP_BYTES));
        Self::new(u16::try_from(start).ok()?, u16::try_from(end).ok()?)
    }

    /// The number of the first group.
    pub const fn start(self) -> u16 {
        self.start
    }

    /// One past the number of the last group.
    pub const fn end(self) -> u16 {
        self.end
    }

    /// How many they are.
    pub const fn count(self) -> u16 {
        self.end - self.start
    }

    /// True if a chunk of this length has all of them.
    pub fn is_within(self, length_bytes: u64) -> bool {
        (u64::from(self.end) - 1) * GROUP_BYTES < length_bytes
    }

    /// True if all of `other` are among them.
    pub const fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// Their bytes in a chunk of this length.
    pub fn bytes(self, length_bytes: u64) -> Range<u64> {
        let end = (u64::from(self.end) * GROUP_BYTES).min(length_bytes);
        (u64::from(self.start) * GROUP_BYTES).min(end)..end
    }

    /// How many siblings their slice of a chunk of this length has; `None` if the chunk is shorter.
    pub fn siblings(self, length_bytes: u64) -> Option<usize> {
        let mut count = 0;
        let wanted = self.bytes(length_bytes);
        let root = walk(0, length_bytes, &wanted, &mut |_, outside| {
            count += usize::from(outside);
            Some([0; SIBLING_BYTES])
        });
        root.filter(|_| self.is_within(length_bytes)).map(|_| count)
    }
}

/// The hashes of a chunk's groups: all that its holder needs for the siblings of any slice. 512
/// bytes for a chunk of 64 KiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceTree {
    length_bytes: u64,
    groups: Vec<ChainingValue>,
}

impl SliceTree {
    /// Of a chunk with these bytes. Hashes them on the calling thread.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(chunk: &[u8]) -> Self {
        assert!(!chunk.is_empty(), "an empty chunk");
        let groups = chunk.chunks(GROUP_BYTES as usize).enumerate();
        let groups = groups.map(|(index, bytes)| group_hash(index as u64 * GROUP_BYTES, bytes)).collect();
        Self { length_bytes: chunk.len() as u64, groups }
    }

    /// True if it is that of a chunk with this hash and more than one group. A chunk of one group
    /// has no tree: its slice is the whole chunk.
    pub fn is_of(&self, hash: &Hash) -> bool {
        root(self.length_bytes, &(0..0), &mut |bytes, _| self.known(bytes)) == Some(*hash)
    }

    /// The siblings of a slice, in the order in which [`verify`] takes them; `None` if the chunk
    /// does not have these groups.
    pub fn siblings(&self, groups: Groups) -> Option<Vec<u8>> {
        if !groups.is_within(self.length_bytes) {
            return None;
        }
        let mut siblings = Vec::with_capacity(8 * SIBLING_BYTES);
        walk(0, self.length_bytes, &groups.bytes(self.length_bytes), &mut |bytes, outside| {
            let hash = self.known(bytes)?;
            if outside {
                siblings.extend_from_slice(&hash);
            }
            Some(hash)
        })?;
        Some(siblings)
    }

    /// True if `bytes` are those of these groups.
    pub fn has(&self, groups: Groups, bytes: &[u8]) -> bool {
        let Range { start, end } = groups.bytes(self.length_bytes);
        if !groups.is_within(self.length_bytes) || bytes.len() as u64 != end - start {
            return false;
        }
        let own = &self.groups[usize::from(groups.start)..usize::from(groups.end)];
        let places = (0..).map(|index| start + index * GROUP_BYTES);
        let parts = bytes.chunks(GROUP_BYTES as usize);
        places.zip(parts).zip(own).all(|((offset, part), hash)| group_hash(offset, part) == *hash)
    }

    /// The hash of a subtree of whole groups.
    fn known(&self, bytes: Range<u64>) -> Option<ChainingValue> {
        if bytes.end - bytes.start <= GROUP_BYTES {
            return self.groups.get((bytes.start / GROUP_BYTES) as usize).copied();
        }
        let middle = bytes.start + left_subtree_len(bytes.end - bytes.start);
        let (left, right) = (self.known(bytes.start..middle)?, self.known(middle..bytes.end)?);
        Some(merge_subtrees_non_root(&left, &right, Mode::Hash))
    }
}

/// True if `bytes` are those of `groups` in a chunk of `length_bytes` with this hash. `siblings`
/// come from anywhere. Hashes on the calling thread.
pub fn verify(expected: &Hash, length_bytes: u64, groups: Groups, siblings: &[u8], bytes: &[u8]) -> bool {
    let wanted = groups.bytes(length_bytes);
    if !groups.is_within(length_bytes) || bytes.len() as u64 != wanted.end - wanted.start {
        return false;
    }
    if length_bytes <= GROUP_BYTES {
        return siblings.is_empty() && crate::hash_tree::verify(expected, bytes);
    }
    let mut siblings = siblings.chunks(SIBLING_BYTES);
    let found = root(length_bytes, &wanted, &mut |part, outside| {
        if outside {
            return siblings.next()?.try_into().ok();
        }
        let place = (part.start - wanted.start) as usize..(part.end - wanted.start) as usize;
        Some(group_hash(part.start, &bytes[place]))
    });
    found == Some(*expected) && siblings.next().is_none()
}

/// The hash of a group that is not a whole chunk.
fn group_hash(offset: u64, bytes: &[u8]) -> ChainingValue {
    blake3::Hasher::new().set_input_offset(offset).update(bytes).finalize_non_root()
}

/// The hash of a chunk of more than one group, from the hashes that `known` gives; see [`walk`].
fn root(
    length_bytes: u64,
    wanted: &Range<u64>,
    known: &mut impl FnMut(Range<u64>, bool) -> Option<ChainingValue>,
) -> Option<Hash> {
    if length_bytes <= GROUP_BYTES {
        return None;
    }
    let middle = left_subtree_len(length_bytes);
    let left = walk(0, middle, wanted, known)?;
    let right = walk(middle, length_bytes, wanted, known)?;
    Some(Hash(*merge_subtrees_root(&left, &right, Mode::Hash).as_bytes()))
}

/// The hash of the subtree over `start..end`, made from left to right. `known` is asked for the
/// hash of each wanted group. With true it is asked for that of each greatest subtree without any.
fn walk(
    start: u64,
    end: u64,
    wanted: &Range<u64>,
    known: &mut impl FnMut(Range<u64>, bool) -> Option<ChainingValue>,
) -> Option<ChainingValue> {
    if end <= wanted.start || wanted.end <= start {
        return known(start..end, true);
    }
    if end - start <= GROUP_BYTES {
        return known(start..end, false);
    }
    let middle = start + left_subtree_len(end - start);
    let left = walk(start, middle, wanted, known)?;
    let right = walk(middle, end, wanted, known)?;
    Some(merge_subtrees_non_root(&left, &right, Mode::Hash))
}

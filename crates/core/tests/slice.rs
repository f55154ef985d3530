//! Slices against the hash of the whole chunk: golden bytes, properties, and bad input.

use proptest::prelude::*;
use vfield_core::chunk::{ChunkSize, HASH_BYTES};
use vfield_core::hash_tree::{Hash, hash_chunk};
use vfield_core::slice::{GROUP_BYTES, GROUPS_MAX, Groups, SIBLING_BYTES, SIBLINGS_MAX, SliceTree, verify};

const GROUP: usize = GROUP_BYTES as usize;

fn chunk(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()[0]).collect()
}

fn groups(start: u16, end: u16) -> Groups {
    Groups::new(start, end).expect("a range of groups")
}

/// A slice and its siblings.
fn slice(chunk: &[u8], groups: Groups) -> (Vec<u8>, Vec<u8>) {
    let place = groups.bytes(chunk.len() as u64);
    let siblings = SliceTree::new(chunk).siblings(groups).expect("groups of the chunk");
    (siblings, chunk[place.start as usize..place.end as usize].to_vec())
}

/// Siblings as they are on the wire, from left to right.
#[test]
fn golden_siblings() {
    let chunk = chunk(64 << 10);
    let (siblings, _) = slice(&chunk, groups(5, 6));
    let short = |bytes: &[u8]| bytes[..4].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let shown: Vec<String> = siblings.chunks(SIBLING_BYTES).map(short).collect();
    assert_eq!(shown, GOLDEN);
}

const GOLDEN: [&str; 4] = ["7b81317d", "c6fe1242", "3b5b098b", "061a63b4"];

/// Each group of chunks of all lengths near the borders of groups, subtrees and chunks.
#[test]
fn every_group_of_odd_chunks_is_verified() {
    for length in [1, 31, 1024, 4095, 4096, 4097, 5000, 8192, 8193, 12_288, 16_384, 40_961, 65_535, 65_536] {
        let chunk = chunk(length);
        let (tree, hash) = (SliceTree::new(&chunk), hash_chunk(&chunk));
        assert_eq!(tree.is_of(&hash), length > GROUP, "{length} bytes");
        let count = length.div_ceil(GROUP) as u16;
        for start in 0..count {
            for end in start + 1..=count.min(start + GROUPS_MAX) {
                let groups = groups(start, end);
                let (siblings, bytes) = slice(&chunk, groups);
                assert!(verify(&hash, length as u64, groups, &siblings, &bytes), "{groups:?} of {length} bytes");
                assert_eq!(groups.siblings(length as u64), Some(siblings.len() / SIBLING_BYTES));
                assert!(tree.has(groups, &bytes));
            }
        }
        let past = groups(count, count + 1);
        assert_eq!(tree.siblings(past), None, "{length} bytes");
        assert_eq!(past.siblings(length as u64), None);
        assert!(!verify(&hash, length as u64, past, &[], &[]));
        assert!(!tree.has(past, &[]));
    }
}

/// A page of hashes is verified like data.
#[test]
fn a_slice_of_a_hash_page_gives_the_hashes_in_it() {
    let page = chunk(1000 * HASH_BYTES);
    let groups = groups(7, 8);
    let (siblings, bytes) = slice(&page, groups);
    assert_eq!(bytes.len(), 1000 * HASH_BYTES - 7 * GROUP);
    assert!(verify(&hash_chunk(&page), page.len() as u64, groups, &siblings, &bytes));
    assert_eq!(Hash::in_page(&bytes, 0), Hash::in_page(&page, 7 * GROUP / HASH_BYTES));
}

#[test]
fn impossible_ranges_are_refused() {
    assert_eq!(Groups::new(3, 3), None);
    assert_eq!(Groups::new(4, 3), None);
    assert_eq!(Groups::new(0, GROUPS_MAX + 1), None);
    assert_eq!(Groups::covering(5..5), None);
    assert_eq!(Groups::covering(0..u64::MAX), None);
    assert_eq!(Groups::covering(u64::MAX - 1..u64::MAX), None);
    assert_eq!(Groups::covering(4095..4097), Groups::new(0, 2));
    assert!(!groups(15, 16).is_within(15 * GROUP_BYTES));
    assert!(groups(15, 16).is_within(15 * GROUP_BYTES + 1));
    assert!(!groups(0, 1).is_within(0));
}

#[test]
fn siblings_are_few() {
    let length = ChunkSize::MAX.bytes();
    for start in 0..256 {
        for end in start + 1..=256.min(start + GROUPS_MAX) {
            assert!(groups(start, end).siblings(length).expect("within") <= SIBLINGS_MAX);
        }
    }
}

proptest! {
    /// A slice is good; with any byte changed, added or missing, or in another place, it is not.
    #[test]
    fn only_the_right_bytes_in_the_right_place_are_verified(
        length in 1usize..300_000, start: u16, count in 1u16..=GROUPS_MAX, at: u16, flip in 1u8..=255
    ) {
        let chunk = chunk(length);
        let (hash, length, all) = (hash_chunk(&chunk), length as u64, length.div_ceil(GROUP) as u16);
        let start = start % all;
        let wanted = groups(start, (start + count).min(all));
        let (mut siblings, mut bytes) = slice(&chunk, wanted);
        let good = |siblings: &[u8], bytes: &[u8]| verify(&hash, length, wanted, siblings, bytes);
        prop_assert!(good(&siblings, &bytes));
        let place = usize::from(at) % bytes.len();
        bytes[place] ^= flip;
        prop_assert!(!good(&siblings, &bytes));
        prop_assert!(!SliceTree::new(&chunk).has(wanted, &bytes));
        bytes[place] ^= flip;
        prop_assert!(!good(&siblings, &bytes[1..]));
        prop_assert!(!good(&siblings, &[&bytes[..], &[0]].concat()));
        prop_assert!(!good(&[&siblings[..], &[0; SIBLING_BYTES]].concat(), &bytes));
        prop_assert!(!good(&[&siblings[..], &[0]].concat(), &bytes));
        let other = groups((start + 1) % all, (start + 1) % all + wanted.count());
        prop_assert!(other == wanted || !verify(&hash, length, other, &siblings, &bytes));
        if !siblings.is_empty() {
            let place = usize::from(at) % siblings.len();
            siblings[place] ^= flip;
            prop_assert!(!good(&siblings, &bytes));
            prop_assert!(!good(&siblings[..siblings.len() - SIBLING_BYTES], &bytes));
        }
    }
}

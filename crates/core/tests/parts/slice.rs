//! Slices against the hash of the whole chunk: golden bytes, properties, and bad input.

use proptest::prelude::*;
use vfield_core::chunk::{Chunk, ChunkSize, HASH_BYTES};
use vfield_core::hash_tree::{Hash, hash_chunk};
use vfield_core::image::{Geometry, Header, ImageId};
use vfield_core::slice::{
    GROUP_BYTES, GROUPS_MAX, Groups, PAGES_MAX, SIBLING_BYTES, SIBLINGS_MAX, Slice, SliceTree, Verified, verify,
};
use vfield_core::wire::{GetSlice, HEADER, WireError};

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

/// A request for a slice, byte by byte, and bad ones.
#[test]
fn golden_request_and_bad_ones() {
    let slice = Slice { groups: groups(0x12, 0x15), pages: 1 };
    let get = GetSlice { image: ImageId([0xcd; 32]), chunk: Chunk(0x1122), slice };
    let frame = get.frame(0x0102);
    let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = ["120000002d000000", "0201000000000000", &"cd".repeat(32), "2211000000000000", "12001500", "01"];
    assert_eq!(hex, expected.concat());
    let payload = &frame[HEADER..];
    assert_eq!(GetSlice::decode(payload), Ok(get));
    let with = |start: u16, end: u16, pages: u8| {
        let mut payload = payload.to_vec();
        payload[40..42].copy_from_slice(&start.to_le_bytes());
        payload[42..44].copy_from_slice(&end.to_le_bytes());
        payload[44] = pages;
        GetSlice::decode(&payload)
    };
    assert!(with(3, 19, PAGES_MAX).is_ok());
    for (start, end, pages) in [(3, 3, 0), (4, 3, 0), (3, 20, 0), (0, u16::MAX, 0), (3, 4, PAGES_MAX + 1)] {
        assert_eq!(with(start, end, pages), Err(WireError::Field("slice")), "{start}..{end}, {pages} pages");
    }
    assert_eq!(GetSlice::decode(&payload[1..]), Err(WireError::Payload));
}

/// An image of three pages: the answer with the way to it is verified, and nothing else is.
#[test]
fn a_slice_comes_with_the_way_to_it() {
    let header = Header::new(700 * ChunkSize::MIN.bytes() - 100, ChunkSize::MIN, 700).expect("a header");
    let geometry = Geometry::new(header);
    let bytes = |number: u64| chunk_of(number, geometry.length(Chunk(number)) as usize);
    let hash = |number: u64| hash_chunk(&bytes(number));
    let page = |number: u64| -> Vec<u8> { geometry.children(Chunk(number)).flat_map(|child| hash(child).0).collect() };
    for (number, from, to) in [(0, 0, 1), (300, 1, 3), (699, 3, 4), (511, 0, 4), (512, 2, 3)] {
        let slice = Slice { groups: groups(from, to), pages: 1 };
        let (leaf, _) = geometry.parent(Chunk(number)).expect("data has a page");
        let parts = slice.parts(&geometry, Chunk(number)).expect("it has these groups");
        assert_eq!(parts.iter().map(|part| part.chunk).collect::<Vec<_>>(), [leaf, Chunk(number)]);
        let mut answer = Vec::new();
        for part in &parts {
            let whole = if part.chunk == leaf { page(leaf.0) } else { bytes(number) };
            let (siblings, own) = self::slice(&whole, part.groups);
            answer.extend([siblings, own].concat());
        }
        assert_eq!(slice.length(&geometry, Chunk(number)), Some(answer.len()));
        let known = |chunk: Chunk| (chunk == leaf).then(|| hash_chunk(&page(leaf.0)));
        let verified = |answer: &[u8]| match slice.verified(&geometry, Chunk(number), known, answer) {
            Verified::Right(bytes) => Some(bytes.to_vec()),
            Verified::Wrong => None,
            Verified::Unknown => panic!("the hash is known"),
        };
        let place = slice.groups.bytes(geometry.length(Chunk(number)));
        assert_eq!(verified(&answer).as_deref(), Some(&bytes(number)[place.start as usize..place.end as usize]));
        for at in [0, 40, 200, answer.len() / 2, answer.len() - 1] {
            let mut wrong = answer.clone();
            wrong[at] ^= 1;
            assert_eq!(verified(&wrong), None, "chunk {number}, byte {at}");
        }
        assert_eq!(verified(&answer[..answer.len() - 1]), None);
        assert_eq!(verified(&[&answer[..], &[0]].concat()), None);
        assert_eq!(verified(&[]), None);
        let unknown = slice.verified(&geometry, Chunk(number), |_| None, &answer);
        assert_eq!(unknown, Verified::Unknown);
    }
    let slice = |groups, pages| Slice { groups, pages };
    assert_eq!(slice(groups(3, 5), 0).parts(&geometry, Chunk(5)), None, "past the chunk");
    assert_eq!(slice(groups(0, 1), 2).parts(&geometry, Chunk(5)), None, "the top page has no slices");
    assert_eq!(slice(groups(0, 1), 0).parts(&geometry, geometry.top()), None, "nor has any page alone");
    assert_eq!(slice(groups(0, 1), 0).parts(&geometry, Chunk(u64::MAX)), None);
}

/// The bytes of a chunk with this number.
fn chunk_of(number: u64, length: usize) -> Vec<u8> {
    chunk(length).iter().map(|byte| byte ^ (number as u8)).collect()
}

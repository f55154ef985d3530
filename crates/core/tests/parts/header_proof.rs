//! Header proofs: golden bytes, every length of a top page, and everything that is not one.

use proptest::prelude::*;
use vfield_core::chunk::ChunkSize;
use vfield_core::header_proof::HeaderProof;
use vfield_core::image::{Geometry, Header, ImageId};

/// Length of a leaf of BLAKE3, and of its hashes.
const LEAF: usize = 1024;
const HASH: usize = 32;

/// The header of an image whose top page has this many hashes: of chunks of the smallest size that
/// have so many in one page.
fn header(hashes: u64) -> Header {
    let powers = 14u32..=20;
    let mut sizes = powers.map(|power| ChunkSize::new(1 << power).expect("a chunk size"));
    let size = sizes.find(|size| hashes <= size.hashes_per_page()).expect("a page of a chunk");
    Header::new(hashes * size.bytes(), size, hashes).expect("a header")
}

/// A page for it, of bytes that count.
fn page(header: &Header) -> Vec<u8> {
    let geometry = Geometry::new(*header);
    (0..geometry.length(geometry.top())).map(|at| (at % 251) as u8).collect()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Nodes of one protocol version have to agree on these bytes. The hashes were computed apart from
/// this code and from the library.
#[test]
fn golden_header_proof() {
    let header = Header::new(3 << 20, ChunkSize::MIN, 192).expect("a header");
    let page = page(&header);
    let proof = HeaderProof::of(&header, &page);
    let leaf = hexadecimal(&[&header.encode()[..], &page[..LEAF - Header::BYTES]].concat());
    let expected = concat!(
        "9464a7fa95acd6660e52cf7fac191ad4a410724b5321d612e9e1ed07c11a12b5",
        "1324fd2c260d1502f7b45e57f2b407dfb1a5824c0ce941669080e5f01ade98db",
        "89570f73a54d65247bbb02e41043a49cfd58d46c1fbe6a62419fd7b0d513f929",
    );
    assert_eq!(hexadecimal(proof.encode()), format!("{leaf}{expected}"));
    let id: ImageId = "ea548172c18a77e78c2503d5ccd0d6896db4f1065d53eb46ae9594a164211b10".parse().expect("an id");
    assert_eq!((proof.verify(id), ImageId::of(&header, &page)), (Some(header), id));
}

/// All pages near each power of two, the longest one of all among them.
#[test]
fn every_length_of_a_page_has_its_proof() {
    let near = |hashes: u64| hashes.saturating_sub(3).max(1)..=hashes + 3;
    let lengths = (0..=15).flat_map(|power| near(1 << power)).filter(|hashes| *hashes <= 1 << 15);
    let mut longest = 0;
    for hashes in lengths {
        let (header, leaves) = (header(hashes), (hashes as usize * HASH + Header::BYTES).div_ceil(LEAF));
        let page = page(&header);
        assert_eq!(page.len(), hashes as usize * HASH);
        let proof = HeaderProof::of(&header, &page);
        assert_eq!(proof.verify(ImageId::of(&header, &page)), Some(header), "{hashes} hashes");
        let siblings = leaves.next_power_of_two().ilog2() as usize;
        let leaf = (page.len() + Header::BYTES).min(LEAF);
        assert_eq!(proof.encode().len(), leaf + siblings * HASH, "{hashes} hashes");
        longest = longest.max(proof.encode().len());
    }
    assert_eq!(longest, HeaderProof::BYTES_MAX);
}

/// Of images of one page, and of images of many: the top page is all that counts.
#[test]
fn images_of_several_levels_have_proofs() {
    for length in [1, 600 << 14, 1 << 42, Header::MAX_LENGTH] {
        let header = Header::new(length, ChunkSize::MIN, 1).expect("a header");
        let page = page(&header);
        let proof = HeaderProof::of(&header, &page);
        assert_eq!(proof.verify(ImageId::of(&header, &page)), Some(header), "{length} bytes");
    }
}

/// Another length, chunk size or number of chunks with data, in front of the same hashes. Some of
/// these proofs are as long as their header demands.
#[test]
fn another_header_has_no_proof() {
    let right = header(400);
    let (page, size) = (page(&right), right.chunk_size());
    let (id, proof) = (ImageId::of(&right, &page), HeaderProof::of(&right, &page));
    let twice = ChunkSize::new(2 * size.bytes() as u32).expect("a chunk size");
    let others = [
        Header::new(right.length_bytes() - 1, size, 400),
        Header::new(right.length_bytes() + size.bytes(), size, 400),
        Header::new(right.length_bytes() / 2, size, 200),
        Header::new(right.length_bytes(), size, 399),
        Header::new(2 * right.length_bytes(), twice, 400),
    ];
    for other in others.map(|other| other.expect("a header")) {
        let with = |bytes: &[u8]| HeaderProof::decode(&[&other.encode(), bytes].concat());
        let bytes = &proof.encode()[Header::BYTES..];
        // With a sibling too few, as many, or one too many.
        for bytes in [&bytes[..bytes.len() - HASH], bytes, &[bytes, &[0; HASH]].concat()] {
            assert!(with(bytes).is_none_or(|proof| proof.verify(id).is_none()), "{other:?}");
        }
    }
}

#[test]
fn what_begins_with_no_header_is_no_proof() {
    let header = header(5);
    let good = HeaderProof::of(&header, &page(&header)).encode().to_vec();
    assert!(HeaderProof::decode(&good).is_some());
    assert_eq!(HeaderProof::decode(&[]), None);
    assert_eq!(HeaderProof::decode(&good[1..]), None);
    assert_eq!(HeaderProof::decode(&vec![0; good.len()]), None);
}

proptest! {
    #[test]
    fn proofs_survive_the_wire(hashes in 1u64..=1 << 15) {
        let header = header(hashes);
        let proof = HeaderProof::of(&header, &page(&header));
        prop_assert_eq!(HeaderProof::decode(proof.encode()), Some(proof));
    }

    #[test]
    fn no_byte_can_be_changed_cut_or_added(hashes in 1u64..=1 << 12, at: prop::sample::Index, bit in 0u32..8, added in 1..3 * HASH) {
        let header = header(hashes);
        let page = page(&header);
        let (id, proof) = (ImageId::of(&header, &page), HeaderProof::of(&header, &page));
        let good = proof.encode();
        let mut changed = good.to_vec();
        changed[at.index(good.len())] ^= 1 << bit;
        prop_assert_eq!(HeaderProof::decode(&changed).and_then(|proof| proof.verify(id)), None);
        prop_assert_eq!(HeaderProof::decode(&good[..at.index(good.len())]), None);
        prop_assert_eq!(HeaderProof::decode(&[good, &vec![0; added]].concat()), None);
    }

    #[test]
    fn a_proof_is_good_for_one_id(hashes in 1u64..=1 << 12, id: [u8; 32], at: prop::sample::Index) {
        let header = header(hashes);
        let mut page = page(&header);
        let proof = HeaderProof::of(&header, &page);
        prop_assert_eq!(proof.verify(ImageId(id)), None);
        // Each byte of the page counts, also those that are not in the proof.
        let at = at.index(page.len());
        page[at] ^= 1;
        prop_assert_eq!(proof.verify(ImageId::of(&header, &page)), None);
    }

    #[test]
    fn any_bytes_are_a_proof_or_not(bytes in prop::collection::vec(any::<u8>(), 0..2000), header_of in 1u64..40) {
        let with_header = [&header(header_of).encode()[..], &bytes].concat();
        for bytes in [&bytes, &with_header] {
            if let Some(proof) = HeaderProof::decode(bytes) {
                prop_assert_eq!(proof.encode(), &bytes[..]);
            }
        }
    }
}

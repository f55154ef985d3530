//! The hash tree against a naive one that hashes every byte of the image, zeros included.

use proptest::prelude::*;
use vfield_core::chunk::{Chunk, ChunkSize, HASH_BYTES};
use vfield_core::hash_tree::{
    Assembly, Hash, HashTree, NotTheTree, TreeBuilder, ZeroHashes, hash_chunk, verify, zero_children,
};
use vfield_core::image::{Geometry, Header, ImageId};

/// A tree as the design says it, from all bytes: every level's pages, cut from one list of hashes.
struct Naive {
    /// Bytes of every chunk, data then pages, in the order of their numbers.
    chunks: Vec<Vec<u8>>,
    id: ImageId,
}

impl Naive {
    fn new(image: &[u8], chunk_size: ChunkSize) -> Self {
        let size = chunk_size.bytes() as usize;
        let mut level: Vec<Vec<u8>> = image.chunks(size).map(<[u8]>::to_vec).collect();
        let populated = level.iter().filter(|chunk| chunk.iter().any(|byte| *byte != 0)).count();
        let mut chunks = level.clone();
        loop {
            let hashes: Vec<u8> = level.iter().flat_map(|chunk| *blake3::hash(chunk).as_bytes()).collect();
            level = hashes.chunks(size).map(<[u8]>::to_vec).collect();
            chunks.extend(level.iter().cloned());
            if level.len() == 1 {
                break;
            }
        }
        let header = Header::new(image.len() as u64, chunk_size, populated as u64).expect("a header");
        Self { id: ImageId::of(&header, &level[0]), chunks }
    }
}

/// The image's tree, built in the order `order`; zero chunks are added only if `tell_zeros`.
fn build(image: &[u8], chunk_size: ChunkSize, backwards: bool, tell_zeros: bool) -> (Header, ImageId, HashTree) {
    let mut builder = TreeBuilder::new(image.len() as u64, chunk_size).expect("a builder");
    let mut chunks: Vec<(u64, &[u8])> = (0..).zip(image.chunks(chunk_size.bytes() as usize)).collect();
    if backwards {
        chunks.reverse();
    }
    for (number, bytes) in chunks {
        if tell_zeros || bytes.iter().any(|byte| *byte != 0) {
            builder.add(Chunk(number), hash_chunk(bytes));
        }
    }
    builder.finish()
}

fn small() -> ChunkSize {
    ChunkSize::MIN
}

/// An image of `length` bytes with a byte set in some places.
fn image(length: usize, marks: &[(usize, u8)]) -> Vec<u8> {
    let mut image = vec![0; length];
    for (at, byte) in marks {
        image[at % length] = *byte;
    }
    image
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Up to 600 chunks: two levels at 512 hashes a page.
    #[test]
    fn equals_the_naive_tree(
        length in prop_oneof![1usize..70_000, 8_000_000usize..10_000_000, Just(512 * 16384), Just(512 * 16384 + 1)],
        marks in prop::collection::vec((any::<usize>(), 1u8..), 0..12),
        backwards: bool,
        tell_zeros: bool,
    ) {
        let image = image(length, &marks);
        let naive = Naive::new(&image, small());
        let (header, id, tree) = build(&image, small(), backwards, tell_zeros);
        let geometry = *tree.geometry();
        prop_assert_eq!(id, naive.id);
        prop_assert_eq!(geometry.header(), &header);
        prop_assert_eq!(geometry.chunks(), naive.chunks.len() as u64);
        for (number, bytes) in (0..).zip(&naive.chunks) {
            let chunk = Chunk(number);
            prop_assert_eq!(geometry.length(chunk), bytes.len() as u64);
            prop_assert!(verify(&tree.hash(chunk), bytes));
            if geometry.is_data(chunk) {
                prop_assert_eq!(tree.is_zero(chunk), bytes.iter().all(|byte| *byte == 0));
            } else {
                let page = tree.page(chunk).cloned().unwrap_or_else(|| tree.zeros().page(chunk));
                prop_assert_eq!(&page[..], &bytes[..]);
                let mut zero = vec![false; bytes.len() / HASH_BYTES];
                let first = geometry.children(chunk).start;
                for run in zero_children(&geometry, tree.zeros(), chunk, bytes) {
                    run.for_each(|child| zero[(child - first) as usize] = true);
                }
                let expected: Vec<bool> = geometry.children(chunk).map(|child| tree.is_zero(Chunk(child))).collect();
                prop_assert_eq!(zero, expected);
            }
        }
    }

    /// Runs alternate, cover everything and say what each chunk is.
    #[test]
    fn runs_cover_the_image(marks in prop::collection::vec((any::<usize>(), 1u8..), 0..12)) {
        let image = image(1200 * 16384 + 5, &marks);
        let (_, _, tree) = build(&image, small(), false, false);
        let (mut at, end, mut last) = (0, tree.geometry().data_chunks(), None);
        while at < end {
            let (next, zero) = tree.run(at, end);
            prop_assert!(next > at && next <= end);
            prop_assert!(last != Some(zero));
            for number in at..next {
                prop_assert_eq!(tree.is_zero(Chunk(number)), zero);
            }
            (at, last) = (next, Some(zero));
        }
    }
}

#[test]
fn all_zero_image_has_a_top_page_only() {
    let image = vec![0; 1000 * 16384 - 3];
    let naive = Naive::new(&image, small());
    let (header, id, tree) = build(&image, small(), false, true);
    assert_eq!((header.populated(), id), (0, naive.id));
    let top = tree.geometry().top();
    assert!(tree.page(top).is_some());
    assert!(tree.page(Chunk(top.0 - 1)).is_none());
    assert!(tree.is_zero(top));
}

#[test]
fn three_levels_of_zeros_agree_with_their_hashes() {
    // 513 * 512 chunks: the last leaf page and the last page above it are short.
    let length = 512 * 512 * 16384 + 16384 + 77;
    let geometry = Geometry::new(Header::new(length, small(), 0).expect("a header"));
    assert_eq!(geometry.levels(), 3);
    let zeros = ZeroHashes::new(&geometry);
    for level in 0..3 {
        for number in [geometry.pages(level).start, geometry.pages(level).end - 1] {
            let page = zeros.page(Chunk(number));
            assert_eq!(page.len() as u64, geometry.length(Chunk(number)));
            assert_eq!(zeros.of(Chunk(number)), hash_chunk(&page));
            assert_eq!(zero_children(&geometry, &zeros, Chunk(number), &page), [geometry.children(Chunk(number))]);
        }
    }
}

#[test]
fn sparse_image_costs_what_its_data_costs() {
    let mut builder = TreeBuilder::new(1 << 40, ChunkSize::DEFAULT).expect("a builder");
    builder.add(Chunk(12_345_678), Hash([7; 32]));
    let (header, _, tree) = builder.finish();
    assert_eq!(header.populated(), 1);
    // One leaf page, one page of pages, the top.
    assert!(tree.resident_bytes() <= 3 << 16, "{} bytes", tree.resident_bytes());
    assert_eq!(tree.hash(Chunk(12_345_678)), Hash([7; 32]));
    assert_eq!(tree.run(0, 1 << 24), (12_345_678, true));
    assert_eq!(tree.run(12_345_678, 1 << 24), (12_345_679, false));
}

#[test]
fn largest_image_has_a_tree() {
    let (_, _, tree) = TreeBuilder::new(Header::MAX_LENGTH, small()).expect("a builder").finish();
    assert_eq!(tree.geometry().levels(), 6);
    assert!(tree.is_zero(tree.geometry().top()));
}

#[test]
#[should_panic(expected = "told twice")]
fn a_chunk_added_twice_is_a_bug() {
    let mut builder = TreeBuilder::new(100, small()).expect("a builder");
    builder.add(Chunk(0), Hash([1; 32]));
    builder.add(Chunk(0), Hash([2; 32]));
}

#[test]
fn hash_of_another_place_is_found_by_verification() {
    let image = image(3 * 16384, &[(5, 1), (20_000, 2)]);
    let (_, _, tree) = build(&image, small(), false, false);
    assert!(verify(&tree.hash(Chunk(0)), &image[..16384]));
    assert!(!verify(&tree.hash(Chunk(1)), &image[..16384]));
    assert!(!verify(&tree.hash(Chunk(0)), &image[..16383]));
    assert_eq!(Hash::in_page(&[0; 64], 2), None);
    assert_eq!(Hash::in_page(&[0; 64], usize::MAX), None);
}

/// The pages of a tree from the top down, as they are kept.
fn kept(tree: &HashTree) -> Vec<(u64, Vec<u8>)> {
    tree.pages().rev().map(|(page, bytes)| (page.0, bytes.to_vec())).collect()
}

fn assemble(id: ImageId, header: Header, pages: &[(u64, Vec<u8>)]) -> Result<HashTree, NotTheTree> {
    let mut assembly = Assembly::new(id, header);
    pages.iter().try_for_each(|(number, bytes)| assembly.add(*number, bytes.clone().into()))?;
    assembly.finish()
}

proptest! {
    #[test]
    fn a_tree_is_put_together_again_from_its_pages_and_from_no_others(
        length in 1usize..40 * 512 * 1024,
        marks in prop::collection::vec((any::<usize>(), 1u8..), 0..6),
        (page, place, change) in (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1u8..),
    ) {
        let bytes = image(length, &marks);
        let (header, id, tree) = build(&bytes, small(), false, false);
        let pages = kept(&tree);
        let again = assemble(id, header, &pages).expect("its own pages");
        prop_assert_eq!(kept(&again), pages.clone());
        for chunk in (0..tree.geometry().chunks()).map(Chunk) {
            prop_assert_eq!(again.hash(chunk), tree.hash(chunk));
        }
        // A byte of a page, a missing page, a page twice, another count.
        let at = page.index(pages.len());
        let mut changed = pages.clone();
        let place = place.index(changed[at].1.len());
        changed[at].1[place] ^= change;
        prop_assert_eq!(assemble(id, header, &changed).err(), Some(NotTheTree::WrongPage(Chunk(pages[at].0))));
        let mut gone = pages.clone();
        gone.remove(at);
        let needed = at > 0 || header.populated() > 0 || pages.len() == 1;
        prop_assert_eq!(assemble(id, header, &gone).is_err(), needed);
        let twice = [&pages[..=at], &pages[at..]].concat();
        prop_assert_eq!(assemble(id, header, &twice).err(), Some(NotTheTree::NoPage(pages[at].0)));
        let other = Header::new(header.length_bytes(), header.chunk_size(), header.populated() ^ 1);
        if let Ok(other) = other {
            let top = &pages[0].1;
            let told = NotTheTree::Populated(other.populated(), header.populated());
            prop_assert_eq!(assemble(ImageId::of(&other, top), other, &pages).err(), Some(told));
        }
    }
}

#[test]
fn what_is_no_page_takes_no_room() {
    let (header, id, tree) = build(&image(1 << 20, &[(0, 1)]), small(), false, false);
    let top = tree.geometry().top().0;
    let assembly = Assembly::new(id, header);
    for number in [0, tree.geometry().data_chunks() - 1, top + 1, u64::MAX] {
        assert_eq!(assembly.length_of_next(number), Err(NotTheTree::NoPage(number)));
    }
    assert_eq!(assembly.length_of_next(top), Ok(64 * 32));
}

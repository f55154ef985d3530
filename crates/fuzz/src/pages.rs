//! Hash pages, as peers send them.
//!
//! Promises: which children of a page are zeros is told right and in order, for any page of any
//! image; a tree that was built knows each chunk that it was told, and takes every other one for
//! zeros; a page that is not the one of the id does not go by it.

use arbitrary::{Result, Unstructured};
use vfield_core::chunk::{Chunk, ChunkSize, HASH_BYTES};
use vfield_core::hash_tree::{self, Hash, TreeBuilder, ZeroHashes};
use vfield_core::image::{Geometry, Header, ImageId};

/// An image, one of its pages, and the page's bytes.
pub fn target(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    // A missing part was not to be read.
    let _ = read_a_page(&mut input).and_then(|header| build_a_tree(&mut input, header));
}

fn read_a_page(input: &mut Unstructured<'_>) -> Result<Header> {
    // Small pages make a fuzzer fast; the arithmetic is that of all sizes.
    let size = ChunkSize::MIN;
    let length = input.arbitrary::<u64>()? >> (input.arbitrary::<u8>()? % 64);
    let header = Header::new(length.clamp(1, Header::MAX_LENGTH), size, 0).expect("a possible length");
    let geometry = Geometry::new(header);
    let zeros = ZeroHashes::new(&geometry);
    let pages = geometry.chunks() - geometry.data_chunks();
    let page = Chunk(geometry.data_chunks() + input.arbitrary::<u64>()? % pages);
    let mut bytes = zeros.page(page).to_vec();
    for _ in 0..input.arbitrary::<u8>()? % 8 {
        // Hashes that are not those of zeros, here and there.
        let place = usize::from(input.arbitrary::<u16>()?) % bytes.len();
        bytes[place] ^= input.arbitrary::<u8>()?;
    }
    let runs = hash_tree::zero_children(&geometry, &zeros, page, &bytes);
    let children = geometry.children(page);
    assert_eq!(Hash::in_page(&bytes, (children.end - children.start) as usize), None);
    let mut told = 0;
    for (index, child) in children.clone().enumerate() {
        let zero = Hash::in_page(&bytes, index) == Some(zeros.of(Chunk(child)));
        assert_eq!(zero, runs.iter().any(|run| run.contains(&child)), "child {child} of {page}");
        told += u64::from(zero);
    }
    assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start), "{runs:?}");
    assert_eq!(runs.iter().map(|run| run.end - run.start).sum::<u64>(), told);
    Ok(header)
}

fn build_a_tree(input: &mut Unstructured<'_>, header: Header) -> Result<()> {
    let mut builder = TreeBuilder::new(header.length_bytes(), header.chunk_size()).expect("a possible length");
    let chunks = builder.geometry().data_chunks();
    let mut told = std::collections::BTreeMap::new();
    for _ in 0..input.arbitrary::<u8>()? % 5 {
        let (chunk, hash) = (Chunk(input.arbitrary::<u64>()? % chunks), Hash([input.arbitrary::<u8>()?; HASH_BYTES]));
        if told.insert(chunk, hash).is_none() {
            builder.add(chunk, hash);
        } else {
            told.remove(&chunk);
            return Ok(());
        }
    }
    let (header, id, tree) = builder.finish();
    assert_eq!(header.populated(), told.len() as u64);
    for (chunk, hash) in &told {
        assert_eq!((tree.hash(*chunk), tree.is_zero(*chunk)), (*hash, false));
        let (end, zero) = tree.run(chunk.0, chunks);
        assert!(!zero && (chunk.0..end).all(|chunk| told.contains_key(&Chunk(chunk))));
    }
    let other = Chunk(input.arbitrary::<u64>()? % chunks);
    assert_eq!(tree.is_zero(other), !told.contains_key(&other));
    let mut top = tree.page(tree.geometry().top()).expect("there is a top page").to_vec();
    assert_eq!(ImageId::of(&header, &top), id);
    let place = usize::from(input.arbitrary::<u16>()?) % top.len();
    top[place] ^= input.arbitrary::<u8>()?.max(1);
    assert_ne!(ImageId::of(&header, &top), id);
    Ok(())
}

/// Small and large images.
pub fn seeds() -> Vec<Vec<u8>> {
    let image = |length: u64, shift: u8| {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.push(shift);
        bytes.extend((1..60).map(|byte: u8| byte.wrapping_mul(37)));
        bytes
    };
    vec![image(u64::MAX, 1), image(u64::MAX, 30), image(u64::MAX, 40), image(1, 0)]
}

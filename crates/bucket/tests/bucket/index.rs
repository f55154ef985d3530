//! The index of an image: written, read again, and changed by strangers.

use crate::image::Image;
use proptest::collection::vec;
use proptest::prelude::*;
use vfield_bucket::Source as _;
use vfield_bucket::index::{BadIndex, Front, PAGE_CHUNKS, Place, front_bytes, write};
use vfield_bucket::pack::{PACK_BYTES_MAX, PackName, Stored};
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::image::{Geometry, Header, ImageId};

const ID: ImageId = ImageId([7; 32]);

fn geometry(chunks: u64) -> Geometry {
    let size = ChunkSize::MIN;
    Geometry::new(Header::new(chunks * size.bytes(), size, 0).unwrap())
}

fn written(geometry: &Geometry, packs: u8, place: impl Fn(Chunk) -> Option<Place>) -> Vec<u8> {
    let packs: Vec<PackName> = (0..packs).map(|number| PackName([number; 32])).collect();
    let mut bytes = Vec::new();
    write(geometry, &ID, &packs, place, &mut bytes).unwrap();
    bytes
}

/// Reads all of an index.
fn read(bytes: &[u8]) -> Result<Vec<Option<Place>>, BadIndex> {
    let front = Front::read(bytes, &ID, bytes.len() as u64)?;
    let mut places = Vec::new();
    let chunks = front.geometry().data_chunks();
    for page in 0..chunks.div_ceil(PAGE_CHUNKS) {
        match front.range(page) {
            None => places.extend((0..PAGE_CHUNKS.min(chunks - page * PAGE_CHUNKS)).map(|_| None)),
            Some(range) => places.extend(front.read_page(page, &bytes[range.start as usize..range.end as usize])?),
        }
    }
    Ok(places)
}

/// A place inside of some pack.
fn place(packs: u32) -> impl Strategy<Value = Place> {
    let longest = ChunkSize::MIN.bytes() as u32;
    (0..packs, 16..PACK_BYTES_MAX as u32 - longest, 1..=longest)
        .prop_map(|(pack, offset, length)| Place { pack, stored: Stored { offset, length } })
}

proptest! {
    #[test]
    fn an_index_is_read_as_it_was_written(places in vec(proptest::option::of(place(5)), 1..9000), far in any::<bool>()) {
        // Zeros behind, up to several pages of them.
        let chunks = places.len() as u64 + if far { 3 * PAGE_CHUNKS } else { 0 };
        let at = |chunk: Chunk| places.get(chunk.0 as usize).copied().flatten();
        let bytes = written(&geometry(chunks), 5, at);
        let again = read(&bytes).unwrap();
        prop_assert_eq!(again.len() as u64, chunks);
        prop_assert!((0..).map(Chunk).zip(&again).all(|(chunk, place)| *place == at(chunk)));
    }

    /// A bit that zstd does not look at changes nothing.
    #[test]
    fn a_changed_index_is_refused_or_read_as_before(
        places in vec(proptest::option::of(place(3)), 1..5000),
        at in any::<prop::sample::Index>(),
        flip in 1..=255_u8,
        cut in any::<bool>(),
    ) {
        let mut bytes = written(&geometry(places.len() as u64), 3, |chunk| places[chunk.0 as usize]);
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] ^= flip }
        prop_assert!(read(&bytes).map_or(true, |again| !cut && again == places));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in vec(any::<u8>(), 0..2000)) {
        prop_assert!(read(&bytes).is_err());
    }
}

/// What a writer of wrong indexes can tell.
#[test]
fn places_outside_of_packs_are_refused() {
    let stored = |offset, length| Stored { offset, length };
    let (end, longest) = (PACK_BYTES_MAX as u32, ChunkSize::MIN.bytes() as u32);
    for (pack, stored) in [
        (2, stored(100, 1)),
        (u32::MAX, stored(100, 1)),
        (0, stored(15, 1)),
        (0, stored(end, 1)),
        (0, stored(end - 5, 6)),
        (0, stored(u32::MAX, u32::MAX)),
        (0, stored(100, longest + 1)),
    ] {
        let lies = |chunk: Chunk| (chunk.0 == 1).then_some(Place { pack, stored });
        let bytes = written(&geometry(3), 2, lies);
        assert_eq!(read(&bytes), Err(BadIndex::Outside(Chunk(1))), "{pack} {stored:?}");
    }
    let fits = Place { pack: 1, stored: stored(end - longest, longest) };
    assert_eq!(read(&written(&geometry(1), 2, |_| Some(fits))), Ok(vec![Some(fits)]));
}

#[test]
fn claims_of_size_are_bounded() {
    let bytes = written(&geometry(3), 2, |_| None);
    assert_eq!(front_bytes(&bytes, &ImageId([8; 32])), Err(BadIndex::Other));
    assert_eq!(front_bytes(&bytes[..50], &ID), Err(BadIndex::Torn));
    let mut other = bytes.clone();
    other[12..16].fill(0xff);
    assert_eq!(front_bytes(&other, &ID), Err(BadIndex::TooLarge));
    let mut other = bytes.clone();
    other[8] ^= 1;
    assert_eq!(front_bytes(&other, &ID), Err(BadIndex::Foreign));
    let largest = Geometry::new(Header::new(Header::MAX_LENGTH, ChunkSize::MIN, 0).unwrap());
    let too_large = write(&largest, &ID, &[], |_| None, &mut Vec::new()).unwrap_err();
    assert!(too_large.to_string().contains("more packs or chunks"), "{too_large}");
}

/// A terabyte of zeros is about nothing.
#[test]
fn zeros_cost_nothing() {
    let size = ChunkSize::DEFAULT;
    let geometry = Geometry::new(Header::new(1 << 40, size, 0).unwrap());
    let bytes = written(&geometry, 0, |_| None);
    assert!(bytes.len() < 200_000, "{} bytes", bytes.len());
    let image = Image::drawn([1, 2, 3]);
    assert_ne!(image.id(), ID);
}

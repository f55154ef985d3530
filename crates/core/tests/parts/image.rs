//! Headers, ids and the numbering of chunks.

use proptest::prelude::*;
use vfield_block::extent::Extent;
use vfield_core::chunk::{BadChunkSize, Chunk, ChunkSize};
use vfield_core::hash_tree::{TreeBuilder, hash_chunk};
use vfield_core::image::{BadHeader, Geometry, Header, ImageId};

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that other machines have: if this test fails, the format has changed and needs a new
/// version.
#[test]
fn golden_header() {
    let header = Header::new(0x0123_4567_89ab, ChunkSize::DEFAULT, 0x4567).expect("a header");
    let expected = concat!("562d4649454c4400", "01000000", "00000100", "ab89674523010000", "6745000000000000");
    assert_eq!(hexadecimal(&header.encode()), expected);
}

/// The image of 100 000 bytes that count 0, 1, ... 250, 0, 1 and so on, in chunks of 16 KiB. The
/// ids here were computed apart from this code, with `b3sum`.
#[test]
fn golden_image_id() {
    let image: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
    let mut builder = TreeBuilder::new(100_000, ChunkSize::MIN).expect("a builder");
    for (number, bytes) in (0..).zip(image.chunks(16384)) {
        builder.add(Chunk(number), hash_chunk(bytes));
    }
    let (_, id, _) = builder.finish();
    assert_eq!(id.to_string(), "d7f6792870e67b2378f2b34050f0771f9be97b62ed705f6835f580be9fced25b");
}

/// The image of 1 TiB of zeros, in chunks of 64 KiB.
#[test]
fn golden_image_id_of_zeros() {
    let (_, id, _) = TreeBuilder::new(1 << 40, ChunkSize::DEFAULT).expect("a builder").finish();
    assert_eq!(id.to_string(), "378d5db83c67e075b9397f723d79958564bf1accbc4ec3a85336bc2c2b86be0a");
}

#[test]
fn bad_headers_are_told_apart() {
    let good = Header::new(70_000, ChunkSize::MIN, 5).expect("a header").encode();
    let with = |at: usize, byte: u8| {
        let mut bytes = good;
        bytes[at] = byte;
        Header::decode(&bytes)
    };
    assert_eq!(Header::decode(&good[..31]), Err(BadHeader::NotAHeader));
    assert_eq!(with(0, b'v'), Err(BadHeader::NotAHeader));
    assert_eq!(with(8, 2), Err(BadHeader::Version(2)));
    assert_eq!(with(12, 1), Err(BadHeader::ChunkSize(BadChunkSize(16385))));
    assert_eq!(with(23, 0x80), Err(BadHeader::Length(0x8000_0000_0001_1170)));
    assert_eq!(with(24, 6), Err(BadHeader::Populated(6)));
    assert_eq!(Header::new(0, ChunkSize::MIN, 0), Err(BadHeader::Length(0)));
}

#[test]
fn a_store_has_no_zeros_and_no_pages_over_them() {
    // 16 384 chunks of 64 KiB below 8 pages below the top.
    let geometry = |populated| Geometry::new(Header::new(1 << 30, ChunkSize::DEFAULT, populated).expect("a header"));
    for (populated, most) in [(0, 1), (1, 3), (10, 19), (16_384, 16_393)] {
        assert_eq!(geometry(populated).stored_max(), most, "{populated} chunks");
    }
    let full = geometry(16_384);
    assert_eq!((full.stored_share(0), full.stored_share(5000), full.stored_share(16_393)), (0, 5000, 16_393));
    assert_eq!(geometry(10).stored_share(16_393), 19);
    assert_eq!(geometry(10).stored_share(8197), 9);
}

prop_compose! {
    fn any_header()(
        length in prop_oneof![1u64..1 << 26, 1u64..1 << 42, 1..=Header::MAX_LENGTH],
        power in 14u32..=20,
        share in 0u64..=4,
    ) -> Header {
        let chunk_size = ChunkSize::new(1 << power).expect("a chunk size");
        Header::new(length, chunk_size, length.div_ceil(chunk_size.bytes()) / 4 * share).expect("a header")
    }
}

proptest! {
    #[test]
    fn headers_survive_the_wire(header in any_header()) {
        prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn any_bytes_decode_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = Header::decode(&bytes);
    }

    #[test]
    fn ids_survive_text(bytes: [u8; 32]) {
        prop_assert_eq!(ImageId(bytes).to_string().parse(), Ok(ImageId(bytes)));
    }

    #[test]
    fn text_that_is_no_id_is_refused(text in "\\PC{0,70}") {
        prop_assume!(text.len() != 64);
        prop_assert!(text.parse::<ImageId>().is_err());
    }

    /// Parents and children agree, levels are complete, lengths fit.
    #[test]
    fn numbering_is_consistent(header in any_header(), pick: u64) {
        let geometry = Geometry::new(header);
        let number = pick % geometry.chunks();
        let chunk = geometry.chunk(number).expect("a chunk");
        prop_assert_eq!(geometry.chunk(geometry.chunks()), None);
        prop_assert!(geometry.length(chunk) >= 1 && geometry.length(chunk) <= geometry.chunk_bytes());
        match geometry.parent(chunk) {
            None => prop_assert_eq!(chunk, geometry.top()),
            Some((page, index)) => {
                prop_assert!(page > chunk);
                prop_assert_eq!(geometry.children(page).start + index as u64, number);
                prop_assert!(geometry.children(page).contains(&number));
                let above = geometry.level(chunk).map_or(0, |level| level + 1);
                prop_assert_eq!(geometry.level(page), Some(above));
            }
        }
        if geometry.is_data(chunk) {
            prop_assert!(geometry.children(chunk).is_empty());
            prop_assert_eq!(geometry.covering(geometry.extent(chunk)), number..number + 1);
        } else {
            let children = geometry.children(chunk);
            prop_assert_eq!(geometry.length(chunk), (children.end - children.start) * 32);
            let level = geometry.level(chunk).expect("a page");
            prop_assert!(geometry.pages(level).contains(&number));
        }
    }

    /// The chunks that cover an extent hold all of it and each a part of it.
    #[test]
    fn covering_is_tight(header in any_header(), a: u64, b: u64) {
        let geometry = Geometry::new(header);
        let (a, b) = (a % (header.length_bytes() + 1), b % (header.length_bytes() + 1));
        let extent = Extent::from(a.min(b)..a.max(b));
        let chunks = geometry.covering(extent);
        if extent.is_empty() {
            prop_assert!(chunks.is_empty());
        } else {
            let (first, last) = (geometry.extent(Chunk(chunks.start)), geometry.extent(Chunk(chunks.end - 1)));
            prop_assert!(first.start() <= extent.start() && extent.start() < first.end());
            prop_assert!(last.start() < extent.end() && extent.end() <= last.end());
        }
    }
}

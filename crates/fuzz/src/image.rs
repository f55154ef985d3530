//! What describes an image: headers, statements that are signed, ids and records.
//!
//! Promises: there is one encoding of each; every chunk of an image that can be has one parent that
//! knows it as its child, and a length; all data chunks together are the image.

use crate::wire::record;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::image::{Geometry, Header, ImageId};
use vfield_core::record::Record;
use vfield_core::statement::Statement;

/// Chunks that are looked at, from both ends of each level.
const LOOKED_AT: u64 = 3;

/// The first byte says what the others are.
pub fn target(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 4 {
        0 => {
            if let Ok(header) = Header::decode(bytes) {
                assert_eq!(header.encode(), bytes, "a header has one encoding");
                number(&Geometry::new(header));
            }
        }
        1 => {
            if let Some(record) = Record::decode(bytes) {
                assert!(record.is_sound());
                assert_eq!(Record::decode(&record.encode()), Some(record));
            }
        }
        2 => {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            if let Ok(statement) = text.parse::<Statement>() {
                assert_eq!(statement.to_string(), text, "a statement has one spelling");
                assert!(text.len() <= Statement::BYTES_MAX);
            }
        }
        _ => {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            if let Ok(id) = text.parse::<ImageId>() {
                assert_eq!(id.to_string(), text.to_ascii_lowercase());
            }
        }
    }
}

fn number(geometry: &Geometry) {
    let chunks = geometry.chunks();
    assert_eq!(geometry.chunk(chunks), None);
    assert_eq!(geometry.parent(geometry.top()), None);
    let ends = (0..LOOKED_AT).flat_map(|near| [near, geometry.data_chunks().saturating_sub(near + 1)]);
    let pages = (0..geometry.levels()).flat_map(|level| {
        let pages = geometry.pages(level);
        (0..LOOKED_AT).flat_map(move |near| [pages.start + near, pages.end.saturating_sub(near + 1)])
    });
    for chunk in ends.chain(pages).filter_map(|chunk| geometry.chunk(chunk)) {
        let length = geometry.length(chunk);
        assert!((1..=geometry.chunk_bytes()).contains(&length), "{chunk} has {length} bytes");
        if let Some((parent, index)) = geometry.parent(chunk) {
            let children = geometry.children(parent);
            assert_eq!(children.start + index as u64, chunk.0);
            assert_eq!((children.end - children.start) * 32, geometry.length(parent));
        }
        let extent = geometry.extent(chunk);
        if geometry.is_data(chunk) {
            assert_eq!((extent.len(), geometry.covering(extent)), (length, chunk.0..chunk.0 + 1));
        } else {
            assert!(extent.is_empty());
        }
    }
    let last = Chunk(geometry.data_chunks() - 1);
    assert_eq!(geometry.extent(last).end(), geometry.header().length_bytes());
}

/// One of each.
pub fn seeds() -> Vec<Vec<u8>> {
    let header = |length, size| Header::new(length, size, 1).expect("a header");
    let (small, large) = (header(1, ChunkSize::DEFAULT), header(Header::MAX_LENGTH, ChunkSize::MIN));
    let statement = Statement { name: "os".to_owned(), id: ImageId([0xab; 32]), header: small };
    let marked = |kind: u8, bytes: &[u8]| [&[kind], bytes].concat();
    vec![
        marked(0, &small.encode()),
        marked(0, &large.encode()),
        marked(0, &header((600 << 14) + 1, ChunkSize::MIN).encode()),
        marked(1, &record(1).encode()),
        marked(2, statement.to_string().as_bytes()),
        marked(3, ImageId([0xab; 32]).to_string().as_bytes()),
    ]
}

//! Indexes of images and packs of chunks, as they lie in a bucket.
//!
//! Promises: an index that is read names ranges inside of packs, and belongs to the id that was
//! asked for. A pack whose table is read is the one of its name, and its chunks fill it. Memory
//! goes by the bytes that are there and not by claims. Changed bytes get a right hash, since no
//! fuzzer finds one.

use vfield_bucket::index::{Front, HEAD_BYTES, PAGE_CHUNKS, Place, front_bytes, write};
use vfield_bucket::pack::{Builder, PACK_BYTES_MAX, PackName, Packer, Stored, Unpacker, table, table_bytes};
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::hash_tree::hash_chunk;
use vfield_core::image::{Geometry, Header, ImageId};

/// Where the hash lies in an index's head.
const HASH: std::ops::Range<usize> = HEAD_BYTES - 32..HEAD_BYTES;
/// Most pages of one index that are read: their memory adds up.
const PAGES_READ: u64 = 16;

/// The first byte: an index as it is, one with a right hash, or a pack.
pub fn target(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 3 {
        0 => index(bytes),
        1 => index(&sealed(bytes.to_vec())),
        _ => pack(bytes),
    }
}

fn index(bytes: &[u8]) {
    let Some(id) = bytes.get(16..48).and_then(|id| id.try_into().ok()).map(ImageId) else { return };
    assert!(front_bytes(bytes, &ImageId([!id.0[0]; 32])).is_err(), "the index of another image");
    let Ok(front) = Front::read(bytes, &id, bytes.len() as u64) else { return };
    let geometry = *front.geometry();
    for page in 0..geometry.data_chunks().div_ceil(PAGE_CHUNKS).min(PAGES_READ) {
        let Some(range) = front.range(page) else { continue };
        let stored = &bytes[range.start as usize..range.end as usize];
        let Ok(places) = front.read_page(page, stored) else { continue };
        assert!(places.len() as u64 <= PAGE_CHUNKS);
        for Place { pack, stored: Stored { offset, length } } in places.into_iter().flatten() {
            assert!((pack as usize) < front.packs().len());
            assert!(length > 0 && u64::from(length) <= geometry.chunk_bytes());
            assert!(offset as usize + length as usize <= PACK_BYTES_MAX);
        }
    }
}

/// An index with a right hash, if its front is whole.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let id = bytes.get(16..48).and_then(|id| id.try_into().ok()).map(ImageId);
    if let Some(end) = id.and_then(|id| front_bytes(&bytes, &id).ok()).filter(|end| *end <= bytes.len()) {
        let hash = hash_chunk(&[&bytes[..HASH.start], &bytes[HASH.end..end]].concat());
        bytes[HASH].copy_from_slice(&hash.0);
    }
    bytes
}

fn pack(bytes: &[u8]) {
    let Ok(end) = table_bytes(bytes) else { return };
    let Some(front) = bytes.get(..end) else { return };
    let name = PackName(hash_chunk(front).0);
    let Ok(rows) = table(name, bytes, bytes.len() as u64) else { return };
    assert!(table(PackName([!name.0[0]; 32]), bytes, bytes.len() as u64).is_err(), "a pack of another name");
    let mut at = end;
    let mut unpacker = Unpacker::new().expect("memory");
    let mut plain = vec![0; 16 << 10];
    for (_, Stored { offset, length }) in rows {
        assert_eq!(offset as usize, at, "chunks lie one after the other");
        at += length as usize;
        unpacker.unpack(&bytes[offset as usize..at], &mut plain);
    }
    assert_eq!(at, bytes.len(), "the chunks fill the pack");
}

/// Indexes with and without data, and a pack.
pub fn seeds() -> Vec<Vec<u8>> {
    let written = |chunks: u64, packs: u8| {
        let size = ChunkSize::MIN;
        let geometry = Geometry::new(Header::new(chunks * size.bytes(), size, 0).expect("a length"));
        let packs: Vec<PackName> = (0..packs).map(|number| PackName([number; 32])).collect();
        let place = |chunk: Chunk| {
            let stored = Stored { offset: 100 * chunk.0 as u32 + 16, length: 100 };
            packs.get(chunk.0 as usize % 3).map(|_| Place { pack: chunk.0 as u32 % 3, stored })
        };
        let mut bytes = Vec::new();
        write(&geometry, &ImageId([7; 32]), &packs, place, &mut bytes).expect("memory");
        bytes
    };
    let (mut builder, mut packer) = (Builder::default(), Packer::new().expect("memory"));
    for chunk in [vec![7; 16 << 10], b"short".to_vec()] {
        builder.add(hash_chunk(&chunk), &packer.pack(&chunk).expect("memory"));
    }
    let pack = builder.finish().1.to_vec();
    let marked = |kind: u8, bytes: &[u8]| [&[kind], bytes].concat();
    vec![
        marked(0, &written(5, 3)),
        marked(0, &written(9000, 0)),
        marked(1, &written(5000, 3)),
        marked(1, &written(5, 2)),
        marked(2, &pack),
        marked(2, &pack[..pack.len() - 1]),
    ]
}

//! Memory files that outlive their process: right chunks are taken over, after any
//! changes to the file.

use crate::image::{Image, SIZE, bytes_of};
use proptest::prelude::*;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{dup, pwrite};
use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use vfield_block::extent::Extent;
use vfield_block::source::Piece;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::image::{Geometry, Header, ImageId};
use vfield_core::node::Commitment;
use vfield_node::store::found::{Adopted, Found, Place, Unfit};
use vfield_node::store::label::{BadLabel, Label};
use vfield_node::store::{Inserted, Kept, Store};

const COMMITMENT: Commitment = Commitment { start: 3, from: 5 };

/// The file of a killed process that had all of the image.
fn left(image: &Image) -> OwnedFd {
    let store = image.store();
    image.fill(&store);
    store.commit(&"image".into(), COMMITMENT).expect("memory");
    dup(store.file()).expect("a descriptor")
}

fn take_over(file: OwnedFd) -> Result<(Arc<Store>, Found), Unfit> {
    Store::take_over(Kept::read(file)?)
}

fn adopt_all(store: &Store, found: &Found) -> Adopted {
    let mut adopted = Adopted::default();
    found.runs.iter().cloned().flatten().for_each(|number| store.adopt(Chunk(number), Place::Disk, &mut adopted));
    adopted
}

fn label_at(image: &Image) -> u64 {
    image.tree.geometry().chunks() * SIZE
}

#[test]
fn a_kept_store_is_taken_over() {
    let image = Image::with_zeros(600, &[4, 5, 6, 599]);
    let geometry = *image.tree.geometry();
    let (store, found) = take_over(left(&image)).expect("a store");
    assert_eq!((store.id(), *store.geometry(), found.commitment), (image.id, geometry, COMMITMENT));
    assert_eq!(found.runs, [0..4, 7..599, 600..geometry.chunks()]);
    // Nothing counts yet.
    assert_eq!((store.found(), store.resident_bytes()), (geometry.chunks() - 4, 0));
    assert!(store.piece(Extent::from(0..9)).is_none() && store.pin(Chunk(600)).is_none());
    assert!(!store.evict(Chunk(0)));
    // The pages above come with the first chunk.
    let mut adopted = Adopted::default();
    store.adopt(Chunk(2), Place::Disk, &mut adopted);
    assert_eq!(adopted.chunks, [geometry.top(), Chunk(600), Chunk(2)]);
    assert!(adopted.zeros.iter().cloned().flatten().eq(4..7));
    adopt_all(&store, &found);
    let all: u64 = (0..geometry.chunks()).map(|number| geometry.length(Chunk(number))).sum();
    assert_eq!((store.found(), store.spoiled()), (0, 0));
    assert_eq!((store.adopted_bytes(), store.resident_bytes()), (all - 3 * SIZE - (SIZE - 100), store.adopted_bytes()));
    let mut pieces = Vec::new();
    assert!(store.pieces(Extent::from(0..image.bytes.len() as u64), &mut pieces));
    assert!(pieces.iter().flat_map(bytes_of).eq(image.bytes.iter().copied()));
    drop(pieces);
    // And once more, after an eviction.
    assert!(store.evict(Chunk(9)));
    let (_, found) = take_over(dup(store.file()).expect("a descriptor")).expect("a store");
    assert_eq!(found.runs, [0..4, 7..9, 10..599, 600..geometry.chunks()]);
}

#[test]
fn changed_chunks_are_dropped() {
    let image = Image::with_zeros(12, &[3]);
    let file = left(&image);
    pwrite(&file, b"x", 2 * SIZE + 77).expect("written");
    pwrite(&file, b"not zero", 3 * SIZE).expect("written");
    // Killed in the midst of a write.
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 7 * SIZE + 4096, 8192).expect("a hole");
    let (store, found) = take_over(file).expect("a store");
    adopt_all(&store, &found);
    assert_eq!((store.found(), store.spoiled()), (0, 3));
    for number in 0..12 {
        assert_eq!(store.is_resident(Chunk(number)), ![2, 3, 7].contains(&number), "chunk {number}");
    }
    assert_eq!(store.insert(Chunk(2), &image.chunk(Chunk(2))).expect("memory"), Inserted::New);
    let piece = store.piece(Extent::from(2 * SIZE..3 * SIZE)).expect("here");
    assert_eq!(bytes_of(&piece), image.chunk(Chunk(2)));
    let spoiled = store.file();
    let kept = Kept::read(dup(&*spoiled).expect("a descriptor")).expect("a store");
    assert_eq!(Store::take_over(kept).expect("a store").1.runs, [0..3, 4..7, 8..13], "no memory for what was dropped");
}

#[test]
fn unverifiable_chunks_wait_for_their_page() {
    let image = Image::with_zeros(600, &[]);
    let store = image.store();
    image.fill(&store);
    store.commit(&"image".into(), COMMITMENT).expect("memory");
    assert!(store.evict(Chunk(600)));
    let (store, found) = take_over(dup(store.file()).expect("a descriptor")).expect("a store");
    adopt_all(&store, &found);
    // The other leaf page covers 88 chunks.
    assert_eq!((store.found(), store.spoiled()), (512, 0));
    // The same chunk from a peer takes its place.
    assert_eq!(store.insert(Chunk(600), &image.chunk(Chunk(600))).expect("memory"), Inserted::New);
    assert_eq!(store.insert(Chunk(1), &image.chunk(Chunk(1))).expect("memory"), Inserted::New);
    assert_eq!(store.found(), 511);
    store.adopt(Chunk(2), Place::Disk, &mut Adopted::default());
    assert!(store.is_resident(Chunk(1)) && store.is_resident(Chunk(2)));
    let resident = store.resident_bytes();
    found.runs.into_iter().for_each(|run| store.drop_found(run));
    assert_eq!((store.found(), store.resident_bytes()), (0, resident));
    assert_eq!(store.insert(Chunk(3), &image.chunk(Chunk(3))).expect("memory"), Inserted::New);
}

/// Bytes that the earlier process put into a socket never change, whatever happens to their slot.
#[test]
fn bytes_in_flight_survive_their_process() {
    let image = Image::with_zeros(12, &[]);
    let (sender, mut receiver) = UnixStream::pair().expect("sockets");
    let (file, sent) = {
        let store = image.store();
        image.fill(&store);
        store.commit(&"image".into(), COMMITMENT).expect("memory");
        let Some(Piece::File(piece)) = store.piece(Extent::from(0..SIZE)) else { return };
        let mut offset = piece.offset();
        let sent = rustix::fs::sendfile(&sender, piece.fd(), Some(&mut offset), piece.len() as usize).expect("sent");
        (dup(store.file()).expect("a descriptor"), sent)
    };
    let (store, _) = take_over(file).expect("a store");
    assert_eq!(store.insert(Chunk(0), &vec![7; SIZE as usize]).expect("memory"), Inserted::New);
    drop(sender);
    let mut received = Vec::new();
    receiver.read_to_end(&mut received).expect("received");
    assert_eq!(received, &image.chunk(Chunk(0))[..sent]);
}

/// A memory file with these bytes at its end.
fn with_label(length_bytes: u64, seals: SealFlags, label: &[u8]) -> OwnedFd {
    let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memory file");
    ftruncate(&file, length_bytes).expect("longer");
    pwrite(&file, label, length_bytes.saturating_sub(label.len() as u64)).expect("written");
    fcntl_add_seals(&file, seals).expect("sealed");
    file
}

#[test]
fn files_of_others_are_refused() {
    let image = Image::with_zeros(12, &[]);
    let header = *image.tree.geometry().header();
    let label = Label { id: image.id, header, names: "image".into(), commitment: COMMITMENT };
    let (length, whole) = (label_at(&image) + Label::BYTES as u64, label.encode());
    let sealed = SealFlags::SHRINK | SealFlags::GROW;
    assert!(take_over(with_label(length, sealed, &whole)).is_ok());

    let foreign = |file: OwnedFd| assert!(matches!(take_over(file), Err(Unfit::Foreign)));
    foreign(with_label(length, SealFlags::SHRINK, &whole));
    foreign(with_label(length, sealed | SealFlags::WRITE, &whole));
    foreign(tempfile::tempfile().expect("a file").into());
    foreign(UnixStream::pair().expect("sockets").0.into());
    let read_only = with_label(length, sealed, &whole);
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&read_only.as_fd()));
    foreign(std::fs::File::open(path).expect("opened").into());

    let long = |length: u64| assert!(matches!(take_over(with_label(length, sealed, &whole)), Err(Unfit::Length(_))));
    long(length + SIZE);
    long(length - 1);
    long(Label::BYTES as u64);
    assert!(matches!(take_over(with_label(0, sealed, &[])), Err(Unfit::Length(0))));

    let refused = |label: &[u8]| match take_over(with_label(length, sealed, label)) {
        Err(Unfit::Label(why)) => why,
        other => panic!("not refused for its label: {other:?}"),
    };
    assert_eq!(refused(&[]), BadLabel::NotALabel);
    assert_eq!(refused(&whole[..Label::BYTES - 1]), BadLabel::NotALabel);
    assert_eq!(refused(&rewritten(&whole, 8, &[2])), BadLabel::Version(2));
    assert_eq!(refused(&rewritten(&whole, 12, &[0])), BadLabel::Unsound);
    assert_eq!(refused(&rewritten(&whole, 12, &[0xff; 4])), BadLabel::Unsound);
    assert_eq!(refused(&rewritten(&whole, 80, &[13])), BadLabel::Unsound, "an arc that is not on the ring");
    assert_eq!(refused(&rewritten(&whole, 96, b"z/b")), BadLabel::Unsound, "names in no order");
    assert!(matches!(refused(&rewritten(&whole, 48, b"no header")), BadLabel::Header(_)));
}

/// A label with other bytes in it, and a checksum that is right.
fn rewritten(label: &[u8; Label::BYTES], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut label = label.to_vec();
    label[at..at + bytes.len()].copy_from_slice(bytes);
    let end = Label::BYTES - 32;
    let hash = vfield_core::hash_tree::hash_chunk(&label[..end]);
    label[end..].copy_from_slice(&hash.0);
    label
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn labels_survive_a_round_trip(
        id in any::<[u8; 32]>(),
        length in 1u64..=i64::MAX as u64,
        name in "[^/\\p{Cc}]{1,60}",
        places in any::<(u64, u64)>(),
        (at, flip) in (0..Label::BYTES, 1u8..),
    ) {
        prop_assume!(name != "." && name != "..");
        let header = Header::new(length, ChunkSize::DEFAULT, 0).expect("a header");
        let size = Geometry::new(header).chunks();
        let commitment = Commitment { start: places.0 % size, from: places.1 % size };
        let label = Label { id: ImageId(id), header, names: name.into(), commitment };
        let mut bytes = label.encode();
        prop_assert_eq!(Label::decode(&bytes), Ok(label));
        bytes[at] ^= flip;
        prop_assert_eq!(Label::decode(&bytes), Err(BadLabel::NotALabel));
        prop_assert_eq!(Label::decode(&bytes[..at]), Err(BadLabel::NotALabel));
    }

    /// Any bytes with a right checksum are a label that makes sense, or refused.
    #[test]
    fn labels_of_strangers_are_refused_or_sound(
        changes in prop::collection::vec((0..Label::BYTES - 32, any::<u8>()), 1..8),
    ) {
        let image = Image::with_zeros(12, &[]);
        let header = *image.tree.geometry().header();
        let label = Label { id: image.id, header, names: "image".into(), commitment: COMMITMENT }.encode();
        let bytes = changes.iter().fold(label, |label, (at, byte)| {
            rewritten(&label, *at, &[*byte]).try_into().expect("as long")
        });
        if let Ok(label) = Label::decode(&bytes) {
            prop_assert!(label.commitment.fits(Geometry::new(label.header).chunks()));
            prop_assert_eq!(label.encode().len(), Label::BYTES);
        }
    }

    /// Whatever bytes are written over a file, and wherever holes are made: only right chunks are
    /// adopted.
    #[test]
    fn nothing_wrong_is_ever_adopted(
        scribbles in prop::collection::vec((0u64..14 * SIZE, prop::collection::vec(any::<u8>(), 1..40)), 0..6),
        holes in prop::collection::vec((0u64..56, 1u64..9), 0..3),
    ) {
        let image = Image::with_zeros(12, &[2, 3, 7]);
        let file = left(&image);
        let end = label_at(&image) + Label::BYTES as u64;
        for (at, bytes) in scribbles {
            let room = end.saturating_sub(at).min(bytes.len() as u64) as usize;
            pwrite(&file, &bytes[..room], at).expect("written");
        }
        for (page, pages) in holes {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&file, mode, page * 4096, pages * 4096).expect("a hole");
        }
        if let Ok((store, found)) = take_over(file) {
            let adopted = adopt_all(&store, &found);
            prop_assert_eq!(adopted.chunks.len() as u64 + store.spoiled() + store.found(), found.runs.iter().map(|run| run.end - run.start).sum::<u64>());
            for chunk in adopted.chunks {
                let piece = store.chunk_piece(chunk).expect("here");
                prop_assert_eq!(bytes_of(&piece), image.chunk(chunk));
            }
        }
    }
}

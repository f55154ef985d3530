//! Stores in large pages: nothing of them is punched, and yet no byte changes under way.
//!
//! A kernel that has no large pages for memory files gives small ones. Only their number differs.

use crate::image::{Image, SIZE, bytes_of, concatenated};
use rustix::fs::fstat;
use rustix::io::dup;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use vfield_block::extent::Extent;
use vfield_block::source::Piece;
use vfield_core::chunk::Chunk;
use vfield_core::node::Commitment;
use vfield_node::store::found::{Adopted, Place};
use vfield_node::store::{Inserted, Kept, Store};

const COMMITMENT: Commitment = Commitment { start: 0, from: 0 };

fn large(image: &Image) -> Arc<Store> {
    Store::in_large_pages(image.id, image.tree.geometry()).expect("a store")
}

fn blocks(store: &Store) -> i64 {
    fstat(store.file()).expect("a file").st_blocks
}

#[test]
fn what_is_evicted_comes_again_at_its_place() {
    // More than two pages, and the end of the last one is beyond the file's.
    let image = Image::with_zeros(300, &[4, 5]);
    let store = large(&image);
    assert!(store.is_in_large_pages());
    image.fill(&store);
    let mut pieces = Vec::new();
    assert!(store.pieces(Extent::from(0..image.bytes.len() as u64), &mut pieces));
    assert!(concatenated(&pieces) == image.bytes);
    drop(pieces);
    let (before, held) = (blocks(&store), store.resident_bytes());
    assert!(store.evict(Chunk(9)) && !store.evict(Chunk(9)));
    assert!(!store.is_resident(Chunk(9)) && store.piece(Extent::from(9 * SIZE..9 * SIZE + 1)).is_none());
    assert_eq!((blocks(&store), store.resident_bytes()), (before, held - SIZE));
    assert_eq!(store.insert(Chunk(9), &image.chunk(Chunk(9))).expect("memory"), Inserted::New);
    let piece = store.piece(Extent::from(9 * SIZE..10 * SIZE)).expect("here");
    assert_eq!(bytes_of(&piece), image.chunk(Chunk(9)));
}

/// A reader's socket has pages of a chunk that is evicted, and comes again, many times.
#[test]
fn bytes_in_flight_stay_as_they_are() {
    let image = Image::with_zeros(12, &[]);
    let store = large(&image);
    image.fill(&store);
    let (sender, mut receiver) = UnixStream::pair().expect("sockets");
    sender.set_nonblocking(true).expect("a socket");
    let Some(Piece::File(piece)) = store.piece(Extent::from(2 * SIZE..3 * SIZE)) else { panic!("no place in a file") };
    let mut offset = piece.offset();
    let sent = rustix::fs::sendfile(&sender, piece.fd(), Some(&mut offset), SIZE as usize).expect("sent");
    drop((piece, sender));
    for _ in 0..10 {
        assert!(store.evict(Chunk(2)));
        store.insert(Chunk(2), &image.chunk(Chunk(2))).expect("memory");
    }
    store.evict(Chunk(2));
    drop(store);
    let mut came = Vec::new();
    receiver.read_to_end(&mut came).expect("bytes");
    assert_eq!(came.len(), sent);
    assert!(came == image.chunk(Chunk(2))[..sent]);
}

#[test]
fn a_part_that_was_kept_is_taken_over() {
    let image = Image::with_zeros(300, &[4, 5]);
    let store = large(&image);
    let top = image.tree.geometry().top();
    for chunk in [top, Chunk(3), Chunk(200)] {
        store.insert(chunk, &image.chunk(chunk)).expect("memory");
    }
    store.commit(&"image".into(), COMMITMENT).expect("memory");
    let file = dup(store.file()).expect("a descriptor");
    drop(store);
    let kept = Kept::read(file).expect("a label");
    assert!(kept.is_in_large_pages());
    let (store, found) = Store::take_over(kept).expect("a store");
    let mut adopted = Adopted::default();
    found.runs.into_iter().flatten().for_each(|number| store.adopt(Chunk(number), Place::Disk, &mut adopted));
    adopted.chunks.sort_unstable();
    assert_eq!(adopted.chunks, [Chunk(3), Chunk(200), top]);
    // The rest of the pages is not there, and nothing of it was ever wrong.
    assert_eq!((store.found(), store.spoiled()), (0, 0));
    image.fill(&store);
    let mut pieces = Vec::new();
    assert!(store.pieces(Extent::from(0..image.bytes.len() as u64), &mut pieces));
    assert!(concatenated(&pieces) == image.bytes);
    assert!(!Kept::read(dup(image.store().file()).expect("a descriptor")).is_ok_and(|kept| kept.is_in_large_pages()));
}

//! Stores in files on a disk: what they hold outlives the process, and no wrong byte leaves them,
//! whatever the disk does.

use crate::image::{Image, SIZE, concatenated};
use proptest::prelude::*;
use rustix::fs::{FallocateFlags, fallocate, fstat, ftruncate};
use rustix::io::pwrite;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use vfield_block::extent::Extent;
use vfield_core::chunk::Chunk;
use vfield_core::node::Commitment;
use vfield_node::buffers::Buffers;
use vfield_node::store::found::{Adopted, Place, Unfit};
use vfield_node::store::label::BadLabel;
use vfield_node::store::on_disk::Trouble;
use vfield_node::store::{Inserted, Kept, Store};

const COMMITMENT: Commitment = Commitment { start: 3, from: 5 };

/// A file that a store and a test have open.
struct Disk {
    dir: tempfile::TempDir,
}

impl Disk {
    fn new() -> Self {
        Self { dir: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory") }
    }

    fn open(&self) -> File {
        let path = self.dir.path().join("store");
        File::options().read(true).write(true).create(true).truncate(false).open(path).expect("a file")
    }

    fn store(&self, image: &Image) -> Arc<Store> {
        Store::on_disk(image.id, image.tree.geometry(), self.open().into()).expect("a store")
    }

    /// The store of a process that ended, with all of the image.
    fn left(&self, image: &Image) {
        let store = self.store(image);
        image.fill(&store);
        store.commit(&"image".into(), COMMITMENT).expect("written");
    }

    fn take_over(&self) -> Result<Arc<Store>, Unfit> {
        let (store, found) = Store::take_over(Kept::read_on_disk(self.open().into())?)?;
        assert_eq!(found.commitment, COMMITMENT);
        assert!(found.runs.into_iter().eq(std::iter::once(0..store.geometry().chunks())));
        Ok(store)
    }

    fn blocks(&self) -> i64 {
        fstat(self.open()).expect("a file").st_blocks
    }
}

fn adopt_all(store: &Store) -> Adopted {
    let mut adopted = Adopted::default();
    (0..store.geometry().chunks()).for_each(|number| store.adopt(Chunk(number), Place::Disk, &mut adopted));
    adopted
}

/// All bytes that the store gives away are those of the image; returns how many these are.
fn read_all(store: &Arc<Store>, image: &Image) -> u64 {
    let mut read = 0;
    for number in 0..image.tree.geometry().data_chunks() {
        let extent = image.tree.geometry().extent(Chunk(number));
        let mut pieces = Vec::new();
        if store.pieces(extent, &mut pieces) {
            assert!(concatenated(&pieces) == image.slice(extent), "chunk {number}");
            read += extent.len();
        }
    }
    read
}

/// The trouble of a store since the last call, if there is any.
fn trouble(store: &Arc<Store>) -> Option<Trouble> {
    use std::future::Future as _;
    use std::task::{Context, Poll, Waker};
    match std::pin::pin!(store.trouble()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(trouble) => Some(trouble),
        Poll::Pending => None,
    }
}

#[test]
fn a_store_on_a_disk_is_taken_over() {
    let (disk, image) = (Disk::new(), Image::with_zeros(600, &[4, 5, 6, 599]));
    let geometry = *image.tree.geometry();
    disk.left(&image);
    let store = disk.take_over().expect("a store");
    assert!(store.is_on_disk());
    // Nothing counts yet.
    assert_eq!((store.found(), store.disk_bytes(), store.resident_bytes()), (geometry.chunks(), 0, 0));
    assert!(store.piece(Extent::from(0..9)).is_none());
    // The pages above come with the first chunk.
    let mut adopted = Adopted::default();
    store.adopt(Chunk(2), Place::Disk, &mut adopted);
    assert_eq!(adopted.chunks, [geometry.top(), Chunk(600), Chunk(2)]);
    assert!(adopted.zeros.iter().cloned().flatten().eq(4..7));
    adopt_all(&store);
    assert_eq!((store.found(), store.spoiled()), (0, 0));
    assert_eq!(store.disk_bytes(), 596 * SIZE);
    assert_eq!(read_all(&store, &image), image.bytes.len() as u64);
    let mut pieces = Vec::new();
    assert!(store.pieces(Extent::from(100..590 * SIZE - 7), &mut pieces));
    assert!(concatenated(&pieces) == image.slice(Extent::from(100..590 * SIZE - 7)));
    // An evicted chunk gives its room back, and is not found again; its page is.
    let before = disk.blocks();
    assert!(store.evict(Chunk(9)) && store.evict(Chunk(600)));
    assert_eq!(disk.blocks(), before - (SIZE / 512) as i64);
    assert_eq!(store.disk_bytes(), 595 * SIZE);
    drop(store);
    let store = disk.take_over().expect("a store");
    adopt_all(&store);
    assert_eq!((store.found(), store.spoiled(), store.is_resident(Chunk(9))), (0, 0, false));
    assert!(store.is_resident(Chunk(600)));
    assert_eq!(read_all(&store, &image), image.bytes.len() as u64 - SIZE);
    assert_eq!(store.insert(Chunk(9), &image.chunk(Chunk(9))).expect("room"), Inserted::New);
    assert_eq!(read_all(&store, &image), image.bytes.len() as u64);
}

/// The hash of a chunk is known for as long as the chunk is here, without its page.
#[test]
fn chunks_are_compared_without_their_page() {
    let (disk, image) = (Disk::new(), Image::with_zeros(12, &[]));
    let store = disk.store(&image);
    image.fill(&store);
    assert!(store.evict(image.tree.geometry().top()));
    assert_eq!(read_all(&store, &image), image.bytes.len() as u64);
}

#[test]
fn what_a_disk_changes_is_found_and_mended() {
    let (disk, image) = (Disk::new(), Image::with_zeros(12, &[3]));
    let store = disk.store(&image);
    image.fill(&store);
    assert_eq!(trouble(&store).map(|trouble| trouble.spoiled), None);
    let file = disk.open();
    pwrite(&file, b"x", 2 * SIZE + 77).expect("written");
    // A lost write, and a torn one.
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, mode, 7 * SIZE, SIZE).expect("a hole");
    fallocate(&file, mode, 8 * SIZE + 4096, 4096).expect("a hole");
    let mut pieces = Vec::new();
    // A part of a spoiled chunk is not given away either.
    assert!(!store.pieces(Extent::from(2 * SIZE..2 * SIZE + 9), &mut pieces));
    assert_eq!(trouble(&store).map(|trouble| trouble.spoiled), Some(vec![Chunk(2)]));
    assert_eq!(read_all(&store, &image), image.bytes.len() as u64 - 3 * SIZE);
    assert_eq!(trouble(&store).map(|trouble| trouble.spoiled), Some(vec![Chunk(7), Chunk(8)]));
    assert_eq!(store.spoiled(), 3);
    for number in [2, 7, 8] {
        assert!(!store.is_resident(Chunk(number)) && !store.revive(Chunk(number)), "chunk {number}");
        assert!(store.chunk_piece(Chunk(number)).is_none());
    }
    // The right bytes come: to be kept, or to pass, and then be kept.
    let right = |number| image.chunk(Chunk(number));
    assert_eq!(store.insert(Chunk(2), &right(2)).expect("room"), Inserted::New);
    let buffers = Arc::new(Buffers::default());
    assert_eq!(store.pass(Chunk(7), buffers.copy(&right(7))), Inserted::New);
    assert!(store.is_resident(Chunk(7)));
    assert_eq!(read_all(&store, &image), image.bytes.len() as u64 - SIZE);
    store.settle(Chunk(7)).expect("room");
    // A spoiled chunk that is evicted leaves nothing behind.
    assert!(store.evict(Chunk(8)));
    assert_eq!(store.insert(Chunk(8), &right(8)).expect("room"), Inserted::New);
    assert_eq!(read_all(&store, &image), image.bytes.len() as u64);
    assert_eq!(store.disk_bytes(), 11 * SIZE - 100);
    assert!(trouble(&store).is_none());
    drop(store);
    // It was all written where it belongs: the data, and the page in a block.
    assert_eq!(disk.blocks() as u64 * 512, 11 * SIZE + 4096);
}

#[test]
fn a_borrower_loses_what_its_lender_lost() {
    let (disk, old) = (Disk::new(), Image::with_zeros(12, &[]));
    let mut bytes = old.bytes.clone();
    bytes[5] ^= 1;
    let new = Image::new(bytes);
    let (lender, other) = (disk.store(&old), Disk::new());
    old.fill(&lender);
    let borrower = other.store(&new);
    let top = new.tree.geometry().top();
    borrower.insert(top, &new.chunk(top)).expect("room");
    borrower.relate(&lender, |_| true);
    adopt_all(&borrower);
    assert_eq!((borrower.lent_bytes(), borrower.disk_bytes()), (11 * SIZE - 100, 0));
    assert_eq!(read_all(&borrower, &new), new.bytes.len() as u64 - SIZE);
    // One is found by the borrower, the other by the lender.
    let file = disk.open();
    pwrite(&file, b"x", 4 * SIZE).expect("written");
    pwrite(&file, b"x", 6 * SIZE).expect("written");
    assert!(lender.chunk_piece(Chunk(6)).is_none());
    assert_eq!(read_all(&borrower, &new), new.bytes.len() as u64 - 3 * SIZE);
    for store in [&lender, &borrower] {
        let mut spoiled = trouble(store).expect("trouble").spoiled;
        spoiled.sort();
        assert_eq!(spoiled, [Chunk(4), Chunk(6)]);
    }
    assert_eq!(borrower.lent_bytes(), 9 * SIZE - 100);
    // Each gets it again on its own; what the lender has the borrower need not write.
    assert_eq!(lender.insert(Chunk(4), &old.chunk(Chunk(4))).expect("room"), Inserted::New);
    assert_eq!(borrower.insert(Chunk(4), &new.chunk(Chunk(4))).expect("room"), Inserted::New);
    assert_eq!(borrower.insert(Chunk(6), &new.chunk(Chunk(6))).expect("room"), Inserted::New);
    assert_eq!((borrower.lent_bytes(), borrower.disk_bytes()), (10 * SIZE - 100, SIZE));
    assert_eq!(read_all(&borrower, &new), new.bytes.len() as u64 - SIZE);
    // The lender goes: the rest comes home.
    lender.evict_all();
    borrower.lent_by(old.id).into_iter().for_each(|chunk| borrower.come_home(chunk).expect("room"));
    drop(lender);
    assert_eq!(read_all(&borrower, &new), new.bytes.len() as u64 - SIZE);
}

#[test]
fn a_torn_label_is_none() {
    let (disk, image) = (Disk::new(), Image::with_zeros(12, &[]));
    disk.left(&image);
    let label = 13 * SIZE;
    pwrite(disk.open(), &[0; 256], label + 256).expect("written");
    assert!(matches!(disk.take_over(), Err(Unfit::Label(BadLabel::NotALabel))));
    disk.left(&image);
    assert!(disk.take_over().is_ok());
    for length in [0, 5, label, label + 5] {
        ftruncate(disk.open(), length).expect("shorter");
        assert!(disk.take_over().is_err(), "{length}");
    }
}

/// A small file system in memory; gone with its value.
struct Small(OwnedDir);

struct OwnedDir(tempfile::TempDir);

impl Small {
    fn new(size: &std::ffi::CStr) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        mount("none", dir.path(), "tmpfs", MountFlags::empty(), Some(size)).expect("mounted");
        Self(OwnedDir(dir))
    }

    fn path(&self) -> &Path {
        self.0.0.path()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // Open files in it end with the process.
        let _ = unmount(self.path(), UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_disk_takes_no_more_and_gives_what_it_has() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounting needs root");
        return;
    }
    let (small, image) = (Small::new(c"size=128k"), Image::with_zeros(12, &[]));
    let open = || File::options().read(true).write(true).create(true).truncate(false).open(small.path().join("store"));
    let file: OwnedFd = open().expect("a file").into();
    let store = Store::on_disk(image.id, image.tree.geometry(), file).expect("a store");
    let top = image.tree.geometry().top();
    assert_eq!(store.insert(top, &image.chunk(top)).expect("memory"), Inserted::New);
    let inserted = (0..12).map(Chunk).filter(|chunk| store.insert(*chunk, &image.chunk(*chunk)).is_ok()).count();
    assert!((4..8).contains(&inserted), "{inserted}");
    let Trouble { spoiled, refused, .. } = trouble(&store).expect("trouble");
    assert!(spoiled.is_empty() && refused.is_some_and(|why| why.contains("No space left on device")));
    assert_eq!(read_all(&store, &image), inserted as u64 * SIZE);
    // Readers go on with what passes through.
    let buffers = Arc::new(Buffers::default());
    assert_eq!(store.pass(Chunk(11), buffers.copy(&image.chunk(Chunk(11)))), Inserted::New);
    assert_eq!(read_all(&store, &image), (inserted as u64 + 1) * SIZE - 100);
    // Room that is made is used again.
    assert!(store.evict(Chunk(0)));
    assert_eq!(store.insert(Chunk(10), &image.chunk(Chunk(10))).expect("room"), Inserted::New);
    assert_eq!(read_all(&store, &image), (inserted as u64 + 1) * SIZE - 100);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    /// Damage to the file, before its store is taken over and after that, leads to no wrong byte.
    #[test]
    fn no_wrong_byte_leaves_a_damaged_file(
        before in prop::collection::vec((any::<u64>(), 1..40_000_u64, 0..3), 0..6),
        after in prop::collection::vec((any::<u64>(), 1..40_000_u64, 0..3), 1..6),
    ) {
        let (disk, image) = (Disk::new(), Image::with_zeros(12, &[2, 3]));
        disk.left(&image);
        let file = disk.open();
        let damage = |(at, length, how): (u64, u64, i32)| {
            // The label is told of elsewhere.
            let at = at % (13 * SIZE);
            let length = length.min(13 * SIZE - at);
            match how {
                0 => drop(pwrite(&file, &vec![0xA5; length as usize], at).expect("written")),
                1 => fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, length).expect("a hole"),
                _ => drop(pwrite(&file, b"flip", at).expect("written")),
            }
        };
        before.into_iter().for_each(damage);
        let store = disk.take_over().expect("a store");
        adopt_all(&store);
        let read = read_all(&store, &image);
        after.into_iter().for_each(damage);
        prop_assert!(read_all(&store, &image) <= read);
        // All of it comes again.
        for chunk in (0..13).rev().map(Chunk) {
            store.insert(chunk, &image.chunk(chunk)).expect("room");
        }
        prop_assert_eq!(read_all(&store, &image), image.bytes.len() as u64);
        drop(store);
        let store = disk.take_over().expect("a store");
        // The copy of the page may be damaged since.
        adopt_all(&store);
        let top = image.tree.geometry().top();
        store.insert(top, &image.chunk(top)).expect("memory");
        adopt_all(&store);
        prop_assert_eq!(read_all(&store, &image), image.bytes.len() as u64);
    }
}

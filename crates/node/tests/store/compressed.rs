//! Stores with compressed chunks: the same bytes in less memory, for readers, relatives and the
//! next process.

use crate::image::{Image, SIZE, bytes_of, concatenated};
use crate::many_threads;
use proptest::prelude::*;
use rustix::fs::fstat;
use rustix::io::{dup, pwrite};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vfield_block::extent::Extent;
use vfield_core::chunk::Chunk;
use vfield_core::node::Commitment;
use vfield_core::wire::Codec;
use vfield_node::buffers::Buffers;
use vfield_node::compression::{Compressed, Compression};
use vfield_node::store::compressed::Room;
use vfield_node::store::found::{Adopted, Place};
use vfield_node::store::{Inserted, Kept, Store};

const DATA: u64 = 12;
/// Chunks whose bytes do not compress, among those of [`image`].
const NOISE: [u64; 3] = [1, 6, 11];

/// Texts, a zero chunk and noise; the last chunk is short.
fn image() -> Image {
    let mut bytes = vec![0; (DATA * SIZE - 100) as usize];
    let mut state = 1_u64;
    for (number, chunk) in (0..).zip(bytes.chunks_mut(SIZE as usize)) {
        for (at, byte) in chunk.iter_mut().enumerate() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = match number {
                3 => 0,
                _ if NOISE.contains(&number) => (state >> 56) as u8,
                _ => (at / 9) as u8 & 15 | (number as u8) << 4,
            };
        }
    }
    Image::new(bytes)
}

fn compressed(image: &Image) -> Arc<Store> {
    let store = image.store();
    store.compress(&Room::new(u64::MAX));
    store
}

/// Memory that the kernel has given to a store.
fn kernel_bytes(store: &Store) -> u64 {
    fstat(store.file()).expect("a memory file").st_blocks.cast_unsigned() * 512
}

fn all_of(store: &Arc<Store>, image: &Image) -> bool {
    let mut pieces = Vec::new();
    let whole = Extent::from(0..image.bytes.len() as u64);
    store.pieces(whole, &mut pieces) && concatenated(&pieces) == image.bytes
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn chunks_take_less_memory() {
    let image = image();
    let [plain, store] = [image.store(), compressed(&image)];
    [&plain, &store].into_iter().for_each(|store| image.fill(store));
    assert!(all_of(&store, &image));
    for number in 0..image.tree.geometry().chunks() {
        let piece = store.chunk_piece(Chunk(number)).expect("it is here");
        assert_eq!(bytes_of(&piece), image.chunk(Chunk(number)), "chunk {number}");
    }
    // One page for each of the eight texts, and the noise as it is.
    let page = image.chunk(image.tree.geometry().top()).len() as u64;
    assert_eq!(store.resident_bytes(), 8 * 4096 + 2 * SIZE + (SIZE - 100) + page);
    assert_eq!(kernel_bytes(&store), 8 * 4096 + 3 * SIZE + 4096);
    assert!(kernel_bytes(&plain) > 2 * kernel_bytes(&store));
    store.evict_all();
    assert_eq!((store.resident_bytes(), kernel_bytes(&store)), (0, 0));
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u64),
    Pass(u64),
    Settle(u64),
    Evict(u64),
    Pin(u64),
    Unpin(usize),
    Read(u64, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..=DATA).prop_map(Step::Insert),
        2 => (0..DATA).prop_map(Step::Pass),
        2 => (0..DATA).prop_map(Step::Settle),
        2 => (0..=DATA).prop_map(Step::Evict),
        1 => (0..=DATA).prop_map(Step::Pin),
        1 => any::<usize>().prop_map(Step::Unpin),
        3 => (any::<u64>(), any::<u64>()).prop_map(|(a, b)| Step::Read(a, b)),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A store of plain chunks does the same with the same steps.
    #[test]
    fn equals_a_plain_store(steps in steps()) {
        let (image, buffers) = (image(), Arc::new(Buffers::default()));
        let stores = [image.store(), compressed(&image)];
        let mut pins = Vec::new();
        for step in steps {
            let [plain, other] = stores.each_ref().map(|store| match step {
                Step::Insert(number) => {
                    let chunk = Chunk(number);
                    u64::from(store.insert(chunk, &image.chunk(chunk)).expect("memory") == Inserted::New)
                }
                Step::Pass(number) => {
                    let chunk = Chunk(number);
                    u64::from(store.pass(chunk, buffers.copy(&image.chunk(chunk))) == Inserted::New)
                }
                Step::Settle(number) => store.settle(Chunk(number)).map(|()| 0).expect("memory"),
                Step::Evict(number) => u64::from(store.evict(Chunk(number))),
                Step::Pin(number) => {
                    let pin = store.pin(Chunk(number));
                    let is_here = pin.is_some();
                    pins.extend(pin);
                    u64::from(is_here)
                }
                Step::Unpin(_) => 0,
                Step::Read(a, b) => {
                    let length = image.bytes.len() as u64 + 1;
                    let (a, b) = (a % length, b % length);
                    let extent = Extent::from(a.min(b)..a.max(b));
                    let mut pieces = Vec::new();
                    let done = store.pieces_prefix(extent, &mut pieces);
                    assert!(concatenated(&pieces) == image.slice(extent.take(done)));
                    done
                }
            });
            prop_assert_eq!(plain, other);
            if let (Step::Unpin(at), false) = (&step, pins.is_empty()) {
                // Pins come in pairs.
                let at = at % pins.len() / 2 * 2;
                pins.drain(at..at + 2);
            }
            for number in 0..=DATA {
                let [plain, other] = stores.each_ref().map(|store| store.is_resident(Chunk(number)));
                prop_assert_eq!(plain, other);
            }
            prop_assert!(stores[1].resident_bytes() <= stores[0].resident_bytes());
        }
        pins.clear();
        (0..=DATA).for_each(|number| {
            stores[1].evict(Chunk(number));
        });
        prop_assert_eq!((stores[1].resident_bytes(), kernel_bytes(&stores[1])), (0, 0));
    }
}

/// A process that compresses takes over plain chunks and the other way round; each has its own form
/// afterwards.
#[test]
fn chunks_of_either_form_are_taken_over() {
    let image = image();
    let expected = [image.store(), compressed(&image)].map(|store| {
        image.fill(&store);
        (store.resident_bytes(), kernel_bytes(&store))
    });
    for (before, after) in [(false, true), (true, false), (true, true)] {
        let left = if before { compressed(&image) } else { image.store() };
        image.fill(&left);
        left.commit(&"image".into(), Commitment::default()).expect("memory");
        let file = dup(left.file()).expect("a descriptor");
        // One chunk was changed, or half written.
        pwrite(&file, &[0x5A; 40], 4 * SIZE + 8).expect("written");
        drop(left);
        let (store, found) = Store::take_over(Kept::read(file).expect("a label")).expect("a store");
        if after {
            store.compress(&Room::new(u64::MAX));
        }
        let mut adopted = Adopted::default();
        found.runs.into_iter().flatten().for_each(|number| store.adopt(Chunk(number), Place::Disk, &mut adopted));
        assert_eq!((store.spoiled(), store.found(), store.is_resident(Chunk(4))), (1, 0, false));
        assert_eq!(adopted.chunks.len() as u64, DATA - 2 + 1);
        store.insert(Chunk(4), &image.chunk(Chunk(4))).expect("memory");
        assert!(all_of(&store, &image), "{before} {after}");
        // The label takes a page.
        let (resident, kernel) = expected[usize::from(after)];
        assert_eq!((store.resident_bytes(), kernel_bytes(&store)), (resident, kernel + 4096), "{before} {after}");
    }
}

#[tokio::test]
async fn a_chunk_that_does_not_unpack_is_reported_and_comes_again() {
    let image = image();
    let store = compressed(&image);
    image.fill(&store);
    for wrong in [&[0xFF; 8][..], &[0; 4], b"\x04\0\0\x20zstd"] {
        pwrite(store.file(), wrong, 5 * SIZE).expect("written");
        assert!(store.piece(Extent::from(5 * SIZE..5 * SIZE + 9)).is_none());
        assert!(!store.is_resident(Chunk(5)));
        assert_eq!(store.trouble().await.spoiled, [Chunk(5)]);
        assert_eq!(store.insert(Chunk(5), &image.chunk(Chunk(5))).expect("memory"), Inserted::New);
        assert!(all_of(&store, &image));
    }
}

#[tokio::test]
async fn a_store_takes_no_more_memory_than_it_may() {
    let image = image();
    let (store, top) = (image.store(), image.tree.geometry().top());
    store.compress(&Room::new(SIZE + 3 * 4096));
    store.insert(top, &image.chunk(top)).expect("memory");
    let fits = |number: u64| store.insert(Chunk(number), &image.chunk(Chunk(number))).is_ok();
    assert_eq!([1, 0, 6, 2, 4].map(fits), [true, true, false, true, true]);
    assert!(store.trouble().await.refused.is_some());
    // It goes through a buffer.
    let buffers = Arc::new(Buffers::default());
    assert_eq!(store.pass(Chunk(6), buffers.copy(&image.chunk(Chunk(6)))), Inserted::New);
    assert!(store.settle(Chunk(6)).is_err() && store.is_resident(Chunk(6)));
    let read = store.piece(Extent::from(6 * SIZE..7 * SIZE)).expect("it is here");
    assert_eq!(bytes_of(&read), image.chunk(Chunk(6)));
    // There is room again.
    assert!(store.evict(Chunk(6)) && store.evict(Chunk(1)) && fits(6));
}

/// Chunks for the store lie in buffers until the worker has compressed them.
#[test]
fn chunks_are_compressed_behind_their_readers() {
    let (image, buffers) = (image(), Arc::new(Buffers::default()));
    let store = compressed(&image);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    assert!(!store.writes_behind(), "there is no worker");
    let worker = runtime.spawn(Arc::clone(&store).work_behind());
    until("the worker attends", || store.writes_behind());
    let top = image.tree.geometry().top();
    store.insert(top, &image.chunk(top)).expect("memory");
    for chunk in (0..DATA).map(Chunk) {
        store.pass(chunk, buffers.copy(&image.chunk(chunk)));
        store.settle(chunk).expect("memory");
    }
    assert!(all_of(&store, &image));
    assert!(store.evict(Chunk(2)) && store.evict(Chunk(6)));
    let page = image.chunk(top).len() as u64;
    until("all is compressed", || store.resident_bytes() == 7 * 4096 + SIZE + (SIZE - 100) + page);
    assert!(store.is_resident(Chunk(5)) && !store.is_resident(Chunk(2)));
    worker.abort();
    until("the worker is gone", || !store.writes_behind());
}

#[test]
fn relatives_read_compressed_chunks() {
    let old = image();
    let mut bytes = old.bytes.clone();
    bytes[(4 * SIZE) as usize] ^= 1;
    let new = Image::new(bytes);
    for compresses in [[true, false], [false, true], [true, true]] {
        let [lender, borrower] = [(&old, compresses[0]), (&new, compresses[1])].map(|(image, compresses)| {
            let store = if compresses { compressed(image) } else { image.store() };
            store.insert(image.tree.geometry().top(), &image.chunk(image.tree.geometry().top())).expect("memory");
            store
        });
        old.fill(&lender);
        borrower.relate(&lender, |_| true);
        let mut adopted = Adopted::default();
        (0..DATA).for_each(|number| borrower.adopt(Chunk(number), Place::Disk, &mut adopted));
        assert_eq!(adopted.chunks.len() as u64, DATA - 2);
        borrower.insert(Chunk(4), &new.chunk(Chunk(4))).expect("memory");
        assert!(all_of(&borrower, &new), "{compresses:?}");
        lender.evict_all();
        borrower.lent_by(lender.id()).into_iter().for_each(|chunk| borrower.come_home(chunk).expect("memory"));
        assert_eq!(lender.resident_bytes(), 0);
        drop(lender);
        assert!(all_of(&borrower, &new), "{compresses:?}");
        borrower.evict_all();
        assert_eq!((borrower.resident_bytes(), kernel_bytes(&borrower)), (0, 0), "{compresses:?}");
    }
}

#[test]
fn many_threads_never_see_a_wrong_byte() {
    let image = image();
    many_threads(&image, &compressed(&image));
}

/// A chunk that came compressed over a link is stored so, whatever else would make of it.
#[test]
fn a_chunk_is_stored_as_it_came() {
    let image = image();
    let (store, came, chunk) = (compressed(&image), Arc::new(Compression::default()), Chunk(5));
    store.take_as_it_came(&came);
    // Another level than that of the store makes other bytes.
    let bytes = image.chunk(chunk);
    let frame = zstd::bulk::compress(&bytes, 19).expect("a frame");
    came.keep(chunk, Compressed { codec: Codec::Zstd, bytes: frame.clone().into() });
    image.fill(&store);
    assert_eq!(store.find_compressed(chunk).map(|found| found.bytes.to_vec()), Some(frame));
    assert!(all_of(&store, &image));
    assert!(store.find_compressed(Chunk(1)).is_none(), "noise lies plain");
}

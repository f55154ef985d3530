//! Stores of two versions of an image: common chunks lie once in memory, and each store keeps them
//! for as long as it wants.

use crate::image::{Image, SIZE, bytes_of, concatenated};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vfield_block::extent::Extent;
use vfield_block::source::Piece;
use vfield_core::chunk::Chunk;
use vfield_node::store::found::{Adopted, Place};
use vfield_node::store::{Inserted, Kept, Store};

/// Data chunks of the versions in the model test, and all chunks.
const DATA: u64 = 12;
const CHUNKS: u64 = DATA + 1;

/// A version of `image` that differs in some chunks; a chunk that becomes zero differs too.
fn version(image: &Image, differs: &[u64]) -> Image {
    let mut bytes = image.bytes.clone();
    for number in differs {
        bytes[(number * SIZE) as usize + 5] ^= 0xA5;
    }
    Image::new(bytes)
}

fn adopt(store: &Store, chunk: u64) -> bool {
    let mut adopted = Adopted::default();
    store.adopt(Chunk(chunk), Place::Disk, &mut adopted);
    adopted.chunks == [Chunk(chunk)]
}

/// The old version with all of its chunks, and the new one with its page.
fn pair(differs: &[u64]) -> ([Image; 2], [Arc<Store>; 2]) {
    let old = Image::with_zeros(DATA, &[3]);
    let new = version(&old, differs);
    let stores = [old.store(), new.store()];
    old.fill(&stores[0]);
    let top = new.tree.geometry().top();
    stores[1].insert(top, &new.chunk(top)).expect("memory");
    ([old, new], stores)
}

#[test]
fn equal_chunks_lie_once_in_memory() {
    let ([_, new], [first, second]) = pair(&[2, 7]);
    let runs = second.relate(&first, |chunk| chunk.0 != 9);
    assert_eq!(runs, [0..3, 4..9, 10..12]);
    assert_eq!((second.found(), second.lenders()), (10, vec![first.id()]));
    let before = [&first, &second].map(|store| store.resident_bytes());
    for number in 0..DATA {
        let lent = ![2, 3, 7].contains(&number);
        assert_eq!((adopt(&second, number), second.is_resident(Chunk(number))), (lent, lent), "chunk {number}");
    }
    assert_eq!([&first, &second].map(|store| store.resident_bytes()), before, "no memory was taken");
    assert_eq!((second.found(), second.lent_bytes()), (0, 8 * SIZE + (SIZE - 100)));
    for number in [2, 7] {
        let chunk = Chunk(number);
        assert_eq!(second.insert(chunk, &new.chunk(chunk)).expect("memory"), Inserted::New);
    }
    assert_eq!(second.insert(Chunk(1), &new.chunk(Chunk(1))).expect("memory"), Inserted::Already);
    assert_eq!(second.resident_bytes(), before[1] + 2 * SIZE);
    // Neighbours that lie in one memory file are one piece.
    let (mut pieces, all) = (Vec::new(), Extent::from(0..new.bytes.len() as u64));
    assert!(second.pieces(all, &mut pieces));
    let lengths: Vec<u64> = pieces.iter().map(|piece| piece.len() / SIZE).collect();
    assert_eq!((lengths, concatenated(&pieces)), (vec![2, 1, 1, 3, 1, 3], new.slice(all).to_vec()));
}

#[test]
fn an_evicted_chunk_stays_for_those_that_borrow_it() {
    let ([old, new], [first, second]) = pair(&[9]);
    let chunk = Chunk(5);
    second.relate(&first, |_| true);
    assert!(adopt(&second, 5));
    let held = first.resident_bytes();
    assert!(first.evict(chunk) && !first.is_resident(chunk));
    assert_eq!(first.resident_bytes(), held);
    assert_eq!(bytes_of(&second.chunk_piece(chunk).expect("lent")), new.chunk(chunk));
    // The lender takes it back without a copy.
    assert_eq!(first.insert(chunk, &old.chunk(chunk)).expect("memory"), Inserted::New);
    assert!(second.evict(chunk) && !second.evict(chunk));
    assert!(first.is_resident(chunk) && first.resident_bytes() == held);
    // Wanted again, it is found again.
    assert!(adopt(&second, 5) && first.evict(chunk));
    let reader = second.pin(chunk).expect("lent");
    assert!(second.evict(chunk));
    assert_eq!(first.resident_bytes(), held, "its last reader has it");
    drop(reader);
    assert_eq!(first.resident_bytes(), held - SIZE);
    assert!(!adopt(&second, 5), "nobody has it");
}

#[test]
fn loans_come_home_when_the_lender_ends() {
    let ([_, new], [first, second]) = pair(&[4]);
    second.relate(&first, |_| true);
    assert_eq!((0..DATA).filter(|number| adopt(&second, *number)).count() as u64, DATA - 2);
    let lent = second.lent_bytes();
    let reader = second.chunk_piece(Chunk(1)).expect("lent");
    first.evict_all();
    assert_eq!(first.resident_bytes(), lent, "what is not lent is free");
    for chunk in second.lent_by(first.id()) {
        second.come_home(chunk).expect("memory");
    }
    assert_eq!((second.lent_bytes(), first.resident_bytes()), (0, SIZE));
    assert_eq!(bytes_of(&reader), new.chunk(Chunk(1)));
    drop((reader, first));
    let mut pieces = Vec::new();
    assert!(second.pieces(Extent::from(0..4 * SIZE), &mut pieces));
    assert_eq!(concatenated(&pieces), new.slice(Extent::from(0..4 * SIZE)));
    // They are in its own file now, for a later process.
    second.commit(&"image".into(), Default::default()).expect("memory");
    let kept = Kept::read(rustix::io::dup(second.file()).expect("a descriptor")).expect("a store");
    assert_eq!(Store::take_over(kept).expect("a store").1.runs, [0..3, 5..CHUNKS]);
}

#[test]
fn what_an_earlier_process_left_is_verified_before_it_is_lent() {
    let ([old, new], [first, _]) = pair(&[6]);
    first.commit(&"image".into(), Default::default()).expect("memory");
    let file = rustix::io::dup(first.file()).expect("a descriptor");
    rustix::io::pwrite(&file, b"changed", 8 * SIZE).expect("written");
    drop(first);
    let (first, _) = Store::take_over(Kept::read(file).expect("a store")).expect("a store");
    let second = new.store();
    second.insert(Chunk(DATA), &new.chunk(Chunk(DATA))).expect("memory");
    assert_eq!(second.relate(&first, |_| true), [0..3, 4..12]);
    assert!(!adopt(&second, 5), "it is not verified yet");
    for number in [5, 6, 8] {
        first.adopt(Chunk(number), Place::Disk, &mut Adopted::default());
        assert_eq!(adopt(&second, number), number == 5);
    }
    assert_eq!(bytes_of(&second.chunk_piece(Chunk(5)).expect("lent")), old.chunk(Chunk(5)));
    // Chunks that nobody looks at are dropped.
    second.drop_found(0..DATA);
    assert_eq!((second.found(), second.resident_bytes()), (0, 32 * DATA));
}

#[derive(Debug, Clone)]
enum Step {
    Insert(usize, u64),
    Evict(usize, u64),
    Adopt(usize, u64),
    Hold(usize, u64),
    Drop(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let store = 0..2usize;
    let step = prop_oneof![
        3 => (store.clone(), 0..DATA).prop_map(|(store, chunk)| Step::Insert(store, chunk)),
        3 => (store.clone(), 0..DATA).prop_map(|(store, chunk)| Step::Evict(store, chunk)),
        4 => (store.clone(), 0..DATA).prop_map(|(store, chunk)| Step::Adopt(store, chunk)),
        2 => (store, 0..DATA).prop_map(|(store, chunk)| Step::Hold(store, chunk)),
        1 => any::<usize>().prop_map(Step::Drop),
    ];
    prop::collection::vec(step, 1..120)
}

/// Where the bytes of a chunk are that a store can read: the store that has them.
type Places = [std::collections::BTreeMap<u64, usize>; 2];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The same steps on two maps of chunks give the same answers, and take the same memory.
    #[test]
    fn two_versions_equal_two_maps(steps in steps()) {
        let images = [Image::with_zeros(DATA, &[]), Image::with_zeros(DATA, &[])];
        let images = [version(&images[0], &[]), version(&images[1], &[2, 7])];
        let stores = [images[0].store(), images[1].store()];
        for (image, store) in images.iter().zip(&stores) {
            store.insert(Chunk(DATA), &image.chunk(Chunk(DATA))).expect("memory");
        }
        stores[0].relate(&stores[1], |_| true);
        stores[1].relate(&stores[0], |_| true);
        let mut places: Places = Default::default();
        let mut readers: Vec<(usize, usize, u64, Piece)> = Vec::new();
        for step in steps {
            let in_memory = |places: &Places, readers: &[(usize, usize, u64, Piece)], store: usize, number: u64| {
                places.iter().any(|places| places.get(&number) == Some(&store))
                    || readers.iter().any(|(_, at, chunk, _)| (*at, *chunk) == (store, number))
            };
            let lends = |places: &Places, store: usize, number: u64| {
                places[store].get(&number) == Some(&store) && ![2, 7].contains(&number)
            };
            match step {
                Step::Insert(store, number) => {
                    let chunk = Chunk(number);
                    let new = !places[store].contains_key(&number);
                    let borrows = lends(&places, 1 - store, number) && !in_memory(&places, &readers, store, number);
                    let inserted = stores[store].insert(chunk, &images[store].chunk(chunk)).expect("memory");
                    prop_assert_eq!(inserted, if new { Inserted::New } else { Inserted::Already });
                    places[store].entry(number).or_insert(if borrows { 1 - store } else { store });
                }
                Step::Evict(store, number) => {
                    let was = places[store].remove(&number).is_some();
                    prop_assert_eq!(stores[store].evict(Chunk(number)), was);
                }
                Step::Adopt(store, number) => {
                    let other = 1 - store;
                    let lends = lends(&places, other, number);
                    let free = !places[store].contains_key(&number) && !in_memory(&places, &readers, store, number);
                    prop_assert_eq!(adopt(&stores[store], number), lends && free);
                    if lends && free {
                        places[store].insert(number, other);
                    }
                }
                Step::Hold(store, number) => {
                    let piece = stores[store].chunk_piece(Chunk(number));
                    prop_assert_eq!(piece.is_some(), places[store].contains_key(&number));
                    readers.extend(piece.map(|piece| (store, places[store][&number], number, piece)));
                }
                Step::Drop(at) => {
                    if !readers.is_empty() {
                        let (store, _, number, piece) = readers.swap_remove(at % readers.len());
                        prop_assert_eq!(bytes_of(&piece), images[store].chunk(Chunk(number)));
                    }
                }
            }
            for store in 0..2 {
                let here = (0..DATA).filter(|number| in_memory(&places, &readers, store, *number));
                let bytes: u64 = here.map(|number| images[store].tree.geometry().length(Chunk(number))).sum();
                prop_assert_eq!(stores[store].resident_bytes(), bytes + 32 * DATA);
                for number in 0..DATA {
                    prop_assert_eq!(stores[store].is_resident(Chunk(number)), places[store].contains_key(&number));
                }
            }
        }
        drop(readers);
        for store in &stores {
            for number in 0..DATA {
                store.evict(Chunk(number));
            }
        }
        prop_assert_eq!((stores[0].resident_bytes(), stores[1].resident_bytes()), (32 * DATA, 32 * DATA));
    }
}

/// Threads that insert, evict, lend and read two versions; each reader compares every byte it gets.
#[test]
fn many_threads_never_see_a_byte_of_the_other_version() {
    let differs: Vec<u64> = (0..8).step_by(3).collect();
    let old = Image::with_zeros(8, &[]);
    let images = [version(&old, &[]), version(&old, &differs)];
    let stores = [images[0].store(), images[1].store()];
    for (image, store) in images.iter().zip(&stores) {
        store.insert(Chunk(8), &image.chunk(Chunk(8))).expect("memory");
    }
    stores[0].relate(&stores[1], |_| true);
    stores[1].relate(&stores[0], |_| true);
    // On a busy machine readers may have ended before any other thread began.
    for (image, store) in images.iter().zip(&stores) {
        store.insert(Chunk(0), &image.chunk(Chunk(0))).expect("memory");
    }
    let (stop, length) = (AtomicBool::new(false), old.bytes.len() as u64);
    let hits = std::thread::scope(|scope| {
        for own in 0..2 {
            let (images, stores, stop) = (&images, &stores, &stop);
            // Of each store one thread, as the core orders evictions.
            scope.spawn(move || {
                let mut turn = own as u64;
                while !stop.load(Ordering::Relaxed) {
                    turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let chunk = Chunk(turn >> 61);
                    let done = match turn >> 58 & 7 {
                        0..2 => stores[own].insert(chunk, &images[own].chunk(chunk)).is_ok(),
                        2..5 => adopt(&stores[own], chunk.0),
                        _ => stores[own].evict(chunk),
                    };
                    turn += u64::from(done);
                }
            });
        }
        let readers: Vec<_> = (0..4u64)
            .map(|thread| {
                let (images, stores) = (&images, &stores);
                scope.spawn(move || {
                    let (own, mut hits) = (thread as usize % 2, 0);
                    for turn in 0..6_000 {
                        let start = (turn * 7919 * (thread + 1)) % length;
                        let extent = Extent::from(start..length).take(1 + turn * 31 % (3 * SIZE));
                        let mut pieces = Vec::new();
                        let done = stores[own].pieces_prefix(extent, &mut pieces);
                        let right = images[own].slice(extent.take(done));
                        assert!(concatenated(&pieces) == right, "wrong bytes in {extent:?}");
                        hits += u64::from(done > 0);
                    }
                    hits
                })
            })
            .collect();
        let ended: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        stop.store(true, Ordering::Relaxed);
        ended.into_iter().map(|end| end.expect("no wrong byte")).sum::<u64>()
    });
    assert!(hits > 0, "nothing was ever here");
    for store in &stores {
        (0..8).map(Chunk).for_each(|chunk| assert!(store.evict(chunk) || !store.is_resident(chunk)));
    }
    for store in &stores {
        assert_eq!((store.resident_bytes(), store.lent_bytes()), (8 * 32, 0), "all memory was given back");
    }
}

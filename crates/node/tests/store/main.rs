//! The store against a map of chunks, its slots through all interleavings, and both under many
//! threads.

mod compressed;
mod family;
mod image;
mod kept;
mod large;
mod on_disk;
mod slow_disk;

use image::{Image, SIZE, bytes_of, concatenated};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vfield_block::extent::Extent;
use vfield_block::source::Piece;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::hash_tree::TreeBuilder;
use vfield_node::buffers::Buffers;
use vfield_node::store::slot::{Form, Slot};
use vfield_node::store::{Check, Inserted, Store, StoreError};

#[derive(Debug, Clone)]
enum Step {
    Insert(u64),
    Pass(u64),
    Settle(u64),
    Evict(u64),
    Hold(u64),
    Drop(usize),
    Read(u64, u64),
}

fn steps(chunks: u64) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..chunks).prop_map(Step::Insert),
        3 => (0..chunks - 1).prop_map(Step::Pass),
        1 => (0..chunks).prop_map(Step::Settle),
        2 => (0..chunks).prop_map(Step::Evict),
        1 => (0..chunks).prop_map(Step::Hold),
        1 => any::<usize>().prop_map(Step::Drop),
        3 => (any::<u64>(), any::<u64>()).prop_map(|(a, b)| Step::Read(a, b)),
    ];
    prop::collection::vec(step, 1..80)
}

/// Where the bytes of a chunk are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Slot,
    Buffer,
}

/// Chunks of the image in the model test: 12 of data, one page.
const CHUNKS: u64 = 13;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The same steps on a map of chunks give the same answers.
    #[test]
    fn equals_a_map(steps in steps(CHUNKS)) {
        let image = Image::with_zeros(CHUNKS - 1, &[2, 3, 7]);
        let (store, geometry) = (image.store(), *image.tree.geometry());
        prop_assert_eq!(geometry.chunks(), CHUNKS);
        let buffers = Arc::new(Buffers::default());
        let mut held: BTreeMap<Chunk, Place> = BTreeMap::new();
        let mut read: Vec<(Chunk, Place, Piece)> = Vec::new();
        let mut top_seen = false;
        for step in steps {
            match step {
                Step::Insert(number) | Step::Pass(number) => {
                    let (chunk, bytes) = (Chunk(number), image.chunk(Chunk(number)));
                    let zero = top_seen && geometry.is_data(chunk) && image.tree.is_zero(chunk);
                    let expected = match () {
                        () if zero || held.contains_key(&chunk) => Inserted::Already,
                        () => Inserted::New,
                    };
                    let passes = matches!(step, Step::Pass(_));
                    let inserted = match passes {
                        true => store.pass(chunk, buffers.copy(&bytes)),
                        false => store.insert(chunk, &bytes).expect("memory"),
                    };
                    prop_assert_eq!(inserted, expected);
                    if expected == Inserted::New {
                        // A slot that is read has the bytes.
                        let slot = !passes || read.iter().any(|(of, place, _)| (*of, *place) == (chunk, Place::Slot));
                        held.insert(chunk, if slot { Place::Slot } else { Place::Buffer });
                        top_seen |= chunk == geometry.top();
                    }
                }
                Step::Settle(number) => {
                    store.settle(Chunk(number)).expect("memory");
                    held.entry(Chunk(number)).and_modify(|place| *place = Place::Slot);
                }
                Step::Evict(number) => {
                    prop_assert_eq!(store.evict(Chunk(number)), held.remove(&Chunk(number)).is_some());
                }
                Step::Hold(number) => {
                    let chunk = Chunk(number);
                    let zero = top_seen && geometry.is_data(chunk) && image.tree.is_zero(chunk);
                    let piece = store.chunk_piece(chunk).filter(|piece| !matches!(piece, Piece::Zero(_)));
                    prop_assert_eq!(piece.is_some(), held.contains_key(&chunk));
                    prop_assert!(piece.is_some() || zero || store.chunk_piece(chunk).is_none());
                    read.extend(piece.map(|piece| (chunk, held[&chunk], piece)));
                }
                Step::Drop(at) => {
                    if !read.is_empty() {
                        let (chunk, _, piece) = read.swap_remove(at % read.len());
                        prop_assert_eq!(bytes_of(&piece), image.chunk(chunk), "held bytes stay as they are");
                    }
                }
                Step::Read(a, b) => {
                    let length = geometry.header().length_bytes();
                    let (a, b) = (a % (length + 1), b % (length + 1));
                    let extent = Extent::from(a.min(b)..a.max(b));
                    let here = |number: &u64| {
                        let chunk = Chunk(*number);
                        held.contains_key(&chunk) || top_seen && image.tree.is_zero(chunk)
                    };
                    let prefix = geometry.covering(extent).take_while(here).count() as u64;
                    let prefix = match prefix {
                        0 => 0,
                        count => extent.len().min((geometry.covering(extent).start + count) * SIZE - extent.start()),
                    };
                    let mut pieces = vec![Piece::Zero(1)];
                    prop_assert_eq!(store.pieces(extent, &mut pieces), prefix == extent.len());
                    if prefix == extent.len() {
                        prop_assert_eq!(&concatenated(&pieces)[1..], image.slice(extent));
                    } else {
                        prop_assert_eq!(pieces.len(), 1);
                    }
                    pieces.clear();
                    prop_assert_eq!(store.pieces_prefix(extent, &mut pieces), prefix);
                    prop_assert_eq!(&concatenated(&pieces)[..], image.slice(extent.take(prefix)));
                }
            }
            let held_or_read = held.iter().map(|(chunk, place)| (*chunk, *place));
            let memory: HashSet<_> = held_or_read.chain(read.iter().map(|(chunk, place, _)| (*chunk, *place))).collect();
            let bytes: u64 = memory.iter().map(|(chunk, _)| geometry.length(*chunk)).sum();
            prop_assert_eq!(store.resident_bytes(), bytes);
            for number in 0..CHUNKS {
                prop_assert_eq!(store.is_resident(Chunk(number)), held.contains_key(&Chunk(number)));
            }
        }
    }
}

#[test]
fn neighbours_become_one_piece() {
    let image = Image::with_zeros(12, &[4, 5, 6]);
    let store = image.store();
    image.fill(&store);
    let mut pieces = Vec::new();
    assert!(store.pieces(Extent::from(100..12 * SIZE - 200), &mut pieces));
    let lengths: Vec<u64> = pieces.iter().map(Piece::len).collect();
    assert_eq!(lengths, [4 * SIZE - 100, 3 * SIZE, 5 * SIZE - 200]);
    assert!(matches!(pieces[1], Piece::Zero(_)));
    assert_eq!(concatenated(&pieces), image.slice(Extent::from(100..12 * SIZE - 200)));
    // One pin for each chunk, held by the pieces: evicted chunks stay in memory until they are
    // dropped.
    let before = store.resident_bytes();
    assert!(store.evict(Chunk(8)));
    assert_eq!((store.resident_bytes(), store.pin(Chunk(8)).is_some()), (before, false));
    assert_eq!(bytes_of(&pieces[2]), image.slice(Extent::from(7 * SIZE..12 * SIZE - 200)));
    drop(pieces);
    assert_eq!(store.resident_bytes(), before - SIZE);
    assert_eq!(store.insert(Chunk(8), &image.chunk(Chunk(8))).expect("memory"), Inserted::New);
    assert!(store.piece(Extent::from(8 * SIZE..8 * SIZE + 1)).is_some());
}

#[test]
fn checks_start_from_the_top() {
    // 600 chunks: two leaf pages below the top.
    let image = Image::with_zeros(600, &[1, 599]);
    let (store, top) = (image.store(), image.tree.geometry().top());
    let leaf = Chunk(600);
    assert_eq!(store.check(Chunk(0), &image.chunk(Chunk(0))), Check::Unknown);
    assert_eq!(store.check(leaf, &image.chunk(leaf)), Check::Unknown);
    assert_eq!((store.read_hash(Chunk(0)), store.read_hash(top)), (None, None));
    let mut wrong = image.chunk(top);
    wrong[3] ^= 1;
    assert_eq!(store.check(top, &wrong), Check::Bad);
    assert_eq!(store.check(top, &wrong[1..]), Check::Bad);
    for page in [top, leaf] {
        assert_eq!(store.check(page, &image.chunk(page)), Check::Good);
        assert_eq!(store.insert(page, &image.chunk(page)).expect("memory"), Inserted::New);
    }
    assert_eq!(store.read_hash(Chunk(5)), Some(image.tree.hash(Chunk(5))));
    assert_eq!(store.check(Chunk(5), &image.chunk(Chunk(5))), Check::Good);
    assert_eq!(store.check(Chunk(5), &image.chunk(Chunk(6))), Check::Bad);
    assert!(store.is_zero(Chunk(1)) && !store.is_zero(Chunk(0)) && !store.is_zero(Chunk(599)));
    assert!(matches!(store.piece(Extent::from(SIZE..SIZE + 9)), Some(Piece::Zero(9))));
    assert!(store.piece(Extent::from(0..9)).is_none());
    // A zero chunk stays known when its page is evicted.
    assert!(store.evict(leaf));
    assert_eq!(store.check(Chunk(5), &image.chunk(Chunk(5))), Check::Unknown);
    assert_eq!(store.check(Chunk(1), &image.chunk(Chunk(1))), Check::Good);
}

#[test]
fn pages_over_zeros_are_served_without_being_held() {
    let image = Image::new(vec![0; 600 * SIZE as usize]);
    let (store, top) = (image.store(), image.tree.geometry().top());
    assert!(store.chunk_piece(Chunk(600)).is_none());
    store.insert(top, &image.chunk(top)).expect("memory");
    for number in [0, 599, 600, 601, top.0] {
        let piece = store.chunk_piece(Chunk(number)).expect("known");
        assert_eq!(bytes_of(&piece), image.chunk(Chunk(number)), "chunk {number}");
    }
    assert_eq!(store.resident_bytes(), 64);
    let mut pieces = Vec::new();
    assert!(store.pieces(Extent::from(1..600 * SIZE), &mut pieces));
    assert!(matches!(pieces[..], [Piece::Zero(length)] if length == 600 * SIZE - 1));
}

#[test]
fn sizes_that_cannot_be_held_are_refused() {
    let huge = TreeBuilder::new(i64::MAX as u64, ChunkSize::MIN).expect("a builder");
    let (_, id, tree) = huge.finish();
    assert!(matches!(Store::new(id, tree.geometry()), Err(StoreError::TooLarge(_))));
    let (_, id, tree) = TreeBuilder::new(1 << 40, ChunkSize::DEFAULT).expect("a builder").finish();
    let store = Store::new(id, tree.geometry()).expect("a store");
    assert!(!store.is_resident(Chunk((1 << 24) - 1)));
    store.insert(tree.geometry().top(), tree.page(tree.geometry().top()).expect("a page")).expect("memory");
    let mut pieces = Vec::new();
    assert!(store.pieces(Extent::from((1 << 40) - (1 << 20)..1 << 40), &mut pieces));
    assert!(matches!(pieces[..], [Piece::Zero(length)] if length == 1 << 20));
}

/// Bytes that `sendfile` put into a socket stay right when their chunk is evicted before they are
/// read.
#[test]
fn bytes_in_flight_survive_an_eviction() {
    let image = Image::with_zeros(12, &[]);
    let store = image.store();
    image.fill(&store);
    for number in 0..8 {
        let (sender, mut receiver) = UnixStream::pair().expect("sockets");
        let piece = store.piece(image.tree.geometry().extent(Chunk(number))).expect("resident");
        let Piece::File(file) = piece else { continue };
        let mut offset = file.offset();
        let sent = rustix::fs::sendfile(&sender, file.fd(), Some(&mut offset), file.len() as usize).expect("sent");
        drop(file);
        assert!(store.evict(Chunk(number)));
        assert_eq!(store.insert(Chunk(number), &image.chunk(Chunk(number))).expect("memory"), Inserted::New);
        drop(sender);
        let mut received = Vec::new();
        receiver.read_to_end(&mut received).expect("received");
        assert_eq!(received, &image.chunk(Chunk(number))[..sent]);
    }
}

/// A chunk that is dropped while a client reads it slowly, and is wanted again, is here at once:
/// its bytes never went.
#[test]
fn a_dropped_chunk_that_is_still_read_comes_back() {
    let image = Image::with_zeros(12, &[]);
    let store = image.store();
    image.fill(&store);
    let chunk = Chunk(3);
    let reader = store.pin(chunk).expect("resident");
    assert!(!store.revive(chunk), "it was not dropped");
    assert!(store.evict(chunk) && !store.is_resident(chunk));
    assert!(store.revive(chunk) && store.is_resident(chunk));
    assert!(store.evict(chunk));
    assert_eq!(store.insert(chunk, &image.chunk(chunk)).expect("memory"), Inserted::New);
    let piece = store.chunk_piece(chunk).expect("resident");
    assert_eq!(concatenated(&[piece]), image.chunk(chunk));
    let held = store.resident_bytes();
    drop(reader);
    assert_eq!(store.resident_bytes(), held, "it is not dropped with its first reader");
    assert!(store.evict(chunk));
    assert!(!store.revive(chunk), "its bytes are gone");
    assert_eq!(store.resident_bytes(), held - SIZE);
}

#[test]
fn many_threads_never_see_a_wrong_byte() {
    let image = Image::with_zeros(8, &[3]);
    many_threads(&image, &image.store());
}

/// Readers, inserters and evictors on the first eight chunks; each reader compares every byte it
/// gets.
fn many_threads(image: &Image, store: &Arc<Store>) {
    /// At least; a busy machine may have read nothing by then that was resident.
    const READS: u64 = 4_000;
    let (stop, hits) = (AtomicBool::new(false), AtomicU64::new(0));
    let length = image.bytes.len() as u64;
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let stop = &stop;
            scope.spawn(move || {
                for turn in thread.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let chunk = Chunk(turn.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61);
                    store.insert(chunk, &image.chunk(chunk)).expect("memory");
                    store.evict(Chunk((turn.wrapping_mul(0xD134_2543_DE82_EF95)) >> 61));
                }
            });
        }
        let readers: Vec<_> = (1..=3u64)
            .map(|thread| {
                let hits = &hits;
                scope.spawn(move || {
                    for turn in 0.. {
                        if turn >= READS && hits.load(Ordering::Relaxed) > 0 {
                            break;
                        }
                        let start = (turn * 7919 * thread) % length;
                        let extent = Extent::from(start..length).take(1 + turn * 31 % (3 * SIZE));
                        let mut pieces = Vec::new();
                        let done = store.pieces_prefix(extent, &mut pieces);
                        assert!(concatenated(&pieces) == image.slice(extent.take(done)), "wrong bytes in {extent:?}");
                        hits.fetch_add(u64::from(done > 0), Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let ended: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        stop.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|end| end.expect("no wrong byte"));
    });
    for number in 0..8 {
        store.evict(Chunk(number));
    }
    assert_eq!(store.resident_bytes(), 0, "every evicted chunk gave its memory back");
}

/// The bytes in a slot's place in the memory file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Memory {
    Hole,
    HalfWritten,
    Whole,
}

/// The next step of a thread: one atomic transition or one touch of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Actor {
    Insert,
    Clear,
    Write,
    Finish,
    Publish,
    Abandon,
    Look,
    ReadFound,
    Judge(Memory),
    PutBack,
    Evict,
    Revive,
    Pin,
    Read,
    Unpin,
    Punch,
    Punched,
    Done,
}

type World = (Slot, Memory, [Actor; 5]);

/// One step of one actor; `None` if it is done.
fn step(&(slot, memory, actors): &World, actor: usize) -> Option<World> {
    use Actor::*;
    let after = |slot: Slot, next: Actor| if slot.is_to_punch() { (slot, memory, Punch) } else { (slot, memory, next) };
    let (slot, memory, next) = match actors[actor] {
        Insert => match (slot.claim(), slot.take()) {
            (Some(slot), _) => (slot, memory, Write),
            (None, Some(slot)) => (slot, memory, Clear),
            (None, None) => (slot, memory, Done),
        },
        Clear => (slot, Memory::Hole, Write),
        Write => {
            assert_eq!(memory, Memory::Hole, "a slot was used again before it was punched");
            (slot, Memory::HalfWritten, if actor == 1 { Abandon } else { Finish })
        }
        Finish => (slot, Memory::Whole, Publish),
        Publish => (slot.publish(Form::Plain), memory, Done),
        Abandon => after(slot.abandon(), Done),
        Look => slot.look().map_or((slot, memory, Done), |slot| (slot, memory, ReadFound)),
        ReadFound => (slot, memory, Judge(memory)),
        // If another task brings the chunk meanwhile, the slot is that one's.
        Judge(read) => slot.judge().map_or((slot, memory, Done), |slot| match read {
            // Half-written bytes of an earlier process do not match their hash.
            Memory::HalfWritten => (slot, memory, Abandon),
            _ if actor == 2 => (slot, memory, PutBack),
            _ => (slot, memory, Publish),
        }),
        PutBack => (slot.put_back(), memory, Look),
        Evict => slot.evict().map_or((slot, memory, Done), |slot| after(slot, Done)),
        Revive => slot.revive().map_or((slot, memory, Done), |slot| {
            assert_eq!(memory, Memory::Whole, "what comes back to life is whole");
            (slot, memory, Done)
        }),
        Pin => slot.pin().map_or((slot, memory, Done), |slot| (slot, memory, Read)),
        Read => {
            assert_eq!(memory, Memory::Whole, "a pinned chunk was not there");
            (slot, memory, Unpin)
        }
        Unpin => after(slot.unpin(), Done),
        Punch => {
            assert_eq!(slot.pins(), 0, "punched under a pin");
            (slot, Memory::Hole, Punched)
        }
        Punched => (slot.punched(), memory, Done),
        Done => return None,
    };
    let mut actors = actors;
    actors[actor] = next;
    Some((slot, memory, actors))
}

/// Every order in which two readers, two inserters (one of which fails), an evictor and the tasks
/// that check found bytes can take their steps, from an absent and from a resident slot.
#[test]
fn slots_are_right_in_every_interleaving() {
    use Actor::*;
    let Some(resident) = Slot::default().claim().map(|slot| slot.publish(Form::Plain)) else {
        unreachable!("an absent slot")
    };
    let teams = [
        [Insert, Insert, Evict, Pin, Pin],
        [Insert, Insert, Evict, Evict, Pin],
        [Insert, Evict, Insert, Evict, Pin],
        [Insert, Evict, Revive, Pin, Pin],
        [Insert, Evict, Revive, Evict, Pin],
    ];
    let starts = teams.into_iter().flat_map(|team| {
        [
            (Slot::default(), Memory::Hole, team),
            (resident, Memory::Whole, team),
            (resident.mark_zero(), Memory::Whole, team),
        ]
    });
    let Some(found) = Slot::default().find() else { unreachable!("an absent slot") };
    let lookers = [[Insert, Look, Look, Evict, Pin], [Insert, Look, Evict, Pin, Pin]];
    let left = [Memory::HalfWritten, Memory::Whole];
    let found = lookers.into_iter().flat_map(|team| left.map(|memory| (found, memory, team)));
    let mut todo: Vec<World> = starts.chain(found).collect();
    let mut seen: HashSet<World> = HashSet::new();
    let mut ends = 0;
    while let Some(world) = todo.pop() {
        if !seen.insert(world) {
            continue;
        }
        let next: Vec<World> = (0..5).filter_map(|actor| step(&world, actor)).collect();
        if next.is_empty() {
            let (slot, memory, _) = world;
            let expected = if slot.is_resident() { Memory::Whole } else { Memory::Hole };
            assert_eq!((memory, slot.pins(), slot.is_to_punch()), (expected, 0, false), "{slot:?} at the end");
            ends += 1;
        }
        todo.extend(next);
    }
    assert!(ends > 2 && seen.len() > 500, "{} states, {ends} ends", seen.len());
}

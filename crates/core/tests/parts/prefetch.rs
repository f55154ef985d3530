//! Lists of first reads: how they are noted and agreed on, and how far they lead a reader.

use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;
use vfield_core::prefetch::{BYTES_MAX, CHUNKS_MAX, PrefetchList, Prefetcher, RUNS_MAX, Recorder};
use vfield_core::read_ahead::ReadAhead;
use vfield_core::time::Time;

const CHUNKS: u64 = 1000;
const CHUNK_BYTES: u64 = 64 << 10;

/// The bytes of chunks.
const fn whole(chunks: std::ops::Range<u64>) -> std::ops::Range<u64> {
    chunks.start * CHUNK_BYTES..chunks.end * CHUNK_BYTES
}

/// The list of a machine that reads these chunks, one after the other.
fn list(reads: &[u64]) -> PrefetchList {
    let mut recorder = Recorder::new(CHUNKS, CHUNK_BYTES);
    reads.iter().for_each(|chunk| recorder.note(whole(*chunk..chunk + 1), Time::ZERO));
    recorder.list()
}

fn chunks(list: &PrefetchList) -> Vec<u64> {
    list.chunks().collect()
}

#[test]
fn first_reads_are_noted_in_order_and_once() {
    let list = list(&[7, 8, 3, 7, 9, 4]);
    assert_eq!(list.runs(), [7..9, 3..4, 9..10, 4..5]);
    assert_eq!((list.len(), list.is_empty()), (5, false));
}

#[test]
fn a_start_is_over_when_it_is_quiet_or_long() {
    let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
    let mut recorder = Recorder::new(CHUNKS, CHUNK_BYTES);
    recorder.note(whole(1..16), at(100));
    recorder.note(whole(16..17), at(109));
    assert!(!recorder.is_over(at(119)));
    assert!(recorder.is_over(at(120)));
    recorder.note(whole(17..18), at(120));
    recorder.note(whole(18..19), at(121));
    assert_eq!(chunks(&recorder.list()), (1..17).collect::<Vec<_>>());
    let mut long = Recorder::new(CHUNKS, CHUNK_BYTES);
    (0..CHUNKS).for_each(|second| long.note(whole(second % 200..second % 200 + 1), at(second)));
    assert!(long.is_over(at(CHUNKS)));
    let mut long = Recorder::new(1 << 40, CHUNK_BYTES);
    (0..CHUNKS).for_each(|second| long.note(whole(second..second + 1), at(second)));
    assert_eq!(long.list().len(), 301);
}

#[test]
fn a_mount_alone_is_no_start() {
    let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
    let mut recorder = Recorder::new(CHUNKS, CHUNK_BYTES);
    recorder.note(whole(0..4), at(0));
    assert!(!recorder.is_over(at(3600)));
    (0..20).for_each(|second| recorder.note(whole(100 + second..101 + second), at(3600 + second)));
    assert_eq!(recorder.list().runs(), [0..4, 100..120]);
    assert!(recorder.is_over(at(3630)));
}

#[test]
fn a_reader_of_everything_teaches_a_quarter() {
    let mut recorder = Recorder::new(CHUNKS, CHUNK_BYTES);
    recorder.note(whole(0..CHUNKS), Time::ZERO);
    assert_eq!(chunks(&recorder.list()), (0..CHUNKS / 4).collect::<Vec<_>>());
    assert!(recorder.is_over(Time::ZERO));
    let mut recorder = Recorder::new(1 << 40, CHUNK_BYTES);
    recorder.note(whole(0..1 << 40), Time::ZERO);
    assert_eq!(recorder.list().len(), CHUNKS_MAX);
    let mut recorder = Recorder::new(1 << 40, CHUNK_BYTES);
    (0..1 << 13).for_each(|chunk| recorder.note(whole(2 * chunk..2 * chunk + 1), Time::ZERO));
    assert_eq!(recorder.list().runs().len(), RUNS_MAX);
}

#[test]
fn chunks_of_which_little_is_read_are_left_to_slices() {
    let mut recorder = Recorder::new(CHUNKS, CHUNK_BYTES);
    recorder.note(0..4096, Time::ZERO);
    recorder.note(3 * CHUNK_BYTES - 4096..3 * CHUNK_BYTES + CHUNK_BYTES / 4, Time::ZERO);
    assert_eq!(chunks(&recorder.list()), [3]);
    recorder.note(4096..CHUNK_BYTES / 4, Time::ZERO);
    assert_eq!(chunks(&recorder.list()), [0, 3]);
}

#[test]
fn an_image_without_chunks_teaches_nothing() {
    let mut recorder = Recorder::new(0, CHUNK_BYTES);
    recorder.note(whole(0..1), Time::ZERO);
    assert!(recorder.is_over(Time::ZERO) && recorder.list().is_empty());
}

#[test]
fn half_of_the_machines_agree_on_a_chunk_and_its_place() {
    let lists = [list(&[1, 2, 3, 50]), list(&[2, 1, 3]), list(&[60, 1, 2, 3])];
    let agreed = PrefetchList::agreed(&lists.iter().collect::<Vec<_>>());
    assert_eq!(chunks(&agreed), [1, 2, 3]);
    assert_eq!(PrefetchList::agreed(&[&lists[1]]), lists[1]);
    assert!(PrefetchList::agreed(&[]).is_empty());
}

#[test]
fn a_reader_is_led_a_window_ahead() {
    let order: Vec<u64> = (0..100).map(|at| (at * 7) % 200).collect();
    let mut prefetcher = Prefetcher::new(&list(&order), 8);
    let mut fetched = Vec::new();
    for (at, chunk) in order.iter().enumerate() {
        fetched.extend(prefetcher.note(*chunk..chunk + 1).into_iter().flatten());
        let ahead = fetched.iter().filter(|chunk| !order[..=at].contains(chunk)).count();
        assert_eq!(ahead, 8.min(order.len() - at - 1), "after {at}");
    }
    // The first one was read before it could be fetched.
    assert_eq!(fetched, order[1..]);
    assert!(prefetcher.is_over());
}

/// The number of chunks that are fetched for readers of these chunks.
fn fetched(prefetcher: &mut Prefetcher, reads: impl IntoIterator<Item = u64>) -> u64 {
    reads.into_iter().flat_map(|chunk| prefetcher.note(chunk..chunk + 1)).map(|run| run.end - run.start).sum()
}

#[test]
fn a_wrong_list_costs_sixteen_chunks() {
    let order: Vec<u64> = (0..200).collect();
    assert_eq!(fetched(&mut Prefetcher::new(&list(&order), 128), 500..900), 16);
    // It costs no more to meet it here and there.
    assert_eq!(fetched(&mut Prefetcher::new(&list(&order), 8), [10, 30, 50, 70, 90, 110, 130, 150, 170]), 16);
}

#[test]
fn random_reads_are_not_led() {
    let mut seed = 1u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % CHUNKS
    };
    let others: Vec<u64> = (0..600).map(|_| random()).collect();
    let mine: Vec<u64> = (0..600).map(|_| random()).collect();
    let led = fetched(&mut Prefetcher::new(&list(&others), 128), mine);
    assert!((16..=60).contains(&led), "{led}");
}

#[test]
fn trust_grows_with_each_fetched_chunk_that_is_read() {
    let order: Vec<u64> = (0..250).map(|at| (at * 7) % CHUNKS).collect();
    let mut prefetcher = Prefetcher::new(&list(&order), 128);
    assert_eq!(fetched(&mut prefetcher, order[..1].iter().copied()), 16);
    fetched(&mut prefetcher, order[1..100].iter().copied());
    // All but the first one, less those of the beginning and two for each of 99 reads.
    assert_eq!(fetched(&mut prefetcher, order[100..].iter().copied()), 249 - (16 + 2 * 99));
}

#[test]
fn readers_may_skip_and_go_back() {
    let mut prefetcher = Prefetcher::new(&list(&[10, 20, 30, 40, 50, 60, 70]), 2);
    assert_eq!(prefetcher.note(10..11), [20..21, 30..31]);
    assert_eq!(prefetcher.note(50..51), [60..61, 70..71]);
    assert_eq!(prefetcher.note(20..31), []);
}

#[test]
fn what_a_list_has_fetched_needs_no_read_ahead() {
    let order: Vec<u64> = (0..100).map(|at| (at * 7) % 200).collect();
    let mut prefetcher = Prefetcher::new(&list(&order), 8);
    let leads = |prefetcher: &Prefetcher, chunk: u64| prefetcher.leads(chunk..chunk + 1);
    prefetcher.note(order[0]..order[0] + 1);
    assert!(!leads(&prefetcher, order[0]), "it was read before it could be fetched");
    for chunk in order[1..50].iter().copied() {
        prefetcher.note(chunk..chunk + 1);
        assert!(leads(&prefetcher, chunk), "{chunk}");
    }
    assert!(!leads(&prefetcher, 500), "it is not listed");
    // The readers skip a part. What they skipped was never fetched.
    prefetcher.note(order[80]..order[80] + 1);
    assert!(!leads(&prefetcher, order[80]) && !leads(&prefetcher, order[70]) && leads(&prefetcher, order[49]));
    // A wrong list leads nowhere.
    let mut wrong = Prefetcher::new(&list(&order), 128);
    assert_eq!(fetched(&mut wrong, [500]), 16);
    assert!(!leads(&wrong, order[1]));
}

#[test]
fn a_list_with_gaps_does_not_stop_read_ahead() {
    let even: Vec<u64> = (0..200).step_by(2).collect();
    let (mut prefetcher, mut ahead) = (Prefetcher::new(&list(&even), 8), ReadAhead::new(CHUNKS, 128));
    let mut fetched = BTreeSet::new();
    for chunk in 0..200 {
        let read = chunk..chunk + 1;
        assert!(chunk < 4 || fetched.contains(&chunk), "nobody fetched {chunk}");
        fetched.extend(prefetcher.note(read.clone()).into_iter().flatten());
        if prefetcher.leads(read.clone()) {
            ahead.note_led(read);
        } else {
            fetched.extend(ahead.note(read));
        }
    }
}

#[test]
fn without_a_window_nothing_is_fetched() {
    let mut prefetcher = Prefetcher::new(&list(&[10, 20, 30]), 0);
    assert!(prefetcher.is_over() && prefetcher.note(10..11).is_empty());
}

#[test]
fn bytes_that_are_no_list_are_refused() {
    assert!(PrefetchList::decode(&[0xff; 9], CHUNKS).is_err());
    assert!(PrefetchList::decode(&vec![0; BYTES_MAX + 1], CHUNKS).is_err());
    assert_eq!(PrefetchList::decode(&list(&[]).encode(), CHUNKS), Ok(PrefetchList::default()));
}

proptest! {
    #[test]
    fn a_list_is_the_same_after_its_way(reads in prop::collection::vec(0..CHUNKS, 0..200)) {
        let list = list(&reads);
        let bytes = list.encode();
        prop_assert!(bytes.len() <= BYTES_MAX);
        prop_assert_eq!(PrefetchList::decode(&bytes, CHUNKS), Ok(list));
    }

    #[test]
    fn any_bytes_are_a_list_of_this_image_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200), chunks in 0..CHUNKS) {
        if let Ok(list) = PrefetchList::decode(&bytes, chunks) {
            let mut all: Vec<u64> = list.chunks().collect();
            prop_assert!(list.len() <= chunks.div_ceil(4));
            all.sort_unstable();
            all.dedup();
            prop_assert_eq!(all.len() as u64, list.len());
            prop_assert!(all.last().is_none_or(|last| *last < chunks));
        }
    }

    #[test]
    fn hostile_runs_take_no_time(runs in prop::collection::vec((any::<i64>(), any::<u64>()), 0..100)) {
        let bytes = postcard::to_stdvec(&runs).expect("plain data");
        let list = PrefetchList::decode(&bytes, u64::MAX).expect("runs");
        prop_assert!(list.len() <= CHUNKS_MAX);
    }
}

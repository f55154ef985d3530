//! Read-ahead: sequential readers, orderly or not, and random readers.

use proptest::prelude::*;
use std::collections::BTreeSet;
use vfield_core::read_ahead::ReadAhead;

proptest! {
    /// A reader goes through the whole image, with reads swapped like those of clients with several
    /// requests in flight. No chunk is suggested twice, none past the end, and nearly all before
    /// they are read.
    #[test]
    fn sequential_readers_are_run_ahead_of(
        chunks in 200u64..3_000,
        window in 64u64..256,
        length in 1u64..9,
        jitter in 0usize..6,
        dice in prop::collection::vec(any::<usize>(), 64),
    ) {
        let mut reads: Vec<_> = (0..chunks).step_by(length as usize).map(|start| start..(start + length).min(chunks)).collect();
        let mut places: Vec<usize> = (0..reads.len()).collect();
        places.sort_by_key(|at| at + dice[at % dice.len()] % (jitter + 1));
        reads = places.into_iter().map(|at| reads[at].clone()).collect();
        let mut ahead = ReadAhead::new(chunks, window);
        let (mut suggested, mut late) = (BTreeSet::new(), 0);
        for read in reads {
            late += read.clone().filter(|chunk| !suggested.contains(chunk)).count() as u64;
            let next = ahead.note(read);
            prop_assert!(next.is_empty() || next.end <= chunks);
            prop_assert!(next.end.saturating_sub(next.start) <= window + 64 + length);
            for chunk in next {
                prop_assert!(suggested.insert(chunk), "{} is suggested twice", chunk);
            }
        }
        prop_assert!(late <= 40 + 20 * length + chunks / 10, "{} of {} chunks came late", late, chunks);
    }

    /// Reads all over a large image: hardly anything is fetched for nothing.
    #[test]
    fn scattered_readers_are_left_alone(places in prop::collection::vec(0u64..1 << 30, 200)) {
        let mut ahead = ReadAhead::new(1 << 30, 64);
        let suggested: u64 = places.into_iter().map(|place| {
            let next = ahead.note(place..place + 1);
            next.end.saturating_sub(next.start)
        }).sum();
        prop_assert!(suggested <= 8, "{} chunks suggested", suggested);
    }

    /// Reads all over a small image, where any two lie near each other: little is fetched for
    /// nothing.
    #[test]
    fn scattered_readers_of_small_images_are_left_alone(places in prop::collection::vec(0u64..1 << 10, 500)) {
        let mut ahead = ReadAhead::new(1 << 10, 128);
        let suggested: u64 = places.into_iter().map(|place| {
            let next = ahead.note(place..place + 1);
            next.end.saturating_sub(next.start)
        }).sum();
        prop_assert!(suggested <= 50, "{} chunks suggested", suggested);
    }

    /// For any reads, suggestions end at the image's end and span one window at a time.
    #[test]
    fn suggestions_stay_within_the_image(
        chunks in 1u64..500,
        window in 0u64..64,
        reads in prop::collection::vec((0u64..500, 0u64..40), 0..100),
    ) {
        let mut ahead = ReadAhead::new(chunks, window);
        for (start, length) in reads {
            let start = start.min(chunks);
            let next = ahead.note(start..(start + length).min(chunks));
            prop_assert!(next.is_empty() || (next.end <= chunks && window > 0));
        }
    }
}

/// Several readers of one image at once, each far from the others.
#[test]
fn readers_are_told_apart() {
    let mut ahead = ReadAhead::new(1 << 20, 64);
    let mut suggested = [0; 10];
    for step in 0..200 {
        for (reader, count) in suggested.iter_mut().enumerate() {
            let at = reader as u64 * 100_000 + step;
            let next = ahead.note(at..at + 1);
            *count += next.end.saturating_sub(next.start);
        }
    }
    assert!(suggested.iter().all(|count| *count >= 190 && *count <= 270), "{suggested:?}");
}

//! Fills: every chunk of the arc once, and only arrived chunks are announced.

use super::at;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use vfield_core::chunk::Chunk;
use vfield_core::fill::{Fill, Look};
use vfield_core::placement::{Arc, Ring};
use vfield_core::time::Time;

/// Asks `fill` for work until it has none; zero runs are given as first and last number.
fn walk(fill: &mut Fill, ring: Ring, zeros: &[(u64, u64)], here: &BTreeSet<Chunk>) -> Option<Chunk> {
    let arc = fill.arc();
    loop {
        let (chunk, more) = fill.walk(|chunk| {
            let zero = zeros.iter().find(|(first, last)| (*first..=*last).contains(&chunk.0));
            match zero {
                Some((_, last)) => Look::Through(Chunk(*last)),
                None if !arc.contains(ring.place(chunk), ring.size()) || here.contains(&chunk) => Look::Through(chunk),
                None => Look::Fetch,
            }
        });
        if chunk.is_some() || !more {
            return chunk;
        }
    }
}

proptest! {
    #[test]
    fn each_chunk_of_the_arc_is_fetched_once(
        size in 1u64..400,
        (start, length, from) in any::<(u64, u64, u64)>(),
        zeros in prop::collection::vec((0u64..400, 0u64..60), 0..4),
        parallel in 1usize..20,
        picks in prop::collection::vec(any::<usize>(), 400),
    ) {
        let ring = Ring::new(size);
        let arc = Arc { start: start % size, length: length % (size + 1) };
        let zeros: Vec<(u64, u64)> = zeros.into_iter().map(|(first, more)| (first, (first + more).min(size - 1))).collect();
        let is_zero = |number: u64| zeros.iter().any(|(first, last)| (*first..=*last).contains(&number));
        let on_arc = |number: u64| arc.contains(ring.place(Chunk(number)), size);
        let wanted: BTreeSet<Chunk> = (0..size).filter(|&n| on_arc(n) && !is_zero(n)).map(Chunk).collect();

        let mut fill = Fill::new(size, arc, from % size, Time::ZERO);
        let (mut here, mut asked, mut under_way) = (BTreeSet::new(), BTreeMap::<Chunk, u32>::new(), Vec::new());
        let mut before = 0;
        for pick in picks.iter().cycle() {
            while under_way.len() < parallel && let Some(chunk) = walk(&mut fill, ring, &zeros, &here) {
                *asked.entry(chunk).or_default() += 1;
                under_way.push(chunk);
            }
            let filled = fill.filled();
            prop_assert!(filled.count >= before, "it goes only forward");
            before = filled.count;
            // An empty arc holds nothing, and has at once passed everything.
            for number in (0..size).filter(|number| filled.contains(Chunk(*number), size)) {
                let there = !wanted.contains(&Chunk(number)) || here.contains(&Chunk(number));
                prop_assert!(there, "{} is said to be here", number);
            }
            prop_assert_eq!(fill.pending(), under_way.len());
            if under_way.is_empty() {
                break;
            }
            let came = under_way.swap_remove(pick % under_way.len());
            here.insert(came);
            fill.arrived(came);
        }
        prop_assert!(fill.is_done());
        prop_assert_eq!(&here, &wanted);
        prop_assert!(asked.values().all(|times| *times == 1));
    }
}

/// At the highest boost there are no pauses; at lower ones more of the time is left to others.
#[test]
fn the_pace_follows_the_boost() {
    let wait = |boost| {
        let mut fill = Fill::new(100, Arc { start: 0, length: 100 }, 0, at(0));
        (0..100).for_each(|turn| fill.pace(at(1000 + turn * 100), 1, boost, at(1008 + turn * 100)));
        fill.not_before() - at(10_908)
    };
    assert_eq!(wait(9), Duration::ZERO);
    assert!((0..9).all(|boost| wait(boost) > wait(boost + 1)));
    assert!((71..=72).contains(&wait(0).as_millis()), "nine tenths of the time");
}

/// A machine that was stopped gets all answers late at once. They say so once, and the fill goes on
/// within ten times of that. Each of them counted, and it paused for a minute.
#[test]
fn answers_that_are_late_together_count_once() {
    let mut fill = Fill::new(100, Arc { start: 0, length: 100 }, 0, at(0));
    for waiting in (1..=8).rev() {
        fill.pace(at(1), waiting, 0, at(3001));
    }
    let mut now = fill.not_before();
    for _ in 0..50 {
        let sent = now;
        fill.pace(sent, 1, 0, sent + Duration::from_millis(1));
        now = fill.not_before();
    }
    assert!(now - at(3001) < Duration::from_secs(10), "{:?}", now - at(3001));
}

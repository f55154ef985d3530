//! The state of each granule: two bits, in words that readers load without a lock.
//!
//! Invariant: an area is stored only by the holder of its lock for writing; readers without the
//! lock see the old or the new state. Pages of words are allocated when a granule of theirs first
//! changes, and cost 64 KiB for each GiB of the device. Only the overlay uses it.

use crate::granule::{AREA_GRANULES, Area, Cut, State, WORDS};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Areas of a page: those of 1 GiB of the device. The directory then takes 16 KiB for each TiB.
const PAGE_AREAS: u64 = 1 << 10;

type Words = [AtomicU64; WORDS];

/// The states of all granules.
pub struct Map {
    pages: Vec<OnceLock<Box<[Words]>>>,
    cut: Cut,
}

impl Map {
    /// Everything the base's.
    pub fn new(cut: Cut) -> Self {
        Self { pages: (0..cut.areas().div_ceil(PAGE_AREAS)).map(|_| OnceLock::new()).collect(), cut }
    }

    fn words(&self, area: u64) -> Option<&Words> {
        let page = self.pages.get((area / PAGE_AREAS) as usize)?.get()?;
        page.get((area % PAGE_AREAS) as usize)
    }

    /// The states of an area now.
    pub fn load(&self, area: u64) -> Area {
        self.words(area).map_or_else(Area::default, |words| {
            let mut states = Area::default();
            for (state, word) in states.0.iter_mut().zip(words) {
                *state = word.load(Ordering::Acquire);
            }
            states
        })
    }

    /// Replaces the states of an area, whose lock the caller holds.
    pub fn store(&self, area: u64, states: &Area) {
        let page = &self.pages[(area / PAGE_AREAS) as usize];
        let page = page.get_or_init(|| (0..PAGE_AREAS).map(|_| Words::default()).collect());
        for (word, state) in page[(area % PAGE_AREAS) as usize].iter().zip(states.0) {
            word.store(state, Ordering::Release);
        }
    }

    /// The run of one state that begins with `granules` (of the device, not empty): the state, and
    /// where the run ends within them.
    pub fn run(&self, granules: Range<u64>) -> (State, u64) {
        let state = self.load(granules.start / AREA_GRANULES).get((granules.start % AREA_GRANULES) as usize);
        let mut at = granules.start;
        while at < granules.end {
            let area = at / AREA_GRANULES;
            let page_end = (area / PAGE_AREAS + 1) * PAGE_AREAS * AREA_GRANULES;
            if self.pages[(area / PAGE_AREAS) as usize].get().is_none() {
                if state != State::Base {
                    break;
                }
                at = page_end.min(granules.end);
                continue;
            }
            let first = area * AREA_GRANULES;
            let within = (at - first) as usize..(granules.end - first).min(AREA_GRANULES) as usize;
            let (states, end) = (self.load(area), within.end);
            // A state may have changed since the first look.
            if states.get(within.start) != state {
                break;
            }
            let run_end = states.run_end(within);
            at = first + run_end as u64;
            if run_end < end {
                break;
            }
        }
        (state, at.max(granules.start + 1))
    }

    /// The areas that are not all the base's, in order.
    pub fn changed(&self) -> impl Iterator<Item = (u64, Area)> + '_ {
        let pages = (0..).zip(&self.pages).filter(|(_, page)| page.get().is_some());
        let areas = pages.flat_map(|(page, _)| page * PAGE_AREAS..(page + 1) * PAGE_AREAS);
        areas
            .take_while(|area| *area < self.cut.areas())
            .map(|area| (area, self.load(area)))
            .filter(|(_, states)| !states.is_base())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::granule::AREA_BYTES;

    #[test]
    fn runs_go_on_over_areas_and_pages() {
        let map = Map::new(Cut::new(3 << 30));
        let all = (3 << 30) / 4096;
        assert_eq!(map.run(0..all), (State::Base, all));
        let mut states = Area::default();
        states.set(10..256, State::Zero);
        map.store(5, &states);
        states.set(0..10, State::Zero);
        map.store(6, &states);
        let first = 5 * AREA_GRANULES + 10;
        assert_eq!(map.run(0..all), (State::Base, first));
        assert_eq!(map.run(first..all), (State::Zero, 7 * AREA_GRANULES));
        assert_eq!(map.run(first..first + 3), (State::Zero, first + 3));
        assert_eq!(map.run(7 * AREA_GRANULES..all), (State::Base, all));
        let last = Cut::new(3 << 30).areas() - 1;
        map.store(last, &states);
        assert_eq!(map.run(7 * AREA_GRANULES..all), (State::Base, last * AREA_GRANULES));
        assert_eq!(map.changed().map(|(area, _)| (area * AREA_BYTES) >> 20).collect::<Vec<_>>(), [5, 6, last]);
    }
}

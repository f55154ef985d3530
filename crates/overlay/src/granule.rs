//! Granules: the units of changes, and the states of an area of them.
//!
//! Pure arithmetic over values. An area is the unit of a lock, of a journal's entry and of a saved
//! overlay's entry: 256 granules, 1 MiB.

use std::collections::BTreeMap;
use std::ops::Range;
use vfield_block::extent::Extent;

/// Length of a granule in bytes: the page of the kernel and the block of file systems. So file
/// systems write whole granules, and the base need not be read.
pub const GRANULE_BYTES: u64 = vfield_block::device::GRANULE_BYTES as u64;

/// Granules of an area. With 256 the states of an area fill a cache line, and an area is as long as
/// the longest request of the kernel's clients.
pub const AREA_GRANULES: u64 = 256;

/// Length of an area of the device.
pub const AREA_BYTES: u64 = AREA_GRANULES * GRANULE_BYTES;

/// Length of an [`Area`] as it is written to files.
pub const AREA_STATES_BYTES: usize = WORDS * 8;

/// Words of an area: 32 granules each.
pub(crate) const WORDS: usize = 8;

/// Granules of a word.
const WORD_GRANULES: usize = 32;

/// Every other bit of a word, the low ones of its granules.
const LOW: u64 = 0x5555_5555_5555_5555;

/// The source of a granule's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// As the base has them.
    Base,
    /// In the overlay.
    Held,
    /// Nowhere: they are zeros.
    Zero,
}

impl State {
    const fn bits(self) -> u64 {
        match self {
            Self::Base => 0,
            Self::Held => 1,
            Self::Zero => 2,
        }
    }
}

/// The states of an area's granules: two bits each, the first granule in the lowest bits of the
/// first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Area(pub(crate) [u64; WORDS]);

impl Area {
    /// The state of a granule, 0 to 255.
    pub fn get(&self, granule: usize) -> State {
        match self.0[granule / WORD_GRANULES] >> (granule % WORD_GRANULES * 2) & 3 {
            0 => State::Base,
            1 => State::Held,
            _ => State::Zero,
        }
    }

    /// Gives all of `granules` one state.
    pub fn set(&mut self, granules: Range<usize>, state: State) {
        for granule in granules {
            let (word, shift) = (granule / WORD_GRANULES, granule % WORD_GRANULES * 2);
            self.0[word] = self.0[word] & !(3 << shift) | state.bits() << shift;
        }
    }

    /// The number of held granules.
    pub fn held(&self) -> u64 {
        self.0.iter().map(|word| u64::from((word & LOW).count_ones())).sum()
    }

    /// The number of zero granules.
    pub fn zeros(&self) -> u64 {
        self.0.iter().map(|word| u64::from((word >> 1 & LOW).count_ones())).sum()
    }

    /// The number of held ones among `granules`.
    pub fn held_in(&self, granules: Range<usize>) -> u64 {
        granules.filter(|granule| self.get(*granule) == State::Held).count() as u64
    }

    /// True if all of it is the base's.
    pub fn is_base(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// The end, within `granules`, of the run of one state at their start.
    pub fn run_end(&self, granules: Range<usize>) -> usize {
        let state = self.get(granules.start);
        let mut at = granules.start;
        while at < granules.end && self.get(at) == state {
            // Most words have one state throughout.
            let same = at.is_multiple_of(WORD_GRANULES) && self.0[at / WORD_GRANULES] == LOW * state.bits();
            at += if same { WORD_GRANULES } else { 1 };
        }
        at.min(granules.end)
    }

    /// The runs of held granules, in order.
    pub fn held_runs(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let all = AREA_GRANULES as usize;
        let mut at = 0;
        std::iter::from_fn(move || {
            while at < all {
                let run = at..self.run_end(at..all);
                at = run.end;
                if self.get(run.start) == State::Held {
                    return Some(run);
                }
            }
            None
        })
    }

    /// The file format: eight words, little-endian.
    pub fn encode(&self) -> [u8; AREA_STATES_BYTES] {
        let mut bytes = [0; AREA_STATES_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(self.0) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The inverse of [`Area::encode`]. `None` for invalid states, and for changed granules from
    /// `granules` on: the device ends there.
    pub fn decode(bytes: &[u8; AREA_STATES_BYTES], granules: usize) -> Option<Self> {
        let mut area = Self::default();
        for (word, bytes) in area.0.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        }
        let known = area.0.iter().all(|word| word & word >> 1 & LOW == 0);
        let all = AREA_GRANULES as usize;
        let ends = granules >= all || (area.get(granules) == State::Base && area.run_end(granules..all) == all);
        (known && ends).then_some(area)
    }
}

/// Areas that are not all the base's, by number.
pub type Areas = BTreeMap<u64, Area>;

/// The division of a device into granules and areas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    size_bytes: u64,
}

impl Cut {
    /// The cut of a device of `size_bytes`.
    pub const fn new(size_bytes: u64) -> Self {
        Self { size_bytes }
    }

    /// Length of the device.
    pub const fn size_bytes(self) -> u64 {
        self.size_bytes
    }

    /// The number of areas; the last one may be shorter.
    pub const fn areas(self) -> u64 {
        self.size_bytes.div_ceil(AREA_BYTES)
    }

    /// The number of granules in an area.
    pub fn granules_of(self, area: u64) -> usize {
        let bytes = self.size_bytes.saturating_sub(area.saturating_mul(AREA_BYTES)).min(AREA_BYTES);
        bytes.div_ceil(GRANULE_BYTES) as usize
    }

    /// Length of the file that has a place for each granule, whole ones.
    pub const fn file_bytes(self) -> u64 {
        self.size_bytes.next_multiple_of(GRANULE_BYTES)
    }

    /// The part of `extent` that is whole granules; the device's end ends a granule. Empty at its
    /// start if none is.
    pub fn whole(self, extent: Extent) -> Extent {
        let start = extent.start().next_multiple_of(GRANULE_BYTES);
        let end =
            if extent.end() == self.size_bytes { extent.end() } else { extent.end() / GRANULE_BYTES * GRANULE_BYTES };
        if start < end { Extent::from(start..end) } else { extent.take(0) }
    }

    /// The extent of the granule that holds a byte.
    pub fn around(self, byte: u64) -> Extent {
        let start = byte / GRANULE_BYTES * GRANULE_BYTES;
        Extent::from(start..self.size_bytes.min(start + GRANULE_BYTES))
    }
}

/// `extent` cut at the borders of areas: the number of each, and the part in it.
pub(crate) fn by_area(extent: Extent) -> impl Iterator<Item = (u64, Extent)> {
    let mut rest = extent;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let part = rest.take(AREA_BYTES - rest.start() % AREA_BYTES);
        rest = rest.skip(part.len());
        Some((part.start() / AREA_BYTES, part))
    })
}

/// The granules of its area that `part`, which lies in one area and is not empty, touches.
pub(crate) fn granules_in(part: Extent) -> Range<usize> {
    let area = part.start() / AREA_BYTES * AREA_BYTES;
    let first = (part.start() - area) / GRANULE_BYTES;
    first as usize..(part.end() - area).div_ceil(GRANULE_BYTES) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_area_is_what_was_set(runs in prop::collection::vec((0..256_usize, 0..256_usize, 0..3_u8), 0..20)) {
            let mut model = [State::Base; 256];
            let mut area = Area::default();
            for (start, length, state) in runs {
                let state = [State::Base, State::Held, State::Zero][usize::from(state)];
                let run = start..(start + length).min(256);
                model[run.clone()].fill(state);
                area.set(run, state);
            }
            prop_assert!((0..256).all(|granule| area.get(granule) == model[granule]));
            prop_assert_eq!(area.held(), model.iter().filter(|state| **state == State::Held).count() as u64);
            prop_assert_eq!(area.zeros(), model.iter().filter(|state| **state == State::Zero).count() as u64);
            prop_assert_eq!(area.held_runs().flatten().collect::<Vec<_>>(), (0..256).filter(|at| model[*at] == State::Held).collect::<Vec<_>>());
            for start in 0..256 {
                let end = (start..256).find(|at| model[*at] != model[start]).unwrap_or(256);
                prop_assert_eq!(area.run_end(start..256), end);
            }
            prop_assert_eq!(Area::decode(&area.encode(), 256), Some(area));
            let end = model.iter().rposition(|state| *state != State::Base).map_or(0, |last| last + 1);
            prop_assert_eq!(Area::decode(&area.encode(), end), Some(area));
            prop_assert!(end == 0 || Area::decode(&area.encode(), end - 1).is_none());
        }

        #[test]
        fn any_bytes_are_an_area_or_none(bytes in any::<[u8; 64]>(), granules in 0..300_usize) {
            if let Some(area) = Area::decode(&bytes, granules) {
                prop_assert_eq!(area.encode(), bytes);
            }
        }

        #[test]
        fn extents_are_cut_without_a_gap(start in 0..5_000_000_u64, length in 0..5_000_000_u64) {
            let extent = Extent::new(start, length).unwrap();
            let mut at = start;
            for (area, part) in by_area(extent) {
                prop_assert_eq!(part.start(), at);
                prop_assert!(part.start() / AREA_BYTES == area && (part.end() - 1) / AREA_BYTES == area);
                prop_assert!(granules_in(part).end <= 256);
                at = part.end();
            }
            prop_assert_eq!(at, extent.end());
        }
    }

    #[test]
    fn the_devices_end_ends_a_granule() {
        let cut = Cut::new(3 * GRANULE_BYTES + 512);
        assert_eq!(cut.whole(Extent::from(1..cut.size_bytes())), Extent::from(GRANULE_BYTES..cut.size_bytes()));
        assert_eq!(cut.whole(Extent::from(1..GRANULE_BYTES)).len(), 0);
        assert_eq!(cut.around(cut.size_bytes() - 1).len(), 512);
        assert_eq!((cut.areas(), cut.granules_of(0), cut.granules_of(1)), (1, 4, 0));
    }
}

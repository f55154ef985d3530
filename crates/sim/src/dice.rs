//! The randomness of a run: one stream of numbers from one seed.

use std::ops::Range;
use vfield_core::placement::map::mix;

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// The next number, any.
    pub fn roll(&mut self) -> u64 {
        self.0 = mix(self.0.wrapping_add(0x9E37_79B9_7F4A_7C15));
        self.0
    }

    /// A number of a range, which is not empty.
    pub fn among(&mut self, range: Range<u64>) -> u64 {
        assert!(!range.is_empty(), "nothing to choose from");
        range.start + self.roll() % (range.end - range.start)
    }

    /// True `times` in a hundred.
    pub fn percent(&mut self, times: u64) -> bool {
        self.roll() % 100 < times
    }

    /// A random one of the choices.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.among(0..choices.len() as u64) as usize]
    }

    /// Any order, all equally likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.among(0..end as u64 + 1) as usize);
        }
    }
}

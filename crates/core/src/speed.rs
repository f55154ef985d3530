//! Speed: what a node's link carries, as the node measures it itself, and the classes of a room.
//!
//! A chain is as fast as its slowest link before the end. So the order of a chain begins with the
//! fastest nodes, and each node announces its speed. It measures that itself: a chunk is whole at
//! its sender before its first byte leaves. So the time from the first byte to the last is the time
//! of the links, whatever the sender waited for. The way out is taken to be as fast as the way in
//! unless an operator bounds it.
//!
//! A slow answer may also be the fault of the other side. So a node announces a speed only once two
//! partners were measured, in either direction, and the faster one counts.

mod link;
mod meter;
mod own;

pub use link::{Class, Classes, Link};
pub use meter::{Meter, Shown, Transit, Window, bytes_in};
pub use own::{ENOUGH, LinkBounds, OwnSpeed, Sample, Way};

use serde::{Deserialize, Serialize};

/// A speed in steps of an eighth of an octave (9 %); 0 while it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Speed(pub u8);

impl Speed {
    /// Not known. Such a node is taken for one of the fastest.
    pub const UNKNOWN: Self = Self(0);
    /// Steps in which a speed doubles.
    const OCTAVE: u32 = 8;
    /// Bytes a second of the speed before the first step: 32 kbit/s, below which a node is of no
    /// use. The last step is at 15 Tbit/s.
    const LEAST: u64 = 4 << 10;

    /// The powers of two between 1 and 2 in these steps, times 2^56.
    const PART_OF_OCTAVE: [u64; 8] = [
        0x100_0000_0000_0000,
        0x117_2B83_C7D5_17AE,
        0x130_6FE0_A31B_7153,
        0x14B_FDAD_5362_A272,
        0x16A_09E6_67F3_BCC9,
        0x18A_CE54_22AA_0DB6,
        0x1AE_89F9_95AD_3AD6,
        0x1D5_818D_CFBA_4872,
    ];

    /// Of a link that carries this many bytes a second.
    pub fn of(bytes_per_s: u64) -> Self {
        let ratio = u128::from((bytes_per_s / Self::LEAST).max(1));
        let octaves = ratio.ilog2();
        // Rounding is left to the finer part: the eighth power of the rest doubles with each step.
        let mut rest = ((u128::from(bytes_per_s.max(Self::LEAST)) << FRACTION) / u128::from(Self::LEAST)) >> octaves;
        let mut steps = octaves;
        for _ in 0..Self::OCTAVE.ilog2() {
            rest = (rest * rest) >> FRACTION;
            let doubled = rest >= 2 << FRACTION;
            steps = steps * 2 + u32::from(doubled);
            rest >>= u32::from(doubled);
        }
        Self(u8::try_from(steps + 1).unwrap_or(u8::MAX))
    }

    /// True if it has been measured.
    pub const fn is_known(self) -> bool {
        self.0 != 0
    }

    /// True if the other is certainly faster; never if one of them is not known.
    pub const fn is_below(self, other: Self) -> bool {
        self.is_known() && self.0.saturating_add(DIFFER) <= other.0
    }

    /// The least rate of this step, in bytes a second; `None` while it is not known.
    pub fn bytes_per_s(self) -> Option<u64> {
        let steps = u32::from(self.0.checked_sub(1)?);
        let part = u128::from(Self::PART_OF_OCTAVE[(steps % Self::OCTAVE) as usize]);
        let exact = (part * u128::from(Self::LEAST)) << (steps / Self::OCTAVE);
        // Rounded up: below, it would be of the step before.
        u64::try_from(exact.div_ceil(1 << 56)).ok()
    }
}

/// Bits of a fraction of a speed: the square of a number below 4 fits into 128 bits.
const FRACTION: u32 = 62;

/// Steps between two speeds that certainly differ: twice. Where several senders share a link, a
/// measurement is half as much again at times, and each change of an order costs a moment.
const DIFFER: u8 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_has_steps_of_an_eighth_octave() {
        assert_eq!(Speed::of(0), Speed(1));
        assert_eq!(Speed::of(4 << 10), Speed(1));
        assert_eq!(Speed::of(8 << 10), Speed(9));
        assert_eq!(Speed::of(12_500_000).0 - Speed::of(1_250_000).0, 26, "ten times is 26.6 steps");
        assert_eq!(Speed::of(u64::MAX), Speed(u8::MAX));
        for rate in [5000, 1_250_000, 11_900_000, 125_000_000, 12_500_000_000] {
            let back = Speed::of(rate).bytes_per_s().unwrap() as f64;
            assert!((0.91..=1.001).contains(&(back / rate as f64)), "{rate}: {back}");
        }
        for step in 1..=u8::MAX {
            let exact = Speed::LEAST as f64 * 2f64.powf(f64::from(step - 1) / 8.0);
            let rate = Speed(step).bytes_per_s().unwrap();
            assert!((0.0..1.01).contains(&(rate as f64 - exact)) || rate as f64 / exact < 1.000_001, "{step}: {rate}");
            assert_eq!(Speed::of(rate), Speed(step), "a speed that is kept stays the same");
        }
    }
}

//! Links of unequal machines: `100M`, `1G/100M` with an uplink of its own, `1G:32` drawn.
//!
//! Invariants: each direction has at least [`Rate::MIN_BITS`], drawn or not. The same seed gives a
//! machine the same link in the laboratory and in the simulator.

use crate::each::{Each, Trait};
use std::fmt;
use std::str::FromStr;

/// The links of all machines; a list such as `100M,10M@3,1G/100M@5..9`.
pub type Links = Each<Link>;

/// A rate in bits a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u64);

impl Rate {
    /// The slowest link.
    pub const MIN_BITS: u64 = 64_000;
    /// The fastest link.
    pub const MAX_BITS: u64 = 1_000_000_000_000;

    /// A rate in bits a second; `None` if no link has it.
    pub const fn of_bits(bits: u64) -> Option<Self> {
        if Self::MIN_BITS <= bits && bits <= Self::MAX_BITS { Some(Self(bits)) } else { None }
    }

    /// Bits a second.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Bytes a second, rounded down.
    pub const fn bytes(self) -> u64 {
        self.0 / 8
    }
}

/// Decimal units of rates, the largest first.
const UNITS: [(f64, char); 4] = [(1e12, 'T'), (1e9, 'G'), (1e6, 'M'), (1e3, 'K')];

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0 as f64;
        let (unit, letter) = UNITS.into_iter().find(|(unit, _)| bits >= *unit).unwrap_or((1e3, 'K'));
        write!(f, "{}{letter}", bits / unit)
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no rate in bits a second, from 64K to 1T, such as 1G");
        let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = (text[..at].parse::<f64>().map_err(|_| wrong())?, &text[at..]);
        let times = match unit.trim_end_matches("bit/s").trim_end_matches("bit") {
            "" => 1.0,
            "K" | "k" => 1e3,
            "M" => 1e6,
            "G" => 1e9,
            "T" => 1e12,
            _ => return Err(wrong()),
        };
        Self::of_bits((number * times).round() as u64).ok_or_else(wrong)
    }
}

/// The rates of a link in each direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// Towards the machine.
    pub down: Rate,
    /// Out of the machine.
    pub up: Rate,
}

/// A machine's link as it is typed: `DOWN`, `DOWN/UP`, and after a colon the factor that chance
/// may divide both by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    rates: Rates,
    factor: u32,
}

impl Link {
    /// A link, whose rates are divided by at most `factor`; `None` if one would be too slow then.
    pub fn new(down: Rate, up: Rate, factor: u32) -> Option<Self> {
        let slowest = down.min(up).bits() / u64::from(factor.max(1));
        (factor > 0 && slowest >= Rate::MIN_BITS).then_some(Self { rates: Rates { down, up }, factor })
    }

    /// Both rates before chance divides them.
    pub const fn nominal(self) -> Rates {
        self.rates
    }

    /// True if chance decides.
    pub const fn is_drawn(self) -> bool {
        self.factor > 1
    }

    /// The rates of a machine's link. The factor of a drawn one is equally likely on a logarithmic
    /// scale, since real links differ by powers of ten. As many links are divided by 1 to 2 as by
    /// 16 to 32. One factor divides both directions.
    pub fn rates(self, machine: usize, seed: u64) -> Rates {
        if !self.is_drawn() {
            return self.rates;
        }
        let factor = power(f64::from(self.factor), mix(seed ^ mix(machine as u64)));
        let slower = |rate: Rate| Rate(((rate.bits() as f64 / factor) as u64).max(Rate::MIN_BITS));
        Rates { down: slower(self.rates.down), up: slower(self.rates.up) }
    }
}

/// `base` to the power of `exponent` / 2^64. By square roots, which every machine rounds alike.
fn power(base: f64, exponent: u64) -> f64 {
    let (mut root, mut product) = (base, 1.0);
    for bit in (0..u64::BITS).rev() {
        root = f64::sqrt(root);
        if exponent >> bit & 1 == 1 {
            product *= root;
        }
    }
    product
}

/// A number that looks drawn, from any other: the finisher of splitmix64 (Steele and others, 2014).
const fn mix(number: u64) -> u64 {
    let word = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

impl Trait for Link {
    const NAME: &'static str = "link";
    const EXAMPLE: &'static str = "links such as 100M or 1G/100M@5..9";

    fn read(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn text(self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rates { down, up } = self.rates;
        write!(f, "{down}")?;
        if up != down {
            write!(f, "/{up}")?;
        }
        if self.is_drawn() { write!(f, ":{}", self.factor) } else { Ok(()) }
    }
}

impl FromStr for Link {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rates, factor) = text.split_once(':').map_or((text, None), |(rates, factor)| (rates, Some(factor)));
        let (down, up) = rates.split_once('/').unwrap_or((rates, rates));
        let factor = factor.map_or(Ok(1), str::parse::<u32>);
        let factor = factor.ok().filter(|factor| *factor > 0).ok_or("after : stands the highest factor, such as 32")?;
        let (down, up) = (down.parse()?, up.parse()?);
        Self::new(down, up, factor).ok_or_else(|| format!("divided by {factor} it is below 64K"))
    }
}

/// The least time in seconds in which links bring all of an image to all readers, if no store has
/// any of it. It is the longest of three times: that of the slowest of the readers' `downlinks`,
/// that of all `uplinks` together, and that of the `origin`'s uplink. The last counts if all of the
/// image has to come from there. Rates are in bytes a second.
pub fn bound_s(image_bytes: u64, downlinks: &[u64], uplinks: impl Iterator<Item = u64>, origin: Option<u64>) -> f64 {
    let bytes = image_bytes as f64;
    let slowest = downlinks.iter().map(|rate| bytes / *rate as f64).fold(0.0, f64::max);
    let together = bytes * downlinks.len() as f64 / uplinks.sum::<u64>() as f64;
    slowest.max(together).max(origin.map_or(0.0, |rate| bytes / rate as f64))
}

impl Links {
    /// The rates of a machine's link: its own, that of all, or else `usual` both ways.
    pub fn rates(&self, machine: usize, usual: Rate, seed: u64) -> Rates {
        self.of(machine).map_or(Rates { down: usual, up: usual }, |link| link.rates(machine, seed))
    }
}

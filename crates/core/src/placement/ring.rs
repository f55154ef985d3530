//! The ring: a fixed order of an image's chunks that scatters adjacent chunks, and arcs of it.

use crate::chunk::Chunk;
use serde::{Deserialize, Serialize};

/// The order of `size` chunks around the ring: chunk `c` has the place `c * step mod size`. `step`
/// is the number coprime to `size` that is nearest to `size / golden ratio`.
///
/// Multiples of the golden ratio are the most evenly spread of all such sequences (three-distance
/// theorem; Knuth, TAOCP vol. 3, 6.4). Any run of adjacent chunks falls on the ring in nearly equal
/// distances. So any few MiB of an image are spread over *all* nodes, and each arc gets its share
/// of them up to one or two chunks. A random permutation would leave Poisson's lumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    size: u64,
    step: u64,
    inverse: u64,
}

impl Ring {
    /// The ring of an image of `size` chunks (hash pages included), at least 1.
    pub fn new(size: u64) -> Self {
        assert!(size > 0, "an image has at least one chunk");
        /// 2^64 divided by the golden ratio.
        const GOLDEN: u128 = 0x9E37_79B9_7F4A_7C15;
        let ideal = ((u128::from(size) * GOLDEN) >> 64) as u64;
        let coprime = |step: &u64| (1..=size).contains(step) && gcd(*step, size) == 1;
        let step =
            (0..size).flat_map(|off| [ideal.saturating_add(off), ideal.saturating_sub(off)]).find(coprime).unwrap_or(1);
        Self { size, step, inverse: inverse(step, size) }
    }

    /// Number of places, which is the number of chunks.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The place of a chunk.
    pub fn place(&self, chunk: Chunk) -> u64 {
        multiply(chunk.0, self.step, self.size)
    }

    /// The chunk at a place.
    pub fn chunk(&self, place: u64) -> Chunk {
        Chunk(multiply(place, self.inverse, self.size))
    }
}

fn multiply(a: u64, b: u64, modulus: u64) -> u64 {
    (u128::from(a) * u128::from(b) % u128::from(modulus)) as u64
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The number that undoes a multiplication by `step`, which is coprime to `size` (extended Euclid).
fn inverse(step: u64, size: u64) -> u64 {
    let (mut r0, mut r1) = (i128::from(size), i128::from(step));
    let (mut t0, mut t1) = (0i128, 1i128);
    while r1 != 0 {
        let quotient = r0 / r1;
        (r0, r1) = (r1, r0 - quotient * r1);
        (t0, t1) = (t1, t0 - quotient * t1);
    }
    t0.rem_euclid(i128::from(size)) as u64
}

/// Steps from one of `size` numbers in a circle to another one.
const fn steps(from: u64, to: u64, size: u64) -> u64 {
    if to >= from { to - from } else { to + size - from }
}

/// A run of places, around the ring: `length` of them from `start` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Arc {
    /// First place of the arc.
    pub start: u64,
    /// Number of places, at most the ring's size; 0 holds nothing.
    pub length: u64,
}

impl Arc {
    /// True if `place` lies on this arc of a ring of `size` places.
    pub const fn contains(&self, place: u64, size: u64) -> bool {
        steps(self.start, place, size) < self.length
    }

    /// True if it could be an arc of a ring of `size` places.
    pub const fn fits(&self, size: u64) -> bool {
        self.start < size && self.length <= size
    }
}

/// The filled part of an arc: the chunks numbered `from`, `from + 1`, ... around the image, `count`
/// of them. Of those the node holds the ones whose place lies on its arc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Filled {
    /// Number of the chunk where filling began.
    pub from: u64,
    /// Chunk numbers that the fill has passed; the ring's size when done.
    pub count: u64,
}

impl Filled {
    /// Chunk numbers from the first chunk to `chunk`, around an image of `size` chunks: below
    /// `size`.
    pub const fn distance(&self, chunk: Chunk, size: u64) -> u64 {
        steps(self.from, chunk.0, size)
    }

    /// True if `chunk` has been passed, in an image of `size` chunks.
    pub const fn contains(&self, chunk: Chunk, size: u64) -> bool {
        self.distance(chunk, size) < self.count
    }

    /// True if it could be the filled part of an arc of a ring of `size` places.
    pub const fn fits(&self, size: u64) -> bool {
        self.from < size && self.count <= size
    }

    /// The chunk to look at next, if any is left.
    pub fn next(&self, size: u64) -> Option<Chunk> {
        (self.count < size).then(|| Chunk(((u128::from(self.from) + u128::from(self.count)) % u128::from(size)) as u64))
    }
}

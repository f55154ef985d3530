//! Counts: the number of arcs over each place of a line, while arcs come and go, and the least of
//! them.
//!
//! A segment tree over the stretches between the ends of all arcs that will ever come. Each tree
//! node has the least count below it and the number of places with that count. Adding or removing
//! an arc costs O(log n); the overall least is at the root.
//!
//! [`super::coverage`] sweeps the ring with it.

use super::ring::Arc;

/// A tree node: its stretches, without the counts of the nodes above it.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    /// Arcs that lie over all of it and not over all of the node above.
    over_all: u64,
    /// The least count of its places.
    least: u64,
    /// The number of places with that count.
    places: u64,
}

/// Counts of arcs over the stretches of a line.
#[derive(Debug)]
pub struct Counts {
    /// Where stretches begin, ascending, and the line's end.
    cuts: Vec<u64>,
    /// A tree in an array: the children of `n` are `2n` and `2n + 1`, the root is 1.
    parts: Vec<Part>,
    /// Stretches, a power of two: those behind the line's end have no places.
    leaves: usize,
    /// Nodes looked at so far.
    #[cfg(test)]
    pub visited: u64,
}

impl Counts {
    /// A line of `size` places, above 0, over which only some of these arcs, which fit it, will
    /// lie.
    pub fn new(arcs: impl Iterator<Item = Arc>, size: u64) -> Self {
        let ends = arcs.flat_map(|arc| [arc.start, (arc.start + arc.length) % size]);
        let mut cuts: Vec<u64> = ends.chain([0, size]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let leaves = (cuts.len() - 1).next_power_of_two();
        let mut parts = vec![Part { least: u64::MAX, ..Part::default() }; 2 * leaves];
        for (at, pair) in cuts.windows(2).enumerate() {
            parts[leaves + at] = Part { over_all: 0, least: 0, places: pair[1] - pair[0] };
        }
        let mut counts = Self {
            cuts,
            parts,
            leaves,
            #[cfg(test)]
            visited: 0,
        };
        (1..leaves).rev().for_each(|node| counts.sum_up(node));
        counts
    }

    /// An arc comes.
    pub fn add(&mut self, arc: Arc) {
        self.change(arc, |count| count + 1);
    }

    /// An arc goes, which has come before.
    pub fn remove(&mut self, arc: Arc) {
        self.change(arc, |count| count - 1);
    }

    /// The least count of all places, and how many places have it.
    pub fn least(&self) -> (u64, u64) {
        (self.parts[1].least, self.parts[1].places)
    }

    fn change(&mut self, arc: Arc, by: impl Fn(u64) -> u64 + Copy) {
        let (end, size) = (arc.start + arc.length, self.cuts[self.cuts.len() - 1]);
        let leaf = |place: u64| self.cuts.partition_point(|cut| *cut < place);
        let stretches = [(leaf(arc.start), leaf(end.min(size))), (0, leaf(end.saturating_sub(size)))];
        for (from, to) in stretches {
            self.change_part(1, (0, self.leaves), (from, to), by);
        }
    }

    /// Changes the counts of the stretches `from..to` among those of a tree node, `first..last`.
    fn change_part(
        &mut self,
        node: usize,
        (first, last): (usize, usize),
        (from, to): (usize, usize),
        by: impl Fn(u64) -> u64 + Copy,
    ) {
        if from >= last || to <= first {
            return;
        }
        #[cfg(test)]
        {
            self.visited += 1;
        }
        if from <= first && last <= to {
            let part = &mut self.parts[node];
            part.over_all = by(part.over_all);
            if part.least != u64::MAX {
                part.least = by(part.least);
            }
            return;
        }
        let middle = usize::midpoint(first, last);
        self.change_part(2 * node, (first, middle), (from, to), by);
        self.change_part(2 * node + 1, (middle, last), (from, to), by);
        self.sum_up(node);
    }

    /// Computes a tree node from the two below it.
    fn sum_up(&mut self, node: usize) {
        let (left, right) = (self.parts[2 * node], self.parts[2 * node + 1]);
        let least = left.least.min(right.least);
        let of = |part: Part| if part.least == least { part.places } else { 0 };
        let part = &mut self.parts[node];
        part.places = of(left) + of(right);
        part.least = if least == u64::MAX { least } else { least + part.over_all };
    }
}

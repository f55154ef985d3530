//! Counting how often the ring is covered.

use super::map::Holding;
use super::ring::{Arc, Ring};

/// How well the stores of a field hold an image, origins not counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coverage {
    /// Share of the chunks with at least one holder, 0 to 1.
    pub share: f64,
    /// Lowest number of holders of any chunk.
    pub multiplicity_min: u64,
}

impl Coverage {
    /// Counts what is held now. A stretch of the ring and a stretch of the image that only meet in a few
    /// chunks are weighed by their lengths, so during a fill `share` is an estimate and
    /// `multiplicity_min` may be low; both are exact once fills are done.
    pub fn of(ring: &Ring, holdings: &[Holding]) -> Self {
        let size = ring.size();
        let whole = Arc { start: 0, length: size };
        let arcs: Vec<Arc> = holdings.iter().map(|h| if h.arc.length < size { h.arc } else { whole }).collect();
        let layers = Layers::of(&arcs, size);
        let (mut covered, mut lowest) = (0.0, u64::MAX);
        for (start, length) in layers.segments() {
            let filled: Vec<Arc> = holdings
                .iter()
                .filter(|h| h.filled.count > 0 && h.arc.contains(start, size))
                .map(|h| Arc { start: h.filled.from, length: h.filled.count })
                .collect();
            let inner = Layers::of(&filled, size);
            lowest = lowest.min(inner.lowest(whole));
            let bare: u64 = inner.runs().filter(|run| run.count == 0).map(|run| run.length).sum();
            covered += length as f64 * (size - bare) as f64;
        }
        let share = covered / (size as f64 * size as f64);
        Self { share: if lowest > 0 { 1.0 } else { share.min(1.0) }, multiplicity_min: lowest }
    }

    /// True if each chunk has a holder: what [`Coverage::of`] says, without counting. Whoever has a store asks that each time
    /// others have said something, and mostly the answer is near: a part that nobody has, or stores that are full.
    pub fn is_whole(ring: &Ring, holdings: &[Holding]) -> bool {
        let size = ring.size();
        let mut arcs: Vec<Arc> = holdings.iter().filter(|h| h.filled.count == size).map(|h| h.arc).collect();
        if covers(&mut arcs, size) {
            return true;
        }
        let parts = || holdings.iter().map(|h| h.arc).filter(|arc| arc.length < size);
        let mut cuts: Vec<u64> = parts().flat_map(|arc| [arc.start, (arc.start + arc.length) % size]).collect();
        cuts.push(0);
        cuts.sort_unstable();
        cuts.dedup();
        cuts.into_iter().all(|cut| {
            arcs.clear();
            let here = holdings.iter().filter(|h| h.filled.count > 0 && h.arc.contains(cut, size));
            arcs.extend(here.map(|h| Arc { start: h.filled.from, length: h.filled.count }));
            covers(&mut arcs, size)
        })
    }
}

/// True if the arcs, which are left in disorder, together cover a ring of `size` places.
fn covers(arcs: &mut Vec<Arc>, size: u64) -> bool {
    if arcs.iter().any(|arc| arc.length >= size) {
        return true;
    }
    for at in 0..arcs.len() {
        let Arc { start, length } = arcs[at];
        let beyond = (start + length).saturating_sub(size);
        if beyond > 0 {
            arcs.push(Arc { start: 0, length: beyond });
        }
    }
    arcs.sort_unstable();
    let mut reached = 0;
    for arc in arcs {
        if arc.start > reached {
            return false;
        }
        reached = reached.max(arc.start + arc.length);
    }
    reached >= size
}

/// A stretch over which the same number of arcs lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First place.
    pub start: u64,
    /// Number of places, above 0.
    pub length: u64,
    /// How many arcs lie over each.
    pub count: u64,
}

/// A ring cut at the ends of all arcs: how many lie over each stretch.
#[derive(Debug)]
pub struct Layers {
    size: u64,
    runs: Vec<Run>,
    /// The least count of all places.
    least: u64,
    /// Worth of all places before each run, and of all; see [`Layers::gain`].
    before: Vec<u128>,
}

impl Layers {
    /// Cuts a ring of `size` places. Costs O(n log n).
    pub fn of(arcs: &[Arc], size: u64) -> Self {
        let mut edges: Vec<(u64, i64)> = vec![(0, 0), (size, 0)];
        for arc in arcs.iter().filter(|arc| arc.length > 0) {
            let end = arc.start + arc.length;
            edges.push((arc.start, 1));
            edges.push((end.min(size), -1));
            if end > size {
                edges.push((0, 1));
                edges.push((end - size, -1));
            }
        }
        edges.sort_unstable();
        let (mut runs, mut count) = (Vec::new(), 0i64);
        for pair in edges.windows(2) {
            count += pair[0].1;
            let length = pair[1].0 - pair[0].0;
            if length > 0 {
                runs.push(Run { start: pair[0].0, length, count: count as u64 });
            }
        }
        let least = runs.iter().map(|run| run.count).min().unwrap_or(0);
        let mut before = vec![0];
        for run in &runs {
            before.push(before[before.len() - 1] + worth(run.count - least) * u128::from(run.length));
        }
        Self { size, runs, least, before }
    }

    /// The lowest count over all places.
    pub const fn least(&self) -> u64 {
        self.least
    }

    /// The stretches, in order, covering the whole ring.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.runs.iter().copied()
    }

    /// Start and length of each stretch.
    pub fn segments(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.runs.iter().map(|run| (run.start, run.length))
    }

    /// Places at which the count changes, or could.
    pub fn edges(&self) -> impl Iterator<Item = u64> + '_ {
        self.runs.iter().map(|run| run.start)
    }

    /// The lowest count over any place of an arc of at least one place.
    pub fn lowest(&self, arc: Arc) -> u64 {
        let touches = |run: &Run| {
            arc.contains(run.start, self.size)
                || Arc { start: run.start, length: run.length }.contains(arc.start, self.size)
        };
        self.runs.iter().filter(|run| touches(run)).map(|run| run.count).min().unwrap_or(0)
    }

    /// How many places of an arc no other lies over.
    pub fn bare(&self, arc: Arc) -> u64 {
        let end = arc.start + arc.length;
        let within = |run: &Run, start: u64, end: u64| {
            run.start.saturating_add(run.length).min(end).saturating_sub(run.start.max(start))
        };
        let overlap =
            |run: &Run| within(run, arc.start, end.min(self.size)) + within(run, 0, end.saturating_sub(self.size));
        self.runs.iter().filter(|run| run.count == 0).map(overlap).sum()
    }

    /// How far ahead of a place the next run begins over which at most `count` arcs lie, 0 if the place is on one; and how long
    /// that is.
    pub fn next(&self, place: u64, count: u64) -> Option<(u64, u64)> {
        let ahead = |run: &Run| {
            let on_it = (run.start..run.start + run.length).contains(&place);
            let distance = if on_it { 0 } else { (run.start + self.size - place) % self.size };
            (distance, run.length)
        };
        self.runs.iter().filter(|run| run.count <= count).map(ahead).min()
    }

    /// The worth of all places of an arc.
    pub fn gain(&self, arc: Arc) -> u128 {
        let end = arc.start + arc.length;
        if end <= self.size {
            self.worth_before(end) - self.worth_before(arc.start)
        } else {
            self.worth_before(self.size) - self.worth_before(arc.start) + self.worth_before(end - self.size)
        }
    }

    fn worth_before(&self, place: u64) -> u128 {
        let next = self.runs.partition_point(|run| run.start + run.length <= place);
        let inside = self.runs.get(next).map_or(0, |run| worth(run.count - self.least) * u128::from(place - run.start));
        self.before[next] + inside
    }
}

/// What one more holder of a place is worth that has `more` than the least that any place has: a hundredth of what it is
/// with one less, so that no number of second copies outweighs a first one nearby.
fn worth(more: u64) -> u128 {
    const LEVELS: u64 = 6;
    100u128.pow((LEVELS - more.min(LEVELS)) as u32)
}

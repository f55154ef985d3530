//! Coverage: how many stores hold each place of the ring.

use super::counts::Counts;
use super::map::Holding;
use super::ring::{Arc, Ring};
use std::ops::ControlFlow;

/// How well the stores of a field hold an image, origins not counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coverage {
    /// Share of the chunks with at least one holder, 0 to 1.
    pub share: f64,
    /// Lowest number of holders of any chunk.
    pub multiplicity_min: u64,
}

impl Coverage {
    /// Counts the current holders, in O(n log n). If a stretch of the ring and a stretch of the
    /// image meet in a few chunks only, their lengths are used as weights. So during a fill `share`
    /// is an estimate and `multiplicity_min` may be low; both are exact once fills are done.
    pub fn of(ring: &Ring, holdings: &[Holding]) -> Self {
        let size = ring.size();
        let (mut covered, mut lowest) = (0.0, u64::MAX);
        let _ = Sweep::new(size, holdings).run(|stretch| {
            lowest = lowest.min(stretch.least);
            covered += stretch.length as f64 * (size - stretch.bare) as f64;
            ControlFlow::Continue(())
        });
        let share = covered / (size as f64 * size as f64);
        Self { share: if lowest > 0 { 1.0 } else { share.min(1.0) }, multiplicity_min: lowest }
    }

    /// True if each chunk has a holder: the answer of [`Coverage::of`], mostly without counting. A
    /// node with a store asks after each announcement. Mostly a bare part, or full stores, give the
    /// answer quickly.
    pub fn is_whole(ring: &Ring, holdings: &[Holding]) -> bool {
        let size = ring.size();
        let mut arcs: Vec<Arc> = holdings.iter().filter(|h| h.filled.count == size).map(|h| h.arc).collect();
        let bare =
            |stretch: Stretch| if stretch.least == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        covers(&mut arcs, size) || Sweep::new(size, holdings).run(bare).is_continue()
    }

    /// The lowest number of holders of any chunk, counted up to `enough`, at least 1.
    pub fn lowest(ring: &Ring, holdings: &[Holding], enough: u64) -> u64 {
        match enough {
            0 | 1 => u64::from(Self::is_whole(ring, holdings)),
            _ => Self::of(ring, holdings).multiplicity_min.min(enough),
        }
    }
}

/// One of several equal parts of the ring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Share of the chunks in it with at least one holder, 0 to 1; an estimate during fills.
    pub share: f64,
    /// Lowest number of holders of any chunk in it; during fills it may be low, as in
    /// [`Coverage::of`].
    pub copies_min: u64,
}

/// The ring in `cells` equal parts, or as many as it has places, from place 0 on.
pub fn band(ring: &Ring, holdings: &[Holding], cells: u64) -> Vec<Cell> {
    let size = ring.size();
    let cells = cells.clamp(1, size);
    let start = |cell: u64| (u128::from(cell) * u128::from(size) / u128::from(cells)) as u64;
    let mut band = vec![Cell { share: 0.0, copies_min: u64::MAX }; cells as usize];
    let (mut at, mut first) = (0, 0);
    let _ = Sweep::new(size, holdings).run(|stretch| {
        let end = at + stretch.length;
        while start(first + 1) <= at {
            first += 1;
        }
        for cell in (first..cells).take_while(|cell| start(*cell) < end) {
            let (from, to) = (start(cell), start(cell + 1));
            let part = (end.min(to) - at.max(from)) as f64 / (to - from) as f64;
            let held = (size - stretch.bare) as f64 / size as f64;
            let cell = &mut band[cell as usize];
            cell.share = part.mul_add(held, cell.share).min(1.0);
            cell.copies_min = cell.copies_min.min(stretch.least);
        }
        at = end;
        ControlFlow::Continue(())
    });
    band
}

/// A stretch of the ring, as a sweep comes by it.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    /// Number of places, above 0.
    length: u64,
    /// The lowest number of holders of any chunk of the image on this stretch.
    least: u64,
    /// The number of chunks on this stretch without a holder.
    bare: u64,
}

/// A walk around the ring: at each place, how much of the image is held by the stores that are to
/// hold that place.
struct Sweep {
    /// Stretches on which the same stores count.
    segments: Vec<(u64, u64)>,
    /// Where stores begin (true) and end, in order, with their arcs.
    events: Vec<(u64, bool, Arc)>,
    counts: Counts,
}

impl Sweep {
    fn new(size: u64, holdings: &[Holding]) -> Self {
        let whole = Arc { start: 0, length: size };
        let arc = |h: &Holding| if h.arc.length < size { h.arc } else { whole };
        let arcs: Vec<Arc> = holdings.iter().map(arc).collect();
        let segments = Layers::of(&arcs, size).segments().collect();
        let holds = || holdings.iter().filter(|h| h.filled.count > 0 && h.arc.length > 0);
        let filled = |h: &Holding| Arc { start: h.filled.from % size, length: h.filled.count.min(size) };
        let mut events = Vec::new();
        for (arc, filled) in holds().map(|h| (arc(h), filled(h))) {
            let end = arc.start + arc.length;
            events.extend([(arc.start, true, filled), (end.min(size), false, filled)]);
            if end > size {
                events.extend([(0, true, filled), (end - size, false, filled)]);
            }
        }
        events.sort_unstable_by_key(|(place, begins, arc)| (*place, *begins, *arc));
        Self { segments, events, counts: Counts::new(holds().map(filled), size) }
    }

    /// Looks at one stretch after the other.
    fn run(&mut self, mut look: impl FnMut(Stretch) -> ControlFlow<()>) -> ControlFlow<()> {
        let mut next = 0;
        for &(start, length) in &self.segments {
            while let Some((_, begins, filled)) = self.events.get(next).filter(|(place, ..)| *place <= start) {
                if *begins {
                    self.counts.add(*filled)
                } else {
                    self.counts.remove(*filled)
                }
                next += 1;
            }
            let (least, places) = self.counts.least();
            look(Stretch { length, least, bare: if least == 0 { places } else { 0 } })?;
        }
        ControlFlow::Continue(())
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
    /// First place of the run.
    pub start: u64,
    /// Number of places, above 0.
    pub length: u64,
    /// The number of arcs over each place.
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

    /// The number of places of an arc that no other arc covers.
    pub fn bare(&self, arc: Arc) -> u64 {
        let end = arc.start + arc.length;
        let within = |run: &Run, start: u64, end: u64| {
            run.start.saturating_add(run.length).min(end).saturating_sub(run.start.max(start))
        };
        let overlap =
            |run: &Run| within(run, arc.start, end.min(self.size)) + within(run, 0, end.saturating_sub(self.size));
        self.runs.iter().filter(|run| run.count == 0).map(overlap).sum()
    }

    /// The distance from a place to the next run with at most `count` arcs, 0 if the place is in
    /// one; and the length of the run.
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

/// The value of one more holder for a place that has `more` than the least of any place. Each
/// further holder is worth a hundredth, so no number of second copies outweighs a first one nearby.
fn worth(more: u64) -> u128 {
    const LEVELS: u64 = 6;
    100u128.pow((LEVELS - more.min(LEVELS)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Arrival, NodeId};
    use crate::placement::{Filled, mix};
    use crate::speed::Class;
    use proptest::prelude::*;

    fn holding(node: u64, arc: (u64, u64), filled: (u64, u64)) -> Holding {
        Holding {
            node: NodeId(node),
            class: Class::default(),
            arrival: Arrival(node),
            arc: Arc { start: arc.0, length: arc.1 },
            filled: Filled { from: filled.0, count: filled.1 },
            leaving: false,
            suspect: false,
        }
    }

    /// The same result, from all holdings on each stretch.
    fn plainly(size: u64, holdings: &[Holding]) -> Coverage {
        let whole = Arc { start: 0, length: size };
        let arcs: Vec<Arc> = holdings.iter().map(|h| if h.arc.length < size { h.arc } else { whole }).collect();
        let (mut covered, mut lowest) = (0.0, u64::MAX);
        for (start, length) in Layers::of(&arcs, size).segments() {
            let here = holdings.iter().filter(|h| h.filled.count > 0 && h.arc.contains(start, size));
            let filled: Vec<Arc> = here.map(|h| Arc { start: h.filled.from, length: h.filled.count }).collect();
            let inner = Layers::of(&filled, size);
            lowest = lowest.min(inner.lowest(whole));
            let bare: u64 = inner.runs().filter(|run| run.count == 0).map(|run| run.length).sum();
            covered += length as f64 * (size - bare) as f64;
        }
        let share: f64 = covered / (size as f64 * size as f64);
        Coverage { share: if lowest > 0 { 1.0 } else { share.min(1.0) }, multiplicity_min: lowest }
    }

    proptest! {
        #[test]
        fn a_sweep_counts_what_is_there(
            size in 1u64..50,
            stores in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()), 0..14),
        ) {
            let store = |(node, (start, length, from, count)): (u64, (u64, u64, u64, u64))| {
                holding(node, (start % size, length % size + 1), (from % size, count % (size + 1)))
            };
            let holdings: Vec<Holding> = (0..).zip(stores).map(store).collect();
            let (ring, plainly) = (Ring::new(size), plainly(size, &holdings));
            prop_assert_eq!(Coverage::of(&ring, &holdings), plainly);
            prop_assert_eq!(Coverage::is_whole(&ring, &holdings), plainly.multiplicity_min > 0);
            for enough in 1..4 {
                prop_assert_eq!(Coverage::lowest(&ring, &holdings, enough), plainly.multiplicity_min.min(enough));
            }
        }
    }

    #[test]
    fn a_band_shows_where_copies_are_missing() {
        let ring = Ring::new(100);
        let cells = |holdings: &[Holding]| -> Vec<(u64, u64)> {
            let percent = |cell: &Cell| ((cell.share * 100.0).round() as u64, cell.copies_min);
            band(&ring, holdings, 4).iter().map(percent).collect()
        };
        assert_eq!(cells(&[]), [(0, 0); 4]);
        let full = (0, 100);
        assert_eq!(cells(&[holding(1, (0, 100), full)]), [(100, 1); 4]);
        // One from 10 to 40, another from 50 around to 30.
        let two = [holding(1, (10, 30), full), holding(2, (50, 80), full)];
        assert_eq!(cells(&two), [(100, 1), (60, 0), (100, 1), (100, 1)]);
        assert_eq!(cells(&[two[0], two[1], holding(3, (75, 50), full)])[0], (100, 2));
        // Half of the image everywhere.
        assert_eq!(cells(&[holding(1, (0, 100), (20, 50))]), [(50, 0); 4]);
        assert_eq!(band(&Ring::new(3), &[], 64).len(), 3);
    }

    /// Nodes that look at the tree, while the stores of a room fill, for each that counts coverage.
    fn visited(count: u64) -> u64 {
        const SIZE: u64 = 1 << 20;
        let store = |node| holding(node, (mix(node) % SIZE, SIZE / 5), (mix(!node) % SIZE, mix(node ^ 7) % SIZE));
        let holdings: Vec<Holding> = (0..count).map(store).collect();
        let mut sweep = Sweep::new(SIZE, &holdings);
        let _ = sweep.run(|_| ControlFlow::Continue(()));
        sweep.counts.visited
    }

    #[test]
    fn coverage_of_a_large_room_is_counted_in_few_steps() {
        for count in [100, 1000, 10_000] {
            let steps = visited(count);
            // Two or three ends of each arc, at each of which two paths go down the tree.
            let most = 3 * count * 4 * u64::from((2 * count).ilog2() + 1);
            assert!(steps <= most, "{steps} steps for {count} stores, {most} at most");
        }
    }
}

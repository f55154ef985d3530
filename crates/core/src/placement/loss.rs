//! Losses: the places of the ring that would be lost with one node, since no other holds them.
//!
//! The map makes it, for the choice of an arc and for status. It counts arcs, whatever their fill.
//! Invariant: `runs` are in order and do not overlap, and at most one node holds each.

use super::ring::Arc;
use crate::identity::NodeId;
use std::collections::BTreeMap;

/// The runs of places that only one node holds.
#[derive(Debug)]
pub struct Losses {
    size: u64,
    /// Stretches that one node holds, or nobody.
    runs: Vec<Run>,
}

#[derive(Debug)]
struct Run {
    start: u64,
    end: u64,
    holder: Option<NodeId>,
}

impl Losses {
    /// The losses of these holdings, on a ring of `size` places. Costs O(n^2).
    pub fn of(holdings: impl Iterator<Item = (NodeId, Arc)>, size: u64) -> Self {
        let holdings: Vec<(NodeId, Arc)> = holdings.filter(|(_, arc)| arc.length > 0).collect();
        let ends = holdings.iter().flat_map(|(_, arc)| [arc.start, (arc.start + arc.length) % size]);
        let mut cuts: Vec<u64> = ends.chain([0, size]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let run = |cut: &[u64]| {
            let mut holders = holdings.iter().filter(|(_, arc)| arc.contains(cut[0], size)).map(|(node, _)| *node);
            let (holder, another) = (holders.next(), holders.next());
            another.is_none().then_some(Run { start: cut[0], end: cut[1], holder })
        };
        Self { size, runs: cuts.windows(2).filter_map(run).collect() }
    }

    /// The node with which most places would be lost, and their number; `None` without any loss.
    pub fn worst(&self) -> Option<(NodeId, u64)> {
        let mut lost: BTreeMap<NodeId, u64> = BTreeMap::new();
        for run in &self.runs {
            if let Some(node) = run.holder {
                *lost.entry(node).or_default() += run.end - run.start;
            }
        }
        lost.into_iter().max_by_key(|(_, places)| *places)
    }

    /// Most places that would be lost with one node if one more held `arc`.
    pub fn worst_with(&self, arc: Arc) -> u64 {
        let mut lost: BTreeMap<NodeId, u64> = BTreeMap::new();
        let mut mine = 0;
        for run in &self.runs {
            let shared = self.overlap(run, arc);
            match run.holder {
                Some(node) => *lost.entry(node).or_default() += run.end - run.start - shared,
                None => mine += shared,
            }
        }
        lost.into_values().fold(mine, u64::max)
    }

    /// The number of places that a run and an arc share.
    fn overlap(&self, run: &Run, arc: Arc) -> u64 {
        let end = arc.start + arc.length;
        let within = |start: u64, end: u64| run.end.min(end).saturating_sub(run.start.max(start));
        within(arc.start, end.min(self.size)) + within(0, end.saturating_sub(self.size))
    }
}

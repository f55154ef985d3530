//! The crowd: one common order of those who read in step, along which each chunk is passed on.
//!
//! When everybody reads the same place at the same time, each chunk has to cross each node's link once, and
//! nothing is faster than a pipeline, a chain: all nodes stand in a circle by id, each takes a chunk from the one before it
//! and passes it to the next, and it enters wherever somebody holds it. Unlike asking each home directly it needs two
//! neighbours a node and not all of them, one long stream and not many short ones, and no link has two senders that collide.
//! (Two trees with half of the chunks each would be less deep; in the simulator they were slower from 100 nodes on, since a
//! node's two parents are not in step with each other.)
//!
//! Those who have more to send than their part of the chain, the gateways of a zone, stand at its end, where
//! one of them has nothing to pass on: it is another for chunks that enter elsewhere.
//!
//! Between zones it is otherwise: see [`super::zones`].

use crate::identity::NodeId;

/// How far downstream of the root somebody is, which is where chunks come into the zone: in ids and not in nodes, so that those
/// who know of different nodes between still agree, and from the root whoever has the chunk by now, since they hear of that one
/// after the other. 0 for whoever has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Distance(pub u32);

impl Distance {
    /// The number of bits that are used.
    pub const BITS: u32 = 31;
    /// Whoever stands at the end of the chain is as far as this at least.
    const END: u32 = 1 << (Self::BITS - 1);

    /// From a root to a node on the way around.
    const fn between(root: NodeId, node: NodeId) -> Self {
        Self((node.0.wrapping_sub(root.0) >> (u64::BITS - Self::BITS + 1)) as u32)
    }

    /// From a root to a node at the end of its chain.
    const fn to_end(root: NodeId, node: NodeId) -> Self {
        Self(Self::END + Self::between(root, node).0)
    }
}

/// Who is further away is never asked to pass a chunk on: whoever has it, is.
const LOOK: usize = 8;

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Crowd {
    /// In order.
    nodes: Vec<NodeId>,
    /// Those at the end, in order.
    end: Vec<NodeId>,
}

impl Crowd {
    /// A crowd of `nodes`, in any order, of which some stand at the end. A source need not be one of them.
    pub fn of(nodes: impl Iterator<Item = NodeId>, stands_at_end: impl Fn(NodeId) -> bool) -> Self {
        let mut nodes: Vec<NodeId> = nodes.collect();
        nodes.sort_unstable();
        nodes.dedup();
        let (end, nodes) = nodes.into_iter().partition(|node| stands_at_end(*node));
        Self { nodes, end }
    }

    /// Who of `sources` is the next upstream of `node` on its way from `root`; `root` if none of them is.
    pub fn nearest(&self, node: NodeId, root: NodeId, sources: impl Iterator<Item = NodeId>) -> NodeId {
        let place = |other: NodeId| other.0.wrapping_sub(root.0);
        let mine = if self.is_at_end(node) { u64::MAX } else { place(node) };
        let upstream = sources.filter(|source| *source != node && place(*source) < mine);
        upstream.max_by_key(|source| place(*source)).unwrap_or(root)
    }

    /// From whom `node`, which need not be in the crowd itself, takes a chunk that `source` has, between `root` and it: the
    /// nearest first, the source last, with their distances from `root`.
    pub fn upstream(
        &self,
        node: NodeId,
        root: NodeId,
        source: NodeId,
    ) -> impl Iterator<Item = (NodeId, Distance)> + '_ {
        // From the end all others are upstream, beginning with the last before the root.
        let (last, ending) =
            if self.is_at_end(node) { (root, before(&self.end, node, root)) } else { (node, before(&[], node, root)) };
        let ending = ending.map(move |other| (other, Distance::to_end(root, other)));
        let others = before(&self.nodes, last, source).map(move |other| (other, Distance::between(root, other)));
        ending.chain(others).take(LOOK).chain([(source, Distance(0))])
    }

    fn is_at_end(&self, node: NodeId) -> bool {
        self.end.binary_search(&node).is_ok()
    }
}

/// Those of `nodes`, which are sorted, that one meets on the way around from `node` back to `source`; all, if they are one.
fn before(nodes: &[NodeId], node: NodeId, source: NodeId) -> impl Iterator<Item = NodeId> + '_ {
    let (before, after) = nodes.split_at(nodes.partition_point(|other| *other < node));
    let around = before.iter().rev().chain(after.iter().rev()).copied().filter(move |other| *other != node);
    let mine = node.0.wrapping_sub(source.0);
    around.take_while(move |other| *other != source && (mine == 0 || other.0.wrapping_sub(source.0) < mine))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::map::mix;

    fn nodes(count: u64) -> Vec<NodeId> {
        (0..count).map(|node| NodeId(mix(node + 1))).collect()
    }

    #[test]
    fn each_is_nearer_than_the_one_that_asks_it() {
        let source = NodeId(u64::MAX / 3);
        for count in [1, 2, 10, 500] {
            let nodes = nodes(count);
            let crowd = Crowd::of(nodes.iter().copied(), |_| false);
            for node in nodes {
                let line: Vec<(NodeId, Distance)> = crowd.upstream(node, source, source).collect();
                assert!(line.is_sorted_by(|a, b| a.1 > b.1), "{line:?}");
                assert!(line.iter().all(|(other, _)| *other != node));
                assert_eq!(line.last(), Some(&(source, Distance(0))));
            }
        }
    }

    #[test]
    fn gateways_stand_at_the_end() {
        let mut nodes = nodes(10);
        nodes.sort_unstable();
        let gateways = [nodes[2], nodes[5], nodes[8]];
        let crowd = Crowd::of(nodes.iter().copied(), |node| gateways.contains(&node));
        let line = |node: usize, source: usize| {
            let line: Vec<(NodeId, Distance)> = crowd.upstream(nodes[node], nodes[source], nodes[source]).collect();
            assert!(line.is_sorted_by(|a, b| a.1 > b.1), "{line:?}");
            line.iter().map(|(node, _)| nodes.iter().position(|other| other == node).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(line(6, 5), [5]);
        assert_eq!(line(3, 5), [1, 0, 9, 7, 6, 5]);
        assert_eq!(line(8, 5), [4, 3, 1, 0, 9, 7, 6, 5]);
        assert_eq!(line(2, 5), [8, 4, 3, 1, 0, 9, 7, 6, 5]);
    }

    #[test]
    fn whoever_comes_to_have_it_changes_no_distance() {
        let mut nodes = nodes(40);
        let crowd = Crowd::of(nodes.iter().copied(), |_| false);
        nodes.sort_unstable();
        let root = nodes[7];
        let line = |node: usize, source| crowd.upstream(nodes[node], root, source).collect::<Vec<_>>();
        for node in (0..40).filter(|node| *node != 7) {
            let before = line(node, crowd.nearest(nodes[node], root, [].into_iter()));
            let full = [nodes[3], nodes[12], nodes[30]];
            let source = crowd.nearest(nodes[node], root, full.into_iter());
            let after = line(node, source);
            assert_eq!(after.last(), Some(&(source, Distance(0))));
            let passing = &after[..after.len() - 1];
            assert!(passing.iter().all(|step| before.contains(step)), "{before:?} {after:?}");
            assert!(passing.iter().all(|(other, _)| !full.contains(other)), "nothing comes from beyond who has it");
        }
        assert_eq!(crowd.nearest(nodes[8], root, [nodes[7], nodes[9]].into_iter()), root, "never around the root");
    }

    #[test]
    fn a_chain_goes_around_to_its_source() {
        let mut nodes = nodes(10);
        let crowd = Crowd::of(nodes.iter().copied(), |_| false);
        nodes.sort_unstable();
        let line: Vec<NodeId> = crowd.upstream(nodes[5], nodes[8], nodes[8]).map(|(node, _)| node).collect();
        assert_eq!(line, [4, 3, 2, 1, 0, 9, 8].map(|at| nodes[at]));
    }
}

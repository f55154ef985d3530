//! The crowd: one common order of those who read in step, along which each chunk is passed on.
//!
//! When everybody reads the same place at the same time, each chunk has to cross each node's link once, and no
//! link more often. A small crowd is a **chain**: all nodes in a circle by id, each takes a chunk from the one before
//! it and passes it to the next; it enters wherever somebody holds it. Two neighbours a node, one long stream and not
//! many short ones, no link with two senders that collide. But the last node is as many chunks behind as there are
//! nodes, so a large crowd is a pair of **trees** (SplitStream; Castro and others, 2003): the chunks take turns, each node
//! passes on every second chunk, to two others, and the last one is a logarithm behind.
//!
//! Zones are passed along in the same way, each as one node at its [`crate::identity::Zone::place`].

use crate::chunk::Chunk;
use crate::identity::NodeId;

/// From so many nodes on a crowd is a pair of trees. A chain of fewer is at most as far behind as a read-ahead reaches, and
/// measured better: its nodes have two connections, and only their neighbours notice when somebody comes or goes.
const TREES_FROM: usize = 64;
/// So many trees, and so many children in each. With two each node passes each chunk on once on average, and the way
/// to the last one is as short as with any other number; the fewer, the fewer connections.
const TREES: usize = 2;

/// How far downstream somebody is. The same for all who know the same crowd; and whoever is asked always has less than who
/// asks, by a good deal, so that those who know of different nodes agree well enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Distance(pub u32);

impl Distance {
    /// The number of bits that are used.
    pub const BITS: u32 = 31;

    /// In a chain: in ids and not in nodes, so that those who know of different nodes between still agree.
    const fn chain(source: NodeId, node: NodeId) -> Self {
        Self((node.0.wrapping_sub(source.0) >> (u64::BITS - Self::BITS)) as u32)
    }

    /// In a tree: a parent has about half of its child's.
    fn tree(rank: usize) -> Self {
        const APART: usize = 1 << 8;
        Self(u32::try_from((rank + 1) * APART).unwrap_or(u32::MAX).min((1 << Self::BITS) - 1))
    }
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Crowd {
    /// Those who pass chunks on, in order.
    nodes: Vec<NodeId>,
    /// Those who have other duties: the last in each tree. In a chain there are none.
    leaves: Vec<NodeId>,
}

impl Crowd {
    /// A crowd of `nodes`, in any order, of which `spared` have other duties. A source need not be one of them.
    pub fn of(nodes: impl Iterator<Item = NodeId>, spared: &[NodeId]) -> Self {
        let (mut leaves, mut nodes): (Vec<NodeId>, Vec<NodeId>) = nodes.partition(|node| spared.contains(node));
        nodes.sort_unstable();
        nodes.dedup();
        leaves.sort_unstable();
        leaves.dedup();
        Self { nodes, leaves }
    }

    /// True if each chunk has a tree.
    fn has_trees(&self) -> bool {
        self.nodes.len() >= TREES_FROM || !self.leaves.is_empty()
    }

    /// From whom `node`, which need not be in the crowd itself, takes a chunk that enters it at `source`: the nearest first,
    /// the source last, with their distances.
    pub fn upstream(&self, node: NodeId, source: NodeId, chunk: Chunk) -> Vec<(NodeId, Distance)> {
        if self.has_trees() { self.ancestors(node, source, chunk) } else { self.chain(node, source) }
    }

    fn chain(&self, node: NodeId, source: NodeId) -> Vec<(NodeId, Distance)> {
        /// Who is further away is never asked: the chunk is, where it comes from.
        const LOOK: usize = 8;
        let (before, after) = self.nodes.split_at(self.nodes.partition_point(|other| *other < node));
        let around = before.iter().rev().chain(after.iter().rev()).copied().filter(|other| *other != node);
        let mine = node.0.wrapping_sub(source.0);
        let between = around.take_while(|other| *other != source && other.0.wrapping_sub(source.0) < mine).take(LOOK);
        let line = between.map(|other| (other, Distance::chain(source, other)));
        line.chain([(source, Distance(0))]).collect()
    }

    fn ancestors(&self, node: NodeId, source: NodeId, chunk: Chunk) -> Vec<(NodeId, Distance)> {
        let count = self.nodes.len();
        let turn = count * (chunk.0 % TREES as u64) as usize / TREES;
        let mut rank = match self.leaves.binary_search(&node) {
            Ok(leaf) => count + leaf,
            Err(_) if count == 0 => 0,
            Err(_) => (self.nodes.partition_point(|other| *other < node) + count - turn) % count,
        };
        let mut line = Vec::new();
        while rank > 0 {
            rank = (rank - 1) / TREES;
            // A small tree may be mostly leaves, which have no children.
            let parent = (rank < count).then(|| self.nodes[(rank + turn) % count]);
            line.extend(parent.filter(|parent| *parent != source).map(|parent| (parent, Distance::tree(rank))));
        }
        line.push((source, Distance(0)));
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::map::mix;
    use std::collections::BTreeMap;

    const SOURCE: NodeId = NodeId(u64::MAX / 3);

    fn crowd(count: u64, spared: u64) -> (Crowd, Vec<NodeId>) {
        let nodes: Vec<NodeId> = (0..count).map(|node| NodeId(mix(node + 1))).collect();
        (Crowd::of(nodes.iter().copied(), &nodes[..spared as usize]), nodes)
    }

    #[test]
    fn each_is_nearer_than_the_one_that_asks_it() {
        for (count, spared) in [(1, 0), (2, 0), (10, 0), (63, 0), (64, 0), (500, 0), (12, 4), (4, 3), (3, 3), (100, 4)]
        {
            let (crowd, nodes) = crowd(count, spared);
            for (node, chunk) in nodes.iter().flat_map(|node| [(*node, Chunk(0)), (*node, Chunk(1))]) {
                let line = crowd.upstream(node, SOURCE, chunk);
                assert!(line.is_sorted_by(|a, b| a.1 > b.1), "{line:?}");
                assert!(line.iter().all(|(other, _)| *other != node));
                let mut at = node;
                let mut steps = 0;
                while let Some((next, _)) = crowd.upstream(at, SOURCE, chunk).first().filter(|_| at != SOURCE) {
                    (at, steps) = (*next, steps + 1);
                }
                let most = if count >= 64 || spared > 0 { 2 + count.ilog2() } else { count as u32 };
                assert!(steps <= most, "{steps} steps of {count}");
            }
        }
    }

    #[test]
    fn in_trees_all_pass_on_as_much() {
        for (count, spared) in [(64, 0), (99, 0), (100, 4), (1000, 0)] {
            let (crowd, nodes) = crowd(count, spared);
            let mut sent = BTreeMap::<NodeId, u32>::new();
            for (node, chunk) in nodes.iter().flat_map(|node| [(*node, Chunk(6)), (*node, Chunk(7))]) {
                *sent.entry(crowd.upstream(node, SOURCE, chunk)[0].0).or_default() += 1;
            }
            let most = sent.iter().filter(|(node, _)| **node != SOURCE).map(|(_, sent)| *sent).max();
            // Two of each two chunks; those that stand in for the spared a little more.
            assert!(most <= Some(2 + 2 * u32::from(spared > 0)), "{most:?} of {count}");
            assert!(nodes[..spared as usize].iter().all(|node| !sent.contains_key(node)));
            assert_eq!(sent[&SOURCE], 2);
        }
    }

    #[test]
    fn a_chain_goes_around_to_its_source() {
        let (crowd, mut nodes) = crowd(10, 0);
        nodes.sort_unstable();
        let line: Vec<NodeId> =
            crowd.upstream(nodes[5], nodes[8], Chunk(3)).into_iter().map(|(node, _)| node).collect();
        let around = [4, 3, 2, 1, 0, 9, 8].map(|at| nodes[at]);
        assert_eq!(line, around);
    }
}

//! Gateways: the few nodes through which chunks enter a zone, each for its share of them.

use super::map::turn;
use crate::chunk::Chunk;
use crate::identity::{Identity, NodeId};
use crate::speed::Class;

/// The gateways of a zone for one image, sorted by node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gateways(Vec<NodeId>);

impl Gateways {
    /// Gateways of a zone. One may die at any time, and each sends an extra copy of its share of
    /// the image. More would have to know each other; with four a thousand nodes in zones of 50 are
    /// no faster.
    pub const COUNT: usize = 3;

    /// The eldest of the nodes that take part in an image, so no newcomer displaces a gateway; of
    /// the fastest class, as long as it has enough, since all that a zone reads passes them.
    pub fn eldest<'a>(nodes: impl Iterator<Item = (Class, &'a Identity)>) -> Self {
        let is_slow = |class| class > Class::default();
        let mut nodes: Vec<_> = nodes.map(|(class, node)| (is_slow(class), node.age())).collect();
        nodes.sort_unstable();
        nodes.truncate(Self::COUNT);
        Self::of(nodes.into_iter().map(|(_, (_, node))| node))
    }

    /// The gateways with these ids.
    pub fn of(nodes: impl Iterator<Item = NodeId>) -> Self {
        let mut nodes: Vec<NodeId> = nodes.collect();
        nodes.sort_unstable();
        // It may have been collected in a buffer of a whole zone's size.
        nodes.shrink_to_fit();
        Self(nodes)
    }

    /// All gateways, by node.
    pub fn nodes(&self) -> &[NodeId] {
        &self.0
    }

    /// True if this is one.
    pub fn contains(&self, node: NodeId) -> bool {
        self.0.contains(&node)
    }

    /// All gateways, beginning with the one through which this chunk enters.
    pub fn in_turn(&self, chunk: Chunk) -> impl Iterator<Item = NodeId> + '_ {
        let (before, after) = self.0.split_at(turn(chunk, self.0.len()));
        after.iter().chain(before).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Zone;
    use std::collections::BTreeMap;

    #[test]
    fn the_eldest_take_turns() {
        let addr = ([198, 18, 0, 1], 4000).into();
        let node = |node: u64| Identity { addr, node: NodeId(node), generation: 100 - node, zone: Zone::default() };
        let nodes: Vec<Identity> = (0..10).map(node).collect();
        // Slow nodes are gateways only where there are too few others.
        let with_slow = |slow: &[u64]| {
            let class = |node: &Identity| Class(u8::from(slow.contains(&node.node.0)));
            Gateways::eldest(nodes.iter().map(|node| (class(node), node)))
        };
        assert_eq!(with_slow(&[8, 3]).nodes(), [6, 7, 9].map(NodeId));
        assert_eq!(with_slow(&[1, 2, 3, 4, 5, 6, 7, 8]).nodes(), [0, 8, 9].map(NodeId));
        let gateways = with_slow(&[]);
        assert_eq!(gateways.nodes(), [7, 8, 9].map(NodeId));
        let mut first = BTreeMap::<NodeId, u32>::new();
        for chunk in 0..1000 {
            let turn: Vec<NodeId> = gateways.in_turn(Chunk(chunk)).collect();
            assert_eq!(turn.len(), Gateways::COUNT);
            *first.entry(turn[0]).or_default() += 1;
        }
        assert!(first.values().all(|count| (323..343).contains(count)), "{first:?}");
        assert_eq!(Gateways::default().in_turn(Chunk(5)).next(), None);
    }
}

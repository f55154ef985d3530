//! The chain: one common order of the nodes of an image, along which a crowd that reads in step is served.
//!
//! When everybody reads the same place at the same time, each chunk has to cross each node's link once, and
//! nothing is faster than a pipeline: each node takes it from the one before it in a common order
//! and passes it to the next. The order is by node id, closed to a circle, and a chunk enters it wherever
//! somebody holds it. Unlike asking each home directly it needs two neighbours a node and not all of them,
//! one long stream and not many short ones, and no link has two senders that collide.

use crate::identity::NodeId;

/// The nodes of one image, origins among them, in their order.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    nodes: Vec<NodeId>,
}

impl Chain {
    /// Puts nodes in order; each counts once.
    pub fn update(&mut self, nodes: impl Iterator<Item = NodeId>) {
        self.nodes.clear();
        self.nodes.extend(nodes);
        self.nodes.sort_unstable();
        self.nodes.dedup();
    }

    /// The nodes upstream of `node`, the nearest first, once around.
    pub fn upstream(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let (before, after) = match self.place(node) {
            Some(place) => (&self.nodes[..place], &self.nodes[place + 1..]),
            None => (&self.nodes[..0], &self.nodes[..0]),
        };
        before.iter().rev().chain(after.iter().rev()).copied()
    }

    fn place(&self, node: NodeId) -> Option<usize> {
        self.nodes.binary_search(&node).ok()
    }
}

/// How far downstream of `source` a node is, in ids and not in nodes: so that those who know of different nodes between
/// still agree. 0 for the source itself.
pub const fn distance(source: NodeId, node: NodeId) -> u64 {
    node.0.wrapping_sub(source.0)
}

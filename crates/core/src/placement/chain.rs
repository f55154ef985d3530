//! The chain: one common order of the nodes of an image, along which a crowd that reads in step is served.
//!
//! When everybody reads the same place at the same time, each chunk has to cross each node's link once, and
//! nothing is faster than a pipeline: each node takes it from the one before it in a common order
//! and passes it to the next. The order is by node id, closed to a circle, and a chunk enters it wherever
//! somebody holds it. Unlike asking each home directly it needs two neighbours a node and not all of them,
//! one long stream and not many short ones, and no link has two senders that collide.

use super::Map;
use crate::identity::NodeId;

/// The nodes of one image, origins among them, in their order.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    nodes: Vec<NodeId>,
}

impl Chain {
    /// All that take part in an image.
    pub fn of(map: &Map) -> Self {
        let mut nodes: Vec<NodeId> = map.participants().iter().chain(map.origins()).copied().collect();
        nodes.sort_unstable();
        nodes.dedup();
        Self { nodes }
    }

    /// The nodes upstream of `node`, which need not be in the chain itself, the nearest first, once around.
    pub fn upstream(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let (before, after) = self.nodes.split_at(self.nodes.partition_point(|other| *other < node));
        before.iter().rev().chain(after.iter().rev()).copied().filter(move |other| *other != node)
    }
}

/// How far downstream of `source` a node is, in ids and not in nodes: so that those who know of different nodes between
/// still agree. 0 for the source itself.
pub const fn distance(source: NodeId, node: NodeId) -> u64 {
    node.0.wrapping_sub(source.0)
}

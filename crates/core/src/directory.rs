//! The directory of an origin: the nodes to which it sent each chunk recently. Later askers are
//! redirected to them.
//!
//! The directory keeps the origin's traffic at about one image for the whole field. This holds also
//! while nodes do not yet agree on homes, as when a whole room starts at once. The serving side of
//! an origin owns one directory for each image; its entries are bounded. It does not know which
//! nodes are alive: an asker that cannot use the advice insists. It is told of nodes that
//! others should not be sent to.

use crate::chunk::Chunk;
use crate::identity::NodeId;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long an entry is remembered. A transient copy lives about as long in a storm. After a longer
/// time the advice costs a round trip, because the holder has dropped the chunk and the asker
/// insists. A shorter time costs the origin another copy of the chunk.
const MEMORY: Duration = Duration::from_secs(30);
/// Most chunks remembered: 8 GiB of an image in chunks of 64 KiB, 8 MB of memory.
const ENTRIES_MAX: usize = 1 << 17;

/// Holders to redirect to, for one image.
#[derive(Debug, Default)]
pub struct Directory {
    sent: BTreeMap<Chunk, (NodeId, Time)>,
    /// No asker is redirected to these.
    unavailable: BTreeSet<NodeId>,
}

impl Directory {
    /// The node that `asker` should ask for `chunk` instead of the origin. `None` means that the
    /// origin sends the chunk to `asker`, and the directory remembers it as a holder.
    pub fn instead(&mut self, chunk: Chunk, asker: NodeId, now: Time) -> Option<NodeId> {
        match self.sent.get(&chunk) {
            Some(&(node, at)) if node != asker && now - at < MEMORY && !self.unavailable.contains(&node) => Some(node),
            _ => {
                self.sent_to(chunk, asker, now);
                None
            }
        }
    }

    /// Notes that a chunk is sent to a node that insisted.
    pub fn sent_to(&mut self, chunk: Chunk, node: NodeId, now: Time) {
        if self.sent.len() >= ENTRIES_MAX {
            self.sent.retain(|_, (_, at)| now - *at < MEMORY);
        }
        if self.sent.len() < ENTRIES_MAX || self.sent.contains_key(&chunk) {
            self.sent.insert(chunk, (node, now));
        }
    }

    /// A node is gone: no asker is redirected to it any more.
    pub fn forget(&mut self, gone: NodeId) {
        self.sent.retain(|_, (node, _)| *node != gone);
        self.unavailable.remove(&gone);
    }

    /// Nobody should count on a member, or others may again.
    pub fn set_available(&mut self, node: NodeId, available: bool) {
        if available {
            self.unavailable.remove(&node);
        } else {
            self.unavailable.insert(node);
        }
    }
}

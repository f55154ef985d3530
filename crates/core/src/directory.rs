//! The directory of an origin: to whom it sent each chunk lately, so that others can be sent there.
//!
//! This is what keeps the origin's traffic at about one image for the whole field, also while nodes do not
//! yet agree on who is whose home (a whole room that starts at once). Owned by the serving side of an
//! origin, one for each image; bounded in entries. Knows nothing of who is alive: an asker that cannot use
//! the advice insists. Whom nobody can connect to, it is told.

use crate::chunk::Chunk;
use crate::identity::NodeId;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A node that keeps a chunk only for a while has it about this long in a storm; one that has dropped it
/// says so, and the asker insists, so a longer memory costs a round trip and a shorter one a chunk.
const MEMORY: Duration = Duration::from_secs(30);
/// Most chunks remembered: 8 GiB of an image in chunks of 64 KiB, 8 MB of memory.
const ENTRIES_MAX: usize = 1 << 17;

/// See the module.
#[derive(Debug, Default)]
pub struct Directory {
    sent: BTreeMap<Chunk, (NodeId, Time)>,
    /// Nobody is sent to these.
    unreachable: BTreeSet<NodeId>,
}

impl Directory {
    /// Whom `asker` should ask for `chunk` instead of the origin. Without an answer the chunk is to be sent
    /// to `asker`, who is remembered for it.
    pub fn instead(&mut self, chunk: Chunk, asker: NodeId, now: Time) -> Option<NodeId> {
        match self.sent.get(&chunk) {
            Some(&(node, at)) if node != asker && now - at < MEMORY && !self.unreachable.contains(&node) => Some(node),
            _ => {
                self.sent_to(chunk, asker, now);
                None
            }
        }
    }

    /// A chunk is sent to a node that insisted.
    pub fn sent_to(&mut self, chunk: Chunk, node: NodeId, now: Time) {
        if self.sent.len() >= ENTRIES_MAX {
            self.sent.retain(|_, (_, at)| now - *at < MEMORY);
        }
        if self.sent.len() < ENTRIES_MAX || self.sent.contains_key(&chunk) {
            self.sent.insert(chunk, (node, now));
        }
    }

    /// A node is gone: nobody is sent to it any more.
    pub fn forget(&mut self, gone: NodeId) {
        self.sent.retain(|_, (node, _)| *node != gone);
        self.unreachable.remove(&gone);
    }

    /// Nobody can connect to a member, or others can again.
    pub fn set_reachable(&mut self, node: NodeId, reachable: bool) {
        if reachable {
            self.unreachable.remove(&node);
        } else {
            self.unreachable.insert(node);
        }
    }
}

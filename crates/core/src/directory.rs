//! The directory of an origin: the nodes to which it sent each chunk recently, or that keep it.
//! Later askers are redirected to them.
//!
//! The directory keeps the origin's traffic at about one image for the whole field. This holds also
//! while nodes do not yet agree on homes, as when a whole room starts at once. The serving side of
//! an origin owns one directory for each image; its entries are bounded. It does not know which
//! nodes are alive: an asker that cannot use the advice insists. It is told of nodes that
//! others should not be sent to.

use crate::chunk::Chunk;
use crate::identity::NodeId;
use crate::latest::Latest;
use crate::time::Time;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long an entry is remembered. A transient copy lives about as long in a storm. After a longer
/// time the advice costs a round trip, because the holder has dropped the chunk and the asker
/// insists. A shorter time costs the origin another copy of the chunk.
const MEMORY: Duration = Duration::from_secs(30);
/// Most chunks remembered: 8 GiB of an image in chunks of 64 KiB, 14 MB of memory.
const ENTRIES_MAX: usize = 1 << 17;
/// Most askers remembered that were turned away.
const TURNED_AWAY_MAX: usize = 1 << 12;

/// Holders to redirect to, for one image.
#[derive(Debug, Default)]
pub struct Directory {
    sent: Latest<Chunk, Receiver, ENTRIES_MAX>,
    /// No asker is redirected to these.
    unavailable: BTreeSet<NodeId>,
    /// Askers that were turned away, for [`MEMORY`].
    turned_away: Latest<(Chunk, NodeId), Time, TURNED_AWAY_MAX>,
}

/// A node that got a chunk.
#[derive(Debug, Clone, Copy)]
struct Receiver {
    node: NodeId,
    at: Time,
    /// Its store keeps the chunk.
    keeps: bool,
}

impl Receiver {
    /// True if it probably has the chunk.
    fn has(&self, now: Time) -> bool {
        self.keeps || now - self.at < MEMORY
    }
}

impl Directory {
    /// The node that `asker` should ask for `chunk` instead of the origin. `None` means that the
    /// origin sends the chunk to `asker`, and the directory remembers it as a holder.
    pub fn instead(&mut self, chunk: Chunk, asker: NodeId, now: Time) -> Option<NodeId> {
        // It wants the chunk anew: the keeper of the last time was no dead end.
        self.turned_away.forget(&(chunk, asker));
        match self.sent.get(&chunk) {
            Some(to) if to.node != asker && to.has(now) && !self.unavailable.contains(&to.node) => Some(to.node),
            _ => {
                self.sent_to(chunk, asker, now);
                None
            }
        }
    }

    /// Notes that a chunk is sent to a node that insisted. It may have been redirected to an
    /// earlier receiver than a new keeper, which stays.
    pub fn sent_to(&mut self, chunk: Chunk, node: NodeId, now: Time) {
        let is_new_keeper = |to: &Receiver| to.keeps && to.node != node && now - to.at < MEMORY;
        if !self.sent.get(&chunk).is_some_and(is_new_keeper) {
            self.sent.note(chunk, Receiver { node, at: now, keeps: false });
        }
    }

    /// The node that an insisting asker should ask after all: its store keeps the chunk. It is for
    /// origins that would have to read the chunk anew from afar. An asker hears it once, and again
    /// if it has asked without insisting since. A node does not take the first advice to ask a
    /// slower one.
    pub fn keeper(&mut self, chunk: Chunk, asker: NodeId, now: Time) -> Option<NodeId> {
        let others = |to: &Receiver| to.keeps && to.node != asker && !self.unavailable.contains(&to.node);
        let keeper = self.sent.get(&chunk).copied().filter(others)?.node;
        let lately = |at: Option<&Time>| at.is_some_and(|at| now - *at < MEMORY);
        if lately(self.turned_away.get(&(chunk, asker))) || lately(self.turned_away.displaced()) {
            return None;
        }
        self.turned_away.note((chunk, asker), now);
        Some(keeper)
    }

    /// Notes that a node stores a chunk.
    pub fn kept_by(&mut self, chunk: Chunk, node: NodeId, now: Time) {
        self.sent.note(chunk, Receiver { node, at: now, keeps: true });
    }

    /// A node is gone: no asker is redirected to it any more.
    pub fn forget(&mut self, gone: NodeId) {
        self.sent.retain(|to| to.node != gone);
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

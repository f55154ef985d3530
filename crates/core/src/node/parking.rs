//! Parking: chunks that wait until the window of the best peer has room.

use super::{Node, Timer};
use crate::chunk::Chunk;
use crate::fetch::{Stage, Turn};
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::tuning::{OVERDUE_AFTER, OVERDUE_AFTER_AT_LEISURE};
use crate::wire::Priority;

impl Node {
    /// Lets a chunk wait until `peer` can take more. A reader does not wait for ever: see
    /// [`OVERDUE_AFTER`].
    pub(super) fn park(&mut self, id: ImageId, chunk: Chunk, peer: NodeId) {
        let Some(goal) = self.goal(id, chunk) else { return };
        let Some(fetch) = self.fetches.get(goal).filter(|fetch| fetch.stage() != Stage::Requested) else { return };
        let (priority, pending) = (fetch.priority(), fetch.timer());
        self.fetches.park(goal, peer);
        self.peers.waited_for(peer, priority);
        let wait = if self.peers.may_begin(peer, self.now) {
            self.peers.backoff_left(peer, self.now)
        } else if priority == Priority::Demand {
            OVERDUE_AFTER
        } else {
            OVERDUE_AFTER_AT_LEISURE
        };
        // A chunk may be parked a thousand times in a second: it has one timer, the earliest.
        let at = self.now + wait;
        if pending.is_none_or(|(set, _)| at < set) {
            self.cancel(pending);
            let timer = self.set(wait, Timer::Overdue(goal.0, chunk));
            self.fetches.set_timer(goal, timer);
        }
    }

    /// Queues the chunks parked for a peer again, as its window has room: a batch, or all.
    pub(super) fn unpark(&mut self, peer: NodeId, all: bool) {
        if !self.fetches.has_parked(peer) {
            return;
        }
        let mut taken = 0;
        for turn in Turn::ALL {
            let (before, priority) = (taken, turn.priority());
            let room = if all { u64::MAX } else { self.peers.room(peer, priority) };
            let mut back = Vec::new();
            while let Some(first) = self.fetches.first_parked(peer, turn) {
                let image = self.images.get(&self.id_of(first.0));
                let bytes = image.map_or(0, |image| image.inventory.geometry().length(first.1));
                if taken + bytes > room {
                    break;
                }
                if let Some(goal) = self.fetches.unpark(peer, turn) {
                    taken += bytes;
                    back.push(goal);
                }
            }
            back.into_iter().rev().for_each(|goal| self.fetches.queue_first(goal));
            if self.fetches.first_parked(peer, turn).is_none() {
                self.peers.set_credit(peer, priority, None);
            } else if taken > before {
                self.peers.set_credit(peer, priority, Some(taken - before));
            }
        }
        self.fetches.forget_unparked(peer);
    }

    /// Queues all parked chunks again.
    pub(super) fn unpark_all(&mut self) {
        for peer in self.fetches.parked_for() {
            self.unpark(peer, true);
        }
    }
}

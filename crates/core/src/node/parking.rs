//! Full windows: chunks that wait until the window of the best peer has room, and peers that wait
//! here although this node's own window has none.

use super::{Node, Timer};
use crate::chunk::Chunk;
use crate::fetch::{Fetch, Stage, Turn};
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::peers::Flow;
use crate::tuning::{JAMMED_AFTER, OVERDUE_AFTER, OVERDUE_AFTER_AT_LEISURE};
use crate::wire::{Priority, Refusal};

impl Node {
    /// Lets a chunk wait until `peer` can take more. A reader does not wait for ever: see
    /// [`OVERDUE_AFTER`].
    pub(super) fn park(&mut self, id: ImageId, chunk: Chunk, peer: NodeId) {
        let Some(goal) = self.goal(id, chunk) else { return };
        let Some(fetch) = self.fetches.get(goal).filter(|fetch| fetch.stage() != Stage::Requested) else { return };
        let (priority, pending) = (fetch.priority(), fetch.timer());
        self.fetches.park(goal, peer);
        self.peers.waited_for((peer, goal.0), priority);
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
            let timer = self.set(wait, Timer::Fetch(goal.0, chunk));
            self.fetches.set_timer(goal, timer);
        }
    }

    /// Queues all chunks parked for a peer again.
    pub(super) fn unpark_for(&mut self, peer: NodeId) {
        for image in self.fetches.images_parked(peer) {
            self.unpark_some((peer, image), true);
        }
    }

    /// Queues the chunks of an image parked for a peer again, as its window has room: a batch.
    pub(super) fn unpark(&mut self, flow: Flow) {
        self.unpark_some(flow, false);
    }

    fn unpark_some(&mut self, flow: Flow, all: bool) {
        let peer = flow.0;
        if !self.fetches.has_parked(peer) {
            return;
        }
        let mut taken = 0;
        for turn in Turn::ALL {
            let (before, priority) = (taken, turn.priority());
            let room = if all { u64::MAX } else { self.peers.room(flow, priority) };
            let mut back = Vec::new();
            while let Some(first) = self.fetches.first_parked(flow, turn) {
                let image = self.images.get(&self.id_of(first.0));
                let bytes = image.map_or(0, |image| image.inventory.geometry().length(first.1));
                if taken + bytes > room {
                    break;
                }
                if let Some(goal) = self.fetches.unpark(flow, turn) {
                    taken += bytes;
                    back.push(goal);
                }
            }
            back.into_iter().rev().for_each(|goal| self.fetches.queue_first(goal));
            if self.fetches.first_parked(flow, turn).is_none() {
                self.peers.set_credit(flow, priority, None);
            } else if taken > before {
                self.peers.set_credit(flow, priority, Some(taken - before));
            }
        }
        self.fetches.forget_unparked(peer);
    }

    /// Queues all parked chunks again.
    pub(super) fn unpark_all(&mut self) {
        for peer in self.fetches.parked_for() {
            self.unpark_for(peer);
        }
    }

    /// Refuses the peers that wait for chunks which this node cannot ask for: its own window is
    /// full, and nothing comes. It may wait for nodes that wait for this one in the same way, each
    /// for another chunk, and none of them would go on.
    pub(super) fn refuse_if_jammed(&mut self) {
        if self.now - self.delivered < JAMMED_AFTER || self.has_window(Priority::Fill) {
            return;
        }
        let has_room = self.has_window(Priority::Demand);
        let may_go = |fetch: &Fetch| has_room && fetch.priority() == Priority::Demand;
        let waits = |fetch: &Fetch| fetch.stage() == Stage::Queued && !fetch.askers.is_empty() && !may_go(fetch);
        let jammed = |number| self.fetches.of(number).filter(|(_, fetch)| waits(fetch)).map(move |(chunk, _)| chunk);
        let all: Vec<(ImageId, Chunk)> =
            self.images.iter().flat_map(|(id, image)| jammed(image.number).map(|chunk| (*id, chunk))).collect();
        for (id, chunk) in all {
            let Some(goal) = self.goal(id, chunk) else { continue };
            let Some(fetch) = self.fetches.get_mut(goal) else { continue };
            let askers = std::mem::take(&mut fetch.askers).into_iter().map(|(asker, _)| asker).collect();
            self.refuse(askers, goal, Refusal::NotHeld);
            self.drop_unwanted(id, chunk);
        }
    }
}

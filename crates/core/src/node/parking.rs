//! Parking: chunks that wait until the window of the best peer has room.

use super::{Node, Timer};
use crate::chunk::Chunk;
use crate::config::{OVERDUE_AFTER, OVERDUE_AFTER_AT_LEISURE};
use crate::fetch::{Stage, Turn};
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::wire::Priority;

impl Node {
    /// Lets a chunk wait until `peer` can take more. A reader does not wait for ever: see
    /// [`OVERDUE_AFTER`].
    pub(super) fn park(&mut self, id: ImageId, chunk: Chunk, peer: NodeId) {
        let Some(image) = self.images.get_mut(&id) else { return };
        let number = image.number;
        let Some(fetch) = image.fetches.get_mut(&chunk) else { return };
        if fetch.stage == Stage::Requested {
            return;
        }
        fetch.stage = Stage::Parked(peer);
        let (priority, turn) = (fetch.priority, fetch.turn());
        self.parked.entry(peer).or_default()[turn as usize].insert((number, chunk));
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
        let pending = fetch.overdue_timer;
        if pending.is_none_or(|(set, _)| at < set) {
            self.cancel(pending);
            let timer = self.set(wait, Timer::Overdue(number, chunk));
            let fetch = self.images.get_mut(&id).and_then(|image| image.fetches.get_mut(&chunk));
            fetch.expect("it has just been parked").overdue_timer = Some(timer);
        }
    }

    /// A chunk has been parked for too long: others may be asked, or more of the same.
    pub(super) fn overdue(&mut self, id: ImageId, chunk: Chunk) {
        let Some(image) = self.images.get_mut(&id) else { return };
        let Some(fetch) = image.fetches.get_mut(&chunk) else { return };
        fetch.overdue_timer = None;
        if matches!(fetch.stage, Stage::Parked(_)) {
            (fetch.stage, fetch.overdue) = (Stage::Queued, true);
            self.lines[fetch.turn() as usize].push_front((image.number, chunk));
        }
    }

    /// Queues the chunks parked for a peer again, as its window has room: a batch, or all.
    pub(super) fn unpark(&mut self, peer: NodeId, all: bool) {
        let Some(mut parked) = self.parked.remove(&peer) else { return };
        let mut taken = 0;
        for (queue, turn) in parked.iter_mut().zip(Turn::ALL) {
            let (before, priority) = (taken, turn.priority());
            let room = if all { u64::MAX } else { self.peers.room(peer, priority) };
            let mut back = Vec::new();
            while let Some(&(number, chunk)) = queue.first() {
                let image = self.images.get_mut(&self.id_of(number));
                let bytes = image.as_ref().map_or(0, |image| image.inventory.geometry().length(chunk));
                if taken + bytes > room {
                    break;
                }
                queue.pop_first();
                let Some(fetch) = image.and_then(|image| image.fetches.get_mut(&chunk)) else { continue };
                if fetch.stage == Stage::Parked(peer) && fetch.turn() == turn {
                    fetch.stage = Stage::Queued;
                    taken += bytes;
                    back.push((number, chunk));
                }
            }
            back.into_iter().rev().for_each(|entry| self.lines[turn as usize].push_front(entry));
            if queue.is_empty() {
                self.peers.set_credit(peer, priority, None);
            } else if taken > before {
                self.peers.set_credit(peer, priority, Some(taken - before));
            }
        }
        if parked.iter().any(|queue| !queue.is_empty()) {
            self.parked.insert(peer, parked);
        }
    }

    /// Queues all parked chunks again.
    pub(super) fn unpark_all(&mut self) {
        let peers: Vec<NodeId> = self.parked.keys().copied().collect();
        for peer in peers {
            self.unpark(peer, true);
        }
    }
}

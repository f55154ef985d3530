//! Requests to peers: whom to ask, when to ask another, and what follows from each answer.

use super::{Node, Notice, Output, Timer};
use crate::chunk::Chunk;
use crate::config::{HEDGE_AFTER, HEDGE_PERCENT, HOP_INSIST, HOPS_MAX};
use crate::fetch::{Request, RequestId, Stage};
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::peers::STALL;
use crate::wire::{Priority, Refusal};
use std::ops::Range;
use std::time::Duration;

/// How soon a request is looked at again.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// A hash page that no home and no origin has is asked for from so many nodes at a time that may have read it.
const STRANGERS_MAX: usize = 8;

/// Whom to ask.
#[derive(Debug, Clone, Copy)]
struct Source {
    peer: NodeId,
    /// To be sent along.
    hop: u8,
    /// See [`crate::fetch::Fetch::depth`].
    depth: u8,
}

impl Node {
    /// Sends requests for as long as the window allows, the most urgent first.
    pub(super) fn pump(&mut self) {
        for priority in [Priority::Demand, Priority::ReadAhead, Priority::Fill] {
            while self.has_window(priority) {
                let Some((id, chunk)) = self.lines[priority as usize].pop_front() else { break };
                let fetch = self.images.get(&id).and_then(|image| image.fetches.get(&chunk));
                if fetch.is_some_and(|fetch| fetch.stage == Stage::Queued && fetch.priority == priority) {
                    self.request(id, chunk);
                }
            }
        }
    }

    fn has_window(&self, priority: Priority) -> bool {
        if !self.config.parallel {
            return self.outstanding_bytes == 0;
        }
        let window = self.config.window_bytes;
        let limit = match priority {
            Priority::Demand => window,
            Priority::ReadAhead => window / 4 * 3,
            Priority::Fill => window / 2,
        };
        self.outstanding_bytes < limit
    }

    /// Asks somebody for a chunk; without anybody to ask, the fetch waits unless a request is under way.
    fn request(&mut self, id: ImageId, chunk: Chunk) {
        match self.source(id, chunk) {
            Some(source) => self.ask(id, chunk, source),
            None if self.stage(id, chunk) == Some(Stage::Requested) => {}
            None => self.no_source(id, chunk),
        }
    }

    fn ask(&mut self, id: ImageId, chunk: Chunk, source: Source) {
        let now = self.now;
        let Some(identity) = self.membership.live().get(&source.peer).copied() else { return };
        self.asked += 1;
        let request = RequestId(self.asked);
        let Some(image) = self.images.get_mut(&id) else { return };
        let bytes = image.inventory.geometry().length(chunk);
        let origin = image.map.origins().contains(&source.peer);
        let Some(fetch) = image.fetches.get_mut(&chunk) else { return };
        fetch.depth = if fetch.requests.is_empty() { source.depth } else { fetch.depth.min(source.depth) };
        fetch.stage = Stage::Requested;
        fetch.requests.push(request);
        fetch.tried.push(source.peer);
        let priority = fetch.priority;
        let entry = Request { peer: source.peer, image: id, chunk, bytes, priority, sent: now, orphan: false };
        self.requests.insert(request, entry);
        self.outstanding_bytes += bytes;
        self.peers.asked(source.peer, bytes, now);
        self.set(CHECK_EVERY, Timer::Check(request));
        self.out(Output::Request { request, peer: identity, image: id, chunk, priority, hop: source.hop, origin });
    }

    /// Whom to ask for a chunk: one that has it; else the home that is to relay it; else an origin.
    fn source(&mut self, id: ImageId, chunk: Chunk) -> Option<Source> {
        let (me, now) = (self.me().node, self.now);
        let image = self.images.get(&id)?;
        let fetch = image.fetches.get(&chunk)?;
        let live = self.membership.live();
        let usable =
            |node: NodeId| live.contains_key(&node) && !fetch.tried.contains(&node) && self.peers.is_usable(node, now);
        let homes = image.map.homes(chunk);
        let having = homes.iter().filter(|home| home.node != me && image.map.has(home, chunk) && usable(home.node));
        let having: Vec<NodeId> = having.map(|home| home.node).collect();
        // An origin has it for sure. What others have said may be out of date, and of two nodes that each
        // believe that the other has it neither may wait for the other.
        let likely = |peer| Source { peer, hop: HOPS_MAX, depth: HOPS_MAX };
        if let Some(peer) = fetch.advice.filter(|&node| node != me && usable(node)) {
            return Some(likely(peer));
        }

        // A home asks as a relay, so that two homes never wait for each other.
        let hop = fetch.hop.max(u8::from(homes.iter().any(|home| home.node == me)));
        let first = homes.iter().map(|home| home.node).find(|&node| node == me || usable(node));
        let participants = || image.map.participants().iter().copied().filter(|&node| node == me || usable(node));
        let relay = if homes.is_empty() { image.map.relay(chunk, participants()) } else { first };
        let relay = relay.filter(|&node| node != me && hop < HOPS_MAX);

        let origins: Vec<NodeId> = image.map.origins().iter().copied().filter(|&node| usable(node)).collect();
        let mut others: Vec<NodeId> =
            homes.iter().map(|home| home.node).filter(|&node| node != me && usable(node)).collect();
        // Whoever has data has had the pages above it, whether it is their home or not.
        if !image.inventory.geometry().is_data(chunk) && fetch.tried.len() < STRANGERS_MAX {
            others.extend(image.map.participants().iter().filter(|&&node| node != me && usable(node)));
        }
        if let Some(peer) = self.peers.choose(&having) {
            return Some(likely(peer));
        }
        if let Some(peer) = relay {
            return Some(Source { peer, hop, depth: hop });
        }
        let origin_hop = if fetch.insist { HOP_INSIST } else { HOPS_MAX };
        if let Some(peer) = self.peers.choose(&origins) {
            return Some(Source { peer, hop: origin_hop, depth: u8::MAX });
        }
        // What homes have said of themselves is a moment old: they may have it by now.
        self.peers.choose(&others).map(likely)
    }

    /// Looks at a request that has been under way for a while.
    pub(super) fn check(&mut self, request: RequestId) {
        let Some(&Request { peer, image, chunk, priority, sent, orphan, .. }) = self.requests.get(&request) else {
            return;
        };
        let now = self.now;
        let (age, silent) = (now - sent, self.peers.silent_for(peer, now));
        if silent >= STALL && age >= STALL && self.peers.stalled(peer, now) {
            self.abandon(peer);
        } else if !orphan && priority == Priority::Demand && self.is_only_request(image, chunk) {
            let patience = self.peers.of(peer).map_or(HEDGE_AFTER, |peer| peer.patience().max(HEDGE_AFTER));
            let silence = silent >= HEDGE_AFTER && age >= HEDGE_AFTER;
            let budget = self.hedged * 100 < self.asked * HEDGE_PERCENT;
            if silence || (age >= patience && budget) {
                self.hedge(image, chunk);
            }
        }
        self.set(CHECK_EVERY, Timer::Check(request));
    }

    fn is_only_request(&self, id: ImageId, chunk: Chunk) -> bool {
        self.images.get(&id).and_then(|image| image.fetches.get(&chunk)).is_some_and(|fetch| fetch.requests.len() == 1)
    }

    fn hedge(&mut self, id: ImageId, chunk: Chunk) {
        if let Some(source) = self.source(id, chunk) {
            self.hedged += 1;
            self.ask(id, chunk, source);
        }
    }

    /// Nothing is expected of a peer any more: what it was asked for is asked for elsewhere.
    pub(super) fn abandon(&mut self, peer: NodeId) {
        let owed = self.requests.iter().filter(|(_, request)| request.peer == peer && !request.orphan);
        let owed: Vec<RequestId> = owed.map(|(request, _)| *request).collect();
        for request in owed {
            let Some(&Request { image, chunk, .. }) = self.requests.get(&request) else { continue };
            self.orphan(request);
            self.try_another(request, image, chunk);
        }
    }

    /// Nobody waits for a request any more; what it asks for is still counted as owed.
    pub(super) fn orphan(&mut self, request: RequestId) {
        if let Some(entry) = self.requests.get_mut(&request)
            && !entry.orphan
        {
            entry.orphan = true;
            // It may never be answered: the window is for what is wanted.
            self.outstanding_bytes -= entry.bytes;
            let peer = entry.peer;
            self.out(Output::CancelRequest(request, peer));
        }
    }

    /// A request has failed: its fetch goes to the front of its line, unless another is under way.
    fn try_another(&mut self, request: RequestId, id: ImageId, chunk: Chunk) {
        let Some(image) = self.images.get_mut(&id) else { return };
        let Some(fetch) = image.fetches.get_mut(&chunk) else { return };
        fetch.requests.retain(|other| *other != request);
        if fetch.requests.is_empty() && fetch.stage == Stage::Requested {
            fetch.stage = Stage::Queued;
            let line = fetch.priority as usize;
            self.lines[line].push_front((id, chunk));
        }
    }

    /// Takes an ended request off the books.
    fn end(&mut self, request: RequestId, answered: bool) -> Option<Request> {
        let entry = self.requests.remove(&request)?;
        if !entry.orphan {
            self.outstanding_bytes -= entry.bytes;
        }
        let delay = answered.then(|| self.now - entry.sent);
        self.peers.ended(entry.peer, entry.bytes, delay, self.now);
        Some(entry)
    }

    pub(super) fn arrived(&mut self, request: RequestId, zeros: &[Range<u64>]) {
        let Some(entry) = self.end(request, true) else { return };
        let (id, chunk, now) = (entry.image, entry.chunk, self.now);
        self.make_room(id);
        let (boost, window) = (self.config.join_boost, self.config.window_bytes);
        let Some(image) = self.images.get_mut(&id) else { return };
        image.inventory.mark_zero(zeros);
        let ring = image.map.ring();
        let keep = image.fill.arc().contains(ring.place(chunk), ring.size());
        image.inventory.insert(chunk, keep);
        if entry.priority == Priority::Fill {
            let parallel = (window / 2 / entry.bytes.max(1)).clamp(1, 64) as u32;
            image.fill.pace(now - entry.sent, parallel.min(image.fill.pending() as u32), boost, now);
        }
        self.complete(id, chunk);
        self.trim(id);
    }

    /// Drops what is over the bound for chunks kept for a while.
    pub(super) fn trim(&mut self, id: ImageId) {
        while let Some(image) = self.images.get_mut(&id) {
            let fetches = &image.fetches;
            let Some(chunk) = image.inventory.overflow(|chunk| fetches.contains_key(&chunk)) else { return };
            self.out(Output::Evict(id, chunk));
        }
    }

    pub(super) fn corrupt(&mut self, request: RequestId) {
        let Some(entry) = self.end(request, false) else { return };
        let pause = self.peers.lied(entry.peer, self.now);
        self.out(Output::Notice(Notice::Blamed(entry.peer, pause)));
        self.try_another(request, entry.image, entry.chunk);
        self.abandon(entry.peer);
    }

    pub(super) fn unusable(&mut self, request: RequestId) {
        let Some(entry) = self.end(request, true) else { return };
        self.try_another(request, entry.image, entry.chunk);
        let Some(image) = self.images.get_mut(&entry.image) else { return };
        let Some(fetch) = image.fetches.get_mut(&entry.chunk) else { return };
        fetch.tried.retain(|node| *node != entry.peer);
        // Without the parent no other answer could be used either.
        for other in std::mem::take(&mut fetch.requests) {
            self.orphan(other);
        }
        self.line_up(entry.image, entry.chunk);
    }

    pub(super) fn refused(&mut self, request: RequestId, refusal: Refusal) {
        let Some(entry) = self.end(request, true) else { return };
        if let Some(image) = self.images.get_mut(&entry.image)
            && let Some(fetch) = image.fetches.get_mut(&entry.chunk)
        {
            fetch.source_changed |= refusal == Refusal::SourceChanged;
        }
        self.try_another(request, entry.image, entry.chunk);
    }

    pub(super) fn redirected(&mut self, request: RequestId, node: NodeId) {
        let Some(entry) = self.end(request, true) else { return };
        if let Some(image) = self.images.get_mut(&entry.image)
            && let Some(fetch) = image.fetches.get_mut(&entry.chunk)
            && !fetch.insist
        {
            (fetch.advice, fetch.insist) = (Some(node), true);
            // If that node turns out not to have it, the origin is asked once more, and insisted upon.
            fetch.tried.retain(|tried| *tried != entry.peer && *tried != node);
        }
        self.try_another(request, entry.image, entry.chunk);
    }

    pub(super) fn lost(&mut self, request: RequestId) {
        let Some(entry) = self.end(request, false) else { return };
        self.try_another(request, entry.image, entry.chunk);
    }
}

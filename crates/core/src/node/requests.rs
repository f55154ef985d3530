//! Requests to peers: when they are sent, when another peer is asked, and how answers are handled.

use super::images::FILL_PAUSES_BESIDE_SURPRISES;
use super::{Keep, Node, Output, Timer};
use crate::chunk::Chunk;
use crate::fetch::{Fetch, Request, RequestId, Stage, Turn};
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::plan::{Choice, Source};
use crate::reach::Reach;
use crate::record::RecordKey;
use crate::slice::Slice;
use crate::speed::Transit;
use crate::tuning::{
    CHECK_EVERY, HEDGE_AFTER, HEDGE_LATE, HEDGE_PERCENT, HEDGES_MAX, OWN_DELAY, STALL, UNUSABLE_PAUSE, share_of,
};
use crate::wire::{Priority, Refusal};
use std::ops::Range;
use std::time::Duration;

/// A request to be opened; see [`Request`].
pub(super) struct Asked {
    pub peer: NodeId,
    pub chunk: Chunk,
    pub priority: Priority,
    pub reach: Reach,
    pub hedge: bool,
    pub check: bool,
    pub slice: Option<Slice>,
}

impl Node {
    /// Sends requests for as long as the window allows, the most urgent first; none while its zone
    /// gathers.
    pub(super) fn pump(&mut self) {
        if self.now < self.gathers_until {
            return;
        }
        self.go_on_with_slices();
        for turn in Turn::ALL {
            while self.has_window(turn.priority()) {
                let Some((image, chunk)) = self.next_fetch(turn) else { break };
                self.request(self.id_of(image), chunk);
            }
        }
        self.set_opening();
    }

    pub(super) fn has_window(&self, priority: Priority) -> bool {
        if !self.config.parallel {
            return self.outstanding_bytes == 0;
        }
        let window = self.window_bytes.min(self.speed.carries_in(OWN_DELAY));
        self.outstanding_bytes < share_of(window, priority)
    }

    /// Asks a peer for a chunk. Without any peer to ask, the fetch waits unless a request is under
    /// way.
    fn request(&mut self, id: ImageId, chunk: Chunk) {
        loop {
            match self.choose(id, chunk) {
                Choice::Ask(source) => self.ask(id, chunk, source, false),
                Choice::Park(peer) => self.park(id, chunk, peer),
                Choice::Nobody if self.stage(id, chunk) == Some(Stage::Requested) => {}
                Choice::Nobody if self.goes_further(id, chunk) => continue,
                Choice::Nobody => {
                    self.end_round(id, chunk);
                    self.no_source(id, chunk);
                    self.found_nobody(id, chunk);
                }
            }
            return;
        }
    }

    pub(super) fn ask(&mut self, id: ImageId, chunk: Chunk, source: Source, hedge: bool) {
        let Source { peer, reach, rank } = source;
        let Some(identity) = self.identity_of(peer).copied() else { return };
        let Some(image) = self.images.get(&id) else { return };
        let (goal, origin) = ((image.number, chunk), image.map.origins().contains(&peer));
        let Some(fetch) = self.fetches.get_mut(goal) else { return };
        let is_new = !image.inventory.is_stored(chunk);
        // A full store shortens its arc when its fill goes on, not before.
        let is_wanted = is_new && image.stores(chunk) && image.inventory.has_room();
        let is_kept = is_wanted && (fetch.fill || self.budget.is_open(self.now));
        let keep = if is_kept { Keep::Stored } else { Keep::Passing };
        let refused = rank.map_or_else(Vec::new, |rank| fetch.refuse_out_of_reach(rank));
        let (priority, insists) = (fetch.priority(), fetch.insist && origin);
        let asked = Asked { peer, chunk, priority, reach, hedge, check: false, slice: None };
        let Some(request) = self.open_request(id, asked) else { return };
        self.fetches.requested(goal, request, peer, rank);
        self.hedging += u64::from(hedge);
        self.hedged += u64::from(hedge);
        self.out(Output::Request { request, peer: identity, image: id, chunk, priority, reach, insists, origin, keep });
        self.refuse(refused, goal, Refusal::NotHeld);
    }

    /// Puts a request on the books, with the next number.
    pub(super) fn open_request(&mut self, id: ImageId, asked: Asked) -> Option<RequestId> {
        let Asked { peer, chunk, priority, reach, hedge, check, slice } = asked;
        let (now, image) = (self.now, self.images.get(&id)?);
        let geometry = image.inventory.geometry();
        let bytes = match slice {
            Some(slice) => slice.length(geometry, chunk)? as u64,
            None => geometry.length(chunk),
        };
        let number = image.number;
        if self.requests.is_empty() {
            self.delivered = now;
        }
        self.asked += 1;
        self.outstanding_bytes += bytes;
        self.bounds.take(number, bytes, now);
        self.peers.asked((peer, number), bytes, priority, now);
        let owed = self.peers.owed((peer, number));
        let (sent, orphan) = (now, false);
        let entry =
            Request { peer, image: number, chunk, bytes, priority, reach, sent, owed, hedge, orphan, check, slice };
        self.requests.insert(self.asked, entry);
        if !self.checking {
            self.checking = true;
            self.set(CHECK_EVERY, Timer::Check);
        }
        Some(RequestId(self.asked))
    }

    /// Checks all requests under way.
    pub(super) fn check(&mut self) {
        self.checking = !self.requests.is_empty();
        if self.checking {
            self.set(CHECK_EVERY, Timer::Check);
        }
        self.refuse_if_jammed();
        let now = self.now;
        let old = self.requests.iter().filter(|(_, request)| now - request.sent >= CHECK_EVERY);
        let old: Vec<RequestId> = old.map(|(id, _)| RequestId(id)).collect();
        for id in old {
            // An earlier request of this check may have made an orphan of this one.
            if let Some(request) = self.requests.get(id.0).copied() {
                self.check_one(id, &request);
            }
        }
    }

    fn check_one(&mut self, number: RequestId, request: &Request) {
        let &Request { peer, image, chunk, bytes, reach, sent, orphan, check, slice, .. } = request;
        let (id, now) = (self.id_of(image), self.now);
        let (age, silent) = (now - sent, self.peers.silent_for(peer, now));
        let stall = self.peers.stall(now);
        let hedge_after = HEDGE_AFTER + (stall - STALL) / 2;
        if silent >= stall && age >= stall {
            if self.peers.stalled(peer, now) {
                self.give_up(peer);
            }
        } else if self.peers.times_out(peer, reach, bytes, age, now) {
            self.give_up(peer);
        } else if !orphan && slice.is_some() && age >= hedge_after {
            if silent >= hedge_after || self.peers.is_late_alone(age, now) {
                self.orphan(number);
                self.slice_failed(number, id, chunk, false);
            }
        } else if !orphan && !check && age >= hedge_after && self.is_lone_demand(id, chunk) {
            let patience = self.peers.of(peer).map_or(HEDGE_LATE, |peer| peer.patience().max(HEDGE_LATE));
            let budget = self.hedged * 100 < self.asked * HEDGE_PERCENT;
            let alone = self.peers.is_late_alone(age, now);
            if self.hedging < HEDGES_MAX && (silent >= hedge_after || alone || (age >= patience && budget)) {
                self.hedge(id, chunk);
            }
        }
    }

    /// True for a demand chunk with a single request under way.
    fn is_lone_demand(&self, id: ImageId, chunk: Chunk) -> bool {
        let fetch = self.fetch_of(id, chunk);
        fetch.is_some_and(|fetch| fetch.priority() == Priority::Demand && fetch.requests().len() == 1)
    }

    fn hedge(&mut self, id: ImageId, chunk: Chunk) {
        if let Choice::Ask(source) = self.choose(id, chunk) {
            self.ask(id, chunk, source, true);
        }
    }

    /// A peer does not answer: others are asked.
    fn give_up(&mut self, peer: NodeId) {
        self.abandon(peer);
        self.look_at_gateways();
    }

    /// Moves all requests of a peer elsewhere.
    pub(super) fn abandon(&mut self, peer: NodeId) {
        let owed = self.requests.iter().filter(|(_, request)| request.peer == peer && !request.orphan);
        let owed: Vec<RequestId> = owed.map(|(request, _)| RequestId(request)).collect();
        for request in owed {
            let Some(&Request { image, chunk, .. }) = self.requests.get(request.0) else { continue };
            self.orphan(request);
            self.try_another(request, self.id_of(image), chunk);
        }
        self.unpark_for(peer);
    }

    /// Marks an unwanted request as orphan; its bytes still count as owed.
    pub(super) fn orphan(&mut self, request: RequestId) {
        if let Some(entry) = self.requests.get_mut(request.0)
            && !entry.orphan
        {
            entry.orphan = true;
            // It may never be answered, and the window is for wanted chunks.
            self.outstanding_bytes -= entry.bytes;
            let peer = entry.peer;
            self.out(Output::CancelRequest(request, peer));
        }
    }

    /// Cancels all requests under way for a chunk, which is to be requested elsewhere.
    pub(super) fn supersede(&mut self, id: ImageId, chunk: Chunk) {
        let Some(requests) = self.goal(id, chunk).and_then(|goal| self.fetches.supersede(goal)) else { return };
        for request in requests {
            self.orphan(request);
        }
        self.enqueue(id, chunk);
    }

    /// Requests anew all chunks that wait for a node of the zone: their way into the zone has
    /// changed.
    pub(super) fn ask_anew(&mut self, id: ImageId) {
        self.peers.begin();
        let Some(number) = self.images.get(&id).map(|image| image.number) else { return };
        let in_zone = |fetch: &Fetch| match fetch.stage() {
            Stage::Parked(_) => true,
            Stage::Requested => fetch.rank.is_some_and(|rank| rank >= Reach::GATEWAY),
            Stage::NeedsParent | Stage::Queued | Stage::Waiting | Stage::Paused => false,
        };
        let anew = self.fetches.of_mut(number).filter(|(_, fetch)| in_zone(fetch));
        let anew: Vec<Chunk> = anew
            .map(|(chunk, fetch)| {
                fetch.tried.clear();
                chunk
            })
            .collect();
        for chunk in anew {
            self.supersede(id, chunk);
        }
    }

    /// A request has failed: its fetch goes to the front of its line, unless another is under way.
    /// Readers of a slice wait for the whole chunk.
    pub(super) fn try_another(&mut self, request: RequestId, id: ImageId, chunk: Chunk) {
        self.slice_failed(request, id, chunk, false);
        if let Some(goal) = self.goal(id, chunk) {
            self.fetches.failed(goal, request);
        }
    }

    /// Takes an ended request off the books.
    fn end(&mut self, request: RequestId, answered: bool) -> Option<(ImageId, Request)> {
        let entry = self.requests.remove(request.0)?;
        if !entry.orphan {
            self.outstanding_bytes -= entry.bytes;
        }
        self.hedging -= u64::from(entry.hedge);
        if entry.check {
            self.check_ended(self.id_of(entry.image), entry.peer, entry.chunk);
        }
        let delay = answered.then(|| self.now - entry.sent);
        self.peers.ended((entry.peer, entry.image), entry.bytes, entry.priority, delay, self.now);
        self.unpark((entry.peer, entry.image));
        Some((self.id_of(entry.image), entry))
    }

    pub(super) fn arrived(&mut self, request: RequestId, waited: Duration, transit: Transit, zeros: &[Range<u64>]) {
        let Some((id, entry)) = self.end(request, true) else { return };
        let (chunk, now) = (entry.chunk, self.now);
        self.delivered = now;
        if self.speed.came(entry.bytes, now) {
            self.announce_all();
        }
        // A fill takes no more than its pace allows, so it does not show what links carry.
        if entry.priority != Priority::Fill {
            self.measure(id, entry.peer, entry.bytes, transit);
        }
        if entry.slice.is_some() {
            self.peers.delivered_as_claimed(entry.peer);
            self.delivered_as_claimed(id, entry.peer, chunk);
            return self.slice_arrived(request, id, chunk);
        }
        let (boost, window) = (self.config.join_boost, self.window_bytes);
        self.peers.delivered((entry.peer, entry.image), entry.bytes, now - entry.sent, entry.owed, window);
        self.peers.paced(entry.peer, entry.bytes, entry.sent + waited.min(now - entry.sent), now);
        if entry.reach == Reach::HOLDER {
            self.peers.delivered_as_claimed(entry.peer);
            self.delivered_as_claimed(id, entry.peer, chunk);
        }
        if entry.reach.is_chain() {
            self.peers.in_step(entry.peer);
        }
        let is_waited_for = entry.reach.is_chain() || self.fetches.has_parked(entry.peer);
        if is_waited_for && self.peers.lags(entry.peer, now) {
            self.abandon(entry.peer);
        }
        if entry.check {
            self.probed(request, entry.peer, entry.bytes, transit);
            return;
        }
        self.probes.came(entry.peer, entry.image, chunk);
        self.note_way(id, chunk, entry.peer);
        let is_surprised = self.is_surprised();
        let Some(image) = self.images.get_mut(&id) else { return };
        if entry.priority == Priority::Fill {
            let parallel = (window / 2 / entry.bytes.max(1)).clamp(1, 64) as u32;
            image.fill.pace(entry.sent, parallel.min(image.fill.pending() as u32), boost, now);
            if is_surprised {
                image.fill.rest(FILL_PAUSES_BESIDE_SURPRISES, now);
            }
        }
        image.inventory.mark_zero(zeros);
        if let Some(fetch) = self.fetch_mut(id, chunk) {
            fetch.trail.delivered(entry.peer, waited);
        }
        let is_fill = self.fetches.get((entry.image, chunk)).is_some_and(|fetch| fetch.fill);
        self.take_in(id, chunk, is_fill || self.budget.is_open(now));
    }

    /// A chunk is in the shell's store: it counts as stored if that is where it belongs and it may,
    /// else it stays transient.
    pub(super) fn take_in(&mut self, id: ImageId, chunk: Chunk, may_store: bool) {
        self.make_room(id);
        let Some(image) = self.images.get_mut(&id) else { return };
        let keep = may_store && image.stores(chunk);
        image.inventory.insert(chunk, keep);
        self.settle(id);
        self.complete(id, chunk);
        self.trim(id);
    }

    /// Tells the shell which chunks became stored, and takes them off the day's budget.
    pub(super) fn settle(&mut self, id: ImageId) {
        let Some(image) = self.images.get_mut(&id) else { return };
        for chunk in image.inventory.newly_stored() {
            self.budget.take(image.inventory.geometry().length(chunk), self.now);
            self.outputs.push_back(Output::Stored(id, chunk));
        }
    }

    /// Evicts transient chunks above the bound.
    pub(super) fn trim(&mut self, id: ImageId) {
        while let Some(image) = self.images.get_mut(&id) {
            let (fetches, number) = (&self.fetches, image.number);
            let is_fetched = |chunk| fetches.get((number, chunk)).is_some();
            let Some(chunk) = image.inventory.overflow(is_fetched) else { return };
            self.out(Output::Evict(id, chunk));
        }
    }

    pub(super) fn corrupt(&mut self, request: RequestId) {
        let Some((id, entry)) = self.end(request, false) else { return };
        if self.peers.trouble(entry.peer, self.now) == Some("blamed") {
            // It was under way when the peer was banned: the same lie, with many bytes.
            return self.try_another(request, id, entry.chunk);
        }
        self.blame(entry.peer);
        self.failed_a_check(id, entry.peer);
        self.try_another(request, id, entry.chunk);
        self.abandon(entry.peer);
    }

    pub(super) fn unusable(&mut self, request: RequestId) {
        let Some((id, entry)) = self.end(request, true) else { return };
        if entry.check {
            return;
        }
        self.try_another(request, id, entry.chunk);
        if entry.slice.is_some() {
            return;
        }
        let Some(goal) = self.goal(id, entry.chunk) else { return };
        let Some(fetch) = self.fetches.get_mut(goal) else { return };
        fetch.tried.retain(|node| *node != entry.peer);
        // Without the parent no other answer could be used either.
        let Some((others, before)) = self.fetches.pause(goal) else { return };
        for other in others {
            self.orphan(other);
        }
        self.cancel(self.fetches.get(goal).and_then(Fetch::timer));
        let timer = self.set(UNUSABLE_PAUSE.pause(before), Timer::Fetch(goal.0, goal.1));
        self.fetches.set_timer(goal, timer);
    }

    pub(super) fn refused(&mut self, request: RequestId, refusal: Refusal) {
        let Some((id, entry)) = self.end(request, true) else { return };
        self.bounds.give_back(&entry);
        if entry.orphan {
            // Honest peers refuse cancelled requests too.
            return;
        }
        let claimed = entry.reach == Reach::HOLDER && refusal == Refusal::NotHeld && self.says_it_has(&entry);
        // Nobody is blamed for a record that somebody else invented.
        if claimed && self.membership.confirms(&RecordKey { node: entry.peer, image: id }) {
            self.contradicted(id, entry.peer);
        }
        if entry.check {
            return;
        }
        if entry.slice.is_some() {
            return self.slice_failed(request, id, entry.chunk, refusal == Refusal::Whole);
        }
        if let Some(fetch) = self.fetch_mut(id, entry.chunk) {
            fetch.source_changed |= refusal == Refusal::SourceChanged;
        }
        // A fill may be anywhere; an upstream elsewhere is not out of step with readers.
        if entry.reach.is_chain() && entry.priority != Priority::Fill {
            self.peers.out_of_step(entry.peer, self.now);
            self.unpark_for(entry.peer);
            // An upstream that may only just begin is asked once more.
            let begins = self.peers.may_begin(entry.peer, self.now);
            let warms_up = self.images.get(&id).is_some_and(|image| self.now < image.warm_up_until);
            if let Some(fetch) = self.fetch_mut(id, entry.chunk)
                && begins
                && (fetch.priority() != Priority::Demand || warms_up)
            {
                fetch.tried.retain(|tried| *tried != entry.peer);
            }
        }
        self.try_another(request, id, entry.chunk);
    }

    /// A peer refused a chunk that it has according to its record. What it signed is its own word:
    /// that it is an origin. How much of its store is filled it is asked itself, before it is
    /// blamed for that.
    fn contradicted(&mut self, id: ImageId, peer: NodeId) {
        let signed = self.images.get(&id).is_some_and(|image| image.map.origins().contains(&peer));
        if signed || self.membership.is_misquoted(peer) {
            if self.peers.claimed_falsely(peer, self.now) {
                self.recount_all();
            }
        } else if self.peers.contradicted(peer) {
            self.membership.misquote(peer);
            self.mapped = u64::MAX;
            self.outputs.extend(self.membership.live().get(&peer).copied().map(Output::Sync));
        }
        self.failed_a_check(id, peer);
    }

    /// True if the asked peer still announces that it has the chunk.
    fn says_it_has(&self, request: &Request) -> bool {
        let Some(image) = self.images.get(&self.id_of(request.image)) else { return false };
        image.map.holds(request.peer, request.chunk) || image.map.origins().contains(&request.peer)
    }

    pub(super) fn redirected(&mut self, request: RequestId, node: NodeId) {
        let Some((id, entry)) = self.end(request, true) else { return };
        self.bounds.give_back(&entry);
        if let Some(fetch) = self.fetch_mut(id, entry.chunk).filter(|fetch| !fetch.firm) {
            fetch.firm = fetch.insist;
            (fetch.advice, fetch.insist) = (Some(node), true);
            // If that node turns out not to have it, the origin is asked once more, and insisted
            // upon.
            fetch.tried.retain(|tried| *tried != entry.peer && *tried != node);
        }
        self.try_another(request, id, entry.chunk);
    }

    pub(super) fn lost(&mut self, request: RequestId) {
        let Some((id, entry)) = self.end(request, false) else { return };
        self.bounds.give_back(&entry);
        self.try_another(request, id, entry.chunk);
    }
}

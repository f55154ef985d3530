//! Requests of peers for chunks that are not here: this node relays them, or refuses.

use super::images::Image;
use super::{Node, Output, Serve};
use crate::chunk::Chunk;
use crate::fetch::{Asker, Beneficiary, ConnectionId, Goal, ImageNumber};
use crate::image::ImageId;
use crate::reach::Reach;
use crate::tuning::field;
use crate::wire::{Priority, Refusal};
use std::collections::BTreeSet;
use std::time::Duration;

/// Most peers that wait for one chunk: more than a zone of the field has nodes.
const ASKERS_MAX: usize = 4096;

/// Most chunks under way when one more is fetched for a peer: the requests of 200 peers in chunks
/// of 64 KiB, with about 20 MB of state.
const FETCHES_MAX: usize = 1 << 16;

/// Most fetches before a chunk that are checked for whether this node comes by it: mostly all.
const COMES_BY_LOOK: usize = 256;

/// The chunks that peers' open requests wait for. A cancel, or the end of a connection, costs only
/// its own requests and no scan of all fetches. It is bounded like the askers of all fetches.
#[derive(Debug, Default)]
pub(super) struct Asks(BTreeSet<(ConnectionId, u64, ImageNumber, Chunk)>);

impl Asks {
    fn opened(&mut self, asker: &Asker, (image, chunk): Goal) {
        self.0.insert((asker.connection, asker.request, image, chunk));
    }

    /// The asker no longer waits.
    pub(super) fn ended(&mut self, asker: &Asker, (image, chunk): Goal) {
        self.0.remove(&(asker.connection, asker.request, image, chunk));
    }

    /// The chunks that a connection waits for, with one of its requests or all.
    fn of(&self, connection: ConnectionId, request: Option<u64>) -> Vec<Goal> {
        let (first, last) = request.map_or((0, u64::MAX), |request| (request, request));
        let least = (connection, first, ImageNumber(0), Chunk(0));
        let most = (connection, last, ImageNumber(u32::MAX), Chunk(u64::MAX));
        self.0.range(least..=most).map(|(_, _, image, chunk)| (*image, *chunk)).collect()
    }
}

impl Node {
    pub(super) fn asked(&mut self, asker: Asker, id: ImageId, chunk: Chunk, priority: Priority) {
        match self.join(asker, id, chunk, priority) {
            Ok(true) => self.out(Output::Serve(Serve { asker, image: id, chunk, priority, waited: Duration::ZERO })),
            Ok(false) => {}
            Err(refusal) => self.out(Output::Refuse(asker, refusal)),
        }
    }

    /// Refuses askers of a chunk, which wait no longer.
    pub(super) fn refuse(&mut self, askers: Vec<Asker>, goal: Goal, refusal: Refusal) {
        for asker in askers {
            self.asks.ended(&asker, goal);
            self.out(Output::Refuse(asker, refusal));
        }
    }

    /// True if it is here, false if the asker waits for it now.
    fn join(&mut self, asker: Asker, id: ImageId, chunk: Chunk, priority: Priority) -> Result<bool, Refusal> {
        let me = self.me().node;
        let image = self.images.get_mut(&id).ok_or(Refusal::NoSuchImage)?;
        if image.inventory.geometry().chunk(chunk.0).is_none() {
            return Err(Refusal::NotHeld);
        }
        if image.inventory.is_here(chunk) {
            image.inventory.touch(chunk);
            return Ok(true);
        }
        let goal = (image.number, chunk);
        let known = self.fetches.get(goal);
        let full =
            known.map_or_else(|| self.fetches.count(goal.0) >= FETCHES_MAX, |fetch| fetch.askers.len() >= ASKERS_MAX);
        if full {
            return Err(Refusal::Busy);
        }
        // An asker with no more reach may wait only for certain chunks.
        let takes = match known {
            Some(fetch) => fetch.may_join(asker.reach),
            None => {
                let relays = asker.reach.is_relay() || (asker.reach.is_gateway() && image.gateways.contains(me));
                relays || (asker.reach.is_chain() && self.comes_by(id, chunk, asker.reach))
            }
        };
        let image = self.images.get(&id).ok_or(Refusal::NoSuchImage)?;
        let waits_for_home = known.is_some_and(|fetch| fetch.rank.is_some_and(Reach::is_relay));
        let is_turned_to = (asker.reach.is_gateway() && image.gateways.contains(me))
            || (asker.reach.is_chain() && waits_for_home && !image.gateways.nodes().is_empty());
        if image.origin || !(takes || is_turned_to) {
            return Err(Refusal::NotHeld);
        }
        if takes {
            self.want(id, chunk, priority, Beneficiary::Peers);
        } else if !self.may_be_asked_anew(id, chunk) {
            return Err(Refusal::NotHeld);
        } else {
            // It asked a node of this zone before it knew what others know already: all of them may
            // wait for it.
            self.supersede(id, chunk);
        }
        let fetch = self.fetches.get_mut(goal).ok_or(Refusal::NotHeld)?;
        self.asks.opened(&asker, goal);
        fetch.reach = fetch.reach.min(asker.reach.less());
        fetch.askers.push((asker, self.now));
        Ok(false)
    }

    /// True if this node will come by a chunk itself before long: it reads in order, or fills, a
    /// little before it.
    fn comes_by(&self, id: ImageId, chunk: Chunk, reach: Reach) -> bool {
        let Some(image) = self.images.get(&id) else { return false };
        if reach.is_outside() && self.is_in_zone(image, chunk) {
            return true;
        }
        let chunk_bytes = image.inventory.geometry().chunk_bytes();
        let mut chunks = self.config.chunks_ahead(chunk_bytes);
        let ring = image.map.ring();
        if image.fill.arc().contains(ring.place(chunk), ring.size()) {
            // This node will keep it. Later zones need not wait for the readers of this one. If
            // they overtook it, they would stay ahead, and its own source would have to send all
            // chunks twice.
            if reach.is_outside() || image.fill.is_near(chunk, chunks) {
                return true;
            }
            // A node that has fallen behind must not be bypassed: it would get half of its
            // upstream's link, and stay behind.
            chunks += field::BEHIND * self.peers.passing(image.number, image.map.origins()) / chunk_bytes;
        }
        let before = self.fetches.back_from(image.number, Chunk(chunk.0.saturating_sub(chunks))..chunk);
        let mut before = before.take(COMES_BY_LOOK);
        before.any(|fetch| fetch.stream || (reach.is_outside() && !fetch.askers.is_empty()))
    }

    /// True if another zone can get the chunk from this one: a node here has announced it.
    fn is_in_zone(&self, image: &Image, chunk: Chunk) -> bool {
        !image.map.origins().is_empty() || image.map.homes(chunk).any(|home| image.map.has(home, chunk))
    }

    /// Removes askers that no longer wait, of one request or a whole connection. Chunks under way
    /// for them are kept when they come, since others will ask. Queued ones are not requested any
    /// more.
    pub(super) fn forget_askers(&mut self, connection: ConnectionId, request: Option<u64>) -> Vec<Asker> {
        let gone = |asker: &Asker| asker.connection == connection && request.is_none_or(|one| asker.request == one);
        let mut left = Vec::new();
        for goal in self.asks.of(connection, request) {
            let Some(fetch) = self.fetches.get_mut(goal) else { continue };
            let before = left.len();
            left.extend(fetch.askers.iter().filter(|(asker, _)| gone(asker)).map(|(asker, _)| *asker));
            fetch.askers.retain(|(asker, _)| !gone(asker));
            for asker in &left[before..] {
                self.asks.ended(asker, goal);
            }
            self.drop_unwanted(self.id_of(goal.0), goal.1);
        }
        left
    }
}

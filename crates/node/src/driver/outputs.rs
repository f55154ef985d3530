//! The outputs of the core, carried out: requests to lanes, replies to connections, answers to
//! readers, notices to the log.
//!
//! [`super::Driver::drive`] calls it once the machine is unlocked, but for evictions and
//! commitments, which have to keep step with the core. Nothing here waits for a socket.

use super::{Driver, Reply, lock};
use crate::bootstrap;
use crate::event::Event;
use crate::gossip;
use crate::image::LocalImage;
use crate::links::{Ask, Lane};
use crate::store::found::{Adopted, Place};
use crate::survey;
use crate::trace::{Did, priority_word};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use vfield_core::chunk::Chunk;
use vfield_core::fetch::{ConnectionId, RequestId};
use vfield_core::identity::{Identity, NodeId};
use vfield_core::image::ImageId;
use vfield_core::membership::{Departed, Departure, Rival};
use vfield_core::node::{Commitment, Input, Keep, Notice, Output};
use vfield_core::reach::Reach;
use vfield_core::tag::Tag;
use vfield_core::tags::{Known, Refused};
use vfield_core::tuning::HEDGE_AFTER;
use vfield_core::wire::{self, Priority};

/// How long a request is held back for a look at this node's own disk. Its peer, which knows of
/// nothing, is not to be taken for silent.
const LOOKS_WITHIN: Duration = Duration::from_millis(200);
const _: () = assert!(LOOKS_WITHIN.as_millis() < HEDGE_AFTER.as_millis());

impl Driver {
    pub(super) fn perform(self: &Arc<Self>, outputs: Vec<Output>) {
        let mut asked: Vec<Arc<Lane>> = Vec::new();
        let mut request_of = |peer: Identity, ask: Ask| {
            let lane = self.request(peer, ask);
            asked.extend(lane.filter(|lane| !asked.iter().any(|other| Arc::ptr_eq(other, lane))));
        };
        for output in outputs {
            match output {
                Output::Request { request, peer, image, chunk, priority, reach, insists, origin, keep } => {
                    let slice = None;
                    let ask = Ask { request, image, chunk, priority, reach, insists, origin, keep, slice };
                    if let Some(ask) = self.unless_here(peer, ask) {
                        request_of(peer, ask);
                    }
                }
                Output::RequestSlice { request, peer, image, chunk, slice, origin } => {
                    let (priority, reach) = (Priority::Demand, Reach::HOLDER);
                    let (insists, keep, slice) = (false, Keep::Not, Some(slice));
                    request_of(peer, Ask { request, image, chunk, priority, reach, insists, origin, keep, slice });
                }
                other => self.perform_one(other),
            }
        }
        for lane in asked {
            lane.flush();
        }
    }

    fn request(self: &Arc<Self>, peer: Identity, ask: Ask) -> Option<Arc<Lane>> {
        if self.tracer.is_on() {
            let (priority, slice) = (priority_word(ask.priority), ask.slice.is_some());
            let asked = Did::Asked { request: ask.request.0, peer: peer.addr, priority, slice };
            self.tracer.note(self.now(), Some((ask.image, ask.chunk)), asked);
        }
        self.links.request(self, peer, ask)
    }

    /// A request for a chunk, unless that is here after all. If it may be on a disk, the peer is
    /// asked later.
    fn unless_here(self: &Arc<Self>, peer: Identity, ask: Ask) -> Option<Ask> {
        let Some(image) = self.image(ask.image) else { return Some(ask) };
        if ask.keep == Keep::Not {
            return (!self.is_hole(&image, ask.chunk, ask.request)).then_some(ask);
        }
        let Some(reads) = image.store().awaited(ask.chunk.0..ask.chunk.0 + 1) else {
            return (!self.lies_here(&image, ask.chunk, ask.request)).then_some(ask);
        };
        if reads.is_jammed() {
            return Some(ask);
        }
        tokio::spawn(Arc::clone(self).look_and_request(image, peer, ask));
        None
    }

    /// Asks a peer for a chunk unless that is on a disk which delivers it in time.
    async fn look_and_request(self: Arc<Self>, image: Arc<LocalImage>, peer: Identity, ask: Ask) {
        let looking = survey::look(&self, &image, ask.chunk.0..ask.chunk.0 + 1);
        let _ = tokio::time::timeout(LOOKS_WITHIN, looking).await;
        if image.store().is_resident(ask.chunk) || image.store().is_zero(ask.chunk) {
            self.hint(Input::Lost(ask.request));
        } else if let Some(lane) = self.request(peer, ask) {
            lane.flush();
        }
    }

    pub(super) fn evict(&self, id: ImageId, chunk: Chunk) {
        if let Some(image) = self.images.read().unwrap_or_else(PoisonError::into_inner).get(&id) {
            image.store().evict(chunk);
        }
    }

    pub(super) fn settle(&self, id: ImageId, chunk: Chunk) {
        if let Some(image) = self.images.read().unwrap_or_else(PoisonError::into_inner).get(&id)
            && let Err(error) = image.store().settle(chunk)
        {
            tracing::warn!(%error, "no memory for a stored chunk, which stays in a buffer");
        }
    }

    pub(super) fn commit(&self, id: ImageId, commitment: Commitment) {
        if let Some(image) = self.images.read().unwrap_or_else(PoisonError::into_inner).get(&id)
            && let Err(error) = image.store().commit(image.names(), commitment)
        {
            tracing::warn!(%error, "writing the label of a store failed");
        }
    }

    /// True if the wanted chunk is here after all, so that no peer is asked: an earlier process
    /// left it, another version of the image has it, or it was evicted while a reader holds it.
    fn lies_here(&self, image: &LocalImage, chunk: Chunk, request: RequestId) -> bool {
        let id = image.id();
        let mut here = image.store().revive(chunk);
        // Not at once: what follows may be the next request of this kind, and so on for a whole
        // store.
        let found = |image, chunks, zeros| self.hint(Input::Found { image, chunks, zeros });
        if here {
            found(id, vec![chunk], Vec::new());
        } else {
            survey::check(self, image, chunk.0..chunk.0 + 1, Place::Memory, |of, Adopted { chunks, zeros, .. }| {
                here |= of == id && chunks.contains(&chunk);
                found(of, chunks, zeros);
            });
        }
        if here {
            self.hint(Input::Lost(request));
        }
        here
    }

    /// True if a chunk to be checked is all zeros, which the core of an origin learns only now: no
    /// holder stores it.
    fn is_hole(&self, image: &LocalImage, chunk: Chunk, request: RequestId) -> bool {
        let zeros = image.source().and_then(|source| source.zeros_from(chunk));
        let is_hole = zeros.is_some();
        if let Some(zeros) = zeros {
            self.hint(Input::Found { image: image.id(), chunks: Vec::new(), zeros: vec![zeros] });
            self.hint(Input::Lost(request));
        }
        is_hole
    }

    fn perform_one(self: &Arc<Self>, output: Output) {
        match output {
            Output::Datagram(to, bytes) => {
                self.limits.up.charge(bytes.len() as u64);
                self.gossip.send(&bytes, self.whereabouts.way_to(to));
            }
            Output::Gossip(peer, message) => self.links.gossip(self, peer, &message),
            Output::Denied => self.gossip.renew(Instant::now()),
            Output::Sync(identity) => self.links.sync(self, identity),
            Output::Offer(identity) => self.ask_list(identity),
            Output::Call(addr) => drop(tokio::spawn(bootstrap::call(Arc::clone(self), addr))),
            Output::TellSpeed(peer, speed) => self.links.tell(peer, &wire::speed_frame(speed)),
            Output::Here(peer, image, chunks) => self.links.tell(peer, &wire::here_frame(image, &chunks)),
            Output::CancelRequest(request, peer) => self.links.cancel(peer, request),
            Output::Serve(serve) => self.reply(serve.asker.connection, Reply::Chunk(serve)),
            Output::Refuse(asker, refusal) => self.reply(asker.connection, Reply::Refuse(asker, refusal)),
            Output::Account(asker, account) => self.reply(asker.connection, Reply::Account(asker, account)),
            Output::Answer(token, result) => {
                let waiting = lock(&self.readers).remove(&token);
                if let Some(reader) = waiting {
                    // The reader may have gone this very moment.
                    let _ = reader.send(result);
                }
            }
            // The callers of this function carry these out.
            Output::Evict(..)
            | Output::Stored(..)
            | Output::Committed(..)
            | Output::Request { .. }
            | Output::RequestSlice { .. } => {}
            Output::Notice(notice) => self.note(notice),
        }
    }

    /// Has a peer's connection send a reply, if it is still there.
    pub fn reply(&self, connection: ConnectionId, reply: Reply) {
        if let Some(sender) = lock(&self.connections).get(&connection) {
            // The connection may be closing this very moment.
            let _ = sender.send(reply);
        }
    }

    fn note(self: &Arc<Self>, notice: Notice) {
        let name = |id: ImageId| self.image(id).map_or_else(String::new, |image| image.name().to_owned());
        match notice {
            Notice::Up(member) if self.whereabouts.turns.are_taken(member.addr) => {}
            Notice::Up(member) => (self.events)(Event::NodeJoined { node: member.node.to_string(), addr: member.addr }),
            Notice::Moved(member) => self.links.has_moved(member),
            Notice::Down(departed) => self.gone(departed),
            Notice::Rival(Rival { addr, yields: true }) => drop(self.outdone.send_replace(Some(addr))),
            Notice::Rival(Rival { addr, .. }) => {
                self.warn(format!(
                    "another process uses this node's identity at {addr}: each machine needs its own file"
                ));
            }
            Notice::Available(node, available) => {
                for image in self.images.read().unwrap_or_else(PoisonError::into_inner).values() {
                    image.set_available(node, available);
                }
            }
            Notice::NoDatagrams(member) => (self.events)(Event::Warning(gossip::blocked(member.addr, &[]))),
            Notice::NoWay(member) => (self.events)(Event::Warning(gossip::parted(member.addr, &[]))),
            Notice::Blamed(node, pause) => self.blame(node, pause),
            Notice::Coverage(id, true) => (self.events)(Event::Covered { image: name(id) }),
            Notice::Coverage(id, false) => (self.events)(Event::Uncovered { image: name(id) }),
            Notice::Filled(id) => self.filled(id),
            Notice::Spent => self.warn(
                "the disk has taken its bytes of a day (--disk-writes): stores fill slowly, and reads go on".to_owned(),
            ),
            Notice::Discard(_) => self.due.send_modify(|changes| *changes += 1),
            Notice::Tagged(known) => self.tagged(&known),
            Notice::TagRefused(why, from) => self.tag_refused(&why, from),
        }
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn tagged(&self, known: &Known) {
        let Tag { name, serial, image, .. } = &known.tag;
        let image = image.map_or_else(String::new, |image| image.to_string());
        (self.events)(Event::Tagged { tag: name.to_string(), serial: *serial, image });
        self.tagged.send_modify(|changes| *changes += 1);
    }

    fn tag_refused(&self, why: &Refused, from: Option<SocketAddr>) {
        match from {
            None => self.warn(why.to_string()),
            Some(addr) if self.log_limit.allows(addr.ip()) => self.warn(format!("from {addr}: {why}; it is ignored")),
            Some(_) => {}
        }
    }

    fn gone(&self, departed: Departed) {
        let Departed { identity: member, how } = departed;
        self.links.forget(member.node);
        for image in self.images.read().unwrap_or_else(PoisonError::into_inner).values() {
            image.forget(member.node);
        }
        let turns = &self.whereabouts.turns;
        if how == Departure::Replaced
            && let Some(text) = turns.replaced(member.addr, member.node, Instant::now())
        {
            self.warn(text);
        }
        if how != Departure::Replaced || !turns.are_taken(member.addr) {
            (self.events)(Event::NodeGone { node: member.node.to_string(), addr: member.addr, how });
        }
    }

    fn blame(&self, node: NodeId, pause: Duration) {
        let addr = self.look(|core| {
            core.members().iter().find(|member| member.identity.node == node).map(|member| member.identity.addr)
        });
        if addr.is_some_and(|addr| !self.log_limit.allows(addr.ip())) {
            return;
        }
        let addr = addr.map_or_else(|| node.to_string(), |addr| addr.to_string());
        self.warn(format!("node {addr} sent wrong data and is not asked again for {} s", pause.as_secs()));
    }

    fn filled(&self, id: ImageId) {
        let Some(image) = self.image(id) else { return };
        let view = self.look(|core| core.images().into_iter().find(|view| view.id == id));
        let Some(view) = view.filter(|view| !view.origin) else { return };
        image.set_complete(view.capacity >= image.geometry().chunks());
        if view.capacity == 0 {
            return;
        }
        let held_bytes = view.stored * image.geometry().chunk_bytes();
        (self.events)(Event::Filled { image: image.name().to_owned(), held_bytes });
    }
}

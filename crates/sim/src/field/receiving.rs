//! Incoming messages: in the order of their lanes, past walls, into shells and cores.

use super::lanes::connection;
use super::{Event, Field};
use crate::machine::Fault;
use crate::machine::lane::Way;
use crate::network::{Message, Packet};
use std::time::Duration;
use vfield_core::chunk::Chunk;
use vfield_core::fetch::{Asker, RequestId};
use vfield_core::identity::NodeId;
use vfield_core::node::Input;
use vfield_core::slice::Slice;
use vfield_core::speed::Transit;
use vfield_core::time::Time;
use vfield_core::wire::{Kind, Priority, Refusal};

impl Field {
    /// Delivers a packet that has arrived completely.
    pub(super) fn deliver(&mut self, at: u32) {
        let &mut Packet { from, to, epoch, number, ref message, .. } = self.packets.at(at);
        let way = message.way();
        if !self.machines[to as usize].alive {
            self.packets.remove(at);
            return;
        }
        if way.is_none() && self.walls.drops_datagrams(self.machines[to as usize].place) {
            self.packets.remove(at);
            return;
        }
        if !self.walls.is_empty() && self.is_walled_off(from as usize, to as usize) {
            if way.is_none() {
                self.packets.remove(at);
            } else {
                // TCP sends it again until it comes through.
                self.at_walls.push(at);
            }
            return;
        }
        if self.machines[to as usize].fault == Fault::Paused {
            self.frozen.entry(to).or_default().push(Event::Deliver(at));
            return;
        }
        if let Some(way) = way {
            let (owner, other) = if way == Way::Forward { (from, to) } else { (to, from) };
            let lane = self.machines[owner as usize].lanes.get_mut(&other);
            let Some(lane) = lane.filter(|lane| lane.open && lane.epoch == epoch) else {
                self.packets.remove(at);
                return;
            };
            let came = &mut lane.came[way as usize];
            if *came != number {
                self.early.insert((owner, other, way as u8, number), at);
                return;
            }
            *came += 1;
            let next = *came;
            if !self.early.is_empty()
                && let Some(early) = self.early.remove(&(owner, other, way as u8, next))
            {
                self.queue.push(self.queue.now(), Event::Deliver(early));
            }
        }
        let bytes = self.packets.at(at).bytes;
        match &mut self.machines[to as usize].processor {
            None => {
                let packet = self.packets.remove(at);
                self.receive(packet);
            }
            Some(processor) => {
                let taken = processor.work(bytes, self.queue.now());
                self.queue.push(taken, Event::Taken(at));
            }
        }
    }

    /// A busy machine has read a packet, whose lane may be gone by now.
    pub(super) fn take(&mut self, at: u32) {
        let &mut Packet { from, to, epoch, ref message, .. } = self.packets.at(at);
        if self.machines[to as usize].fault == Fault::Paused {
            self.frozen.entry(to).or_default().push(Event::Taken(at));
            return;
        }
        let (owner, other) = if message.way() == Some(Way::Back) { (to, from) } else { (from, to) };
        let lane = self.machines[owner as usize].lanes.get(&other);
        let goes_on = message.way().is_none() || lane.is_some_and(|lane| lane.open && lane.epoch == epoch);
        let packet = self.packets.remove(at);
        if goes_on && self.machines[to as usize].alive {
            self.receive(packet);
        }
    }

    /// The shell of a machine reads a message.
    pub(super) fn receive(&mut self, packet: Packet) {
        let stalled = self.machines[packet.to as usize].fault == Fault::Stalled;
        if stalled && matches!(packet.message, Message::Get { .. } | Message::Cancel(_)) {
            self.swallowed.push(packet);
            return;
        }
        let Packet { from, to, epoch, first, message, .. } = packet;
        let transit = self.transit(to, from, first);
        let (from, to) = (from as usize, to as usize);
        match message {
            Message::Get { .. } => self.asked(from, to, epoch, &message),
            Message::Cancel(request) => {
                if let Some(flight) = self.machines[from].flights.get_mut(request) {
                    flight.called_off = true;
                }
                self.input(to, Input::CancelAsked(connection(from, epoch), request.0));
            }
            Message::Data { request, waited, wrong } => {
                self.arrive_chunk((from, to), request, (waited, transit), wrong)
            }
            Message::Refuse(request, refusal) => {
                if self.land(to, request).is_some() {
                    self.explain.refused(to, from);
                    self.input(to, Input::Refused(request, refusal));
                }
            }
            Message::Redirect(request, node) => {
                if self.land(to, request).is_some() {
                    self.input(to, Input::Redirected(request, node));
                }
            }
            Message::Sync(frame) => {
                let Some(known) = self.learn(from, to, &frame) else {
                    return self.broken_frame(from, to, Kind::Sync);
                };
                let mine = self.noise(to).unwrap_or_else(|| self.notes(to, from, &known));
                self.send(to, from, Message::Synced(mine));
            }
            Message::Synced(frame) => {
                if self.learn(from, to, &frame).is_none() {
                    return self.broken_frame(from, to, Kind::Synced);
                }
                self.joined(to);
            }
            Message::Patience => {
                let node = self.machines[from].identity.node;
                self.input(to, Input::Progress(node));
            }
            Message::Speed(speed) => {
                let node = self.machines[from].identity.node;
                self.input(to, Input::Delivers(node, speed));
            }
            Message::Gossip(bytes) => {
                let node = self.machines[from].identity.node;
                let bytes = self.read_datagram(to, bytes);
                self.input(to, Input::Gossip(node, bytes));
            }
            Message::Datagram(bytes) => {
                let source = self.machines[from].node.me().addr;
                let bytes = self.read_datagram(to, bytes);
                self.input(to, Input::Datagram(source, bytes));
            }
            Message::Forged { source, bytes } => self.input(to, Input::Datagram(source, bytes)),
        }
    }

    /// How a message came that began at `first`.
    fn transit(&self, to: u32, from: u32, (first, (all, of_sender)): (Time, (u64, u64))) -> Transit {
        let now = self.now();
        let came = self.machines[to as usize].port.came.by(now, from);
        Transit { took: now - first, beside: (came.0 - all) - (came.1 - of_sender) }
    }

    /// A request comes: the shell answers it if it can, else the core sees it.
    fn asked(&mut self, from: usize, to: usize, epoch: u32, message: &Message) {
        let &Message::Get { request, image, chunk, priority, reach, insists, slice } = message else { return };
        let asker = Asker { connection: connection(from, epoch), request: request.0, reach };
        let (peer, now, number) = (self.machines[from].identity.node, self.now(), usize::from(image));
        if self.mistreats(from, to, epoch, message) {
            return;
        }
        self.begin_to_beat(to, from);
        if self.machines[to].fault == Fault::Boasting {
            return self.refuse(to, asker, Refusal::NotHeld);
        }
        if let Some(slice) = slice {
            return self.asked_for_slice((to, number), asker, chunk, slice);
        }
        let instead = self.machines[to].shelf_mut(number).and_then(|shelf| shelf.instead(chunk, peer, insists, now));
        if let Some(node) = instead {
            self.redirect(to, from, request, node);
        } else if self.machines[to].has(number, chunk) {
            self.serve(to, asker, (number, chunk), priority, Duration::ZERO);
        } else {
            let image = self.images[number].id;
            self.input(to, Input::Asked { asker, image, chunk, priority });
        }
    }

    /// A request for a slice: it waits for nothing.
    fn asked_for_slice(&mut self, (machine, image): (usize, usize), asker: Asker, chunk: Chunk, slice: Slice) {
        let (geometry, now) = (&self.images[image].geometry, self.now());
        let parts = slice.parts(geometry, chunk).unwrap_or_default();
        let length = geometry.length(chunk);
        let host = &mut self.machines[machine];
        let has_all = !parts.is_empty() && parts.iter().all(|part| host.has(image, part.chunk));
        let shelf = host.shelf_mut(image).filter(|_| has_all);
        match shelf.map(|shelf| shelf.sliced.may_send(chunk, length, slice.groups, now)) {
            None => self.refuse(machine, asker, Refusal::NotHeld),
            Some(false) => self.refuse(machine, asker, Refusal::Whole),
            Some(true) => self.serve(machine, asker, (image, chunk), Priority::Demand, Duration::ZERO),
        }
    }

    pub(super) fn redirect(&mut self, from: usize, to: usize, request: RequestId, node: NodeId) {
        self.machines[from].traffic.refusals += 1;
        self.send(from, to, Message::Redirect(request, node));
    }

    /// A chunk has come: verified with its parent, which has to be here, then kept.
    fn arrive_chunk(
        &mut self,
        (from, machine): (usize, usize),
        request: RequestId,
        (waited, transit): (Duration, Transit),
        wrong: bool,
    ) {
        let Some(flight) = self.land(machine, request) else { return };
        let (image, chunk) = (usize::from(flight.image), flight.chunk);
        let original = &self.images[image];
        let bytes = flight.bytes(&original.geometry);
        let host = &mut self.machines[machine];
        host.traffic.payload_came += bytes;
        self.explain.came(machine, from, bytes);
        // A slice brings the hashes of as many pages as it was asked for.
        let pages = flight.slice.map_or(0, |slice| usize::from(slice.pages));
        let above = |below: &Chunk| original.geometry.parent(*below).map(|(page, _)| page);
        let parent = std::iter::successors(Some(chunk), above).nth(pages + 1);
        let checkable = parent.is_none_or(|page| host.has(image, page));
        if !checkable {
            self.input(machine, Input::Unusable(request));
        } else if wrong {
            self.input(machine, Input::Corrupt(request));
        } else if flight.check {
            if let (Some(slice), Some(shelf)) = (flight.slice, host.shelf_mut(image)) {
                shelf.keep_slice(chunk, slice.groups);
            }
            self.input(machine, Input::Arrived { request, waited, transit, zeros: Vec::new() });
        } else {
            let zeros = original.zero_children(chunk);
            if let Some(shelf) = host.shelf_mut(image) {
                shelf.keep(original, chunk);
            }
            self.input(machine, Input::Arrived { request, waited, transit, zeros });
            self.survey(machine, image, chunk);
        }
    }
}

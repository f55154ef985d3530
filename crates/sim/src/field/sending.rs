//! Outgoing messages: queued, put onto the wire, carried over the links on their way.

use super::lanes::{connection, owner_of};
use super::{Event, Field};
use crate::machine::lane::Way;
use crate::network::packet::Hop;
use crate::network::{Discipline, Message, Packet};
use std::time::Duration;
use vfield_core::chunk::Chunk;
use vfield_core::fetch::{Asker, RequestId};
use vfield_core::time::Time;
use vfield_core::wire::{self, Priority, Refusal};

/// Messages below this size, in bytes, do not queue behind chunks: a link's queue is short and
/// fair.
const SMALL: u64 = 4096;

impl Field {
    /// Bytes of a message, headers of the network not counted.
    fn length(&self, message: &Message, from: usize, to: usize) -> u64 {
        let header = wire::HEADER as u64;
        match message {
            Message::Get { slice: Some(_), .. } => wire::GET_SLICE_FRAME as u64,
            Message::Get { .. } => wire::GET_FRAME as u64,
            Message::Cancel(_) | Message::Refuse(..) | Message::Patience => header,
            Message::Redirect(..) => header + 8,
            Message::Speed(_) => header + 1,
            Message::Sync(bytes)
            | Message::Synced(bytes)
            | Message::Gossip(bytes)
            | Message::Datagram(bytes)
            | Message::Forged { bytes, .. } => bytes.len() as u64,
            Message::Data { request, .. } => {
                let _ = from;
                let flight = self.machines[to].flights.get(*request);
                flight.map_or(0, |flight| flight.bytes(&self.images[usize::from(flight.image)].geometry)) + header
            }
        }
    }

    /// Sends something short, or notes to compare. Without an open lane nothing happens.
    pub(super) fn send(&mut self, from: usize, to: usize, message: Message) {
        self.send_with(from, to, message, Priority::Demand, None);
    }

    fn send_with(&mut self, from: usize, to: usize, message: Message, priority: Priority, on: Option<u32>) {
        let way = message.way();
        let epoch = match way {
            None => 0,
            Some(way) => {
                let (owner, other) = if way == Way::Forward { (from, to) } else { (to, from) };
                let Some(lane) = self.machines[owner].lanes.get(&(other as u32)) else { return };
                if !lane.open || on.is_some_and(|epoch| epoch != lane.epoch) {
                    return;
                }
                lane.epoch
            }
        };
        let length = self.length(&message, from, to);
        let data = matches!(message, Message::Data { .. });
        let bytes = self.links.on_the_wire(length);
        if !data {
            self.machines[from].traffic.control_sent += bytes;
        }
        let hop = if self.machines[from].zone == self.machines[to].zone { Hop::Down } else { Hop::ZoneOut };
        let (from, to) = (from as u32, to as u32);
        let packet = Packet {
            from,
            to,
            epoch,
            number: 0,
            hop,
            bytes: bytes as u32,
            last: Time::ZERO,
            first: (Time::ZERO, (0, 0)),
            message,
        };
        let packet = self.packets.insert(packet);
        let now = self.now();
        match &mut self.machines[from as usize].processor {
            None => self.put_out(packet, priority),
            Some(processor) => {
                let made = processor.work(bytes as u32, now);
                self.queue.push(made, Event::Made(packet, priority));
            }
        }
    }

    /// Puts a packet into the queue of its machine's link.
    pub(super) fn put_out(&mut self, packet: u32, priority: Priority) {
        let &mut Packet { from, to, bytes, ref message, .. } = self.packets.at(packet);
        let answers = if let Message::Data { request, .. } = message { Some(*request) } else { None };
        if u64::from(bytes) < SMALL && answers.is_none() {
            return self.squeeze(packet);
        }
        let now = self.now();
        let (line, priority, shares) = match self.links.discipline {
            Discipline::Fifo => (0, Priority::Demand, false),
            Discipline::Fair => (to, priority, answers.is_some_and(|request| self.takes_turns(from, to, request))),
        };
        let port = &mut self.machines[from as usize].port;
        port.enqueue(packet, bytes, line, priority, shares);
        if !port.awaited {
            port.awaited = true;
            let at = port.up.ready().max(now);
            self.queue.push(at, Event::Leave(from));
        }
    }

    /// True for the answer to a leaf's request: leaves take turns at each sender.
    fn takes_turns(&self, from: u32, to: u32, request: RequestId) -> bool {
        let (sender, receiver) = (&self.machines[from as usize], &self.machines[to as usize]);
        receiver.flights.get(request).is_some_and(|flight| {
            let image = &self.images[usize::from(flight.image)];
            sender.node.is_leaf(image.id, receiver.identity.node)
        })
    }

    /// A short message overtakes the queue.
    fn squeeze(&mut self, packet: u32) {
        let now = self.now();
        self.put_on_the_wire(packet);
        let &mut Packet { from, to, bytes, hop, .. } = self.packets.at(packet);
        let (from, to, bytes) = (from as usize, to as usize, u64::from(bytes));
        let mut takes =
            self.machines[from].port.up.squeeze(bytes, now) + self.machines[to].port.down.squeeze(bytes, now);
        if hop == Hop::ZoneOut {
            let (out, into) = (self.machines[from].zone as usize, self.machines[to].zone as usize);
            takes += self.zones[out].up.squeeze(bytes, now) + self.zones[into].down.squeeze(bytes, now);
            takes += self.links.zone_delay;
        }
        let delay = self.delay();
        self.after(takes + delay, Event::Deliver(packet));
    }

    fn delay(&mut self) -> Duration {
        let jitter = self.links.jitter.as_nanos() as u64;
        let drawn = if jitter == 0 { 0 } else { self.dice.roll() % jitter };
        self.links.delay + Duration::from_nanos(drawn)
    }

    /// From here on its place among the messages of its lane is fixed.
    fn put_on_the_wire(&mut self, packet: u32) {
        let packet = self.packets.at(packet);
        let Some(way) = packet.message.way() else { return };
        let (owner, other) = if way == Way::Forward { (packet.from, packet.to) } else { (packet.to, packet.from) };
        if let Some(lane) = self.machines[owner as usize].lanes.get_mut(&other)
            && lane.epoch == packet.epoch
        {
            packet.number = lane.sent[way as usize];
            lane.sent[way as usize] += 1;
        }
    }

    /// The link of a machine takes the next packet of its queue.
    pub(super) fn leave(&mut self, machine: u32) {
        let now = self.now();
        let host = machine as usize;
        self.machines[host].port.awaited = false;
        while self.machines[host].port.up.ready() <= now {
            let Some(packet) = self.machines[host].port.next_packet() else { return };
            if !self.machines[host].alive || !self.is_wanted(packet) {
                self.packets.remove(packet);
                continue;
            }
            self.put_on_the_wire(packet);
            let &mut Packet { to, bytes, .. } = self.packets.at(packet);
            if let Message::Data { request, .. } = self.packets.at(packet).message {
                self.count_payload(host, to as usize, request);
            }
            let (start, last) = self.machines[host].port.up.carry(u64::from(bytes), now, now);
            let delay = self.delay();
            self.packets.at(packet).last = last + delay;
            self.queue.push(start + delay, Event::Hop(packet));
        }
        let port = &mut self.machines[host].port;
        if !port.is_idle() {
            port.awaited = true;
            self.queue.push(port.up.ready(), Event::Leave(machine));
        }
    }

    fn count_payload(&mut self, from: usize, to: usize, request: RequestId) {
        let Some(flight) = self.machines[to].flights.get(request) else { return };
        let (image, chunk) = (usize::from(flight.image), flight.chunk);
        let bytes = flight.bytes(&self.images[image].geometry);
        let (keeps, again) =
            (self.keeps_notices, flight.slice.is_none() && self.checks.sent(self, [from, to], image, chunk));
        let host = &mut self.machines[from];
        host.traffic.payload_sent += bytes;
        if let Some(shelf) = host.shelf_mut(image) {
            shelf.sent += 1;
            shelf.sent_again += u64::from(again);
            if keeps {
                *shelf.times_sent.entry(chunk).or_default() += 1;
            }
        }
    }

    /// False if its lane is gone, or a chunk has been called off: then a refusal goes instead.
    fn is_wanted(&mut self, packet: u32) -> bool {
        let &mut Packet { from, to, epoch, ref message, .. } = self.packets.at(packet);
        let (way, data) =
            (message.way(), if let Message::Data { request, .. } = message { Some(*request) } else { None });
        let Some(way) = way else { return true };
        let (owner, other) = if way == Way::Forward { (from, to) } else { (to, from) };
        let lane = self.machines[owner as usize].lanes.get(&other);
        if !lane.is_some_and(|lane| lane.open && lane.epoch == epoch) {
            return false;
        }
        let Some(request) = data else { return true };
        let flight = self.machines[to as usize].flights.get(request);
        match flight {
            Some(flight) if flight.called_off => {
                self.send(from as usize, to as usize, Message::Refuse(request, Refusal::NotHeld));
                false
            }
            flight => flight.is_some(),
        }
    }

    /// The first byte of a packet has come to the next link on its way.
    pub(super) fn hop(&mut self, at: u32) {
        let now = self.now();
        let packet = self.packets.at(at);
        let (bytes, last) = (u64::from(packet.bytes), packet.last);
        let (from, to) = (packet.from as usize, packet.to as usize);
        match packet.hop {
            Hop::ZoneOut => {
                packet.hop = Hop::ZoneIn;
                let zone = self.machines[from].zone as usize;
                let (start, last) = self.zones[zone].up.carry(bytes, last, now);
                self.packets.at(at).last = last + self.links.zone_delay;
                self.queue.push(start + self.links.zone_delay, Event::Hop(at));
            }
            Hop::ZoneIn => {
                packet.hop = Hop::Down;
                let data = matches!(packet.message, Message::Data { .. });
                let zone = &mut self.zones[self.machines[to].zone as usize];
                zone.payload_came += if data { bytes } else { 0 };
                let (start, last) = zone.down.carry(bytes, last, now);
                self.packets.at(at).last = last;
                self.queue.push(start, Event::Hop(at));
            }
            Hop::Down => {
                let port = &mut self.machines[to].port;
                packet.first = (now, port.came.by(now, packet.from));
                port.coming.push_back(at);
                if port.coming.len() == 1 {
                    let free = port.down.ready();
                    self.queue.push(free, Event::Enter(to as u32));
                }
            }
        }
    }

    /// The link of a machine takes in the next arrived packet.
    pub(super) fn enter(&mut self, machine: u32) {
        let now = self.now();
        let host = machine as usize;
        while self.machines[host].port.down.ready() <= now
            && let Some(at) = self.machines[host].port.coming.pop_front()
        {
            let &mut Packet { from, bytes, last, .. } = self.packets.at(at);
            let port = &mut self.machines[host].port;
            let (_, end) = port.down.carry(u64::from(bytes), last, now);
            port.came.begin(from, u64::from(bytes), now, end);
            self.queue.push(end, Event::Deliver(at));
        }
        let port = &self.machines[host].port;
        if !port.coming.is_empty() {
            let free = port.down.ready();
            self.queue.push(free, Event::Enter(machine));
        }
    }

    /// Sends a present chunk to an asker.
    pub(super) fn serve(
        &mut self,
        from: usize,
        asker: Asker,
        (image, chunk): (usize, Chunk),
        priority: Priority,
        waited: Duration,
    ) {
        let (to, epoch) = owner_of(asker.connection);
        let request = RequestId(asker.request);
        debug_assert_eq!(connection(to, epoch), asker.connection);
        self.note(from, "serves", [asker.request, (image as u64) << 48 | chunk.0]);
        if self.machines[from].fault == crate::machine::Fault::Changed && self.machines[from].is_origin(image) {
            return self.refuse(from, asker, Refusal::SourceChanged);
        }
        let wrong = self.machines[from].fault == crate::machine::Fault::Lying;
        if !wrong && !self.machines[from].has(image, chunk) {
            let what = format!("serves {chunk}, which it has not verified");
            return self.found(crate::checks::violation(self, "unverified", from, what));
        }
        self.machines[from].has_lied |= wrong;
        self.send_with(from, to, Message::Data { request, waited, wrong }, priority, Some(epoch));
    }

    /// Sends wrong bytes for a chunk, which is here or not.
    pub(super) fn serve_wrong(
        &mut self,
        from: usize,
        asker: Asker,
        (image, chunk): (usize, Chunk),
        priority: Priority,
    ) {
        let (_, epoch) = owner_of(asker.connection);
        self.note(from, "serves", [asker.request, (image as u64) << 48 | chunk.0]);
        self.machines[from].has_lied = true;
        let (to, waited) = (owner_of(asker.connection).0, Duration::ZERO);
        let message = Message::Data { request: RequestId(asker.request), waited, wrong: true };
        self.send_with(from, to, message, priority, Some(epoch));
    }

    /// Refuses a request.
    pub(super) fn refuse(&mut self, from: usize, asker: Asker, refusal: Refusal) {
        let (to, epoch) = owner_of(asker.connection);
        self.machines[from].traffic.refusals += 1;
        let message = Message::Refuse(RequestId(asker.request), refusal);
        self.send_with(from, to, message, Priority::Demand, Some(epoch));
    }
}

//! Carries out the outputs of cores: evictions first, as the shell does.

use super::{Event, Field};
use crate::checks;
use crate::machine::flights::Flight;
use crate::machine::place_of;
use crate::network::Message;
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::chunk::Chunk;
use vfield_core::fetch::RequestId;
use vfield_core::identity::Identity;
use vfield_core::image::ImageId;
use vfield_core::node::{Input, Keep, Notice, Output, Serve};
use vfield_core::reach::Reach;
use vfield_core::slice::Slice;
use vfield_core::wire::{Priority, Refusal};

impl Field {
    /// Takes the outputs of a core and carries them out.
    pub(super) fn settle(&mut self, machine: usize) {
        let now = self.now() + self.machines[machine].ahead;
        let mut outputs = std::mem::take(&mut self.outputs);
        let core = &mut self.machines[machine].node;
        // Work that is due at once, like a store's next requests, does not wait for a timer.
        if core.next_wake().is_some_and(|at| at <= now) {
            core.handle(now, Input::Wake);
        }
        while let Some(output) = self.machines[machine].node.poll() {
            if let Output::Evict(id, chunk) = output {
                self.evict(machine, id, chunk);
            } else {
                outputs.push(output);
            }
        }
        for output in outputs.drain(..) {
            self.perform(machine, output);
        }
        self.outputs = outputs;
        self.machines[machine].inputs += 1;
        self.schedule_wake(machine);
        if let Err(violation) = self.checks.after_input(self, machine) {
            self.found(violation);
        }
    }

    fn evict(&mut self, machine: usize, id: ImageId, chunk: Chunk) {
        let image = self.image(id);
        self.note(machine, "drops", [image as u64, chunk.0]);
        let was = self.machines[machine].shelf_mut(image).is_some_and(|shelf| shelf.held.remove(chunk));
        if !was {
            self.found(checks::violation(self, "inventory", machine, format!("drops {chunk}, which is not there")));
        }
    }

    fn perform(&mut self, machine: usize, output: Output) {
        let now = self.now();
        match output {
            Output::Datagram(addr, bytes) => {
                self.note(machine, "gossips", [bytes.len() as u64, 0]);
                self.trace.bytes(&bytes);
                let lost = self.links.loss_percent > 0 && self.dice.percent(self.links.loss_percent);
                let to = place_of(addr).and_then(|place| self.places.get(place as usize).copied());
                if let Some(to) = to.filter(|to| !lost && (*to as usize) < self.machines.len()) {
                    self.send(machine, to as usize, Message::Datagram(bytes));
                } else {
                    if place_of(addr).is_none() {
                        self.machines[machine].abroad.at(now).datagrams += 1;
                    }
                    self.machines[machine].traffic.control_sent += self.links.on_the_wire(bytes.len() as u64);
                }
            }
            Output::Gossip(identity, bytes) => {
                self.note(machine, "gossips", [bytes.len() as u64, 1]);
                self.trace.bytes(&bytes);
                if self.number(identity.node).is_none() {
                    self.machines[machine].abroad.at(now).dials += 1;
                }
                if let Some(to) = self.reach(machine, identity) {
                    self.send(machine, to, Message::Gossip(bytes));
                }
            }
            Output::Sync(identity) => {
                if self.number(identity.node).is_none() {
                    self.machines[machine].abroad.at(now).dials += 1;
                }
                if let Some(to) = self.reach(machine, identity) {
                    let mine = self.question(machine, to);
                    self.send(machine, to, Message::Sync(mine));
                }
            }
            // It asks for the list, which comes a round trip later.
            Output::Offer(identity) => {
                if let Some(to) = self.reach(machine, identity) {
                    self.offer(machine, to);
                }
            }
            Output::Call(addr) => self.call(machine, addr),
            Output::Request { .. } => self.ask(machine, output),
            Output::RequestSlice { request, peer, image, chunk, slice, origin } => {
                let (priority, reach, insists, keep) = (Priority::Demand, Reach::HOLDER, false, Keep::Passing);
                let whole = Output::Request { request, peer, image, chunk, priority, reach, insists, origin, keep };
                self.ask_for(machine, whole, Some(slice));
            }
            Output::TellSpeed(node, speed) => {
                if let Some(to) = self.number(node) {
                    self.send(machine, to, Message::Speed(speed));
                }
            }
            // Objects are not simulated, so no origin here asks for an answer.
            Output::Here(..) => {}
            Output::CancelRequest(request, _) => self.cancel(machine, request),
            Output::Serve(Serve { asker, image, chunk, priority, waited }) => {
                let image = self.image(image);
                if self.machines[machine].has(image, chunk) {
                    self.serve(machine, asker, (image, chunk), priority, waited);
                } else {
                    self.refuse(machine, asker, Refusal::NotHeld);
                }
            }
            Output::Refuse(asker, refusal) => self.refuse(machine, asker, refusal),
            Output::Answer(token, result) => self.answered(machine, token, result),
            Output::Evict(..) => unreachable!("done before"),
            Output::Account(..) => unreachable!("no machine asks for accounts"),
            // A process that restarts in this world has kept nothing.
            Output::Stored(..) | Output::Committed(..) => {}
            // Nothing is sealed in this world.
            Output::Denied => {}
            Output::Notice(notice) => self.noticed(machine, notice),
        }
    }

    /// A machine greets the one at an address, and exchanges snapshots with it.
    fn call(&mut self, machine: usize, addr: SocketAddr) {
        let there = place_of(addr).and_then(|place| self.at_place(place)).filter(|there| *there < self.machines.len());
        self.note(machine, "calls", [there.map_or(u64::MAX, |there| there as u64), 0]);
        let Some(there) = there.filter(|there| *there != machine) else { return };
        let member = *self.machines[there].node.myself();
        if let Some(to) = self.reach(machine, member.identity) {
            self.tell(self.links.delay * 2, machine, Input::Answered { addr, member });
            let mine = self.question(machine, to);
            self.send(machine, to, Message::Sync(mine));
        }
    }

    fn ask(&mut self, machine: usize, output: Output) {
        self.ask_for(machine, output, None);
    }

    /// Sends a request for a chunk, or for a part of it.
    fn ask_for(&mut self, machine: usize, output: Output, slice: Option<Slice>) {
        let Output::Request { request, peer, image, chunk, priority, reach, insists, origin: _, keep } = output else {
            return;
        };
        self.note(machine, "asks", [request.0, chunk.0]);
        let (id, image) = (image, self.image(image) as u16);
        let (sent, is_check) = (self.now(), keep == Keep::Not);
        let flight = |to: usize| {
            let (check, to) = (is_check || slice.is_some(), to as u32);
            Flight { to, image, check, slice, cancelled: false, called_off: false, chunk, sent }
        };
        let hole = is_check && self.images[usize::from(image)].is_zero(chunk);
        if hole {
            // The core of an origin learns only now which chunks no holder stores.
            let zeros = std::iter::once(chunk.0..chunk.0 + 1).collect();
            self.tell(Duration::ZERO, machine, Input::Found { image: id, chunks: Vec::new(), zeros });
        }
        let lent = keep != Keep::Not && slice.is_none() && self.is_lent(machine, usize::from(image), chunk);
        if lent {
            self.tell(Duration::ZERO, machine, Input::Found { image: id, chunks: vec![chunk], zeros: Vec::new() });
        }
        let here = hole || lent;
        let Some(to) = self.number(peer.node).filter(|_| !here) else {
            self.machines[machine].flights.insert(request, flight(machine));
            if !here {
                self.dial_nobody(machine, peer);
            }
            return self.after(self.links.delay, Event::Lost(machine as u32, request));
        };
        let host = &mut self.machines[machine];
        host.flights.insert(request, flight(to));
        host.traffic.requests += 1;
        if self.reach(machine, peer).is_some() {
            if let Some(lane) = self.machines[machine].lanes.get_mut(&(to as u32)) {
                lane.owed += 1;
            }
            self.send(machine, to, Message::Get { request, image, chunk, priority, reach, insists, slice });
        }
    }

    fn cancel(&mut self, machine: usize, request: RequestId) {
        let Some(flight) = self.machines[machine].flights.get_mut(request) else {
            // A core's timers run before it gets the input that has just come.
            if self.machines[machine].landed == Some(request) {
                return;
            }
            let what = format!("cancels {request:?}, which is not in flight");
            return self.found(checks::violation(self, "requests", machine, what));
        };
        flight.cancelled = true;
        let to = flight.to as usize;
        self.note(machine, "cancels", [request.0, 0]);
        self.send(machine, to, Message::Cancel(request));
    }

    fn noticed(&mut self, machine: usize, notice: Notice) {
        let now = self.queue.now();
        match &notice {
            Notice::Up(member) => self.note(machine, "sees", [member.node.0, 0]),
            Notice::Down(departed) => self.gone(machine, departed.identity),
            Notice::Available(node, available) => {
                self.note(machine, "hears of", [node.0, u64::from(*available)]);
                for shelf in self.machines[machine].shelves.iter_mut().flatten() {
                    shelf.directory.set_available(*node, *available);
                }
            }
            Notice::Blamed(node, _) => self.note(machine, "blames", [node.0, 0]),
            Notice::Coverage(_, complete) => self.note(machine, "covered", [u64::from(*complete), 0]),
            Notice::Filled(_) => self.note(machine, "filled", [0; 2]),
            Notice::Discard(image) => self.queue.push(now, Event::Discard(machine as u32, *image)),
            Notice::Tagged(known) => {
                self.note(machine, "tagged", [known.tag.serial, u64::from(known.digest)]);
                self.tagged(machine);
            }
            Notice::TagRefused(..) => self.note(machine, "refuses a tag", [0; 2]),
            // Each machine of this world has a key and an address of its own, and stores in memory.
            Notice::Rival(_) | Notice::Moved(_) | Notice::Spent | Notice::NoDatagrams(_) | Notice::NoWay(_) => {}
        }
        if let Err(violation) = self.checks.notice(self, machine, &notice) {
            self.found(violation);
        }
        if self.keeps_notices {
            self.machines[machine].notices.push((self.queue.now(), notice));
        }
    }

    /// A core believes that another is gone: its shell closes the lanes to it.
    fn gone(&mut self, machine: usize, member: Identity) {
        self.note(machine, "buries", [member.node.0, 0]);
        for shelf in self.machines[machine].shelves.iter_mut().flatten() {
            shelf.forget(member.node);
        }
        if let Some(to) = self.number(member.node) {
            self.close(machine, to, self.links.delay);
            self.lose_flights(machine, to, Duration::ZERO);
        }
    }
}

//! Machines that are switched on: members from the start, or joining through another one over the
//! network.

use super::{Event, Field, Zone};
use crate::machine::processor::Processor;
use crate::machine::shelf::Shelf;
use crate::machine::{self, Machine};
use crate::network::{Message, Pipe, Port};
use crate::original::Original;
use crate::reader::Order;
use std::sync::Arc;
use std::time::Duration;
use vfield_core::config::Config;
use vfield_core::identity;
use vfield_core::node::{ImageConfig, Input, Node};
use vfield_core::placement::map::mix;
use vfield_core::signing::Simulated;
use vfield_core::snapshot::Known;
use vfield_core::speed::LinkBounds;
use vfield_core::wire::{self, Kind};

/// What a machine does once it has joined.
#[derive(Debug)]
pub struct Arrival {
    /// The machine that it asks first; then any live one. An origin that finds none founds the
    /// field anew.
    pub via: Option<usize>,
    /// True for an origin of its images.
    pub origin: bool,
    /// Images that it takes part in, and how many chunks of each it holds.
    pub images: Vec<(usize, u64)>,
    /// Its reads after that, if any.
    pub reads: Option<Reads>,
}

/// The task of a reader.
#[derive(Debug)]
pub struct Reads {
    /// The index of its image.
    pub image: usize,
    /// In this order.
    pub order: Order,
    /// Blocks read at a time.
    pub depth: usize,
}

impl Field {
    /// A machine that is an origin of `images`; the first one founds the field.
    pub fn origin(&mut self, via: Option<usize>, images: &[usize]) -> usize {
        let machine = self.start(via);
        for &image in images {
            self.add_image(machine, image, true, 0);
        }
        machine
    }

    /// Adds a machine that joins through `via` and holds this many chunks of each of `images`.
    pub fn join(&mut self, via: usize, images: &[(usize, u64)]) -> usize {
        let machine = self.start(Some(via));
        for &(image, capacity) in images {
            self.add_image(machine, image, false, capacity);
        }
        machine
    }

    /// A new process at the address of `old`.
    pub fn rejoin(&mut self, old: usize, via: usize, images: &[(usize, u64)]) -> usize {
        let machine = self.start_at(self.machines[old].place, Some(via));
        for &(image, capacity) in images {
            self.add_image(machine, image, false, capacity);
        }
        machine
    }

    /// A new origin at the address of `old`, with an empty memory.
    pub fn serve_again(&mut self, old: usize, images: &[usize]) -> usize {
        let machine = self.start_at(self.machines[old].place, None);
        for &image in images {
            self.add_image(machine, image, true, 0);
        }
        machine
    }

    /// A machine that has met `via` and takes part in no image yet.
    pub fn start(&mut self, via: Option<usize>) -> usize {
        self.start_at(self.places.len() as u32, via)
    }

    fn start_at(&mut self, place: u32, via: Option<usize>) -> usize {
        let machine = self.switch_on(place);
        if let Some(via) = via {
            self.open(machine, via);
            let (me, other) = (self.machines[machine].identity, self.machines[via].identity);
            self.greeted(machine, via);
            let snapshot = self.machines[machine].node.question(&other);
            self.input(via, Input::Learned { from: me.node, snapshot });
            let snapshot = self.machines[via].node.snapshot(&me, &[]);
            self.input(machine, Input::Learned { from: other.node, snapshot });
        }
        self.schedule_wake(machine);
        machine
    }

    /// A machine that will join after `wait`, over the network as a daemon does.
    pub fn arrive(&mut self, wait: Duration, arrival: Arrival) -> usize {
        self.arrive_at(self.places.len() as u32, wait, arrival)
    }

    /// A new process at the address of `old`, which joins like [`Field::arrive`].
    pub fn arrive_again(&mut self, old: usize, wait: Duration, arrival: Arrival) -> usize {
        self.arrive_at(self.machines[old].place, wait, arrival)
    }

    fn arrive_at(&mut self, place: u32, wait: Duration, arrival: Arrival) -> usize {
        let machine = self.switch_on(place);
        self.arrivals.insert(machine as u32, arrival);
        self.after(wait, Event::Join(machine as u32));
        machine
    }

    pub(super) fn ask_to_join(&mut self, machine: u32) {
        let from = machine as usize;
        let Some(arrival) = self.arrivals.get_mut(&machine) else { return };
        let (first, origin) = (arrival.via.take(), arrival.origin);
        if !self.machines[from].alive {
            return;
        }
        let there = first.filter(|via| self.machines[*via].alive).or_else(|| self.somebody());
        let Some(via) = there else {
            if origin
                && !self.machines.iter().any(|other| other.alive && other.is_honest() && !other.shelves.is_empty())
            {
                return self.joined(from);
            }
            return self.after(JOIN_AGAIN, Event::Join(machine));
        };
        let peer = self.machines[via].identity;
        if self.reach(from, peer).is_some() {
            self.greeted(from, via);
            let mine = self.question(from, via);
            self.send(from, via, Message::Sync(mine));
        }
        // Until it is answered, as a daemon does.
        self.after(JOIN_AGAIN, Event::Join(machine));
        self.schedule_wake(from);
    }

    /// A newcomer hears in the greeting of the other one which generation is the latest.
    fn greeted(&mut self, newcomer: usize, via: usize) {
        let latest = self.machines[via].node.latest();
        self.input(newcomer, Input::Arrive(latest));
    }

    /// The frame with which a machine asks another one for its snapshot.
    pub(super) fn question(&self, from: usize, to: usize) -> Vec<u8> {
        wire::snapshot_frame(Kind::Sync, 0, self.machines[from].node.question(&self.machines[to].identity))
    }

    /// The answer of a machine to another one, which knows some statements.
    pub(super) fn notes(&self, from: usize, to: usize, known: &[Known]) -> Vec<u8> {
        let snapshot = self.machines[from].node.snapshot(&self.machines[to].identity, known);
        wire::snapshot_frame(Kind::Synced, 0, snapshot)
    }

    /// A machine takes in the snapshot of another one; returns what the other one knows, `None` if
    /// the frame makes no sense.
    pub(super) fn learn(&mut self, from: usize, machine: usize, frame: &[u8]) -> Option<Vec<Known>> {
        let snapshot = self.read_snapshot(machine, frame)?;
        let known = snapshot.known.clone();
        let from = self.machines[from].identity.node;
        self.input(machine, Input::Learned { from, snapshot });
        Some(known)
    }

    /// A machine that asked to join has its answer.
    pub(super) fn joined(&mut self, machine: usize) {
        let Some(arrival) = self.arrivals.remove(&(machine as u32)) else { return };
        for (image, capacity) in arrival.images {
            self.add_image(machine, image, arrival.origin, capacity);
        }
        if let Some(Reads { image, order, depth }) = arrival.reads {
            self.read_blocks(machine, image, order, depth);
        }
        self.tagged(machine);
    }

    /// Machines that run and have not joined yet.
    pub fn waiting_to_join(&self) -> usize {
        self.arrivals.keys().filter(|machine| self.machines[**machine as usize].alive).count()
    }

    fn switch_on(&mut self, place: u32) -> usize {
        let machine = self.machines.len();
        let zone = self.links.zone(place);
        // In a field without zones no node has a configured zone.
        let named = (self.links.zone_size > 0).then(|| identity::Zone::named(&format!("zone-{zone}")));
        let named = named.flatten().unwrap_or_default();
        let identity = machine::identity(machine, place, named, self.now(), self.dice.roll());
        let keys = Arc::new(Simulated(identity.node));
        let (card_bytes_per_s, measured_bytes_per_s) = (self.links.card(place), self.links.measured(place));
        let config = Config { card_bytes_per_s, measured_bytes_per_s, ..self.config.clone() };
        let mut node = Node::new(identity, keys, config, self.dice.roll(), self.now());
        if let Some(up) = self.links.limit(place) {
            node.handle(self.now(), Input::Bounds(LinkBounds { up: Some(up), down: None }));
        }
        while self.zones.len() <= zone as usize {
            let rate = self.links.zone_rate;
            self.zones.push(Zone { up: Pipe::new(rate, 0), down: Pipe::new(rate, 0), payload_came: 0 });
        }
        let port = Port::new(self.links.rates(place), self.links.burst);
        self.machines.push(Machine::new(node, identity, place, zone, port));
        let share = self.busy.of(place as usize);
        self.machines[machine].processor = share.map(|share| Processor::new(share.divisor()));
        if self.places.len() <= place as usize {
            self.places.resize(place as usize + 1, u32::MAX);
        }
        self.places[place as usize] = machine as u32;
        self.note(machine, "starts", [u64::from(place), mix(identity.node.0)]);
        machine
    }

    /// A machine takes part in an image from now on.
    pub fn add_image(&mut self, machine: usize, image: usize, origin: bool, capacity: u64) {
        let kept = if origin { None } else { self.share_of_a_version(machine, image) };
        let Original { id, name, geometry, .. } = &self.images[image];
        let capacity_bytes = capacity * geometry.chunk_bytes();
        let (name, header) = (name.clone(), *geometry.header());
        let id = *id;
        let config = ImageConfig { id, names: name.into(), header, origin, capacity_bytes, kept };
        let now = self.now() + self.machines[machine].ahead;
        let host = &mut self.machines[machine];
        host.put_up(image, Shelf { origin, ..Shelf::default() });
        host.node.add_image(now, config);
        self.settle(machine);
        if kept.is_some() {
            self.tell(Duration::ZERO, machine, Input::Surveyed(id));
        }
    }
}

/// Time after which a machine without an answer asks again: the daemon's timeout for a snapshot.
const JOIN_AGAIN: Duration = Duration::from_secs(5);

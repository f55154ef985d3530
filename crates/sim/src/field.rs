//! The field: machines, the network between them, readers, and the one queue of future events.
//!
//! One seed decides everything and the queue's order is total, so the same calls give the same run,
//! to the last output. After each input the checkers look at its machine.

mod admitting;
mod collecting;
mod following;
mod joining;
mod lanes;
mod lending;
mod looking;
mod malice;
mod outputs;
mod reading;
mod receiving;
mod sending;
mod troubles;

pub use joining::{Arrival, Reads};

pub use self::following::Followers;
use crate::checks::{Checks, Violation};
use crate::clock::Queue;
use crate::dice::Dice;
use crate::explain::Explain;
use crate::machine::{Fault, Machine};
use crate::network::{Links, Packet, Packets, Pipe, Walls};
use crate::original::Original;
use crate::reader::Reader;
use crate::report::rss_bytes;
use crate::trace::{Step, Trace};
use std::collections::BTreeMap;
use std::time::Duration;
use vfield_core::config::Config;
use vfield_core::fetch::RequestId;
use vfield_core::identity::NodeId;
use vfield_core::image::ImageId;
use vfield_core::node::{Input, Output};
use vfield_core::prefetch::PrefetchList;
use vfield_core::time::Time;
use vfield_core::wire::Priority;
use vfield_weather::{Busy, Thinks};

/// Interval at which a machine that owes an answer sends a sign of life.
const BEAT: Duration = Duration::from_millis(50);
/// Events between checks of memory: a fifth of a second, in which a large field takes 100 MB while
/// it starts.
const MEMORY_EVERY: u64 = 1 << 14;
/// Interval at which an awaited condition is checked.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The events of the simulation.
#[derive(Debug)]
enum Event {
    /// A core asked to be woken.
    Wake(u32),
    /// A machine's link is free for the next outgoing packet.
    Leave(u32),
    /// The first byte of a packet has come to the next link on its way.
    Hop(u32),
    /// A machine's link is free for the next incoming packet.
    Enter(u32),
    /// A packet has arrived completely.
    Deliver(u32),
    /// A busy machine has read a packet.
    Taken(u32),
    /// A busy machine has made a packet.
    Made(u32, Priority),
    /// The shell of a machine notices something.
    Tell(u32, Box<Input>),
    /// A request has ended without an answer.
    Lost(u32, RequestId),
    /// A machine tells another, which waits for it, that it has not forgotten.
    Beat { from: u32, to: u32 },
    /// A machine joins.
    Join(u32),
    /// A machine begins to read.
    Begin(u32, Box<Reads>),
    /// A core has taken up a tag.
    Follow(u32),
    /// A core says that an image may go.
    Discard(u32, ImageId),
    /// A reader has its answer.
    GoOn(u32),
    /// A malicious machine strikes.
    Strike(u32),
}

/// The uplink of a zone.
#[derive(Debug)]
pub struct Zone {
    /// Out of it.
    pub up: Pipe,
    /// Towards the zone.
    pub down: Pipe,
    /// Bytes of chunks that came in.
    pub payload_came: u64,
}

/// A simulated field.
pub struct Field {
    /// All machines that ever existed, by number.
    pub machines: Vec<Machine>,
    /// All images of the field.
    pub images: Vec<Original>,
    /// All readers that ever existed.
    pub readers: Vec<Reader>,
    /// The settings of cores that are started from now on.
    pub config: Config,
    /// The properties of the network.
    pub links: Links,
    /// Machines that are busy with other things, by place; of those that are started from now on.
    pub busy: Busy,
    /// Think times of readers that begin from now on, by place.
    pub think: Thinks,
    /// The uplinks of the zones, by number.
    pub zones: Vec<Zone>,
    /// The checkers in use.
    pub checks: Checks,
    /// The first violation. The run stops there.
    pub violation: Option<Violation>,
    /// A violation is a panic, as tests want it.
    pub strict: bool,
    /// More events than this are taken for a circle without an end.
    pub events_max: u64,
    /// With more memory than this, in bytes, nothing happens any more.
    pub memory_max: u64,
    /// True once that memory was reached.
    pub is_full: bool,
    /// True if machines keep the notices of their cores.
    pub keeps_notices: bool,
    /// Readers note how long each of their reads took.
    pub keeps_times: bool,
    /// Groups that each read takes of the first chunk of a block; `None` for whole blocks.
    pub groups: Option<u16>,
    /// The list that machines have learned from others, if they have.
    pub learned: Option<PrefetchList>,
    /// How machines follow the field's tag, if they do.
    pub followers: Option<Followers>,
    /// When a machine died or failed last, or a wall was built or torn down.
    pub troubled: Option<Time>,
    /// Notes about explained machines.
    pub explain: Explain,
    /// Number of events so far.
    pub events: u64,
    queue: Queue<Event>,
    packets: Packets,
    dice: Dice,
    walls: Walls,
    trace: Trace,
    /// The machine that was started last at each place.
    places: Vec<u32>,
    /// Packets that overtook an earlier one of their lane, by lane, way and number.
    early: BTreeMap<(u32, u32, u8, u32), u32>,
    /// Packets that came to a wall.
    at_walls: Vec<u32>,
    /// Events of paused machines.
    frozen: BTreeMap<u32, Vec<Event>>,
    /// Requests that a stalled machine has swallowed.
    swallowed: Vec<Packet>,
    /// Machines that have asked to join and wait for the answer.
    arrivals: BTreeMap<u32, Arrival>,
    /// A core's outputs while they are done.
    outputs: Vec<Output>,
}

impl Field {
    /// A field without machines. The window has 64 chunks, and so has the transient cache of each
    /// machine.
    pub fn new(seed: u64, images: Vec<Original>) -> Self {
        let config =
            Config { window_bytes: 1 << 20, transient_bytes: 1 << 20, read_ahead_bytes: 1 << 19, ..Config::default() };
        Self {
            machines: Vec::new(),
            images,
            readers: Vec::new(),
            config,
            links: Links::default(),
            busy: Busy::default(),
            think: Thinks::default(),
            zones: Vec::new(),
            checks: Checks::all(),
            violation: None,
            strict: true,
            events_max: u64::MAX,
            memory_max: u64::MAX,
            is_full: false,
            keeps_notices: true,
            keeps_times: false,
            groups: None,
            learned: None,
            followers: None,
            troubled: None,
            explain: Explain::default(),
            events: 0,
            queue: Queue::new(Time::after_start(Duration::from_secs(1))),
            packets: Packets::default(),
            dice: Dice::new(seed),
            walls: Walls::default(),
            trace: Trace::default(),
            places: Vec::new(),
            early: BTreeMap::new(),
            at_walls: Vec::new(),
            frozen: BTreeMap::new(),
            swallowed: Vec::new(),
            arrivals: BTreeMap::new(),
            outputs: Vec::new(),
        }
    }

    /// The simulated time.
    pub const fn now(&self) -> Time {
        self.queue.now()
    }

    /// Runs the field for this time, or until a violation.
    #[track_caller]
    pub fn run(&mut self, time: Duration) {
        let end = self.now() + time;
        while self.violation.is_none()
            && !self.is_full
            && let Some(event) = self.queue.pop(end)
        {
            self.events += 1;
            self.happen(event);
            if self.memory_max < u64::MAX && self.events.is_multiple_of(MEMORY_EVERY) {
                self.is_full = rss_bytes() > self.memory_max;
            }
            if self.events > self.events_max {
                let what = format!("and others make {} events without coming to an end", self.events);
                self.found(crate::checks::violation(self, "livelock", 0, what));
            }
        }
        if self.strict
            && let Some(violation) = &self.violation
        {
            panic!("{violation}");
        }
    }

    /// Gives a machine's core an input and carries out its outputs.
    pub fn input(&mut self, machine: usize, input: Input) {
        if self.machines[machine].alive {
            let now = self.now() + self.machines[machine].ahead;
            let core = &mut self.machines[machine].node;
            core.handle(now, input);
            self.settle(machine);
            if self.followers.is_some() {
                self.note_needs(machine);
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Wake(machine) => self.wake(machine),
            Event::Leave(machine) => self.leave(machine),
            Event::Hop(packet) => self.hop(packet),
            Event::Enter(machine) => self.enter(machine),
            Event::Deliver(packet) => self.deliver(packet),
            Event::Taken(packet) => self.take(packet),
            Event::Made(packet, priority) => self.put_out(packet, priority),
            Event::Tell(machine, mut input) => {
                if self.machines[machine as usize].fault == Fault::Paused {
                    self.frozen.entry(machine).or_default().push(Event::Tell(machine, input));
                } else {
                    self.take_found(machine as usize, &mut input);
                    self.input(machine as usize, *input);
                }
            }
            Event::Lost(machine, request) => {
                if self.machines[machine as usize].fault == Fault::Paused {
                    self.frozen.entry(machine).or_default().push(Event::Lost(machine, request));
                } else if self.land(machine as usize, request).is_some() {
                    self.input(machine as usize, Input::Lost(request));
                }
            }
            Event::Beat { from, to } => self.beat(from, to),
            Event::Join(machine) => self.ask_to_join(machine),
            Event::Begin(machine, reads) => {
                let Reads { image, order, depth } = *reads;
                self.read_blocks(machine as usize, image, order, depth);
            }
            Event::Follow(machine) => self.follow(machine as usize),
            Event::Discard(machine, image) => {
                // Said again after a pause.
                if self.machines[machine as usize].fault != Fault::Paused && self.machines[machine as usize].alive {
                    self.discard(machine as usize, image);
                }
            }
            Event::GoOn(reader) => self.go_on(reader as usize),
            Event::Strike(machine) => self.strike(machine),
        }
    }

    fn wake(&mut self, machine: u32) {
        let host = &mut self.machines[machine as usize];
        if host.wake_at != Some(self.queue.now()) {
            return;
        }
        host.wake_at = None;
        // A paused machine is woken when it goes on.
        if host.fault != Fault::Paused {
            self.input(machine as usize, Input::Wake);
        }
    }

    fn schedule_wake(&mut self, machine: usize) {
        let host = &mut self.machines[machine];
        let Some(next) = host.node.next_wake() else { return };
        let next = self.queue.now() + next.since(self.queue.now() + host.ahead);
        if host.wake_at.is_none_or(|at| next < at) {
            host.wake_at = Some(next);
            self.queue.push(next, Event::Wake(machine as u32));
        }
    }

    fn after(&mut self, wait: Duration, event: Event) {
        self.queue.push(self.queue.now() + wait, event);
    }

    fn tell(&mut self, wait: Duration, machine: usize, input: Input) {
        self.after(wait, Event::Tell(machine as u32, Box::new(input)));
    }

    /// Ends a request in flight.
    fn land(&mut self, machine: usize, request: RequestId) -> Option<crate::machine::flights::Flight> {
        let host = &mut self.machines[machine];
        let flight = host.flights.remove(request)?;
        host.landed = Some(request);
        if let Some(lane) = host.lanes.get_mut(&flight.to) {
            lane.owed = lane.owed.saturating_sub(1);
        }
        Some(flight)
    }

    /// The machine that an id names.
    fn number(&self, node: NodeId) -> Option<usize> {
        let number = crate::machine::number_of(node);
        (self.machines.get(number)?.identity.node == node).then_some(number)
    }

    fn image(&self, id: ImageId) -> usize {
        self.images.iter().position(|image| image.id == id).expect("a known image")
    }

    fn note(&mut self, machine: usize, what: &'static str, about: [u64; 2]) {
        self.trace.note(Step { at: self.queue.now(), machine: machine as u32, what, about });
    }

    /// Something was found wrong: nothing happens any more.
    pub fn found(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }
}

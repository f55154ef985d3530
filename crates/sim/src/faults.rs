//! Faults: each is a value that is drawn and recorded before it happens.
//!
//! Each kind says what fails, and the assumptions meanwhile. Common to all: the inputs of a core
//! about its own machine are true, verified chunks in memory do not change, and the hash tree
//! cannot be forged. Stores are in memory, so a restarted process has an empty one. A machine that
//! returns with its store was suspended.

use crate::field::{Arrival, Field, Reads};
use crate::machine::Fault as Illness;
use crate::malicious::Plan;
use crate::network::walls::Wall;
use crate::reader::Order;
use std::fmt;
use std::time::Duration;
use vfield_core::node::Input;
use vfield_core::signing::Simulated;
use vfield_core::tag::{Tag, Version};
use vfield_core::tags::SIGNER_LENGTH;

/// The number of the image's next version.
const NEXT: usize = 1;

/// A kind of fault and its machines. Machines are named by their places; 0 is the origin's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The process dies: its connections break, others are refused.
    Crash(usize),
    /// A machine loses power: no peer hears of it, its connections stay silent.
    PowerLoss(usize),
    /// A machine that is off is switched on and joins through another one: a later generation at
    /// its address, with an empty store. A running machine is unchanged.
    Start(usize),
    /// A process is stopped, and later resumed. Its memory, connections and store are as before,
    /// and all messages since then arrive at once.
    Pause(usize),
    /// The same, but its connections break, as those of a machine that is suspended to disk.
    Suspend(usize),
    /// A paused machine goes on.
    Resume(usize),
    /// The node leaves the field and ends.
    Leave(usize),
    /// No packet passes from some places to others; packets on their way wait. Connections do not
    /// break by themselves.
    Cut(Vec<usize>, Vec<usize>),
    /// That way is open again.
    Mend(Vec<usize>, Vec<usize>),
    /// The firewall of a machine drops datagrams, and lets connections through.
    Firewall(usize),
    /// It lets datagrams through again.
    Open(usize),
    /// Keeps its connections and its gossip, and answers no request.
    Stall(usize),
    /// Sends wrong bytes. Its announcements are true otherwise.
    Lie(usize),
    /// Has false claims: it announces the same as before, and has nothing for any peer.
    Boast(usize),
    /// The machine behaves as a node again.
    Heal(usize),
    /// All connections between two machines are reset; new ones can be made at once.
    Reset(usize, usize),
    /// A link becomes slower by these factors, out and in.
    Slow(usize, u64, u64),
    /// A clock jumps ahead; it never goes back, since cores are given a monotonic one.
    Jump(usize, Duration),
    /// This many more machines join within one millisecond, each with a store of this percentage of
    /// the image.
    Join(usize, u64),
    /// The machine takes part in the next version of the image too, with a store of the same size
    /// and the same reads; the origin has its file.
    Update(usize),
    /// The operator moves the tag at this machine: its serial, the image that it names, and the
    /// versions that it keeps.
    Tag(usize, u64, usize, u8),
    /// This percentage of datagrams is lost.
    Loss(u64),
    /// The process at a place turns malicious, until it ends.
    Turn(usize, Plan),
}

/// A fault and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// After the start.
    pub at: Duration,
    /// The fault to bring about.
    pub fault: Fault,
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}s {:?}", self.at.as_secs_f64(), self.fault)
    }
}

/// The behaviour of machines that are switched on.
#[derive(Debug, Clone)]
pub struct Habits {
    /// Chunks of the image that each place holds.
    pub stores: Vec<u64>,
    /// The reading order of newcomers over the image's chunks.
    pub order: Order,
    /// Blocks read at a time, in that order.
    pub depth: usize,
}

impl Habits {
    fn reads(&self) -> Option<Reads> {
        Some(Reads { image: 0, order: self.order.clone(), depth: self.depth })
    }
}

/// The machine that runs, or ran last, at a place.
fn at(field: &Field, place: usize) -> usize {
    field.at_place(place as u32).expect("a place that was drawn")
}

impl Fault {
    /// Brings it about.
    pub fn strike(&self, field: &mut Field, habits: &Habits) {
        if !matches!(self, Self::Tag(..) | Self::Update(_)) {
            field.troubled = Some(field.now());
        }
        match self {
            Self::Crash(place) => {
                let machine = at(field, *place);
                if field.machines[machine].alive {
                    field.kill(machine, true);
                }
            }
            Self::PowerLoss(place) => {
                let machine = at(field, *place);
                if field.machines[machine].alive {
                    field.kill(machine, false);
                }
            }
            Self::Start(place) => start(field, *place, habits),
            Self::Pause(place) => ail(field, *place, Illness::Paused),
            Self::Suspend(place) => {
                let machine = at(field, *place);
                ail(field, *place, Illness::Paused);
                for other in (0..field.machines.len()).filter(|other| *other != machine) {
                    field.break_link(machine, other);
                }
            }
            Self::Stall(place) => ail(field, *place, Illness::Stalled),
            Self::Lie(place) => ail(field, *place, Illness::Lying),
            Self::Boast(place) => ail(field, *place, Illness::Boasting),
            Self::Resume(place) | Self::Heal(place) => ail(field, *place, Illness::None),
            Self::Leave(place) => {
                let machine = at(field, *place);
                if field.machines[machine].alive && field.machines[machine].fault != Illness::Paused {
                    field.input(machine, Input::Leave);
                    field.input(machine, Input::Gone);
                    field.kill(machine, true);
                }
            }
            Self::Cut(from, to) => field.build(wall(from, to)),
            Self::Mend(from, to) => field.tear_down(&wall(from, to)),
            Self::Firewall(place) => field.set_firewall(at(field, *place), true),
            Self::Open(place) => field.set_firewall(at(field, *place), false),
            Self::Reset(a, b) => field.break_link(at(field, *a), at(field, *b)),
            Self::Slow(place, out, into) => {
                let machine = at(field, *place);
                field.machines[machine].port.slow(*out, *into);
            }
            Self::Jump(place, by) => field.jump(at(field, *place), *by),
            Self::Join(count, percent) => {
                for _ in 0..*count {
                    let capacity = field.images[0].chunks() * percent / 100;
                    let images = vec![(0, capacity)];
                    let arrival = Arrival { via: field.somebody(), origin: false, images, reads: habits.reads() };
                    field.arrive(Duration::ZERO, arrival);
                }
            }
            Self::Update(place) => update(field, *place, habits),
            Self::Tag(place, serial, image, keep) => tag(field, *place, *serial, *image, *keep),
            Self::Loss(percent) => field.links.loss_percent = *percent,
            Self::Turn(place, plan) => {
                let machine = at(field, *place);
                if field.machines[machine].alive {
                    field.turn(machine, plan);
                }
            }
        }
    }
}

fn update(field: &mut Field, place: usize, habits: &Habits) {
    let machine = at(field, place);
    let host = &field.machines[machine];
    if !host.alive || host.fault == Illness::Paused || host.shelf(0).is_none() || host.shelf(NEXT).is_some() {
        return;
    }
    let capacity = habits.stores.get(place).copied().unwrap_or(0);
    field.add_image(machine, NEXT, place == 0, if place == 0 { 0 } else { capacity });
    if let Some(Reads { order, depth, .. }) = habits.reads().filter(|_| place > 0) {
        field.read_blocks(machine, NEXT, order, depth);
    }
}

fn tag(field: &mut Field, place: usize, serial: u64, image: usize, keep: u8) {
    // The operator goes to the next machine that runs.
    let places = field.machines.iter().map(|host| host.place as usize).max().unwrap_or(0) + 1;
    let mut machines = (0..places).filter_map(|step| field.at_place(((place + step) % places) as u32));
    let runs = |machine: &usize| field.machines[*machine].is_well() && field.machines[*machine].is_honest();
    let Some(machine) = machines.find(runs) else { return };
    let other = Version { serial: serial - 1, image: field.images[1 - image].id };
    let before = if serial > 1 && keep > 1 { vec![other] } else { Vec::new() };
    let first = Tag::first("prod".parse().expect("a name"), field.images[image].id);
    let text = Tag { serial, keep, before, ..first }.to_string();
    field.input(machine, Input::Tag(Simulated::sign_tag(&"a".repeat(SIGNER_LENGTH), &text)));
}

fn ail(field: &mut Field, place: usize, illness: Illness) {
    let machine = at(field, place);
    if field.machines[machine].alive {
        field.set_fault(machine, illness);
    }
}

fn start(field: &mut Field, place: usize, habits: &Habits) {
    let old = at(field, place);
    if field.machines[old].alive {
        return;
    }
    let origin = place == 0;
    let capacity = habits.stores.get(place).copied().unwrap_or(0);
    let reads = if origin { None } else { habits.reads() };
    let arrival = Arrival { via: field.somebody(), origin, images: vec![(0, capacity)], reads };
    field.arrive_again(old, Duration::ZERO, arrival);
}

fn wall(from: &[usize], to: &[usize]) -> Wall {
    let side = |places: &[usize]| places.iter().map(|place| *place as u32).collect();
    Wall { from: side(from), to: side(to) }
}

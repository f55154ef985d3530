//! A machine of the field: a core, and the shell's state for it: shelves, lanes, requests in
//! flight.

pub mod flights;
pub mod lane;
pub mod processor;
pub mod shelf;

use crate::malicious::Malice;
use crate::network::Port;
use flights::Flights;
use lane::Lane;
use processor::Processor;
use shelf::Shelf;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc as Shared;
use std::time::Duration;
use vfield_core::admission::Admission;
use vfield_core::chunk::Chunk;
use vfield_core::fetch::RequestId;
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::image::ImageId;
use vfield_core::node::{Node, Notice};
use vfield_core::slice::Groups;
use vfield_core::time::Time;

/// The misbehaviour of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Not at all.
    None,
    /// Keeps its connections and its gossip, and answers no request.
    Stalled,
    /// Nothing runs on it, and nothing of it breaks: stopped, or a paused virtual machine.
    Paused,
    /// Sends wrong bytes.
    Lying,
    /// False claims: it gossips as before, and refuses every request.
    Boasting,
    /// As an origin: the file has changed.
    Changed,
}

/// The traffic of a machine so far.
#[derive(Debug, Default, Clone, Copy)]
pub struct Traffic {
    /// Bytes of chunks sent.
    pub payload_sent: u64,
    /// Bytes of chunks that came.
    pub payload_came: u64,
    /// Bytes of everything else sent: gossip, requests, refusals, advice, notes, signs of life.
    pub control_sent: u64,
    /// Number of requests sent.
    pub requests: u64,
    /// Refusals and redirections sent.
    pub refusals: u64,
}

/// What a machine sent to where no machine is, within the present second.
#[derive(Debug, Default, Clone, Copy)]
pub struct Abroad {
    /// Since when it is counted.
    pub since: Time,
    /// Nodes dialled without a request for a chunk.
    pub dials: u32,
    /// Datagrams to addresses outside of the field.
    pub datagrams: u32,
}

impl Abroad {
    /// The counts of the second at `now`.
    pub fn at(&mut self, now: Time) -> &mut Self {
        if now - self.since >= Duration::from_secs(1) {
            *self = Self { since: now, ..Self::default() };
        }
        self
    }
}

/// A simulated machine.
pub struct Machine {
    /// The machine's core.
    pub node: Node,
    /// The machine's present identity.
    pub identity: Identity,
    /// Its place: machines that were started one after the other at the same address share it.
    pub place: u32,
    /// The zone it is in.
    pub zone: u32,
    /// True while it runs.
    pub alive: bool,
    /// The machine's present misbehaviour.
    pub fault: Fault,
    /// True once it has sent wrong bytes.
    pub has_lied: bool,
    /// True once it had any [`Fault`]: others may think less of it.
    pub had_fault: bool,
    /// What it does as a malicious member, if it is one.
    pub malice: Option<Box<Malice>>,
    /// Its dials and datagrams to where no machine is.
    pub abroad: Abroad,
    /// Lead of its clock over the field's.
    pub ahead: Duration,
    /// The chunks that it has of each image of the field.
    pub shelves: Vec<Option<Box<Shelf>>>,
    /// Its requests in flight.
    pub flights: Flights,
    /// The request that ended last.
    pub landed: Option<RequestId>,
    /// Its connections, by the machine that they lead to.
    pub lanes: BTreeMap<u32, Lane>,
    /// Machines that have an open connection to it.
    pub callers: BTreeSet<u32>,
    /// When its core is to be woken.
    pub wake_at: Option<Time>,
    /// The machine's network link.
    pub port: Port,
    /// Its processor, if it is a busy machine; others are infinitely fast.
    pub processor: Option<Processor>,
    /// The traffic over its link.
    pub traffic: Traffic,
    /// The notices of its core, if the field keeps them.
    pub notices: Vec<(Time, Notice)>,
    /// The admission list in force there, with its version.
    pub admission: Option<(u64, Shared<Admission>)>,
    /// Its readers, by number.
    pub readers: Vec<u32>,
    /// Number of inputs to its core.
    pub inputs: u64,
}

/// Bits of a node's id that are the number of its machine, so an id leads to its machine without a
/// search; the others are drawn.
const NUMBER_BITS: u32 = 24;
/// Most machines of a field.
pub const MACHINES_MAX: usize = 1 << NUMBER_BITS;
/// The port on which all nodes listen.
const PORT: u16 = 4000;

/// The beginning of simulated time, in milliseconds since 1970.
const EPOCH: u64 = 1_700_000_000_000;
/// Clocks are off by at most this, either way.
const CLOCKS_OFF: u64 = 2_000;

/// The identity of the machine with this number at some place in some zone, started at `now`. The
/// one maker of identities.
pub fn identity(number: usize, place: u32, zone: Zone, now: Time, drawn: u64) -> Identity {
    assert!(number < MACHINES_MAX, "{number} machines are too many");
    let addr = SocketAddr::from((Ipv4Addr::from(10 << 24 | place), PORT));
    let node = NodeId(drawn << NUMBER_BITS | number as u64);
    let off = drawn >> (u64::BITS - NUMBER_BITS);
    let generation = EPOCH + now.since(Time::ZERO).as_millis() as u64 + off % (2 * CLOCKS_OFF);
    Identity { addr, node, generation, zone }
}

/// The number of the machine in an id; there may be none, since claims may name any id.
pub const fn number_of(node: NodeId) -> usize {
    node.0 as usize & (MACHINES_MAX - 1)
}

/// The place that an address names, if it is one of the field's.
pub fn place_of(addr: SocketAddr) -> Option<u32> {
    match addr {
        SocketAddr::V4(addr) if addr.port() == PORT && addr.ip().octets()[0] == 10 => {
            Some(u32::from(*addr.ip()) & 0xFF_FFFF)
        }
        _ => None,
    }
}

impl Machine {
    /// A machine that has just been switched on.
    pub fn new(node: Node, identity: Identity, place: u32, zone: u32, port: Port) -> Self {
        Self {
            node,
            identity,
            place,
            zone,
            alive: true,
            fault: Fault::None,
            has_lied: false,
            had_fault: false,
            malice: None,
            abroad: Abroad::default(),
            ahead: Duration::ZERO,
            shelves: Vec::new(),
            flights: Flights::default(),
            landed: None,
            lanes: BTreeMap::new(),
            callers: BTreeSet::new(),
            wake_at: None,
            port,
            processor: None,
            traffic: Traffic::default(),
            notices: Vec::new(),
            admission: None,
            readers: Vec::new(),
            inputs: 0,
        }
    }

    /// The chunks that it has of an image, if it takes part in it.
    pub fn shelf(&self, image: usize) -> Option<&Shelf> {
        self.shelves.get(image)?.as_deref()
    }

    /// Like [`Machine::shelf`], mutable.
    pub fn shelf_mut(&mut self, image: usize) -> Option<&mut Shelf> {
        self.shelves.get_mut(image)?.as_deref_mut()
    }

    /// Joins an image.
    pub fn put_up(&mut self, image: usize, shelf: Shelf) {
        if self.shelves.len() <= image {
            self.shelves.resize_with(image + 1, || None);
        }
        self.shelves[image] = Some(Box::new(shelf));
    }

    /// True if a read of the chunk needs no peer.
    pub fn has(&self, image: usize, chunk: Chunk) -> bool {
        self.shelf(image).is_some_and(|shelf| shelf.has(chunk))
    }

    /// The same for a part of it: a slice that came serves as well.
    pub fn has_part(&self, image: usize, chunk: Chunk, part: Option<Groups>) -> bool {
        let has_slice = |groups| self.shelf(image).is_some_and(|shelf| shelf.has_slice(chunk, groups));
        self.has(image, chunk) || part.is_some_and(has_slice)
    }

    /// True if it is an origin of an image.
    pub fn is_origin(&self, image: usize) -> bool {
        self.shelf(image).is_some_and(|shelf| shelf.origin)
    }

    /// True unless it is a malicious member.
    pub const fn is_honest(&self) -> bool {
        self.malice.is_none()
    }

    /// True if it runs and does what a node does.
    pub fn is_well(&self) -> bool {
        self.alive && self.fault == Fault::None
    }

    /// The number of chunks that it sent of an image.
    pub fn sent_of(&self, image: usize) -> u64 {
        self.shelf(image).map_or(0, |shelf| shelf.sent)
    }

    /// How often it sent a chunk of an image.
    pub fn times_sent(&self, image: usize, chunk: Chunk) -> u32 {
        self.shelf(image).and_then(|shelf| shelf.times_sent.get(&chunk).copied()).unwrap_or(0)
    }

    /// When it first reported that coverage is complete, or incomplete again.
    pub fn coverage_notice(&self, id: ImageId, complete: bool) -> Option<Time> {
        let is_it = |notice: &Notice| *notice == Notice::Coverage(id, complete);
        self.notices.iter().find(|(_, notice)| is_it(notice)).map(|(at, _)| *at)
    }

    /// When it reported that another machine is down.
    pub fn down_notice(&self, other: Identity) -> Option<Time> {
        let is_it = |notice: &Notice| matches!(notice, Notice::Down(down) if down.identity.node == other.node);
        self.notices.iter().find(|(_, notice)| is_it(notice)).map(|(at, _)| *at)
    }

    /// The number of blamed peers.
    pub fn blamed(&self) -> usize {
        self.notices.iter().filter(|(_, notice)| matches!(notice, Notice::Blamed(..))).count()
    }
}

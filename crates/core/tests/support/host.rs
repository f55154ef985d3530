//! A machine of the field: a core, and the shell's side of what it says: chunks held, requests in flight.

use std::collections::{BTreeMap, BTreeSet};
use vfield_core::chunk::Chunk;
use vfield_core::directory::Directory;
use vfield_core::fetch::RequestId;
use vfield_core::identity::{Identity, NodeId};
use vfield_core::image::ImageId;
use vfield_core::node::{Node, Notice};
use vfield_core::time::Time;

/// Bytes a second of Gigabit Ethernet.
pub const GIGABIT: u64 = 125_000_000;

/// A request in flight.
#[derive(Debug, Clone, Copy)]
pub struct Flight {
    pub to: usize,
    pub image: usize,
    pub chunk: Chunk,
    pub bytes: u64,
    pub sent: Time,
    pub cancelled: bool,
}

/// How a machine misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Keeps its connections and its gossip, and answers no request.
    Stalled,
    /// Sends wrong bytes.
    Lying,
    /// As an origin: the file has changed.
    Changed,
}

/// See the module.
pub struct Host {
    pub node: Node,
    pub identity: Identity,
    pub alive: bool,
    pub fault: Fault,
    pub origin_of: BTreeSet<usize>,
    /// What its store holds, by image.
    pub shelf: BTreeMap<usize, BTreeSet<Chunk>>,
    /// Chunks that it knows to be zero.
    pub zero: BTreeMap<usize, BTreeSet<Chunk>>,
    /// As an origin: to whom it sent what.
    pub directories: BTreeMap<usize, Directory>,
    pub flights: BTreeMap<RequestId, Flight>,
    /// Machines that it has a connection to.
    pub linked: BTreeSet<usize>,
    pub wake_at: Option<Time>,
    /// Bytes a second of its link, in each direction.
    pub rate: u64,
    pub uplink_free: Time,
    pub downlink_free: Time,
    /// How often each chunk was sent.
    pub sent: BTreeMap<(usize, Chunk), u32>,
    pub notices: Vec<(Time, Notice)>,
    pub requests: u64,
    pub events: u64,
}

impl Host {
    pub fn new(node: Node, identity: Identity) -> Self {
        Self {
            node,
            identity,
            alive: true,
            fault: Fault::None,
            origin_of: BTreeSet::new(),
            shelf: BTreeMap::new(),
            zero: BTreeMap::new(),
            directories: BTreeMap::new(),
            flights: BTreeMap::new(),
            linked: BTreeSet::new(),
            wake_at: None,
            rate: GIGABIT,
            uplink_free: Time::ZERO,
            downlink_free: Time::ZERO,
            sent: BTreeMap::new(),
            notices: Vec::new(),
            requests: 0,
            events: 0,
        }
    }

    /// True if a read of the chunk needs nobody else.
    pub fn has(&self, image: usize, chunk: Chunk) -> bool {
        let contains =
            |sets: &BTreeMap<usize, BTreeSet<Chunk>>| sets.get(&image).is_some_and(|set| set.contains(&chunk));
        self.origin_of.contains(&image) || contains(&self.shelf) || contains(&self.zero)
    }

    /// As an origin: whom `asker` should ask instead.
    pub fn instead(&mut self, image: usize, chunk: Chunk, asker: NodeId, insists: bool, now: Time) -> Option<NodeId> {
        if !self.origin_of.contains(&image) {
            return None;
        }
        let directory = self.directories.entry(image).or_default();
        if insists {
            directory.sent_to(chunk, asker, now);
            return None;
        }
        directory.instead(chunk, asker, now)
    }

    /// How many chunks it sent of an image.
    pub fn sent_of(&self, image: usize) -> u64 {
        self.sent.iter().filter(|((of, _), _)| *of == image).map(|(_, times)| u64::from(*times)).sum()
    }

    /// When it first said that coverage is complete, or no longer.
    pub fn told_coverage(&self, id: ImageId, complete: bool) -> Option<Time> {
        let told = |notice: &Notice| *notice == Notice::Coverage(id, complete);
        self.notices.iter().find(|(_, notice)| told(notice)).map(|(at, _)| *at)
    }

    /// When it said of another that it is down.
    pub fn told_down(&self, other: Identity) -> Option<Time> {
        let told = |notice: &Notice| matches!(notice, Notice::Down(down) if down.node == other.node);
        self.notices.iter().find(|(_, notice)| told(notice)).map(|(at, _)| *at)
    }

    /// Whom it has blamed.
    pub fn blamed(&self) -> usize {
        self.notices.iter().filter(|(_, notice)| matches!(notice, Notice::Blamed(..))).count()
    }
}

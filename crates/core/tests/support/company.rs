//! A node without a store among members, each of which says that it is an origin or a full store.
#![allow(dead_code, reason = "each test file uses some of it")]

use crate::one_origin::{IMAGE, ME, identity, record};
use crate::signed::{alive, keys, signed};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::config::Config;
use vfield_core::fetch::{RequestId, Token};
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::image::{Geometry, Header};
use vfield_core::node::{ImageConfig, Input, Node, Output};
use vfield_core::placement::{Arc, Filled};
use vfield_core::record::Record;
use vfield_core::snapshot::Snapshot;
use vfield_core::speed::{Link, Speed, Transit};
use vfield_core::time::Time;
use vfield_core::wire::{Priority, Refusal};

/// Chunks of the image, of the least size.
pub const DATA: u64 = 900;
/// Time between two looks at the node.
pub const STEP: Duration = Duration::from_millis(10);

/// What a member says of itself.
#[derive(Clone, Copy)]
pub struct Says {
    pub node: u64,
    pub origin: bool,
    /// Its store has all of the image; else it has no store.
    pub stores: bool,
    pub speed: Speed,
}

impl Says {
    pub const fn origin(node: u64) -> Self {
        Self { node, origin: true, stores: false, speed: Speed::UNKNOWN }
    }

    pub const fn store(node: u64) -> Self {
        Self { node, origin: false, stores: true, speed: Speed::UNKNOWN }
    }

    pub const fn reader(node: u64) -> Self {
        Self { node, origin: false, stores: false, speed: Speed::UNKNOWN }
    }

    pub const fn at(self, speed: Speed) -> Self {
        Self { speed, ..self }
    }
}

/// A request that the node made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    pub request: RequestId,
    pub peer: u64,
    pub chunk: Chunk,
    pub insists: bool,
}

/// The peers of some requests, in order.
pub fn peers(asked: &[Asked]) -> Vec<u64> {
    asked.iter().map(|asked| asked.peer).collect()
}

/// The chunks of some requests, in order.
pub fn chunks(asked: &[Asked]) -> Vec<u64> {
    asked.iter().map(|asked| asked.chunk.0).collect()
}

pub struct Company {
    pub node: Node,
    pub now: Time,
    header: Header,
    zone: Zone,
    /// They answer what membership asks of them, and nothing else.
    members: BTreeMap<SocketAddr, Node>,
    versions: u64,
    /// All outputs but requests and datagrams, since somebody last looked.
    pub others: Vec<Output>,
}

impl Company {
    /// The node has all pages of hashes, and has just begun with the image.
    pub fn of(members: &[Says]) -> Self {
        Self::with(members, Zone::default(), Config::default(), 0)
    }

    /// All of them are in a zone.
    pub fn of_zone(members: &[Says]) -> Self {
        Self::with(members, Zone::named("here").expect("a name"), Config::default(), 0)
    }

    /// The same, with a store of so many bytes.
    pub fn with(members: &[Says], zone: Zone, config: Config, capacity_bytes: u64) -> Self {
        let now = Time::after_start(Duration::from_secs(1));
        let header = Header::new(DATA * ChunkSize::MIN.bytes(), ChunkSize::MIN, DATA).expect("a header");
        // It came last.
        let me = Identity { generation: 2, zone, ..identity(ME) };
        let node = Node::new(me, keys(ME), config, 2, now);
        let mut company = Self { node, now, header, zone, members: BTreeMap::new(), versions: 0, others: Vec::new() };
        members.iter().for_each(|says| company.hears(*says));
        let (id, names) = (IMAGE, "image".into());
        company.node.add_image(now, ImageConfig { id, names, header, origin: false, capacity_bytes, kept: None });
        let geometry = Geometry::new(header);
        let pages = (DATA..geometry.chunks()).map(Chunk).collect();
        company.node.handle(now, Input::Found { image: IMAGE, chunks: pages, zeros: Vec::new() });
        company.requests();
        company
    }

    /// The same, after the time in which a node counts as new.
    pub fn settled(members: &[Says]) -> Self {
        let mut company = Self::of(members);
        company.after(Duration::from_secs(3));
        company
    }

    /// A member says this of itself from now on.
    pub fn hears(&mut self, says: Says) {
        self.versions += 1;
        let identity = Identity { zone: self.zone, ..identity(NodeId(says.node)) };
        let member = || Node::new(identity, keys(identity.node), Config::default(), says.node, self.now);
        self.members.entry(identity.addr).or_insert_with(member);
        let size = Geometry::new(self.header).chunks();
        let length = if says.stores { size } else { 0 };
        let node = identity.node;
        let record = signed(Record {
            progress: Record::progress(self.versions, Link { measured: says.speed, ..Link::default() }),
            origin: says.origin,
            arc: Arc { start: 0, length },
            filled: Filled { from: 0, count: length },
            ..record(node, self.header, self.versions)
        });
        let (members, records) = (vec![alive(identity)], vec![record]);
        self.give(Input::Learned { from: node, snapshot: Snapshot { members, records, ..Snapshot::default() } });
    }

    pub fn give(&mut self, input: Input) {
        self.node.handle(self.now, input);
    }

    /// A reader wants a chunk; returns the requests that this makes.
    pub fn read(&mut self, chunk: u64) -> Vec<Asked> {
        self.give(Input::Read { token: Token(chunk), image: IMAGE, chunks: chunk..chunk + 1 });
        self.requests()
    }

    pub fn prefetch(&mut self, chunks: std::ops::Range<u64>) -> Vec<Asked> {
        self.give(Input::Prefetch { image: IMAGE, chunks, priority: Priority::ReadAhead });
        self.requests()
    }

    pub fn refuse(&mut self, asked: Asked) -> Vec<Asked> {
        self.give(Input::Refused(asked.request, Refusal::NotHeld));
        self.requests()
    }

    /// The answer to a request comes, over links that were busy for so long.
    pub fn arrives(&mut self, asked: Asked, took: Duration) -> Vec<Asked> {
        let transit = Transit { took, beside: 0 };
        self.give(Input::Arrived { request: asked.request, waited: Duration::ZERO, transit, zeros: Vec::new() });
        self.requests()
    }

    /// The requests that the node makes now.
    pub fn requests(&mut self) -> Vec<Asked> {
        let mut asked = Vec::new();
        while let Some(output) = self.node.poll() {
            match output {
                Output::Request { request, peer, chunk, insists, .. } => {
                    asked.push(Asked { request, peer: peer.node.0, chunk, insists });
                }
                Output::Datagram(addr, bytes) => self.tell(addr, bytes),
                other => self.others.push(other),
            }
        }
        asked
    }

    fn tell(&mut self, addr: SocketAddr, bytes: Vec<u8>) {
        let Some(member) = self.members.get_mut(&addr) else { return };
        member.handle(self.now, Input::Datagram(identity(ME).addr, bytes));
        while let Some(output) = member.poll() {
            if let Output::Datagram(to, bytes) = output
                && to == identity(ME).addr
            {
                self.node.handle(self.now, Input::Datagram(addr, bytes));
            }
        }
    }

    /// Time passes; returns the requests that are made meanwhile, and when.
    pub fn passes(&mut self, wait: Duration) -> Vec<(Time, Asked)> {
        let (end, mut all) = (self.now + wait, Vec::new());
        while self.now < end {
            self.now = self.now + STEP;
            self.give(Input::Wake);
            let now = self.now;
            all.extend(self.requests().into_iter().map(|asked| (now, asked)));
        }
        all
    }

    pub fn after(&mut self, wait: Duration) -> Vec<Asked> {
        self.passes(wait).into_iter().map(|(_, asked)| asked).collect()
    }
}

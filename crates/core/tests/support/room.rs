//! A room of members on a modelled network, for tests of membership.
#![allow(dead_code, reason = "each test file uses some of it")]

use crate::signed::{keys, signed};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::chunk::ChunkSize;
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::image::{Header, ImageId};
use vfield_core::membership::{Effects, Level, Membership, Rival};
use vfield_core::placement::{Arc, Filled, mix};
use vfield_core::record::{Record, Subject};
use vfield_core::signing::Signature;
use vfield_core::time::Time;

/// Time of a datagram on its way.
pub const DELAY: Duration = Duration::from_millis(1);
pub const COMPARE_EVERY: Duration = vfield_core::config::SYNC_EVERY;

pub enum Event {
    /// To a member, from an address.
    Datagram(usize, SocketAddr, Vec<u8>),
    /// To a member, over a connection of this node.
    Gossip(usize, NodeId, Vec<u8>),
    Tick(usize),
    /// The first exchanges snapshots with the second.
    Sync(usize, usize),
    /// A member exchanges snapshots with a partner, as nodes do now and then.
    Compare(usize, u32),
}

/// Members, and a network between them that loses what a rule says.
pub struct Room {
    pub now: Time,
    pub members: Vec<Membership>,
    pub dead: BTreeSet<usize>,
    pub events: BinaryHeap<Reverse<(Time, u64)>>,
    pub what: BTreeMap<u64, Event>,
    pub numbered: u64,
    pub wakes: Vec<Option<Time>>,
    /// The members with which each has exchanged datagrams.
    pub contacts: Vec<BTreeSet<usize>>,
    pub datagrams: u64,
    /// Messages over connections.
    pub by_connection: u64,
    pub loses: Box<dyn Fn(u64, usize, usize) -> bool>,
    /// What firewalls drop: datagrams alone.
    pub drops: Box<dyn Fn(usize, usize) -> bool>,
    pub deaths: Vec<(Time, usize, usize)>,
    /// Which member found another process with its key.
    pub rivals: Vec<(usize, Rival)>,
}

impl Room {
    pub fn new() -> Self {
        Self {
            now: Time::ZERO,
            members: Vec::new(),
            dead: BTreeSet::new(),
            events: BinaryHeap::new(),
            what: BTreeMap::new(),
            numbered: 0,
            wakes: Vec::new(),
            contacts: Vec::new(),
            datagrams: 0,
            by_connection: 0,
            loses: Box::new(|_, _, _| false),
            drops: Box::new(|_, _| false),
            deaths: Vec::new(),
            rivals: Vec::new(),
        }
    }

    /// A member that knows the first one and exchanges snapshots with it as nodes do.
    pub fn join(&mut self) -> usize {
        let at = self.members.len();
        let addr = SocketAddr::from(([198, 18, (at >> 8) as u8, at as u8], 4000));
        let me =
            Identity { addr, node: NodeId(mix(at as u64 + 1)), generation: 1000 + at as u64, zone: Zone::default() };
        self.members.push(Membership::new(Level::Zone, me, keys(me.node), self.now));
        self.wakes.push(None);
        if let Some(latest) = self.members.first().filter(|_| at > 0).map(Membership::latest) {
            self.members[at].arrive(latest);
        }
        self.contacts.push(BTreeSet::new());
        self.at(COMPARE_EVERY, Event::Compare(at, 0));
        if at > 0 {
            for after in [1, 200, 400, 700, 1200, 2200] {
                self.at(Duration::from_millis(after), Event::Sync(at, 0));
            }
        }
        at
    }

    pub fn at(&mut self, after: Duration, event: Event) {
        self.numbered += 1;
        self.events.push(Reverse((self.now + after, self.numbered)));
        self.what.insert(self.numbered, event);
    }

    pub fn apply(&mut self, at: usize, effects: Effects) {
        for (addr, bytes) in effects.datagrams {
            // Nobody is at the address of a member that was made up.
            let is_there = |at: &usize| self.members[*at].me().addr == addr && !self.dead.contains(at);
            let Some(to) = (0..self.members.len()).find(is_there) else { continue };
            self.datagrams += 1;
            self.contacts[at].insert(to);
            self.contacts[to].insert(at);
            if !(self.loses)(self.datagrams, at, to) && !(self.drops)(at, to) {
                let from = self.members[at].me().addr;
                self.at(DELAY, Event::Datagram(to, from, bytes));
            }
        }
        for (to, bytes) in effects.by_connection {
            self.by_connection += 1;
            let is_there = |other: &usize| *self.members[*other].me() == to && !self.dead.contains(other);
            if let Some(to) = (0..self.members.len()).find(is_there)
                && !(self.loses)(self.by_connection, at, to)
            {
                self.at(DELAY, Event::Gossip(to, self.members[at].me().node, bytes));
            }
        }
        let real = |node| self.members.iter().position(|member| member.me().node == node);
        let down = effects.down.iter().filter_map(|member| real(member.identity.node));
        let deaths: Vec<_> = down.map(|dead| (self.now, at, dead)).collect();
        self.deaths.extend(deaths);
        self.rivals.extend(effects.rival.map(|rival| (at, rival)));
        if let Some(wake) = self.members[at].next_wake()
            && self.wakes[at].is_none_or(|set| wake < set)
        {
            self.wakes[at] = Some(wake);
            self.at(wake - self.now, Event::Tick(at));
        }
    }

    pub fn named(&self, node: NodeId) -> usize {
        self.members.iter().position(|member| member.me().node == node).expect("a member of the room")
    }

    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(&Reverse((at, number))) = self.events.peek().filter(|Reverse((at, _))| *at <= end) {
            self.events.pop();
            self.now = at;
            match self.what.remove(&number).unwrap() {
                Event::Tick(member) if !self.dead.contains(&member) => {
                    self.wakes[member] = None;
                    let effects = self.members[member].tick(at);
                    self.apply(member, effects);
                }
                Event::Datagram(to, from, bytes) if !self.dead.contains(&to) => {
                    let effects = self.members[to].datagram(from, &bytes, at);
                    self.apply(to, effects);
                }
                Event::Gossip(to, from, bytes) if !self.dead.contains(&to) => {
                    let effects = self.members[to].gossip(from, &bytes, at);
                    self.apply(to, effects);
                }
                Event::Compare(member, number) => {
                    self.members[member].sweep();
                    self.at(COMPARE_EVERY, Event::Compare(member, number + 1));
                    if let Some(partner) = self.members[member].partner(number) {
                        let partner = self.named(partner.node);
                        self.at(DELAY, Event::Sync(member, partner));
                    }
                }
                Event::Sync(a, b) if (self.loses)(self.numbered, a, b) => {}
                Event::Sync(a, b) if self.members[a].has_left() || self.members[b].has_left() => {}
                Event::Sync(a, b) if !self.dead.contains(&a) && !self.dead.contains(&b) => {
                    let (told, answer) =
                        (self.members[a].snapshot(&[]), self.members[b].snapshot(&self.members[a].known()));
                    let (from, to) = (self.members[a].me().node, self.members[b].me().node);
                    let effects = self.members[b].learn(from, told.0, told.1, at);
                    self.apply(b, effects);
                    let effects = self.members[a].learn(to, answer.0, answer.1, at);
                    self.apply(a, effects);
                }
                _ => {}
            }
        }
        self.now = end;
    }

    pub fn living(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|at| !self.dead.contains(at)).collect()
    }

    /// True if each of the living knows just the other ones, and suspects nobody.
    pub fn agrees(&self) -> bool {
        let living = self.living();
        let nodes: BTreeSet<NodeId> = living.iter().map(|at| self.members[*at].me().node).collect();
        living.iter().map(|at| &self.members[*at]).all(|member| {
            let mut known: BTreeSet<NodeId> = member.live().values().map(|other| other.node).collect();
            known.insert(member.me().node);
            known == nodes && member.suspects().is_empty()
        })
    }

    pub fn until_agreed(&mut self, limit: Duration) -> Duration {
        let start = self.now;
        while !self.agrees() {
            let sizes = || self.living().iter().map(|at| self.members[*at].live().len() + 1).collect::<Vec<_>>();
            assert!(self.now - start < limit, "no agreement within {limit:?}: {:?}", sizes());
            self.run(Duration::from_millis(20));
        }
        self.now - start
    }
}

pub fn room(count: usize) -> Room {
    joined(Room::new(), count)
}

/// So many members join one after the other.
pub fn joined(mut room: Room, count: usize) -> Room {
    for _ in 0..count {
        room.join();
        room.run(Duration::from_millis(7));
    }
    room.until_agreed(Duration::from_secs(4));
    room
}

/// A record of a node that holds so many places of the ring.
pub fn record(node: NodeId, version: u64, capacity: u64) -> Record {
    signed(Record {
        node,
        version,
        progress: 0,
        subject: Subject {
            image: ImageId([1; 32]),
            names: "image".into(),
            header: Header::new(256 * ChunkSize::MIN.bytes(), ChunkSize::MIN, 256).expect("a header").encode(),
        }
        .into(),
        origin: false,
        arc: Arc { start: 0, length: capacity },
        filled: Filled { from: 0, count: 0 },
        leaving: false,
        signature: Signature::default(),
    })
}

//! The outermost machine: one node of the field, without its sockets, files, clock and bytes.
//!
//! The shell feeds [`Input`]s with the time, then takes all [`Output`]s with [`Node::poll`] until
//! there are none, then sleeps until [`Node::next_wake`] at the latest. Every input may produce any
//! number of outputs; none is produced without an input. The same inputs at the same times give the
//! same outputs.
//!
//! A read or a peer's request that hits the shell's store never comes here.

mod admitting;
mod apart;
mod backbone;
mod bounds;
mod choosing;
mod claims;
mod collecting;
mod contacts;
mod dropping;
pub mod entrusted;
mod events;
pub mod explain;
mod field;
mod former;
mod found;
pub mod hearsay;
mod images;
mod load;
mod outside;
mod own_way;
mod parking;
pub mod picture;
mod probing;
mod reads;
mod repair;
mod requests;
mod rounds;
mod seeking;
mod serving;
mod slices;
mod speeds;
mod spot_checks;
mod tagging;
mod view;

pub use claims::{Claim, Teller};
pub use collecting::Rubbish;
pub use events::{Input, Keep, Notice, Output, Serve};
pub use former::Former;
pub use found::Commitment;
pub use images::ImageConfig;
pub use load::Load;
pub use view::{HeldUp, ImageView, LongestWait, MemberView, Waited, ZonesView};

use crate::admission::Admission;
use crate::budget::Budget;
use crate::chunk::Chunk;
use crate::config::Config;
use crate::fetch::{Fetch, Fetches, Goal, ImageNumber, Request, Token};
use crate::identity::{Identity, NodeId};
use crate::image::ImageId;
use crate::inquiry::{Allowance, Inquiries};
use crate::membership::{Level, Member, Membership};
use crate::numbered::Numbered;
use crate::peers::Peers;
use crate::pursuit::Given;
use crate::rubbish::Deaths;
use crate::signing::Signatures;
use crate::slow_reads::SlowReads;
use crate::speed::{OwnSpeed, Way};
use crate::tags::Tags;
use crate::time::Time;
use crate::wire::Refusal;
use images::Image;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc as Shared;
use std::time::Duration;

/// Capacity kept for outputs once all have been taken. Only a node that learns a whole room needs
/// more.
const OUTPUTS_KEPT: usize = 16;

/// When a timer is due, and its unique number.
pub(crate) type TimerKey = (Time, u64);

/// The purpose of a timer.
#[derive(Debug)]
enum Timer {
    Member,
    Backbone,
    SeekOutside,
    Seek,
    Check,
    Fetch(ImageNumber, Chunk),
    Opens,
    Remap,
    MapOutside,
    GatewayRole,
    Gather,
    OwnWay,
    Fill(ImageNumber),
    Announce(ImageNumber),
    Recount(ImageNumber),
    Repair(ImageNumber),
    SpotCheck(ImageNumber),
    Care(ImageNumber),
    RetryWaiting,
    ExpireReads,
    Sync,
    Sweep,
}

/// One node of the field.
pub struct Node {
    config: Config,
    now: Time,
    seed: u64,
    /// This node's signatures.
    keys: Shared<dyn Signatures>,
    /// The admission list in force.
    admission: Shared<Admission>,
    /// The members of this node's zone.
    membership: Membership,
    outside: outside::Outside,
    tags: Tags,
    /// The timer at which membership is due next.
    member_at: Option<TimerKey>,
    /// [`crate::record::Records::changes`] when the maps were last made; [`u64::MAX`] to make them
    /// at once.
    mapped: u64,
    peers: Peers,
    speed: OwnSpeed,
    probes: probing::Probes,
    images: BTreeMap<ImageId, Box<Image>>,
    /// The images' ids, by [`ImageNumber`]; [`dropping::NONE`] stands for each dropped image.
    numbered: Vec<ImageId>,
    requests: Numbered<Request>,
    /// Requests numbered, hedges among them.
    asked: u64,
    hedged: u64,
    /// Hedges under way.
    hedging: u64,
    /// A look at all requests is due before long.
    checking: bool,
    /// When a peer last delivered a chunk, or was asked for one while nobody owed any.
    delivered: Time,
    outstanding_bytes: u64,
    /// The bound of those bytes: the greatest of its images' windows.
    window_bytes: u64,
    /// Until when it sends no requests for chunks, in a field of zones.
    gathers_until: Time,
    fetches: Fetches,
    bounds: bounds::Bounds,
    /// What the stores may still take in today.
    budget: Budget,
    /// The open requests of peers.
    asks: serving::Asks,
    reads: BTreeMap<Token, reads::Reader>,
    slices: slices::Slices,
    /// Read by `explain` only.
    slow_reads: SlowReads,
    /// Accounts that others were given.
    given: Given,
    /// When the next readers may time out.
    expire_at: Option<Time>,
    /// Until when a reader that waited lately is taken to go on reading.
    reading_until: Time,
    /// The same of a reader whose chunk no fetch foresaw.
    surprised_until: Time,
    surprises: u32,
    timers: BTreeMap<TimerKey, Timer>,
    timers_set: u64,
    retrying: bool,
    remap_set: bool,
    /// Since when members were counted that came, and how many; until when a room is being switched
    /// on.
    forming: (Time, u32),
    forming_until: Time,
    syncs: u32,
    /// When it began to join; `None` once a snapshot has come since.
    joins_since: Option<Time>,
    leaving: bool,
    /// True while peers are to ask it last.
    draining: bool,
    /// True while others cannot connect to this node.
    unreachable: bool,
    /// Members on which nobody should count, as they announce.
    unavailable: BTreeSet<NodeId>,
    /// It was said, and still is so, that no datagrams come through to some members, and that there
    /// is no way to some.
    told_of_ways: [bool; 2],
    former: former::FormerMembers,
    deaths: Deaths,
    seeking: seeking::Seeking,
    inquiries: Inquiries,
    allowance: Allowance,
    outputs: VecDeque<Output>,
}

impl Node {
    /// A node alone in its field, which signs with `keys`. `seed` makes all its choices repeatable;
    /// give each node its own.
    pub fn new(me: Identity, keys: Shared<dyn Signatures>, config: Config, seed: u64, now: Time) -> Self {
        let mut node = Self {
            membership: Membership::new(Level::Zone, me, Shared::clone(&keys), now),
            keys,
            admission: Shared::default(),
            outside: outside::Outside::default(),
            tags: Tags::default(),
            member_at: None,
            mapped: 0,
            peers: Peers::new(config.round_robin),
            speed: OwnSpeed::known(config.card_bytes_per_s, config.measured_bytes_per_s),
            probes: probing::Probes::default(),
            window_bytes: config.window_bytes,
            budget: Budget::new(config.stored_bytes_each_day),
            config,
            now,
            seed,
            images: BTreeMap::new(),
            numbered: Vec::new(),
            requests: Numbered::default(),
            asked: 0,
            hedged: 0,
            hedging: 0,
            checking: false,
            delivered: now,
            outstanding_bytes: 0,
            gathers_until: Time::ZERO,
            fetches: Fetches::default(),
            bounds: bounds::Bounds::default(),
            asks: serving::Asks::default(),
            reads: BTreeMap::new(),
            slices: slices::Slices::default(),
            slow_reads: SlowReads::default(),
            given: Given::default(),
            expire_at: None,
            reading_until: Time::ZERO,
            surprised_until: Time::ZERO,
            surprises: 0,
            timers: BTreeMap::new(),
            timers_set: 0,
            retrying: false,
            remap_set: false,
            forming: (now, 0),
            forming_until: now,
            syncs: 0,
            joins_since: None,
            leaving: false,
            draining: false,
            unreachable: false,
            unavailable: BTreeSet::new(),
            told_of_ways: [false; 2],
            former: former::FormerMembers::default(),
            deaths: Deaths::default(),
            seeking: seeking::Seeking::default(),
            inquiries: Inquiries::default(),
            allowance: Allowance::default(),
            outputs: VecDeque::new(),
        };
        node.set(Duration::from_millis(100), Timer::Sync);
        node.set(crate::config::SYNC_EVERY, Timer::Sweep);
        node
    }

    /// This node's identity.
    pub fn me(&self) -> &Identity {
        self.membership.me()
    }

    /// This node's statement about itself.
    pub fn myself(&self) -> &Member {
        self.membership.myself()
    }

    /// The latest known generation, for [`Input::Arrive`] of a node that joins through this one.
    pub fn latest(&self) -> u64 {
        self.membership.latest()
    }

    /// Takes in what happened at `now`, which never goes back.
    pub fn handle(&mut self, now: Time, input: Input) {
        self.now = self.now.max(now);
        self.fetches.at(self.now);
        if now >= self.forming_until {
            self.membership.set_forming(false);
        }
        self.run_timers();
        match input {
            Input::Wake => {}
            Input::Datagram(from, bytes) => self.datagram(from, &bytes),
            Input::Gossip(from, bytes) => self.gossip(from, &bytes),
            Input::Met(member) => self.met(member),
            Input::Arrive(latest) => self.arrive(latest),
            Input::Answered { addr, member } => self.answered_at(addr, member),
            Input::Reachable(reachable) => self.reachable(reachable),
            Input::Readdress(addr) => self.readdress(addr),
            Input::Bootstrap(addrs) => self.set_bootstrap(&addrs),
            Input::Learned { from, snapshot } => self.learned(from, snapshot),
            Input::Read { token, image, chunks } => self.read(token, image, chunks),
            Input::ReadSlice { token, image, chunk, groups } => self.read_slice(token, image, chunk, groups),
            Input::CancelRead(token) => self.cancel_read(token),
            Input::Prefetch { image, chunks, priority } => self.prefetch(image, chunks, priority),
            Input::Asked { asker, image, chunk, priority } => self.asked(asker, image, chunk, priority),
            Input::AskedWhy { asker, node, image, chunk } => self.asked_why(asker, node, image, chunk),
            Input::CancelAsked(connection, request) => {
                let gone = self.forget_askers(connection, Some(request));
                // Every request has its answer, or the asker would count it as owed for ever.
                self.outputs.extend(gone.into_iter().map(|asker| Output::Refuse(asker, Refusal::NotHeld)));
            }
            Input::AskerGone(connection) => drop(self.forget_askers(connection, None)),
            Input::Arrived { request, waited, transit, zeros } => self.arrived(request, waited, transit, &zeros),
            Input::Delivers(node, speed) => self.delivers(node, speed, Way::Out),
            Input::Here { from, image, chunks } => self.entrusted(from, image, &chunks),
            Input::Bounds(bounds) => self.bound_link(bounds),
            Input::BoundsOf(image, bounds) => self.bound_image(image, bounds),
            Input::Found { image, chunks, zeros } => self.found(image, &chunks, &zeros),
            Input::Surveyed(image) => self.surveyed(image),
            Input::Corrupt(request) => self.corrupt(request),
            Input::Unusable(request) => self.unusable(request),
            Input::Spoiled { image, chunks } => self.spoiled(image, &chunks),
            Input::Withheld { image, chunks } => self.withheld(image, &chunks),
            Input::Released { image, chunks } => self.released(image, &chunks),
            Input::Full(image) => self.full(image),
            Input::Roomy(image) => self.roomy(image),
            Input::Refused(request, refusal) => self.refused(request, refusal),
            Input::Redirected(request, node) => self.redirected(request, node),
            Input::Lost(request) => self.lost(request),
            Input::Progress(node) => {
                self.heard(node);
                self.peers.progressed(node, self.now);
            }
            Input::Broken(node) => self.broken(node),
            Input::Misbehaved(node) => self.misbehaved(node),
            Input::Admission(admission) => self.admit(admission),
            Input::Tag(tag) => self.tag(tag),
            Input::Drop(image) => self.drop_image(image),
            Input::Used { image, uses } => self.used(image, uses),
            Input::Collect => self.collect(),
            Input::Inquire { times, purpose } => self.inquired(times, purpose),
            Input::Leave => self.leave(true),
            Input::Stay => self.leave(false),
            Input::Drain(drains) => self.drain(drains),
            Input::Gone => self.gone(),
        }
        self.remap();
        self.pump();
    }

    /// The next output, if there is one.
    pub fn poll(&mut self) -> Option<Output> {
        let output = self.outputs.pop_front();
        if self.outputs.is_empty() && self.outputs.capacity() > OUTPUTS_KEPT {
            self.outputs = VecDeque::new();
        }
        output
    }

    /// When to call with [`Input::Wake`] if no other input comes before.
    pub fn next_wake(&self) -> Option<Time> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    fn id_of(&self, image: ImageNumber) -> ImageId {
        self.numbered[image.0 as usize]
    }

    /// The goal of a fetch; `None` for an image that is not here.
    fn goal(&self, id: ImageId, chunk: Chunk) -> Option<Goal> {
        self.images.get(&id).map(|image| (image.number, chunk))
    }

    /// The fetch of a chunk, if there is one.
    fn fetch_of(&self, id: ImageId, chunk: Chunk) -> Option<&Fetch> {
        self.fetches.get(self.goal(id, chunk)?)
    }

    fn fetch_mut(&mut self, id: ImageId, chunk: Chunk) -> Option<&mut Fetch> {
        self.fetches.get_mut(self.goal(id, chunk)?)
    }

    /// The ids of its images, for loops that change the images.
    fn image_ids(&self) -> Vec<ImageId> {
        self.images.keys().copied().collect()
    }

    fn set(&mut self, after: Duration, timer: Timer) -> TimerKey {
        self.timers_set += 1;
        let key = (self.now + after, self.timers_set);
        self.timers.insert(key, timer);
        key
    }

    /// Cancels a timer, if there is one.
    fn cancel(&mut self, timer: Option<TimerKey>) {
        if let Some(timer) = timer {
            self.timers.remove(&timer);
        }
    }

    fn out(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    fn run_timers(&mut self) {
        while let Some(entry) = self.timers.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (key, timer) = entry.remove_entry();
            match timer {
                Timer::Member if self.member_at == Some(key) => {
                    self.member_at = None;
                    let effects = self.membership.tick(self.now);
                    self.apply(effects);
                }
                Timer::Backbone if self.outside.woken_at == Some(key) => self.wake_outside(),
                Timer::SeekOutside if self.outside.seeks == Some(key) => self.seek_outside(),
                Timer::Seek if self.seeking.is_due(key) => self.seek(),
                // Another was set instead.
                Timer::Member | Timer::Backbone | Timer::SeekOutside | Timer::Seek => {}
                Timer::Check => self.check(),
                Timer::Fetch(image, chunk) => {
                    if self.fetches.is_due((image, chunk)) {
                        self.enqueue(self.id_of(image), chunk);
                    }
                }
                Timer::Opens => self.opens(),
                Timer::Remap => self.remap_set = false,
                Timer::Gather => self.gather(),
                Timer::MapOutside => self.remap_outside(),
                Timer::OwnWay => self.look_at_gateways(),
                Timer::GatewayRole => self.update_gateway_role(),
                Timer::Fill(image) => self.fill(self.id_of(image)),
                Timer::Announce(image) => self.announce(self.id_of(image)),
                Timer::Recount(image) => self.recount(self.id_of(image)),
                Timer::Repair(image) => self.repair(self.id_of(image)),
                Timer::SpotCheck(image) => self.spot_check(self.id_of(image)),
                Timer::Care(image) => self.care_for(self.id_of(image)),
                Timer::RetryWaiting => {
                    self.retrying = false;
                    self.retry_waiting();
                }
                Timer::ExpireReads => self.expire_reads(),
                Timer::Sync => self.sync(),
                Timer::Sweep => self.sweep(),
            }
        }
    }
}

//! Membership by gossip: the nodes of the field, their states, and their records.
//!
//! SWIM (Das, Gupta and Motivala, 2002): members probe one another, suspect a silent member, and
//! bury a suspect that does not deny it in time; news rides on every datagram. Unlike in SWIM,
//! partners are not drawn at random. A member's partners are beside it in some circles ([`rings`]):
//! it probes those after it, and passes news on to all. So a member's traffic does not grow with
//! the field, and a death has witnesses that look every 300 ms. Where datagrams do not come
//! through, messages go over connections ([`ways`]).
//!
//! A node is a member among the nodes of its zone. A gateway is also one among the gateways of all
//! zones ([`Level`]).
//!
//! [`crate::node::Node`] calls it with datagrams, snapshots and the time. It returns datagrams to
//! send, and the members that came and went. It knows nothing of chunks, draws no random numbers,
//! and sleeps until [`Membership::next_wake`].

mod admitting;
mod denial;
mod digests;
mod effects;
mod hearing;
mod member;
pub mod message;
mod news;
mod notes;
pub mod progress;
mod relaying;
mod rings;
mod roster;
mod sizes;
mod tagging;
mod telling;
mod watch;
mod ways;

use crate::admission::Admission;
use crate::config::{SYNC_EVERY, SYNC_EVERY_MEMBER, TALK_FORMING, TALK_MEMBERS};
use crate::identity::{Identity, NodeId};
use crate::lately::Lately;
use crate::outbid::CLAIM_MAX;
use crate::record::{Record, RecordKey, Records};
use crate::signing::Signatures;
use crate::time::Time;
pub use effects::{Effects, Rival, TagNews};
pub use member::{Departed, Departure, Member, State};
use message::Item;
pub use message::Level;
use news::{News, Topic};
pub use roster::Live;
use roster::Roster;
pub use sizes::Sizes;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc as Shared;
use std::time::Duration;
use telling::Pace;
use vfield_block::gather::Gather as _;
use watch::Watch;
use ways::{Way, Ways};

/// How long a suspect has to deny it. The time to suspicion (a third of a second), the time to the
/// next probe (as much), and this stay below the promised 2 s.
const GRACE: Duration = Duration::from_millis(700);
/// The same at members that heard of the suspicion: the member that raised it judges first.
const GRACE_HEARD: Duration = Duration::from_millis(1500);
/// Most items of a snapshot that are passed on: the news of one newcomer, or items that gossip
/// lost. A newcomer that learns a whole field passes nothing on.
const PASSED_ON: usize = 8;
/// Most new members taken from one snapshot: twice a large field. One teller cannot fill the table
/// at once; the rest of a larger field comes with the next snapshot.
const NEW_MAX: usize = 4096;

/// The members of a zone, or of the backbone, and their records.
pub struct Membership {
    level: Level,
    keys: Shared<dyn Signatures>,
    /// This node's statement about itself.
    mine: Member,
    /// It has left: it sends nothing any more.
    gone: bool,
    now: Time,
    roster: Roster,
    records: Records,
    news: News,
    /// When news goes to the partners; `None` without news.
    tell_at: Option<Time>,
    last_sent: Time,
    /// When partners are chosen anew; `None` unless the members have changed.
    choose_at: Option<Time>,
    chosen: Time,
    /// Among how many they were chosen.
    chosen_of: usize,
    watch: Watch,
    ways: Ways,
    /// How many members came, by spans of [`SYNC_EVERY`]. They may all have been invented: such a
    /// member is buried before long, and the next ones come.
    arrivals: Lately<usize>,
    /// Members whose statement in the roster was verified; all others are hints. A new statement is
    /// not verified because an older one was.
    verified: BTreeSet<NodeId>,
    /// The versions of records that were verified.
    verified_records: BTreeMap<RecordKey, u64>,
    /// Members held for dead here and not by others, or by themselves.
    doubts: BTreeSet<NodeId>,
    /// Members that hold less than others say: see [`Membership::misquote`].
    misquoted: BTreeSet<NodeId>,
    forming: bool,
    /// The member that sent the last snapshot. Newcomers mostly get theirs from the same one.
    introducer: Option<NodeId>,
    denials: u64,
    /// When this node last adopted the numbers of others, and how often it did so in a row because
    /// of another address.
    followed: Option<Time>,
    rivals: u32,
    admission: Shared<Admission>,
    /// The sender of the statement being taken in.
    teller: Option<NodeId>,
    /// How that came.
    way: Option<Way>,
    /// Answers to strangers: since when they are counted, and how many.
    to_strangers: (Time, u32),
    effects: Effects,
}

impl Membership {
    /// A zone, or a backbone, with one member, which signs with `keys`.
    pub fn new(level: Level, me: Identity, keys: Shared<dyn Signatures>, now: Time) -> Self {
        Self {
            level,
            mine: Member::signed(me, 0, false, &*keys),
            keys,
            gone: false,
            now,
            roster: Roster::default(),
            records: Records::default(),
            news: News::default(),
            tell_at: None,
            last_sent: Time::ZERO,
            choose_at: None,
            chosen: Time::ZERO,
            chosen_of: 0,
            watch: Watch::new(me.node, now),
            ways: Ways::default(),
            arrivals: Lately::default(),
            verified: BTreeSet::new(),
            verified_records: BTreeMap::new(),
            doubts: BTreeSet::new(),
            misquoted: BTreeSet::new(),
            forming: false,
            introducer: None,
            denials: 0,
            followed: None,
            rivals: 0,
            admission: Shared::default(),
            teller: None,
            way: None,
            to_strangers: (now, 0),
            effects: Effects::default(),
        }
    }

    /// This node's identity.
    pub const fn me(&self) -> &Identity {
        &self.mine.identity
    }

    /// This node's statement about itself.
    pub const fn myself(&self) -> &Member {
        &self.mine
    }

    /// The latest known generation; a newcomer [arrives](Membership::arrive) after it.
    pub fn latest(&self) -> u64 {
        self.live().values().chain([self.me()]).map(|member| member.generation).max().unwrap_or_default()
    }

    /// Puts this node last in the chain if it knows no other, whatever its clock says: it has just
    /// been started. `latest` is the latest generation known to the member through which it joins.
    pub fn arrive(&mut self, latest: u64) {
        let Identity { generation, .. } = *self.me();
        let after = latest.saturating_add(1).min(CLAIM_MAX);
        if self.live().is_empty() && after > generation {
            self.restate(Identity { generation: after, ..*self.me() }, 0);
        }
    }

    /// Says something else of itself from now on, under its signature.
    fn restate(&mut self, me: Identity, incarnation: u32) {
        self.mine = Member::signed(me, incarnation, false, &*self.keys);
    }

    /// When [`Membership::tick`] is to be called.
    pub fn next_wake(&self) -> Option<Time> {
        if self.gone {
            return None;
        }
        let times = [self.next_watch(), self.tell_at, self.choose_at, self.roster.next_deadline()];
        times.into_iter().flatten().min()
    }

    /// Does everything that is due.
    pub fn tick(&mut self, now: Time) -> Effects {
        self.now = now;
        while let Some(suspect) = self.roster.due(now) {
            self.learn_member(Member { state: State::Down, ..suspect }, None);
        }
        if self.choose_at.is_some_and(|at| at <= now) {
            self.choose_partners();
        }
        self.probe();
        self.greet();
        if self.tell_at.is_some_and(|at| at <= now) {
            self.tell();
        }
        self.finish()
    }

    /// Takes in the snapshot of another node, which proved on its connection that it is `from`.
    pub fn learn(&mut self, from: NodeId, mut members: Vec<Member>, records: Vec<Record>, now: Time) -> Effects {
        self.now = now;
        let mut news = 0;
        members.retain(|member| {
            let is_new = self.roster.get(member.identity.node).is_none();
            news += usize::from(is_new);
            !is_new || news <= NEW_MAX
        });
        let few = news <= PASSED_ON;
        self.teller = Some(from).filter(|from| *from != self.me().node);
        self.introducer = self.teller;
        self.ways.came_straight(from);
        // Said by nobody, it is passed on to all; said by this node, to none.
        let from = (!few).then_some(self.me().node);
        for member in members {
            self.hear_of(member, from);
            if member.state.is_live() {
                self.doubt(member.identity.node);
            }
        }
        for record in records {
            if record.node == self.me().node {
                self.hear_of_mine(&record);
            } else {
                self.take_record(record, self.introducer, from);
            }
        }
        self.finish()
    }

    /// Notes a greeting of a member, which so is alive, and its statement about itself.
    pub fn met(&mut self, member: Member, now: Time) -> Effects {
        self.now = now;
        let node = member.identity.node;
        self.teller = Some(node).filter(|teller| *teller != self.me().node);
        self.hear_of(member, None);
        if self.live().contains_key(&node) {
            self.roster.meet(node);
            self.ways.came_straight(node);
        }
        self.doubt(node);
        self.finish()
    }

    /// Notes a sign of life of a member at `now`, by whatever way.
    pub fn heard(&mut self, node: NodeId, now: Time) {
        self.now = now;
        self.hear(node);
    }

    /// Notes that a member's connections broke: it has to prove within [`GRACE`] that it is alive.
    pub fn suspect(&mut self, node: NodeId, now: Time) -> Effects {
        self.now = now;
        self.lost_touch(node);
        self.finish()
    }

    /// Forgets all deaths: for a node that has lost all others, or that all others hold for dead.
    pub fn start_over(&mut self) {
        self.roster.forget_the_dead();
        self.doubts.clear();
    }

    /// True once it has left.
    pub const fn has_left(&self) -> bool {
        self.gone
    }

    /// Announces a record about an image. Its version counts for the first record of that image;
    /// later ones follow the last version, or its progress if only that has changed.
    pub fn announce(&mut self, mut record: Record, now: Time) -> Effects {
        self.now = now;
        let last = self.records.get(&record.key());
        let is_first = last.is_none();
        if let Some(last) = last {
            record = record.after(last);
        }
        if record.is_first() {
            record = record.signed(&*self.keys);
        }
        self.learn_record(record.clone(), None);
        if is_first {
            let watched = self.roster.partners_of(self.me()).after();
            let at_once: BTreeSet<NodeId> = watched.into_iter().chain(self.introducer).gathered();
            let items = [Item::Member(self.mine), Item::Record(record)];
            for node in at_once {
                self.tell_one(node, &items);
            }
        }
        self.finish()
    }

    /// Changes this node's address.
    pub fn readdress(&mut self, addr: SocketAddr, now: Time) -> Effects {
        self.now = now;
        // This supersedes its earlier statements about itself.
        self.restate(Identity { addr, ..*self.me() }, self.mine.incarnation.saturating_add(1));
        self.pass_on(Topic::Member(self.me().node), Pace::Soon, None);
        self.finish()
    }

    /// Announces that this node leaves.
    pub fn leave(&mut self, now: Time) -> Effects {
        self.now = now;
        if self.gone {
            return Effects::default();
        }
        self.choose_partners();
        let partners: Vec<NodeId> = self.news.partners().collect();
        let farewell = [Item::Member(Member::signed(*self.me(), self.mine.incarnation, true, &*self.keys))];
        for node in partners {
            self.tell_one(node, &farewell);
        }
        self.gone = true;
        self.finish()
    }

    /// Live members other than this node, suspects among them.
    pub const fn live(&self) -> Live<'_> {
        self.roster.live()
    }

    /// Members that may be dead, each with the time since when.
    pub const fn suspects(&self) -> &BTreeMap<NodeId, Time> {
        self.roster.suspects()
    }

    /// What live members say of themselves, and others of their state.
    pub fn statements(&self) -> impl Iterator<Item = &Member> {
        self.roster.iter().filter(|member| member.state.is_live())
    }

    /// The statement of a live member about itself, and what others say of its state.
    pub fn statement(&self, node: NodeId) -> Option<&Member> {
        self.roster.get(node).filter(|member| member.state.is_live())
    }

    /// Denials so far: of this node's death, or of another node at its address.
    pub const fn denials(&self) -> u64 {
        self.denials
    }

    /// By how much talk that reaches every member is slowed down: see [`TALK_MEMBERS`].
    pub fn talk(&self) -> u32 {
        let talk = (self.live().len() as u32 / TALK_MEMBERS).max(1);
        if self.forming { talk.max(TALK_FORMING) } else { talk }
    }

    /// The interval at which this node exchanges snapshots. Members that came lately do not make it
    /// longer: whoever invents members all the time would keep others from hearing of true ones.
    pub fn sync_every(&self) -> Duration {
        let newcomers: usize = self.arrivals.spans(SYNC_EVERY, self.now).iter().sum();
        let settled = self.live().len().saturating_sub(newcomers);
        SYNC_EVERY.max(SYNC_EVERY_MEMBER * settled as u32) * self.level.slowness()
    }

    /// Makes suspicion and burial slower while many members join on machines that are busy
    /// starting.
    pub fn set_forming(&mut self, forming: bool) {
        self.forming = forming;
    }

    /// True if a node is known, dead or alive.
    pub fn knows(&self, node: NodeId) -> bool {
        self.roster.get(node).is_some()
    }

    /// All records, those of dead members included until the next sweep.
    pub const fn records(&self) -> &Records {
        &self.records
    }

    /// A member's time, which is longer while machines are busy starting.
    fn paced(&self, time: Duration) -> Duration {
        if self.forming { time * TALK_FORMING } else { time }
    }

    /// Handles a sign of life: if the node is held for dead, it is to be greeted.
    fn doubt(&mut self, node: NodeId) {
        if self.roster.get(node).is_some_and(|known| known.state == State::Down) {
            self.doubts.insert(node);
        }
    }

    fn finish(&mut self) -> Effects {
        (self.teller, self.way) = (None, None);
        std::mem::take(&mut self.effects)
    }
}

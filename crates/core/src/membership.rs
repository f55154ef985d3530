//! Membership by gossip: the nodes of the field, their states, and their records.
//!
//! SWIM (Das, Gupta and Motivala, 2002): members probe one another, suspect a silent member, and
//! bury a suspect that does not deny it in time; news rides on every datagram. Unlike in SWIM,
//! partners are not drawn at random. A member's partners are beside it in some circles ([`rings`]):
//! it probes those after it, and passes news on to all. So a member's traffic does not grow with
//! the field, and a death has witnesses that look every 300 ms.
//!
//! A node is a member among the nodes of its zone. A gateway is also one among the gateways of all
//! zones ([`Level`]).
//!
//! [`crate::node::Node`] calls it with datagrams, snapshots and the time. It returns datagrams to
//! send, and the members that came and went. It knows nothing of chunks, draws no random numbers,
//! and sleeps until [`Membership::next_wake`].

mod denial;
mod effects;
pub mod message;
mod news;
mod rings;
mod roster;
mod watch;

use crate::config::{SYNC_EVERY, SYNC_EVERY_MEMBER, TALK_FORMING, TALK_MEMBERS};
use crate::identity::{Identity, NodeId};
use crate::outbid::CLAIM_MAX;
use crate::record::{Record, RecordKey, Records};
use crate::time::Time;
pub use effects::Effects;
pub use message::Level;
use message::{DATAGRAM_MAX, Draft, Head, Item, Purpose};
use news::{News, Topic};
use roster::Roster;
pub use roster::{Departed, Departure, Live, Member, State};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc as Shared;
use std::time::Duration;
use watch::Watch;

/// How long a suspect has to deny it. The time to suspicion (a third of a second), the time to the
/// next probe (as much), and this stay below the promised 2 s.
const GRACE: Duration = Duration::from_millis(700);
/// The same at members that heard of the suspicion: the member that raised it judges first.
const GRACE_HEARD: Duration = Duration::from_millis(1500);
/// Members up to which partners are chosen anew at each change.
const SMALL: usize = 8;
/// Shortest interval between choices of partners in larger fields. Most nodes of a room that is
/// switched on have joined by then, so few messages go to members that do not remain partners.
const PARTNERS_EVERY: Duration = Duration::from_millis(250);
/// How long news waits for more news: nodes that start together agree on homes before they fetch.
const NEWS_AFTER: Duration = Duration::from_millis(10);
/// Interval at which partners hear of members that come and go.
const MEMBERS_EVERY: Duration = Duration::from_millis(50);
/// Interval at which partners hear of holdings, times [`Membership::talk`]: holdings change all the
/// time.
const RECORDS_EVERY: Duration = Duration::from_millis(100);
/// Most datagrams of news to one partner at once; the rest goes at the next interval.
const DATAGRAMS_AT_ONCE: usize = 4;
/// Most items of a snapshot that are passed on: the news of one newcomer, or items that gossip
/// lost. A newcomer that learns a whole field passes nothing on.
const PASSED_ON: usize = 8;
/// Most new members taken from one snapshot: twice a large field. One teller cannot fill the table
/// at once; the rest of a larger field comes with the next snapshot.
const NEW_MAX: usize = 4096;

/// The members of a zone, or of the backbone, and their records.
pub struct Membership {
    level: Level,
    me: Identity,
    incarnation: u32,
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
    /// Members held for dead here and not by others, or by themselves.
    doubts: BTreeSet<NodeId>,
    forming: bool,
    /// The member that sent the last snapshot. Newcomers mostly get theirs from the same one.
    introducer: Option<NodeId>,
    denials: u64,
    /// When this node last adopted a generation of others that is beyond any clock.
    followed: Option<Time>,
    /// The sender of the statement being taken in.
    teller: Option<Identity>,
    effects: Effects,
}

impl Membership {
    /// A zone, or a backbone, with one member.
    pub fn new(level: Level, me: Identity, now: Time) -> Self {
        Self {
            level,
            me,
            incarnation: 0,
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
            doubts: BTreeSet::new(),
            forming: false,
            introducer: None,
            denials: 0,
            followed: None,
            teller: None,
            effects: Effects::default(),
        }
    }

    /// This node's identity.
    pub const fn me(&self) -> &Identity {
        &self.me
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

    /// Takes in a datagram. A malformed one changes nothing.
    pub fn datagram(&mut self, bytes: &[u8], now: Time) -> Effects {
        self.now = now;
        let Some((head, items)) = message::parse(bytes) else { return Effects::default() };
        let Head { from, purpose, .. } = head;
        let mine = from.node == self.me.node || from.addr == self.me.addr;
        let said = Member { identity: from, incarnation: head.incarnation, state: State::Alive };
        if mine || self.gone || !self.admits(&from) || !said.is_sound() {
            return Effects::default();
        }
        if head.to != self.me.node {
            // Another process had this address: its partners are to hear of the new one.
            if matches!(purpose, Purpose::Ping(_) | Purpose::PingFor(..)) {
                self.send(from, Purpose::News);
            }
            return self.finish();
        }
        self.teller = Some(from);
        self.learn_member(said, None);
        self.doubt(from.node);
        self.hear(from.node);
        for item in items {
            match item {
                Item::Member(member) => self.hear_of(member, Some(from.node)),
                Item::Record(record) if record.node == self.me.node => self.hear_of_mine(&record),
                Item::Record(record) => self.take_record(record, Some(from.node), Some(from.node)),
            }
        }
        match purpose {
            Purpose::News | Purpose::Ack(_) => {}
            Purpose::Ping(number) => self.send(from, Purpose::Ack(number)),
            Purpose::Relay(target, number) => self.send(target, Purpose::PingFor(from, number)),
            Purpose::PingFor(asker, number) => self.send(from, Purpose::AckFor(asker, number)),
            Purpose::AckFor(asker, number) => self.send(asker, Purpose::Vouch(from.node, number)),
            Purpose::Vouch(target, number) => {
                if self.watch.awaits(target, number) {
                    self.hear(target);
                }
            }
        }
        self.finish()
    }

    /// Takes in the snapshot of another member.
    pub fn learn(&mut self, mut members: Vec<Member>, records: Vec<Record>, now: Time) -> Effects {
        self.now = now;
        if let [newcomer] = &mut members[..] {
            self.place_last(newcomer);
        }
        let mut news = 0;
        members.retain(|member| {
            let is_new = self.roster.get(member.identity.node).is_none();
            news += usize::from(is_new);
            !is_new || news <= NEW_MAX
        });
        let few = news <= PASSED_ON;
        self.teller = members.first().map(|member| member.identity).filter(|teller| teller.node != self.me.node);
        self.introducer = members.first().map(|member| member.identity.node);
        // Said by nobody, it is passed on to all; said by this node, to none.
        let from = (!few).then_some(self.me.node);
        for member in members {
            self.hear_of(member, from);
            if member.state.is_live() {
                self.doubt(member.identity.node);
            }
        }
        for record in records {
            if record.node == self.me.node {
                self.hear_of_mine(&record);
            } else {
                self.take_record(record, self.introducer, from);
            }
        }
        self.finish()
    }

    /// Notes a greeting of a member, which so is alive.
    pub fn met(&mut self, identity: Identity, now: Time) -> Effects {
        self.now = now;
        self.teller = Some(identity).filter(|teller| teller.node != self.me.node);
        self.hear_of(Member { identity, incarnation: 0, state: State::Alive }, None);
        self.doubt(identity.node);
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
        self.raise(node);
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
    /// later ones follow the last version. That one may be higher than this node thinks, if others
    /// forged it.
    pub fn announce(&mut self, mut record: Record, now: Time) -> Effects {
        self.now = now;
        let key = RecordKey { node: record.node, image: record.image() };
        let last = self.records.get(&key).map(|last| last.version);
        record.version = last.map_or(record.version, |last| record.version.max(last.saturating_add(1)));
        let is_first = last.is_none();
        self.learn_record(record.clone(), None);
        if is_first {
            let watched = self.roster.partners_of(&self.me).after();
            let at_once: BTreeSet<NodeId> = watched.into_iter().chain(self.introducer).collect();
            for node in at_once {
                if let Some(to) = self.live().get(&node).copied() {
                    self.tell_one(&to, &Item::Record(record.clone()));
                }
            }
        }
        self.finish()
    }

    /// Changes this node's address.
    pub fn readdress(&mut self, addr: SocketAddr, now: Time) -> Effects {
        self.now = now;
        self.me.addr = addr;
        // This supersedes its earlier statements about itself.
        self.incarnation = self.incarnation.saturating_add(1);
        self.pass_on(Topic::Member(self.me.node), None);
        self.finish()
    }

    /// Announces that this node leaves.
    pub fn leave(&mut self, now: Time) -> Effects {
        self.now = now;
        self.choose_partners();
        let partners: Vec<NodeId> = self.news.partners().collect();
        let farewell = Item::Member(Member { identity: self.me, incarnation: self.incarnation, state: State::Left });
        for node in partners {
            let Some(to) = self.roster.live().get(&node).copied() else { continue };
            self.tell_one(&to, &farewell);
        }
        self.gone = true;
        self.finish()
    }

    /// A snapshot for another member: all known members, this node first, and the records of the
    /// living.
    pub fn snapshot(&self) -> (Vec<Member>, Vec<Record>) {
        let live = self.roster.live();
        let of_the_living = self.records.iter().filter(|r| r.node == self.me.node || live.contains_key(&r.node));
        let members = std::iter::once(self.myself()).chain(self.roster.iter().copied());
        (members.collect(), of_the_living.cloned().collect())
    }

    /// Live members other than this node, suspects among them.
    pub const fn live(&self) -> Live<'_> {
        self.roster.live()
    }

    /// Members that may be dead.
    pub const fn suspects(&self) -> &BTreeSet<NodeId> {
        self.roster.suspects()
    }

    /// A partner of this node, another for each number.
    pub fn partner(&self, number: u32) -> Option<Identity> {
        let partners: Vec<NodeId> = self.news.partners().collect();
        let node = partners.get(number as usize % partners.len().max(1))?;
        self.live().get(node).copied()
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

    /// The interval at which this node exchanges snapshots.
    pub fn sync_every(&self) -> Duration {
        SYNC_EVERY.max(SYNC_EVERY_MEMBER * self.live().len() as u32) * self.level.slowness()
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

    /// Forgets the records of nodes that are not alive.
    pub fn sweep(&mut self) {
        let (me, live) = (self.me.node, self.roster.live());
        self.records.retain(|node| node == me || live.contains_key(&node));
    }

    /// A member's time, which is longer while machines are busy starting.
    fn paced(&self, time: Duration) -> Duration {
        if self.forming { time * TALK_FORMING } else { time }
    }

    /// True for a node that can be a member here.
    fn admits(&self, identity: &Identity) -> bool {
        self.level == Level::Backbone || identity.zone == self.me.zone
    }

    /// Handles a sign of life: if the node is held for dead, it is to be greeted.
    fn doubt(&mut self, node: NodeId) {
        if self.roster.get(node).is_some_and(|known| known.state == State::Down) {
            self.doubts.insert(node);
        }
    }

    fn finish(&mut self) -> Effects {
        self.teller = None;
        std::mem::take(&mut self.effects)
    }

    fn head(&self, to: NodeId, purpose: Purpose) -> Head {
        Head { level: self.level, from: self.me, incarnation: self.incarnation, to, purpose }
    }

    /// Takes in a statement about a member, if it can be believed.
    fn hear_of(&mut self, member: Member, from: Option<NodeId>) {
        if member.is_sound() {
            self.learn_member(member, from);
        }
    }

    fn learn_member(&mut self, member: Member, from: Option<NodeId>) {
        let Member { identity, state, .. } = member;
        if identity.node == self.me.node {
            return self.hear_of_me(member);
        }
        if !self.admits(&identity) {
            return;
        }
        if identity.addr == self.me.addr {
            // A dead member at our address precedes us, unless it is said to have come later.
            return self.contest(member);
        }
        let grace = if from.is_none() { GRACE } else { GRACE_HEARD };
        let was_suspect = self.suspects().contains(&identity.node);
        let was_lost = self.roster.lost().contains(&identity.node);
        let was = self.live().get(&identity.node).copied();
        if self.teller.is_some_and(|teller| teller.node == identity.node) {
            self.roster.meet(identity.node);
        }
        let change = self.roster.learn(member, self.now, self.paced(grace));
        if !change.news {
            return;
        }
        self.effects.doubt |= was_suspect != self.suspects().contains(&identity.node);
        self.effects.doubt |= was.is_some_and(|was| was.generation != identity.generation);
        if change.up.is_some() || !change.down.is_empty() {
            if change.up.is_some() {
                self.doubts.remove(&identity.node);
            }
            if was_lost && change.up.is_some() {
                self.greet_all();
            }
            if !change.down.is_empty() {
                self.watch.be_wary(self.now);
            }
            let live = self.live().len();
            let soon = live <= SMALL || live >= 2 * self.chosen_of;
            let soonest = if soon { self.now } else { self.chosen + PARTNERS_EVERY };
            self.choose_at = Some(self.choose_at.map_or(soonest, |at| at.min(soonest)).max(self.now));
            self.effects.up.extend(change.up);
            let how = match state {
                State::Left => Departure::Left,
                State::Down => Departure::Died,
                State::Alive | State::Suspect => Departure::Replaced,
            };
            self.effects.down.extend(change.down.into_iter().map(|identity| Departed { identity, how }));
        }
        self.pass_on(Topic::Member(identity.node), from);
    }

    /// Puts a newcomer last in the chain, whatever its clock says: a node that knows no other has
    /// just started. The answer tells it its generation.
    fn place_last(&self, newcomer: &mut Member) {
        let Identity { node, generation, .. } = newcomer.identity;
        let others = self.live().values().chain([&self.me]).filter(|other| other.node != node);
        let latest = others.map(|other| other.generation).max().unwrap_or_default();
        newcomer.identity.generation = generation.max(latest.saturating_add(1).min(CLAIM_MAX));
    }

    fn learn_record(&mut self, record: Record, from: Option<NodeId>) {
        let key = RecordKey { node: record.node, image: record.image() };
        let speaks = key.node == self.me.node || self.roster.has_met(key.node);
        if (speaks || self.records.has_room_for_hearsay() || self.records.get(&key).is_some())
            && self.records.learn(record)
            && let Some(known) = self.records.get(&key)
        {
            self.pass_on(Topic::Record(key.node, Shared::clone(&known.subject)), from);
        }
    }

    /// Takes in a record that came from `teller`; it is not passed on to `from`.
    fn take_record(&mut self, record: Record, teller: Option<NodeId>, from: Option<NodeId>) {
        let key = RecordKey { node: record.node, image: record.image() };
        let introduces = teller == Some(key.node) && self.records.get(&key).is_none();
        self.learn_record(record, from);
        if let Some(newcomer) = self.live().get(&key.node).copied().filter(|_| introduces) {
            self.introduce(&newcomer, key);
        }
    }

    /// Introduces a newcomer: its downstream learns its holding at once, and it learns its
    /// upstream's. When a room is switched on, gossip is too slow for that, and the two may not
    /// know each other yet.
    fn introduce(&mut self, newcomer: &Identity, key: RecordKey) {
        let Some((before, after)) = self.roster.partners_of(newcomer).in_order() else { return };
        let record = |node: NodeId| self.records.get(&RecordKey { node, ..key }).cloned();
        for (to, record) in [(after, record(newcomer.node)), (newcomer.node, record(before))] {
            if let (Some(to), Some(record)) = (self.live().get(&to).copied(), record) {
                self.tell_one(&to, &Item::Record(record));
            }
        }
    }

    fn pass_on(&mut self, topic: Topic, from: Option<NodeId>) {
        if from == Some(self.me.node) {
            return;
        }
        let every = match topic {
            Topic::Member(_) => self.paced(MEMBERS_EVERY),
            Topic::Record(..) => RECORDS_EVERY * self.talk(),
        };
        self.news.push(topic, from, self.now);
        let at = (self.now + NEWS_AFTER).max(self.last_sent + every);
        self.tell_at = Some(self.tell_at.map_or(at, |set| set.min(at)));
    }

    /// Tells all partners all the news.
    fn tell(&mut self) {
        self.last_sent = self.now;
        let partners: Vec<NodeId> = self.news.partners().collect();
        for node in partners {
            for _ in 0..DATAGRAMS_AT_ONCE {
                if let (Some(_), Some(to)) = (self.news.peek(node), self.live().get(&node).copied()) {
                    self.send(to, Purpose::News);
                }
            }
        }
        self.tell_at = (!self.news.all_sent()).then(|| self.now + RECORDS_EVERY);
    }

    /// Sends a datagram with as much news for its receiver as fits.
    fn send(&mut self, to: Identity, purpose: Purpose) {
        let mut draft = Draft::new(&self.head(to.node, purpose));
        let place = |identity: &Identity| (identity.addr, identity.zone);
        let wrong = |known: &&Member| known.state != State::Alive || place(&known.identity) != place(&to);
        if let Some(known) = self.roster.get(to.node).filter(wrong) {
            // For it to deny.
            draft.add(&Item::Member(*known));
        }
        while let Some(topic) = self.news.peek(to.node) {
            let item = match topic {
                Topic::Member(node) if *node == self.me.node => Some(Item::Member(self.myself())),
                Topic::Member(node) => self.roster.get(*node).copied().map(Item::Member),
                record @ Topic::Record(..) => {
                    record.record().and_then(|key| self.records.get(&key)).cloned().map(Item::Record)
                }
            };
            if item.is_some_and(|item| !draft.add(&item)) {
                break;
            }
            self.news.pop(to.node);
        }
        self.effects.datagrams.push((to.addr, draft.finish()));
    }

    /// Tells a member one thing, and at once.
    fn tell_one(&mut self, to: &Identity, item: &Item) {
        let mut draft = Draft::new(&self.head(to.node, Purpose::News));
        draft.add(item);
        self.effects.datagrams.push((to.addr, draft.finish()));
    }

    /// This node's statement about itself.
    pub const fn myself(&self) -> Member {
        Member { identity: self.me, incarnation: self.incarnation, state: State::Alive }
    }

    fn choose_partners(&mut self) {
        (self.choose_at, self.chosen, self.chosen_of) = (None, self.now, self.live().len());
        let partners = self.roster.partners_of(&self.me).all();
        self.news.set_partners(&partners, self.now);
        self.watch.keep(&partners, self.now);
        if !self.news.all_sent() && self.tell_at.is_none() {
            self.tell_at = Some(self.now + NEWS_AFTER);
        }
    }
}

const _: () = assert!(DATAGRAM_MAX < 1500, "a datagram fits an Ethernet frame");

//! Ways: messages go in datagrams, or around to members that no datagram reaches.
//!
//! Behind a firewall that lets TCP through and drops UDP, members that exchange chunks all the time
//! would bury each other. So whoever suspects a member asks it over a connection too. A member that
//! gets a message over a connection sends all that it has to say there, for as long as more come
//! this way. Between two members that have no way to each other at all, messages go through a
//! third: see [`super::relaying`]. Probes go all ways then: an answer to one in a datagram ends
//! either, and one over a connection ends the way through a third.

use super::Membership;
use super::effects::{Effects, TagNews};
use super::member::{Member, State};
use super::message::{self, Draft, Head, Item, Purpose};
use super::roster::Roster;
use crate::doubling::Doubling;
use crate::identity::{Identity, NodeId};
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use vfield_block::gather::Gather as _;

/// A live member that sends nothing by its detour for this long is sent datagrams again. Partners
/// are probed more often.
const QUIET: Duration = Duration::from_secs(12);
/// For this long after an answer in a datagram, messages by a detour say nothing new. They were
/// sent before, or their sender has not had an answer yet.
const PROVED_FOR: Duration = Duration::from_secs(5);
/// Messages that go around for this long have a lasting cause. A machine that was busy for a moment
/// answers in datagrams again.
const LASTING: Duration = Duration::from_secs(5);
/// Silence after which a detour may be replaced by another one. A partner that is silent otherwise
/// is probed about as often.
const SILENT: Duration = Duration::from_secs(1);
/// Pauses between questions over a connection to a member that is reached through another one. A
/// busy machine answers the first ones. Where there is no way, each makes a connection in vain.
const CONNECTION: Doubling = Doubling { first: Duration::from_secs(1), longest: Duration::from_secs(16) };
/// If two probes of a member within this time are answered through another one only, they did not
/// get lost by chance, and messages go that way. The next probe of the same member comes sooner,
/// among gateways too.
const TWICE: Duration = Duration::from_secs(4);

/// How messages go to a member that no datagram reaches, or from which none comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detour {
    /// Over a connection to it.
    Connection,
    /// Through this member, which has a way to both.
    Through(NodeId),
}

/// How the message came that is being taken in, and so where its answer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// In a datagram from this address.
    Datagram(SocketAddr),
    /// Over a connection, which proves who speaks.
    Connection,
    /// This member passed it on.
    Through(NodeId),
}

/// A detour in use.
#[derive(Debug)]
struct Taken {
    detour: Detour,
    since: Time,
    /// When the last message came by it.
    last: Time,
    /// Questions over a connection meanwhile, and when the next one goes.
    asked: u32,
    ask_at: Time,
}

impl Taken {
    fn new(detour: Detour, now: Time) -> Self {
        Self { detour, since: now, last: now, asked: 0, ask_at: now + CONNECTION.pause(0) }
    }
}

/// The detours of all members, and what leads to them or ends them.
#[derive(Debug, Default)]
pub(super) struct Ways {
    taken: BTreeMap<NodeId, Taken>,
    /// Members that answered a probe through another one, and when.
    vouched: BTreeMap<NodeId, Time>,
    /// Members to which detours led, and when datagrams came through again.
    proved: BTreeMap<NodeId, Time>,
    /// Members that sent something straight to this node.
    straight: BTreeSet<NodeId>,
}

impl Ways {
    fn detour(&self, node: NodeId) -> Option<Detour> {
        self.taken.get(&node).map(|taken| taken.detour)
    }

    /// True if messages to it go around.
    pub(super) fn is_around(&self, node: NodeId) -> bool {
        self.taken.contains_key(&node)
    }

    /// True if a probe that goes through another member goes over a connection as well this time.
    fn asks_by_connection(&mut self, node: NodeId, now: Time) -> bool {
        let Some(taken) = self.taken.get_mut(&node) else { return false };
        let asks = matches!(taken.detour, Detour::Through(_)) && now >= taken.ask_at;
        if asks {
            taken.asked += 1;
            taken.ask_at = now + CONNECTION.pause(taken.asked);
        }
        asks
    }

    /// True if messages to it go over a connection.
    fn by_connection(&self, node: NodeId) -> bool {
        self.detour(node) == Some(Detour::Connection)
    }

    /// True if messages to it do not go through others.
    pub(super) fn is_straight(&self, node: NodeId) -> bool {
        !matches!(self.detour(node), Some(Detour::Through(_)))
    }

    /// True if that is known: it has sent something to this node so.
    pub(super) fn was_straight(&self, node: NodeId) -> bool {
        self.straight.contains(&node) && self.is_straight(node)
    }

    /// A known member sent something straight to this node.
    pub(super) fn came_straight(&mut self, node: NodeId) {
        self.straight.insert(node);
    }

    /// The members through which messages go.
    pub(super) fn relays(&self) -> BTreeSet<NodeId> {
        let relay = |taken: &Taken| match taken.detour {
            Detour::Through(relay) => Some(relay),
            Detour::Connection => None,
        };
        self.taken.values().filter_map(relay).gathered()
    }

    /// A message of a known member came by a detour. A connection is better than another member.
    pub(super) fn came(&mut self, node: NodeId, detour: Detour, now: Time) {
        if self.proved.get(&node).is_some_and(|at| now - *at < PROVED_FOR) {
            return;
        }
        let taken = self.taken.entry(node).or_insert(Taken::new(detour, now));
        if taken.detour != detour && (detour == Detour::Connection || now - taken.last >= SILENT) {
            *taken = Taken::new(detour, now);
        }
        if taken.detour == detour {
            taken.last = now;
        }
    }

    /// A member did not answer a probe itself, and another one says that it lives.
    pub(super) fn vouched(&mut self, node: NodeId, by: NodeId, now: Time) {
        let again = self.vouched.insert(node, now).is_some_and(|at| now - at <= TWICE);
        if again || self.taken.contains_key(&node) {
            self.came(node, Detour::Through(by), now);
        }
    }

    /// Datagrams come through between it and this node.
    fn come_through(&mut self, node: NodeId, now: Time) {
        self.vouched.remove(&node);
        if self.taken.remove(&node).is_some() {
            self.proved.insert(node, now);
        }
    }

    /// Forgets the live ones that are quiet. A dead one is greeted as it was last heard.
    pub(super) fn sweep(&mut self, roster: &Roster, now: Time) {
        self.taken.retain(|node, taken| {
            roster.get(*node).is_some_and(|known| !known.state.is_live() || now - taken.last < QUIET)
        });
        self.straight.retain(|node| roster.get(*node).is_some());
        self.vouched.retain(|_, at| now - *at <= TWICE);
        self.proved.retain(|_, at| now - *at < PROVED_FOR);
    }
}

impl Membership {
    /// Takes in a datagram that came from this address. A malformed one changes nothing.
    pub fn datagram(&mut self, source: SocketAddr, bytes: &[u8], now: Time) -> Effects {
        self.now = now;
        let Some((head, items)) = message::parse(bytes) else { return Effects::default() };
        let Head { from, purpose, .. } = head;
        if !self.listens_to(from) {
            return Effects::default();
        }
        if head.to != self.me().node {
            // Another process had this address: its partners are to hear of the new one.
            if matches!(purpose, Purpose::Ping(_) | Purpose::PingFor(..)) && self.may_answer_a_stranger() {
                self.tell_at(source, from, &[Item::Member(*self.myself())]);
            }
            return self.finish();
        }
        let is_at_home = |membership: &Self, node| membership.live().get(&node).is_some_and(|at| at.addr == source);
        match purpose {
            Purpose::Through(to, relayed) if is_at_home(self, from) => self.relay(&head, to, relayed, bytes),
            Purpose::Passed(relay, relayed) if is_at_home(self, relay) => {
                self.take_in_passed(&head, relay, relayed, items);
            }
            Purpose::Through(..) | Purpose::Passed(..) => {}
            _ => {
                let is_at_home = is_at_home(self, from);
                if is_at_home {
                    self.ways.came_straight(from);
                    // An answer came through both ways. Plain news comes from a member that has had
                    // one.
                    if matches!(purpose, Purpose::Ack(_) | Purpose::News) {
                        self.ways.come_through(from, now);
                    }
                }
                self.way = Some(Way::Datagram(source));
                self.take_in(&head, items);
                if is_at_home && self.ways.is_around(from) {
                    // One way is open: an answer says whether the other one is.
                    self.probe_at_once(from);
                }
            }
        }
        self.finish()
    }

    /// Takes in a message that came over the connection of a node, which proved there that it is
    /// `from`. A malformed one changes nothing.
    pub fn gossip(&mut self, from: NodeId, bytes: &[u8], now: Time) -> Effects {
        self.now = now;
        let is_ours = |head: &Head| head.to == self.me().node && self.listens_to(head.from) && self.listens_to(from);
        let Some((head, items)) = message::parse(bytes).filter(|(head, _)| is_ours(head)) else {
            return Effects::default();
        };
        match head.purpose {
            Purpose::Passed(relay, relayed) if relay == from && self.live().contains_key(&relay) => {
                self.take_in_passed(&head, relay, relayed, items);
            }
            Purpose::Passed(..) => {}
            _ if head.from != from => {}
            Purpose::Through(to, relayed) => self.relay(&head, to, relayed, bytes),
            _ => {
                if self.roster.get(from).is_some() {
                    self.ways.came_straight(from);
                    self.ways.came(from, Detour::Connection, now);
                }
                self.way = Some(Way::Connection);
                self.take_in(&head, items);
            }
        }
        self.finish()
    }

    fn listens_to(&self, from: NodeId) -> bool {
        from != self.me().node && !self.gone && self.admission.may_admit(from)
    }

    pub(super) fn take_in(&mut self, head: &Head, items: impl Iterator<Item = Item>) {
        let Head { from, purpose, .. } = *head;
        self.teller = Some(from);
        let mut introduced = purpose == Purpose::Introduce;
        for item in items {
            match item {
                Item::Member(member) => {
                    introduced |= member.identity.node == from;
                    self.hear_of(member, Some(from));
                }
                Item::Record(record) => self.hear_record(record, from),
                Item::Progress(progress) => {
                    if let Some(record) = progress.completes(self.records.of(progress.node)) {
                        self.hear_record(record, from);
                    }
                }
                Item::Tag(tag) => {
                    let home = self.live().get(&from).map(|member| member.addr);
                    let addr = if let Some(Way::Datagram(source)) = self.way { Some(source) } else { home };
                    self.effects.tags.extend(addr.map(|addr| TagNews::Tag(tag, from, addr)));
                }
                Item::KnownTags { digests, offer } => self.hear_known_tags(from, digests, offer),
            }
        }
        let known = self.roster.get(from).map(Member::life);
        // A node that introduced itself, and is not believed, would say the same again.
        if known.is_none_or(|known| known < head.life) && !introduced {
            self.answer_to(from, Purpose::Introduce);
        }
        self.doubt(from);
        self.hear(from);
        self.answer(head);
    }

    fn answer(&mut self, head: &Head) {
        let from = head.from;
        let of = |membership: &Self, node| membership.live().get(&node).copied();
        match head.purpose {
            Purpose::News | Purpose::Ack(_) | Purpose::Through(..) | Purpose::Passed(..) => {}
            Purpose::Ping(number) => self.answer_to(from, Purpose::Ack(number)),
            Purpose::PingFor(asker, number) => self.answer_to(from, Purpose::AckFor(asker, number)),
            Purpose::Relay(target, number) => {
                if let Some(target) = of(self, target) {
                    self.send(&target, Purpose::PingFor(from, number));
                }
            }
            Purpose::AckFor(asker, number) => {
                if let Some(asker) = of(self, asker) {
                    self.send(&asker, Purpose::Vouch(from, number));
                }
            }
            Purpose::Vouch(target, number) => {
                if self.watch.awaits(target, number) {
                    self.ways.vouched(target, from, self.now);
                    self.hear(target);
                }
            }
            Purpose::Introduce => {
                let me = [Item::Member(*self.myself())];
                let way = self.way;
                match way {
                    Some(Way::Datagram(source)) if self.live().contains_key(&from) || self.may_answer_a_stranger() => {
                        self.tell_at(source, from, &me);
                    }
                    Some(Way::Datagram(_)) => {}
                    Some(Way::Through(relay)) => self.tell_through(relay, from, &me),
                    Some(Way::Connection) | None => {
                        let message = self.with_items(&self.head(from, Purpose::News), &me);
                        self.answer_by_connection(from, message);
                    }
                }
            }
        }
    }

    /// Answers where the question came from. News is only for members, where they live.
    fn answer_to(&mut self, to: NodeId, purpose: Purpose) {
        match self.way {
            Some(Way::Datagram(source)) => {
                let member = self.live().get(&to).copied();
                match member.filter(|member| member.addr == source && !self.ways.is_around(to)) {
                    Some(member) => self.send(&member, purpose),
                    None => self.effects.datagrams.push((source, self.bare(to, purpose))),
                }
            }
            Some(Way::Through(relay)) => self.answer_through(relay, to, purpose),
            Some(Way::Connection) | None => {
                let message = self.with_news(to, &self.head(to, purpose));
                self.answer_by_connection(to, message);
            }
        }
    }

    /// The same over a connection. A member that was held for dead and speaks is to hear of that.
    fn answer_by_connection(&mut self, to: NodeId, message: Vec<u8>) {
        let known = self.roster.get(to).map(|known| known.identity);
        self.effects.by_connection.extend(known.map(|known| (known, message)));
    }

    /// Sends a member a message with as much news for it as fits.
    pub(super) fn send(&mut self, to: &Identity, purpose: Purpose) {
        if self.ways.is_around(to.node) && matches!(purpose, Purpose::Ping(_)) {
            if self.ways.asks_by_connection(to.node, self.now) {
                self.ask_by_connection(to);
            }
            let probe = self.bare(to.node, purpose);
            self.effects.datagrams.push((to.addr, probe));
        }
        let (next, head) = self.route(to, purpose);
        let message = self.with_news(to.node, &head);
        self.dispatch(&next, message);
    }

    /// Asks a member over a connection whether it lives, besides the datagram.
    pub(super) fn ask_by_connection(&mut self, to: &Identity) {
        if !self.ways.by_connection(to.node) {
            let question = self.bare(to.node, Purpose::Ping(0));
            self.effects.by_connection.push((*to, question));
        }
    }

    /// Tells a live member something, and at once.
    pub(super) fn tell_one(&mut self, to: NodeId, items: &[Item]) {
        if let Some(member) = self.live().get(&to).copied() {
            let (next, head) = self.route(&member, Purpose::News);
            let message = self.with_items(&head, items);
            self.dispatch(&next, message);
        }
    }

    /// Tells the node at an address something, and at once.
    fn tell_at(&mut self, addr: SocketAddr, to: NodeId, items: &[Item]) {
        let message = self.with_items(&self.head(to, Purpose::News), items);
        self.effects.datagrams.push((addr, message));
    }

    /// The member to send a message for `to`, and its head.
    fn route(&self, to: &Identity, purpose: Purpose) -> (Identity, Head) {
        let relay = match self.ways.detour(to.node) {
            Some(Detour::Through(relay)) => self.live().get(&relay),
            Some(Detour::Connection) | None => None,
        };
        match (relay, purpose.relayed()) {
            (Some(relay), Some(relayed)) => (*relay, self.head(relay.node, Purpose::Through(to.node, relayed))),
            _ => (*to, self.head(to.node, purpose)),
        }
    }

    /// Sends a message to a member, in a datagram or over a connection.
    pub(super) fn dispatch(&mut self, to: &Identity, message: Vec<u8>) {
        if self.ways.by_connection(to.node) {
            self.effects.by_connection.push((*to, message));
        } else {
            self.effects.datagrams.push((to.addr, message));
        }
    }

    pub(super) fn with_items(&self, head: &Head, items: &[Item]) -> Vec<u8> {
        let mut draft = Draft::new(head);
        for item in items {
            draft.add(item);
        }
        draft.finish()
    }

    /// A message without news.
    fn bare(&self, to: NodeId, purpose: Purpose) -> Vec<u8> {
        self.begun(to, &self.head(to, purpose)).finish()
    }

    /// A message that tells its receiver of a suspicion, or of its death, to be denied.
    pub(super) fn begun(&self, to: NodeId, head: &Head) -> Draft {
        let mut draft = Draft::new(head);
        if let Some(known) = self.roster.get(to).filter(|known| known.state != State::Alive) {
            draft.add(&Item::Member(known.told()));
        }
        draft
    }

    pub(super) fn head(&self, to: NodeId, purpose: Purpose) -> Head {
        Head { level: self.level, from: self.me().node, life: self.mine.life(), to, purpose }
    }

    /// Live members from which no datagrams have come for a while, or which none reach, though
    /// connections do.
    pub fn without_datagrams(&self, now: Time) -> impl Iterator<Item = Identity> + '_ {
        self.lasting(now, |detour| *detour == Detour::Connection)
    }

    /// Live members to which this node has no way itself, though others have one.
    pub fn without_a_way(&self, now: Time) -> impl Iterator<Item = Identity> + '_ {
        self.lasting(now, |detour| matches!(detour, Detour::Through(_)))
    }

    fn lasting(&self, now: Time, is_such: fn(&Detour) -> bool) -> impl Iterator<Item = Identity> + '_ {
        let lasting = self.ways.taken.iter().filter(move |(_, taken)| now - taken.since >= LASTING);
        let such = lasting.filter(move |(_, taken)| is_such(&taken.detour));
        such.filter_map(|(node, _)| self.live().get(node).copied())
    }
}

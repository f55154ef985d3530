//! Ways: messages go in datagrams, or over a connection to members that no datagram reaches.
//!
//! Behind a firewall that lets TCP through and drops UDP, members that exchange chunks all the time
//! would bury each other. So whoever suspects a member asks it over a connection too. A member that
//! gets a message over a connection sends all that it has to say there, for as long as more come
//! this way. Probes go both ways then: an answer to one in a datagram ends it.

use super::Membership;
use super::effects::{Effects, TagNews};
use super::member::{Member, State};
use super::message::{self, Draft, Head, Item, Purpose};
use super::roster::Roster;
use crate::identity::{Identity, NodeId};
use crate::time::Time;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// A live member that sends nothing over a connection for this long is sent datagrams again.
/// Partners are probed more often.
const QUIET: Duration = Duration::from_secs(12);
/// For this long after an answer in a datagram, messages over a connection say nothing new. They
/// were sent before, or their sender has not had an answer yet.
const PROVED_FOR: Duration = Duration::from_secs(5);
/// Messages that come over connections for this long have a lasting cause. A machine that was busy
/// for a moment answers in datagrams again.
const LASTING: Duration = Duration::from_secs(5);

/// The members that no datagram reaches, or from which none comes.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// For each: since when, and when its last message came over a connection.
    by_connection: BTreeMap<NodeId, (Time, Time)>,
    /// Former ones of them, and when datagrams came through again.
    proved: BTreeMap<NodeId, Time>,
}

impl Ways {
    /// True if messages to it go over a connection.
    fn by_connection(&self, node: NodeId) -> bool {
        self.by_connection.contains_key(&node)
    }

    /// A message of a known member came over a connection.
    fn came(&mut self, node: NodeId, now: Time) {
        if self.proved.get(&node).is_none_or(|at| now - *at >= PROVED_FOR) {
            self.by_connection.entry(node).or_insert((now, now)).1 = now;
        }
    }

    /// Datagrams come through between it and this node.
    fn come_through(&mut self, node: NodeId, now: Time) {
        if self.by_connection.remove(&node).is_some() {
            self.proved.insert(node, now);
        }
    }

    /// Forgets the live ones that are quiet. A dead one is greeted as it was last heard.
    pub(super) fn sweep(&mut self, roster: &Roster, now: Time) {
        self.by_connection.retain(|node, (_, last)| {
            roster.get(*node).is_some_and(|known| !known.state.is_live() || now - *last < QUIET)
        });
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
        // An answer came through both ways. Plain news comes from a member that has had one.
        let comes_through = matches!(purpose, Purpose::Ack(_) | Purpose::News);
        if comes_through && self.live().get(&from).is_some_and(|member| member.addr == source) {
            self.ways.come_through(from, now);
        }
        self.source = Some(source);
        self.take_in(&head, items);
        self.finish()
    }

    /// Takes in a message that came over the connection of a node, which proved there that it is
    /// `from`. A malformed one changes nothing.
    pub fn gossip(&mut self, from: NodeId, bytes: &[u8], now: Time) -> Effects {
        self.now = now;
        let is_ours = |head: &Head| (head.from, head.to) == (from, self.me().node) && self.listens_to(from);
        let Some((head, items)) = message::parse(bytes).filter(|(head, _)| is_ours(head)) else {
            return Effects::default();
        };
        if self.roster.get(from).is_some() {
            self.ways.came(from, now);
        }
        self.take_in(&head, items);
        self.finish()
    }

    fn listens_to(&self, from: NodeId) -> bool {
        from != self.me().node && !self.gone && self.admission.may_admit(from)
    }

    fn take_in(&mut self, head: &Head, items: impl Iterator<Item = Item>) {
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
                    let addr = self.source.or_else(|| self.live().get(&from).map(|member| member.addr));
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
            Purpose::News | Purpose::Ack(_) => {}
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
                    self.hear(target);
                }
            }
            Purpose::Introduce => {
                let (source, me) = (self.source, [Item::Member(*self.myself())]);
                match source {
                    Some(source) if self.live().contains_key(&from) || self.may_answer_a_stranger() => {
                        self.tell_at(source, from, &me);
                    }
                    Some(_) => {}
                    None => self.answer_by_connection(from, self.with_items(from, &me)),
                }
            }
        }
    }

    /// Answers where the question came from. News is only for members, where they live.
    fn answer_to(&mut self, to: NodeId, purpose: Purpose) {
        let known = self.roster.get(to).copied();
        let member = known.filter(|known| known.state.is_live()).map(|known| known.identity);
        match self.source {
            Some(source) => match member.filter(|member| member.addr == source && !self.ways.by_connection(to)) {
                Some(member) => self.send(&member, purpose),
                None => self.effects.datagrams.push((source, self.bare(to, purpose))),
            },
            None => {
                let message = self.with_news(to, purpose);
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
        if self.ways.by_connection(to.node) && matches!(purpose, Purpose::Ping(_)) {
            let probe = self.bare(to.node, purpose);
            self.effects.datagrams.push((to.addr, probe));
        }
        let message = self.with_news(to.node, purpose);
        self.dispatch(to, message);
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
            let message = self.with_items(to, items);
            self.dispatch(&member, message);
        }
    }

    /// Tells the node at an address something, and at once.
    fn tell_at(&mut self, addr: SocketAddr, to: NodeId, items: &[Item]) {
        let message = self.with_items(to, items);
        self.effects.datagrams.push((addr, message));
    }

    fn dispatch(&mut self, to: &Identity, message: Vec<u8>) {
        if self.ways.by_connection(to.node) {
            self.effects.by_connection.push((*to, message));
        } else {
            self.effects.datagrams.push((to.addr, message));
        }
    }

    fn with_items(&self, to: NodeId, items: &[Item]) -> Vec<u8> {
        let mut draft = Draft::new(&self.head(to, Purpose::News));
        for item in items {
            draft.add(item);
        }
        draft.finish()
    }

    /// A message without news.
    fn bare(&self, to: NodeId, purpose: Purpose) -> Vec<u8> {
        self.begun(to, purpose).finish()
    }

    /// A message that tells its receiver of a suspicion, or of its death, to be denied.
    pub(super) fn begun(&self, to: NodeId, purpose: Purpose) -> Draft {
        let mut draft = Draft::new(&self.head(to, purpose));
        if let Some(known) = self.roster.get(to).filter(|known| known.state != State::Alive) {
            draft.add(&Item::Member(known.told()));
        }
        draft
    }

    fn head(&self, to: NodeId, purpose: Purpose) -> Head {
        Head { level: self.level, from: self.me().node, life: self.mine.life(), to, purpose }
    }

    /// Live members from which no datagrams have come for a while, or which none reach, though
    /// connections do.
    pub fn without_datagrams(&self, now: Time) -> impl Iterator<Item = Identity> + '_ {
        let lasting = self.ways.by_connection.iter().filter(move |(_, (since, _))| now - *since >= LASTING);
        lasting.filter_map(|(node, _)| self.live().get(node).copied())
    }
}

//! Hearing: which statements of others a node believes.
//!
//! A statement of a member about itself counts if it carries the member's signature. Anything else
//! that is said about a member is a hint. This node suspects a member that others call suspect, and
//! no more if they call it down, unless it has had time to deny the suspicion. Signatures are
//! verified when two statements differ: one of them may be forged. A first statement is a hint too,
//! until another one differs, or somebody is to be blamed for it, or this node has time. So a room
//! that is switched on verifies hardly any, and a forged one does not outlive a true one.

use super::member::{Departed, Departure, Member, State};
use super::message::Item;
use super::news::Topic;
use super::roster::Occupant;
use super::telling::{PARTNERS_EVERY, Pace, SMALL};
use super::ways::Way;
use super::{Effects, GRACE, GRACE_HEARD, Membership};
use crate::config::SYNC_EVERY;
use crate::identity::{Identity, NodeId};
use crate::record::{Record, RecordKey};
use crate::time::Time;
use std::net::SocketAddr;
use std::sync::Arc as Shared;
use std::time::Duration;

/// How long a suspicion has to be known here before the word of others that the member is down is
/// believed. The member that raised it waits for [`GRACE`]; the rest is for the way of the news.
const SUSPECTED_FOR: Duration = Duration::from_millis(GRACE.as_millis() as u64 / 2);

/// Statements, and records, that are verified at a time without need. At 50 us each they take 6 ms
/// of a processor, twice in ten seconds. Those of a room of a hundred with one image are verified
/// in ten seconds.
const VERIFIED_AT_ONCE: usize = 64;

/// What a statement of a member about itself is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Worth {
    /// It is forged, or no news.
    Nothing,
    /// Nothing contradicts it.
    Hint,
    /// The member signed it.
    Signed,
}

impl Worth {
    /// The worth of a hint, if it is news.
    const fn of_hint(is_news: bool) -> Self {
        if is_news { Self::Hint } else { Self::Nothing }
    }

    /// The worth of a statement whose signature was verified, if it is genuine.
    const fn of_signed(is_genuine: bool) -> Self {
        if is_genuine { Self::Signed } else { Self::Nothing }
    }
}

impl Membership {
    /// Takes in a statement about a member from another one, if it can be believed.
    pub(super) fn hear_of(&mut self, mut member: Member, from: Option<NodeId>) {
        let node = member.identity.node;
        if !member.is_sound() {
            return;
        }
        if node == self.me().node {
            return self.hear_of_me(member);
        }
        if !self.admits(&member) {
            return;
        }
        let worth = self.worth(&mut member);
        if worth == Worth::Nothing {
            return;
        }
        if member.state == State::Down && self.live().contains_key(&node) {
            let suspected = self.suspects().get(&node).map(|since| self.now - *since);
            if suspected.is_none_or(|time| time < self.paced(SUSPECTED_FOR)) {
                member.state = State::Suspect;
            }
        }
        self.learn_member(member, from);
        if worth == Worth::Signed && self.roster.get(node).is_some_and(|known| known.said() == member.said()) {
            self.verified.insert(node);
        }
    }

    /// The worth of a statement: of news that nothing contradicts, or that its subject signed.
    fn worth(&mut self, member: &mut Member) -> Worth {
        let node = member.identity.node;
        if !member.is_named(&*self.keys) {
            return Worth::Nothing;
        }
        let Some(known) = self.roster.get(node).copied() else {
            let is_hint = member.state != State::Left;
            return if is_hint { Worth::Hint } else { Worth::of_signed(member.is_genuine(&*self.keys)) };
        };
        let same = known.said() == member.said();
        if same && member.state != State::Left {
            *member = Member { state: member.state, ..known };
            return Worth::of_hint(known.rank() < member.rank());
        }
        if !self.verified.contains(&node) {
            if !known.is_genuine(&*self.keys) {
                return Worth::of_signed(self.unmask(known, member));
            }
            self.verified.insert(node);
        }
        Worth::of_signed(known.rank() < member.rank() && member.is_genuine(&*self.keys))
    }

    /// Forgets a forged statement. True if its subject signed the other one, which takes its place.
    fn unmask(&mut self, forged: Member, member: &Member) -> bool {
        let genuine = member.is_genuine(&*self.keys);
        let goes_on = genuine && member.state.is_live();
        self.forget(&forged, (!goes_on).then_some(Departure::Replaced));
        genuine
    }

    /// Forgets a member. Unless another statement about it takes its place, it departs if it was
    /// alive.
    pub(super) fn forget(&mut self, member: &Member, how: Option<Departure>) {
        let identity = member.identity;
        self.roster.remove(identity.node);
        self.verified.remove(&identity.node);
        self.doubts.remove(&identity.node);
        self.misquoted.remove(&identity.node);
        if member.state.is_live() {
            self.effects.down.extend(how.map(|how| Departed { identity, how }));
        }
    }

    /// True if this member itself says it, and nobody passed it on.
    fn speaks_itself(&self, node: NodeId) -> bool {
        self.teller == Some(node) && !matches!(self.way, Some(Way::Through(_)))
    }

    /// True if a live member has spoken to this node itself.
    pub fn has_met(&self, node: NodeId) -> bool {
        self.roster.has_met(node)
    }

    /// True unless the record of this node about an image is forged. A forged one is forgotten, and
    /// a genuine one is verified once.
    pub fn confirms(&mut self, key: &RecordKey) -> bool {
        let (Some(known), Some(member)) = (self.records.get(key), self.roster.get(key.node)) else { return true };
        if self.verified_records.get(key) == Some(&known.version) {
            return true;
        }
        let genuine = known.is_genuine(&member.key, &*self.keys);
        if genuine {
            self.verified_records.insert(*key, known.version);
        } else {
            self.records.remove(key);
        }
        genuine
    }

    /// Verifies some statements and records that were not compared with others so far. It forgets
    /// forged ones; the true ones come with the next exchange of snapshots.
    pub fn verify_some(&mut self, now: Time) -> Effects {
        self.now = now;
        let unverified = |member: &&Member| !self.verified.contains(&member.identity.node);
        let members: Vec<Member> = self.roster.iter().filter(unverified).take(VERIFIED_AT_ONCE).copied().collect();
        for member in members {
            if member.is_genuine(&*self.keys) {
                self.verified.insert(member.identity.node);
            } else {
                self.forget(&member, Some(Departure::Replaced));
            }
        }
        let (me, known) = (self.me().node, &self.verified_records);
        let records = self.records.iter().filter(|record| record.node != me);
        let records = records.filter(|record| known.get(&record.key()) != Some(&record.version));
        let records: Vec<RecordKey> = records.map(Record::key).take(VERIFIED_AT_ONCE).collect();
        for key in records {
            self.confirms(&key);
        }
        self.finish()
    }

    /// Takes in a statement that is believed, or this node's own judgement.
    pub(super) fn learn_member(&mut self, member: Member, from: Option<NodeId>) {
        let Member { identity, state, .. } = member;
        if identity.addr == self.me().addr {
            // A dead member at our address precedes us, unless it is said to have come later.
            return self.contest(member);
        }
        let grace = if from.is_none() { GRACE } else { GRACE_HEARD };
        let was_suspect = self.suspects().contains_key(&identity.node);
        let was_lost = self.roster.lost().contains(&identity.node);
        let was = self.live().get(&identity.node).copied();
        if self.speaks_itself(identity.node) {
            self.roster.meet(identity.node);
        }
        let is_there = |way| matches!(way, Way::Datagram(from) if is_same(from, identity.addr));
        let there = self.teller == Some(identity.node) && self.way.is_some_and(is_there);
        let (now, grace) = (self.now, self.paced(grace));
        let said_before = self.roster.get(identity.node).map(Member::said);
        let change =
            if there { self.roster.learn_there(member, now, grace) } else { self.roster.learn(member, now, grace) };
        if self.roster.get(identity.node).map(Member::said) != said_before {
            self.verified.remove(&identity.node);
        }
        if !change.news {
            // One of the two is not there.
            return match change.occupant {
                // The one that others find dead says nothing later.
                Some(Occupant::Later(known)) => self.raise(known),
                // The other one answers from there if it exists; this one, if it lives.
                Some(Occupant::Earlier(known)) => self.contested(known),
                None => {}
            };
        }
        self.effects.doubt |= was_suspect != self.suspects().contains_key(&identity.node);
        self.effects.doubt |= was.is_some_and(|was| was.generation != identity.generation);
        let moves = was.is_some_and(|was| was.addr != identity.addr) && state.is_live();
        self.effects.moved.extend(moves.then_some(identity));
        if change.up.is_some() || !change.down.is_empty() {
            if change.up.is_some() {
                self.arrivals.gather(SYNC_EVERY, now, |came| *came += 1);
                self.doubts.remove(&identity.node);
            }
            if was_lost && change.up.is_some() {
                self.greet_all();
            }
            if !change.down.is_empty() {
                self.watch.be_wary(self.now);
                change.down.iter().for_each(|gone| self.is_gone(gone.node));
            }
            let live = self.live().len();
            let soon = live <= SMALL || live >= 2 * self.chosen_of;
            let soonest = if soon { self.now } else { self.chosen + PARTNERS_EVERY };
            self.choose_at = Some(self.choose_at.map_or(soonest, |at| at.min(soonest)).max(self.now));
            self.effects.up.extend(change.up);
            let how = match state {
                State::Left => Departure::Left,
                State::Down => Departure::Died,
                State::Alive | State::Suspect | State::Replaced => Departure::Replaced,
            };
            self.effects.down.extend(change.down.into_iter().map(|identity| Departed { identity, how }));
        }
        self.pass_on(Topic::Member(identity.node), Pace::Soon, from);
    }

    /// Takes in a record that another member told in a datagram.
    pub(super) fn hear_record(&mut self, record: Record, from: NodeId) {
        if record.node == self.me().node {
            self.hear_of_mine(&record);
        } else {
            self.take_record(record, Some(from), Some(from));
        }
    }

    /// Takes in a record that came from `teller`; it is not passed on to `from`.
    pub(super) fn take_record(&mut self, mut record: Record, teller: Option<NodeId>, from: Option<NodeId>) {
        let key = record.key();
        let by_itself = teller == Some(key.node);
        let introduces = by_itself && self.records.get(&key).is_none();
        let room = self.records.has_room(self.roster.has_met(key.node), self.needs(&record));
        // A connection proves who speaks, the source of a datagram does not.
        let proved = by_itself && matches!(self.way, Some(Way::Connection) | None);
        if (room || self.records.get(&key).is_some()) && self.believes_record(&mut record, proved) {
            self.learn_record(record, from);
        }
        if let Some(newcomer) = self.live().get(&key.node).copied().filter(|_| introduces) {
            self.introduce(&newcomer, key);
        }
    }

    /// True for a record by which this node finds an image, or others that hold one of its own.
    fn needs(&self, record: &Record) -> bool {
        let mine = RecordKey { node: self.me().node, image: record.image() };
        record.origin || self.records.get(&mine).is_some() || self.records.is_new(&record.subject)
    }

    /// True for news that nothing contradicts, or that its node signed. Its progress is not signed:
    /// that of a misquoted member counts if it `proved` to say so itself.
    fn believes_record(&mut self, record: &mut Record, proved: bool) -> bool {
        let key = record.key();
        let misquoted = self.misquoted.contains(&key.node);
        if misquoted && !proved {
            record.forget_progress();
        }
        // Nobody can have said it whose key is unknown.
        let Some(signer) = self.roster.get(key.node).map(|member| member.key) else { return false };
        let Some(known) = self.records.get(&key) else { return true };
        if known.says_as(record) {
            record.signature = known.signature;
            let corrects = misquoted && proved && known != record;
            let news = known.rank() < record.rank();
            if corrects {
                self.records.remove(&key);
            }
            return corrects || news;
        }
        let later = known.version < record.version;
        let news = (!self.confirms(&key) || later) && record.is_genuine(&signer, &*self.keys);
        if news {
            self.verified_records.insert(key, record.version);
        }
        news
    }

    /// A member refused chunks that its records announce, and others may have invented the progress
    /// of those: nobody is to blame for it. From now on only what the member itself says of its
    /// progress counts.
    pub fn misquote(&mut self, node: NodeId) {
        if self.live().contains_key(&node) && self.misquoted.insert(node) {
            self.records.forget_progress(node);
        }
    }

    /// True for such a member: what this node believes of its progress, it said itself.
    pub fn is_misquoted(&self, node: NodeId) -> bool {
        self.misquoted.contains(&node)
    }

    /// A misquoted member to ask, another for each number.
    pub fn misquoted(&self, number: u32) -> Option<Identity> {
        let live = self.misquoted.iter().filter_map(|node| self.live().get(node));
        live.clone().nth(number as usize % live.count().max(1)).copied()
    }

    /// Takes in a record that is believed, or this node's own, and tells all but `from`.
    pub(super) fn learn_record(&mut self, record: Record, from: Option<NodeId>) {
        let key = record.key();
        let before = self.records.get(&key).map(|before| (before.version, before.is_whole()));
        if self.records.learn(record)
            && let Some(known) = self.records.get(&key)
        {
            // Progress comes all the time. Its end comes once, and others wait for it.
            let is_progress = |(version, whole)| version == known.version && (whole || !known.is_whole());
            let pace = if before.is_some_and(is_progress) { Pace::Seldom } else { Pace::Soon };
            self.pass_on(Topic::Record(key.node, Shared::clone(&known.subject)), pace, from);
        }
    }

    /// Introduces a newcomer: its downstream learns its holding at once, and it learns its
    /// upstream's. When a room is switched on, gossip is too slow for that, and the two may not
    /// know each other yet.
    fn introduce(&mut self, newcomer: &Identity, key: RecordKey) {
        let Some((before, after)) = self.roster.partners_of(newcomer).in_order() else { return };
        for (to, subject) in [(after, newcomer.node), (newcomer.node, before)] {
            let (member, record) = (self.roster.get(subject), self.records.get(&RecordKey { node: subject, ..key }));
            if let (Some(member), Some(record)) = (member, record) {
                let items = [Item::Member(member.told()), Item::Record(record.clone())];
                self.tell_one(to, &items);
            }
        }
    }
}

/// True for one address in two spellings: a socket for both kinds of IP maps IPv4 into IPv6.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip().to_canonical(), one.port()) == (other.ip().to_canonical(), other.port())
}

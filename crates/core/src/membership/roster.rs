//! The roster: the known members of the field and their states.
//!
//! Of two processes at one address the later one is real, once it speaks from there itself: hearsay
//! displaces nobody. The roster remembers dead members for a while, so that old news does not bring
//! them back. It is bounded, since any node may gossip any member. It does not verify signatures:
//! [`super::hearing`] does before.

use super::member::{Member, State};
use super::rings::Partners;
use crate::identity::{Identity, NodeId};
use crate::outbid;
use crate::placement::mix;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// How long dead members are remembered. If a cable is out for less, both its ends find each other
/// again.
const REMEMBER_DOWN: Duration = Duration::from_secs(3600);
/// How long members that left are remembered, so that old news does not bring them back.
const REMEMBER_LEFT: Duration = Duration::from_secs(60);
/// Most known members, dead ones included: about 20 MB. The longest dead make room for others.
pub const MEMBERS_MAX: usize = 1 << 16;
/// Most live members: a hundred times a large zone.
pub const LIVE_MAX: usize = MEMBERS_MAX / 2;
/// Most live members known by hearsay only, fifty times a large zone. A member that speaks for
/// itself is admitted, however many others a liar invents.
pub const UNMET_MAX: usize = LIVE_MAX / 2;

/// The live members by id, suspects included.
#[derive(Debug, Clone, Copy)]
pub struct Live<'a>(&'a BTreeMap<NodeId, Member>);

impl<'a> Live<'a> {
    /// The live member with this id.
    pub fn get(self, node: &NodeId) -> Option<&'a Identity> {
        self.0.get(node).map(|member| &member.identity)
    }

    /// True if it lives.
    pub fn contains_key(self, node: &NodeId) -> bool {
        self.0.contains_key(node)
    }

    /// All live members, by id.
    pub fn values(self) -> impl Iterator<Item = &'a Identity> + Clone {
        self.0.values().map(|member| &member.identity)
    }

    /// All live members, beginning with this id.
    pub fn around(self, node: NodeId) -> impl Iterator<Item = &'a Identity> {
        self.0.range(node..).chain(self.0.range(..node)).map(|(_, member)| &member.identity)
    }

    /// The number of live members.
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// True without any member.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

/// The effect of a statement.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// True if it was news at all.
    pub news: bool,
    /// The member that is live now and was not.
    pub up: Option<Identity>,
    /// Members that were live and are no more: at most the subject, and another one at its address.
    pub down: Vec<Identity>,
    /// The member because of which the statement did not count: it is said to be at its address.
    pub occupant: Option<Occupant>,
}

/// A live member at an address at which a statement says that another one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occupant {
    /// This member is the later one.
    Later(NodeId),
    /// This member is the earlier one, and the other has not spoken from there.
    Earlier(NodeId),
}

/// All known members, live and dead.
#[derive(Debug, Default)]
pub struct Roster {
    /// Alive and suspect members.
    live: BTreeMap<NodeId, Member>,
    /// Dead and departed members.
    dead: BTreeMap<NodeId, Member>,
    /// Suspect members, each with the time since when it is.
    suspects: BTreeMap<NodeId, Time>,
    /// Dead members that may come back.
    lost: BTreeSet<NodeId>,
    /// Departed members that never lived here. They are not told of. Otherwise each newcomer would
    /// remember them as long as a member that knew them, and they would never be forgotten.
    hearsay: BTreeSet<NodeId>,
    /// Live members that have spoken to this node themselves.
    met: BTreeSet<NodeId>,
    /// The owner of each live address, by [`digest`].
    addresses: BTreeMap<u64, NodeId>,
    /// When suspects are buried and dead members forgotten.
    deadlines: BTreeSet<(Time, NodeId)>,
    deadline_of: BTreeMap<NodeId, Time>,
}

impl Roster {
    /// Notes that a member has spoken to this node itself. Its statement about itself follows.
    pub fn meet(&mut self, node: NodeId) {
        self.met.insert(node);
    }

    /// True if a live member has spoken to this node itself.
    pub fn has_met(&self, node: NodeId) -> bool {
        self.met.contains(&node)
    }

    /// Takes in a statement; suspects have `grace` to deny it.
    pub fn learn(&mut self, member: Member, now: Time, grace: Duration) -> Change {
        self.take(member, now, grace, false)
    }

    /// Takes in what a member says of itself, in a datagram from its address.
    pub fn learn_there(&mut self, member: Member, now: Time, grace: Duration) -> Change {
        self.take(member, now, grace, true)
    }

    fn take(&mut self, member: Member, now: Time, grace: Duration, there: bool) -> Change {
        let change = self.change(member, now, grace, there);
        if !self.live.contains_key(&member.identity.node) {
            self.met.remove(&member.identity.node);
        }
        change
    }

    fn change(&mut self, member: Member, now: Time, grace: Duration, there: bool) -> Change {
        let node = member.identity.node;
        let known = self.get(node);
        if known.is_some_and(|known| known.rank() >= member.rank()) || member.identity.generation > believed(known) {
            return Change::default();
        }
        let never_lived = known.is_none_or(|_| self.hearsay.contains(&node));
        let comes = member.state.is_live() && !self.live.contains_key(&node);
        if (comes && !self.has_place(node)) || (known.is_none() && !self.has_room()) {
            return Change::default();
        }
        let is_hearsay = never_lived && matches!(member.state, State::Left | State::Replaced);
        let mut change = Change { news: !is_hearsay, ..Change::default() };
        if member.state.is_live()
            && let Some(other) = self.addresses.get(&digest(member.identity.addr)).filter(|other| **other != node)
        {
            let other = self.live[other];
            // A claim that the member at this address could not outbid takes no place either.
            let last = outbid::latest_believed(other.identity.generation);
            let later = (other.identity.generation, other.identity.node) > (member.identity.generation, node)
                || member.identity.generation >= last;
            // Nor does hearsay keep a place from one that speaks from there.
            if later && (!there || self.met.contains(&other.identity.node)) {
                return Change { occupant: Some(Occupant::Later(other.identity.node)), ..Change::default() };
            }
            if !there {
                return Change { occupant: Some(Occupant::Earlier(other.identity.node)), ..Change::default() };
            }
            change.down.push(other.identity);
            self.put(Member { state: State::Replaced, ..other }, now, now + REMEMBER_LEFT);
        }
        let was = self.live.get(&node).map(|was| was.identity);
        let until = match member.state {
            State::Suspect => now + grace,
            State::Left | State::Replaced => now + REMEMBER_LEFT,
            State::Alive | State::Down => now + REMEMBER_DOWN,
        };
        self.put(member, now, until);
        if is_hearsay {
            self.hearsay.insert(node);
        }
        match (was, member.state.is_live()) {
            (None, true) => change.up = Some(member.identity),
            (Some(was), false) => change.down.push(was),
            _ => {}
        }
        change
    }

    /// True if one more can live here.
    fn has_place(&self, node: NodeId) -> bool {
        let unmet = self.live.len().saturating_sub(self.met.len());
        self.live.len() < LIVE_MAX && (unmet < UNMET_MAX || self.met.contains(&node))
    }

    /// Makes room for one more member, if need be by forgetting the next one due.
    fn has_room(&mut self) -> bool {
        if self.live.len() + self.dead.len() < MEMBERS_MAX {
            return true;
        }
        let dead = self.deadlines.iter().map(|(_, node)| *node).find(|node| !self.live.contains_key(node));
        dead.into_iter().for_each(|node| self.forget(node));
        dead.is_some()
    }

    fn put(&mut self, member: Member, now: Time, until: Time) {
        let (node, addr) = (member.identity.node, member.identity.addr);
        if let Some(was) = self.live.remove(&node) {
            self.addresses.remove(&digest(was.identity.addr));
        }
        self.dead.remove(&node);
        self.hearsay.remove(&node);
        self.clear_deadline(node);
        if member.state.is_live() {
            self.live.insert(node, member);
            self.addresses.insert(digest(addr), node);
        } else {
            self.met.remove(&node);
            self.dead.insert(node, member);
        }
        if member.state != State::Alive {
            self.deadlines.insert((until, node));
            self.deadline_of.insert(node, until);
        }
        if member.state == State::Suspect {
            self.suspects.entry(node).or_insert(now);
        } else {
            self.suspects.remove(&node);
        }
        if member.state == State::Down {
            self.lost.insert(node);
        } else {
            self.lost.remove(&node);
        }
    }

    /// When [`Roster::due`] has something to report.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// A suspect whose time is up. On the way it forgets dead members whose time is up.
    pub fn due(&mut self, now: Time) -> Option<Member> {
        while let Some(&(_, node)) = self.deadlines.first().filter(|(at, _)| *at <= now) {
            match self.live.get(&node) {
                Some(suspect) => return Some(*suspect),
                None => self.forget(node),
            }
        }
        None
    }

    /// Forgets all dead members; departures stay known.
    pub fn forget_the_dead(&mut self) {
        for node in std::mem::take(&mut self.lost) {
            self.forget(node);
        }
    }

    /// Forgets a member, dead or alive: somebody invented the statement about it.
    pub fn remove(&mut self, node: NodeId) {
        if let Some(was) = self.live.remove(&node) {
            self.addresses.remove(&digest(was.identity.addr));
        }
        self.met.remove(&node);
        self.suspects.remove(&node);
        self.forget(node);
    }

    /// Forgets a dead member.
    fn forget(&mut self, node: NodeId) {
        self.dead.remove(&node);
        self.lost.remove(&node);
        self.hearsay.remove(&node);
        self.clear_deadline(node);
    }

    fn clear_deadline(&mut self, node: NodeId) {
        if let Some(deadline) = self.deadline_of.remove(&node) {
            self.deadlines.remove(&(deadline, node));
        }
    }

    /// The last statement about a member, dead or alive.
    pub fn get(&self, node: NodeId) -> Option<&Member> {
        self.live.get(&node).or_else(|| self.dead.get(&node))
    }

    /// All known members, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        let (mut live, mut dead) = (self.live.values().peekable(), self.dead.values().peekable());
        std::iter::from_fn(move || match (live.peek(), dead.peek()) {
            (Some(alive), Some(gone)) if gone.identity.node < alive.identity.node => dead.next(),
            (Some(_), _) => live.next(),
            (None, _) => dead.next(),
        })
    }

    /// The members that others are told of, by id.
    pub fn told(&self) -> impl Iterator<Item = &Member> {
        self.iter().filter(|member| !self.hearsay.contains(&member.identity.node))
    }

    /// Members that are alive or suspect.
    pub const fn live(&self) -> Live<'_> {
        Live(&self.live)
    }

    /// Members that are suspect, each with the time since when it is.
    pub const fn suspects(&self) -> &BTreeMap<NodeId, Time> {
        &self.suspects
    }

    /// The dead that may come back.
    pub const fn lost(&self) -> &BTreeSet<NodeId> {
        &self.lost
    }

    /// The next of them after `node`, around.
    pub fn lost_after(&self, node: NodeId) -> Option<NodeId> {
        after(&self.lost, node)
    }

    /// The partners of a member among the live members, which may include it.
    pub fn partners_of(&self, member: &Identity) -> Partners {
        Partners::of(member, self.live().values())
    }
}

/// The next of some nodes after `node`, around.
pub(super) fn after(nodes: &BTreeSet<NodeId>, node: NodeId) -> Option<NodeId> {
    use std::ops::Bound::{Excluded, Unbounded};
    nodes.range((Excluded(node), Unbounded)).chain(nodes).next().copied()
}

/// The latest generation that is believed of a member of which this is known.
fn believed(known: Option<&Member>) -> u64 {
    let generation = known.map(|known| known.identity.generation);
    match (known, generation) {
        (Some(known), Some(generation)) if known.state.is_live() => outbid::latest_believed(generation),
        _ => outbid::latest_believed_anew(generation),
    }
}

/// 64 bits of an address, a quarter of its size. A collision gains an attacker nothing: it could as
/// well claim the address.
fn digest(addr: SocketAddr) -> u64 {
    let (bits, rest) = match addr {
        SocketAddr::V4(addr) => (u128::from(addr.ip().to_bits()), 0),
        SocketAddr::V6(addr) => (addr.ip().to_bits(), u64::from(addr.scope_id()) << 17 | 1 << 16),
    };
    mix((bits >> 64) as u64 ^ mix(bits as u64 ^ mix(rest | u64::from(addr.port()))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Zone;
    use crate::signing::Simulated;

    const GRACE: Duration = Duration::from_secs(1);

    fn member(node: u64, port: u16, generation: u64, incarnation: u32, state: State) -> Member {
        let addr = SocketAddr::from(([198, 18, 0, 1], port));
        let identity = Identity { addr, node: NodeId(node), generation, zone: Zone::default() };
        Member { state, ..Member::signed(identity, incarnation, state == State::Left, &Simulated(NodeId(node))) }
    }

    #[test]
    fn later_and_graver_statements_count() {
        use State::{Alive, Down, Left, Suspect};
        let mut roster = Roster::default();
        let steps = [
            ((1, 0, Alive), true, true),
            ((1, 0, Alive), false, true),
            ((1, 0, Suspect), true, true),
            ((1, 0, Alive), false, true),
            ((1, 1, Alive), true, true),
            ((1, 0, Down), false, true),
            ((1, 1, Down), true, false),
            ((1, 1, Suspect), false, false),
            ((1, 2, Alive), true, true),
            ((2, 0, Alive), true, true),
            ((1, 9, Down), false, true),
            ((2, 0, Left), true, false),
            ((2, 0, Down), false, false),
        ];
        for (step, ((generation, incarnation, state), news, lives)) in steps.into_iter().enumerate() {
            let change = roster.learn(member(7, 1, generation, incarnation, state), Time::ZERO, GRACE);
            assert_eq!((change.news, roster.live().contains_key(&NodeId(7))), (news, lives), "step {step}");
            assert_eq!(roster.suspects().contains_key(&NodeId(7)), roster.get(NodeId(7)).unwrap().state == Suspect);
        }
    }

    #[test]
    fn the_later_of_two_at_one_address_is_real() {
        let mut roster = Roster::default();
        roster.learn(member(1, 1, 5, 3, State::Alive), Time::ZERO, GRACE);
        let older = member(2, 1, 4, 0, State::Alive);
        assert!(!roster.learn(older, Time::ZERO, GRACE).news);
        let newer = member(3, 1, 6, 0, State::Alive);
        let hearsay = roster.learn(newer, Time::ZERO, GRACE);
        assert_eq!((hearsay.news, hearsay.occupant), (false, Some(Occupant::Earlier(NodeId(1)))));
        let change = roster.learn_there(newer, Time::ZERO, GRACE);
        assert_eq!(change.up, Some(newer.identity));
        assert_eq!(change.down, [member(1, 1, 5, 3, State::Alive).identity]);
        // A later node has the address of a dead one, whatever the clocks say.
        roster.learn(member(3, 1, 6, 0, State::Down), Time::ZERO, GRACE);
        assert!(roster.learn(older, Time::ZERO, GRACE).up.is_some());
    }

    #[test]
    fn a_full_roster_forgets_the_dead_and_takes_the_living() {
        let mut roster = Roster::default();
        let at = |node: u64| Time::ZERO + Duration::from_millis(node);
        for node in 1..=MEMBERS_MAX as u64 {
            roster.learn(member(node, (node % 1000) as u16, 1, 0, State::Down), at(node), GRACE);
        }
        let newcomer = member(0, 2000, 1, 0, State::Alive);
        assert_eq!(roster.learn(newcomer, at(1), GRACE).up, Some(newcomer.identity));
        assert_eq!((roster.get(NodeId(1)), roster.iter().count()), (None, MEMBERS_MAX), "the longest dead made room");
    }

    #[test]
    fn members_known_by_hearsay_leave_room_for_newcomers() {
        let mut roster = Roster::default();
        for node in 1..=MEMBERS_MAX as u64 {
            let ghost = member(node, (node >> 16) as u16, 1, 0, State::Alive);
            let addr = SocketAddr::from((u32::try_from(node).unwrap().to_be_bytes(), 4000));
            roster.learn(Member { identity: Identity { addr, ..ghost.identity }, ..ghost }, Time::ZERO, GRACE);
        }
        assert_eq!(roster.live().len(), UNMET_MAX);
        let newcomer = |node: u64| member(1 << 40 | node, node as u16, 1, 0, State::Alive);
        assert!(!roster.learn(newcomer(1), Time::ZERO, GRACE).news, "nor is one more heard of");
        for node in 1..=1000 {
            roster.meet(newcomer(node).identity.node);
            assert!(roster.learn(newcomer(node), Time::ZERO, GRACE).up.is_some(), "{node}");
        }
        // A member that has died no longer counts as met.
        roster.learn(Member { state: State::Down, ..newcomer(7) }, Time::ZERO, GRACE);
        assert!(roster.met.len() == 999 && roster.met.iter().all(|node| roster.live().contains_key(node)));
    }

    #[test]
    fn what_cannot_be_denied_is_not_believed() {
        use State::{Alive, Down, Left, Suspect};
        for state in [Alive, Suspect, Down, Left] {
            let sound = |generation, incarnation| member(1, 1, generation, incarnation, state).is_sound();
            assert!(sound(1, u32::MAX - 1) && !sound(1, u32::MAX) && !sound(u64::MAX, 0));
        }
        let learn = |roster: &mut Roster, member| roster.learn(member, Time::ZERO, GRACE).news;
        let me = member(1, 1, 7, 0, Alive);
        let live = outbid::latest_believed(7);
        for (known, last) in [(None, outbid::FIRST_MAX), (Some(Alive), live), (Some(Down), outbid::FIRST_MAX)] {
            for (state, incarnation) in [(Alive, 0), (Down, 0), (Left, u32::MAX - 1)] {
                let roster = || {
                    let mut roster = Roster::default();
                    known.map(|state| learn(&mut roster, Member { state, ..me }));
                    roster
                };
                assert!(!learn(&mut roster(), member(1, 2, last + 1, incarnation, state)), "{known:?} {state:?}");
                let (mut roster, said) = (roster(), member(1, 2, last, incarnation, state));
                learn(&mut roster, said);
                assert_eq!(roster.get(NodeId(1)), Some(&said), "{known:?} {state:?}");
                let (generation, incarnation) = Member::life_after(said.life());
                let answer = member(1, 1, generation, incarnation, Alive);
                assert!(learn(&mut roster, answer), "{known:?} {state:?}");
                assert_eq!(roster.get(NodeId(1)), Some(&answer));
            }
        }
    }

    #[test]
    fn nobody_is_displaced_by_one_whom_it_cannot_outbid() {
        let last = outbid::latest_believed(7);
        for (generation, displaced) in [(8, true), (last - 1, true), (last, false), (outbid::FIRST_MAX, false)] {
            let mut roster = Roster::default();
            roster.meet(NodeId(1));
            roster.learn(member(1, 1, 7, 0, State::Alive), Time::ZERO, GRACE);
            let said = member(2, 1, generation, 0, State::Alive);
            assert_eq!(roster.learn_there(said, Time::ZERO, GRACE).news, displaced, "{generation}");
            let answer = member(1, 1, (generation + 1).min(last), 0, State::Alive);
            assert!(roster.learn_there(answer, Time::ZERO, GRACE).news && roster.live().contains_key(&NodeId(1)));
        }
    }

    #[test]
    fn suspects_come_due_and_the_dead_are_forgotten() {
        let mut roster = Roster::default();
        roster.learn(member(1, 1, 1, 0, State::Suspect), Time::ZERO, GRACE);
        assert_eq!(roster.due(Time::ZERO + GRACE / 2), None);
        let due = roster.due(Time::ZERO + GRACE).expect("its time is up");
        roster.learn(Member { state: State::Down, ..due }, Time::ZERO + GRACE, GRACE);
        assert_eq!(roster.lost_after(NodeId(9)), Some(NodeId(1)));
        assert_eq!(roster.due(Time::ZERO + GRACE + REMEMBER_DOWN), None);
        assert_eq!((roster.get(NodeId(1)), roster.lost_after(NodeId(0)), roster.next_deadline()), (None, None, None));
    }
}

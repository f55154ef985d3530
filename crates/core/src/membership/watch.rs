//! Watching: a member probes those after it in the circles, suspects silent ones, and greets lost
//! ones.

use super::Membership;
use super::member::{Member, State};
use super::message::Purpose;
use super::roster::after;
use crate::identity::{Identity, NodeId};
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use vfield_block::gather::Gather as _;

/// Interval at which a member probes the members that it watches, in turn. Each has as many
/// watchers, out of step.
const PROBE_PERIOD: Duration = Duration::from_millis(300);
/// How long a direct answer may take before others are asked to probe.
const PROBE_RTT: Duration = Duration::from_millis(120);
/// Other members that are asked to probe a silent one.
const RELAYS: usize = 3;
/// Times that others are asked about a silent member from which nothing ever came. It may live out
/// of this node's reach, and the next ones asked may reach it. A member that was made up is
/// suspected a third of a second later.
const ROUNDS: u32 = 2;
/// Interval at which a lost member is greeted, in turn. This heals a partitioned field: a member
/// held for dead denies it.
const GREET_LOST_EVERY: Duration = Duration::from_secs(2);
/// Interval at which members are greeted that this node holds for dead and others do not, or all
/// lost ones. Others name them, and their addresses may be anybody's, so it bounds what a node can
/// be made to send there: 160 datagrams a second.
const DOUBTS_EVERY: Duration = Duration::from_millis(50);
/// Most of them greeted at once. A thousand members that a repaired cable brings back are greeted
/// within 6 s by one node alone, and news of each goes round.
const DOUBTS_AT_ONCE: usize = 8;
/// Silence after which a watcher of this node is probed itself: it may have died before the two
/// became partners.
const UNWATCHED: Duration = Duration::from_secs(3);
/// Time after a death in which all watched members are probed at once: others may have gone with
/// it.
const WARY_FOR: Duration = Duration::from_secs(2);

/// Most members probed within a period because another is said to be at their address. One frame
/// can name thousands; the others wait for the next period.
const CONTESTED_AT_ONCE: u32 = 8;
/// Most that wait for that: eight periods' worth. Beyond it, those of the teller that has most of
/// them make room for those of others.
const CONTESTED_MAX: usize = 64;

/// A statement that another member is at a live member's address.
#[derive(Debug)]
struct Contest {
    /// The member that said so.
    teller: Option<NodeId>,
    /// True once the live member was probed.
    probed: bool,
}

/// A probe under way.
#[derive(Debug)]
struct Probe {
    target: NodeId,
    number: u32,
    /// When others are asked; `None` once they are.
    relay_at: Option<Time>,
    /// Times that others were asked before.
    round: u32,
}

/// The state of the probes of one member.
#[derive(Debug)]
pub(super) struct Watch {
    /// Probes without an answer.
    probes: Vec<Probe>,
    probe_at: Time,
    number: u32,
    /// Live members at whose address another is said to be, until one of the two has spoken.
    contested: BTreeMap<NodeId, Contest>,
    /// The member among them that was probed last, and how many were in this period.
    contested_last: NodeId,
    contests: u32,
    /// When each partner was last heard: a partner heard recently needs no probe.
    heard: BTreeMap<NodeId, Time>,
    wary_until: Time,
    greet_at: Time,
    doubts_at: Time,
    /// The lost member that was greeted last.
    greeted: NodeId,
    /// The same of those in doubt. They take turns, since others may name the first ones again and
    /// again.
    doubted: NodeId,
    /// Before this the return of a lost member does not make us greet all of them.
    greet_all_at: Time,
}

impl Watch {
    pub(super) fn new(me: NodeId, now: Time) -> Self {
        Self {
            probes: Vec::new(),
            // Members that start together do not probe together.
            probe_at: now + PROBE_PERIOD.mul_f64((me.0 >> 32) as f64 / f64::from(u32::MAX)),
            number: 0,
            contested: BTreeMap::new(),
            contested_last: me,
            contests: 0,
            heard: BTreeMap::new(),
            wary_until: now,
            greet_at: now,
            doubts_at: now,
            greeted: me,
            doubted: me,
            greet_all_at: now,
        }
    }

    /// True if the answer to this probe has not come.
    pub(super) fn awaits(&self, target: NodeId, number: u32) -> bool {
        self.probes.iter().any(|probe| (probe.target, probe.number) == (target, number))
    }

    /// Probes all watched members at once, after a death.
    pub(super) fn be_wary(&mut self, now: Time) {
        self.wary_until = now + WARY_FOR;
    }

    /// True if one more may be contested because of this teller. In a full table the teller with
    /// most entries loses one, unless this teller would then have as many.
    fn has_room_for(&mut self, teller: Option<NodeId>) -> bool {
        if self.contested.len() < CONTESTED_MAX {
            return true;
        }
        let mut of = BTreeMap::new();
        self.contested.values().for_each(|contest| *of.entry(contest.teller).or_insert(0) += 1);
        let here = of.get(&teller).copied().unwrap_or_default();
        let most = of.into_iter().max_by_key(|(_, count)| *count).filter(|(_, count)| *count > here + 1);
        let gives_way = most.and_then(|(most, _)| {
            let its = |(node, contest): (&NodeId, &Contest)| (contest.teller == most).then_some(*node);
            self.contested.iter().find_map(its)
        });
        gives_way.is_some_and(|node| self.contested.remove(&node).is_some())
    }

    /// Names the partners; new ones are taken for heard.
    pub(super) fn keep(&mut self, partners: &BTreeSet<NodeId>, now: Time) {
        self.heard.retain(|node, _| partners.contains(node));
        for node in partners {
            self.heard.entry(*node).or_insert(now);
        }
    }
}

impl Membership {
    /// When something here is due.
    pub(super) fn next_watch(&self) -> Option<Time> {
        let probe = (!self.live().is_empty()).then_some(self.watch.probe_at);
        let relay = self.watch.probes.iter().filter_map(|probe| probe.relay_at).min();
        let greet = (!self.roster.lost().is_empty()).then_some(self.watch.greet_at);
        let doubts = (!self.doubts.is_empty()).then(|| self.watch.doubts_at.max(self.now));
        [probe, relay, greet, doubts].into_iter().flatten().min()
    }

    /// Notes a sign of life of this member.
    pub(super) fn hear(&mut self, node: NodeId) {
        self.watch.probes.retain(|probe| probe.target != node);
        if self.watch.contested.get(&node).is_some_and(|contest| contest.probed) {
            self.watch.contested.remove(&node);
        }
        if self.news.is_partner(node) {
            self.watch.heard.insert(node, self.now);
        }
    }

    /// Sends probes, and judges the members that did not answer.
    pub(super) fn probe(&mut self) {
        let now = self.now;
        let late = |probe: &&mut Probe| probe.relay_at.is_some_and(|at| at <= now);
        let mut to_relay = Vec::new();
        for probe in self.watch.probes.iter_mut().filter(late) {
            probe.relay_at = None;
            to_relay.push((probe.target, probe.number, probe.round));
        }
        for (target, number, round) in to_relay {
            self.ask_others_to_probe(target, number, round);
        }
        if self.watch.probe_at > now {
            return;
        }
        // A late wake-up means that this process was starved or stopped, and answers may lie
        // unread.
        let starved = now - self.watch.probe_at > PROBE_RTT;
        let period = PROBE_PERIOD * self.level.slowness();
        self.watch.probe_at = now + self.paced(period);
        // Those sent a moment ago may be answered yet.
        let probes = std::mem::take(&mut self.watch.probes).into_iter();
        let (young, old): (Vec<Probe>, Vec<Probe>) = probes.partition(|probe| probe.relay_at.is_some());
        self.watch.probes = young;
        for probe in old.into_iter().filter(|_| !starved) {
            if self.ways.was_straight(probe.target) || probe.round + 1 == ROUNDS {
                self.raise(probe.target);
            } else {
                self.watch.probes.push(Probe { relay_at: Some(now), round: probe.round + 1, ..probe });
            }
        }
        (self.watch.number, self.watch.contests) = (self.watch.number.wrapping_add(1), 0);
        let mut watched: Vec<NodeId> = self.roster.partners_of(self.me()).after().into_iter().collect();
        let turn = self.watch.number as usize % watched.len().max(1);
        watched.rotate_left(turn);
        // Messages that come by a detour do not show that datagrams come through again.
        let is_silent = |node: &NodeId| self.watch.heard.get(node).is_none_or(|at| now - *at >= period);
        watched.retain(|node| self.ways.is_around(*node) || is_silent(node));
        let wary = now < self.watch.wary_until || !self.suspects().is_empty();
        watched.truncate(if wary { usize::MAX } else { 1 });
        let unwatched = UNWATCHED * self.level.slowness();
        let silent = |node: &NodeId| self.watch.heard.get(node).is_none_or(|at| now - *at >= unwatched);
        let unwatching = self.news.partners().filter(|node| silent(node) && !watched.contains(node));
        watched.extend(unwatching.collect::<Vec<_>>());
        watched.into_iter().for_each(|target| self.probe_at_once(target));
        self.probe_contested();
    }

    /// Finds out whether a member is still at its address, where another one is said to be.
    pub(super) fn contested(&mut self, node: NodeId) {
        let (teller, suspects) = (self.teller, self.roster.suspects());
        if self.watch.contested.len() >= CONTESTED_MAX {
            self.watch.contested.retain(|node, contest| !contest.probed || suspects.contains_key(node));
        }
        if !self.watch.contested.contains_key(&node) && self.watch.has_room_for(teller) {
            self.watch.contested.insert(node, Contest { teller, probed: false });
        }
        self.probe_contested();
    }

    /// Probes those that wait, in turn: a teller may choose ids that come first.
    fn probe_contested(&mut self) {
        while self.watch.contests < CONTESTED_AT_ONCE {
            let waits = self.watch.contested.iter().filter(|(_, contest)| !contest.probed);
            let waits: BTreeSet<NodeId> = waits.map(|(node, _)| *node).gathered();
            let Some(node) = after(&waits, self.watch.contested_last) else { break };
            self.watch.contested.entry(node).and_modify(|contest| contest.probed = true);
            self.watch.contested_last = node;
            self.watch.contests += 1;
            self.probe_at_once(node);
        }
    }

    /// Notes that a member is gone, and greets its address: another one may be there by now, and a
    /// statement about that did not count before.
    pub(super) fn is_gone(&mut self, node: NodeId) {
        self.watch.contested.remove(&node);
        self.doubt(node);
    }

    /// Probes a live member, unless a probe of it is under way.
    pub(super) fn probe_at_once(&mut self, target: NodeId) {
        let Some(to) = self.live().get(&target).copied() else { return };
        if self.watch.probes.iter().any(|probe| probe.target == target) {
            return;
        }
        let (number, relay_at) = (self.watch.number, Some(self.now + self.paced(PROBE_RTT)));
        self.watch.probes.push(Probe { target, number, relay_at, round: 0 });
        self.send(&to, Purpose::Ping(number));
    }

    fn ask_others_to_probe(&mut self, target: NodeId, number: u32, round: u32) {
        let relays: Vec<Identity> = self.relays(target, number).skip(RELAYS * round as usize).take(RELAYS).collect();
        for relay in relays {
            self.send(&relay, Purpose::Relay(target, number));
        }
    }

    /// Connections to a member broke, or none could be made. If nothing ever came straight from it,
    /// or messages go through others, that says nothing: it is probed.
    pub(super) fn lost_touch(&mut self, node: NodeId) {
        if self.ways.was_straight(node) { self.raise(node) } else { self.probe_at_once(node) }
    }

    /// Suspects a member, and tells it so: a live member denies it.
    pub(super) fn raise(&mut self, node: NodeId) {
        let Some(known) = self.roster.get(node).copied().filter(|known| known.state == State::Alive) else { return };
        self.learn_member(Member { state: State::Suspect, ..known }, None);
        self.send(&known.identity, Purpose::Ping(0));
        self.ask_by_connection(&known.identity);
    }

    /// Greets some members that are held for dead: a live member denies it.
    pub(super) fn greet(&mut self) {
        if !self.doubts.is_empty() && self.watch.doubts_at <= self.now {
            self.watch.doubts_at = self.now + DOUBTS_EVERY;
            for _ in 0..DOUBTS_AT_ONCE {
                let Some(node) = after(&self.doubts, self.watch.doubted) else { break };
                self.doubts.remove(&node);
                self.watch.doubted = node;
                if let Some(doubtful) = self.roster.get(node).copied().filter(|known| known.state == State::Down) {
                    self.send(&doubtful.identity, Purpose::Ping(0));
                }
            }
        }
        if self.watch.greet_at > self.now {
            return;
        }
        self.watch.greet_at = self.now + GREET_LOST_EVERY;
        if let Some(lost) = self.roster.lost_after(self.watch.greeted).and_then(|node| self.roster.get(node)).copied() {
            self.watch.greeted = lost.identity.node;
            self.send(&lost.identity, Purpose::Ping(0));
        }
    }

    /// Greets all lost members after one came back: a repaired cable may reconnect more of them.
    pub(super) fn greet_all(&mut self) {
        if self.watch.greet_all_at <= self.now {
            self.watch.greet_all_at = self.now + GREET_LOST_EVERY;
            self.doubts.extend(self.roster.lost());
        }
    }
}

//! Peers: how each has answered so far, and whom to ask next.
//!
//! Owned by [`crate::node::Node`]. Measures delay, counts what is outstanding, remembers stalls and broken
//! links, and each peer's [`Standing`]. Decides only between peers that it is given; who has a chunk is placement's to say.

use crate::config::{PEER_DELAY, PEER_WINDOW_FIRST};
use crate::identity::NodeId;
use crate::pace::Pace;
use crate::placement::map::mix;
use crate::reach::Reach;
use crate::standing::{Standing, Tally, whole_within};
use crate::time::Time;
use crate::wire::Priority;
use std::collections::BTreeMap;
use std::time::Duration;

/// A peer that has requests and delivers no byte for so long is asked no more until it delivers again.
/// Below a second, so that a read that hung on it is answered elsewhere within one (promise P2).
pub const STALL: Duration = Duration::from_millis(600);
/// On a link that has become slow everybody is silent for longer; see [`Peers::stall`]. At most so long.
const STALL_MAX: Duration = Duration::from_secs(5);
/// A stalled peer is tried again after this, in case that all it owed us was lost with a connection.
const STALL_RETRY: Duration = Duration::from_secs(5);
/// Later by so much than all others of late is late alone.
const LATE_ALONE: Duration = Duration::from_millis(200);
/// A peer whose link is broken is not dialled for so long. Dead ones are forgotten by membership.
const BROKEN_RETRY: Duration = Duration::from_millis(500);
/// So many are remembered; beyond it those who lied are forgotten once they may be asked again. Ids are free to choose.
const PEERS_MAX: usize = 4096;
/// A neighbour in the chain that is not in step is not asked to pass chunks on for so long, doubled each time.
const ASIDE: Duration = Duration::from_millis(10);
/// So many refusals may mean that the neighbour has not begun: nodes that start together wait for each other.
const BEGINNINGS: u32 = 4;
const ASIDE_MAX: Duration = Duration::from_secs(2);
/// One that has become slow is left alone for so long, doubled each time.
const LAGGARD: Duration = Duration::from_secs(4);
const LAGGARD_MAX: Duration = Duration::from_secs(30);
/// If two lag within this, it is this node's own link that is slow.
const OWN_FAULT: Duration = Duration::from_secs(30);
/// So many candidates are all compared: chunks often have three holders. Of more, two choices do most of the good, and
/// nodes that fill are not led to ask ever more of their peers.
const FEW: usize = 3;
/// Weight of a new delay in the mean (RFC 6298: 1/8 for the mean, 1/4 for the deviation).
const MEAN_SHIFT: u32 = 3;
const DEVIATION_SHIFT: u32 = 2;

/// What is known of one peer.
#[derive(Debug, Clone, Default)]
pub struct Peer {
    /// Requests sent and not answered.
    pub outstanding: u32,
    /// Bytes they ask for, by priority.
    outstanding_bytes: [u64; 3],
    /// By priority, while something waits for room: the bytes that are left of the last [batch](Self::batch).
    granted: [Option<u64>; 3],
    delay_us: u64,
    deviation_us: u64,
    /// When it last delivered a byte, or was first asked for one.
    progress: Time,
    /// When it last gave a whole answer, or was first asked for one.
    answered: Time,
    stalled_since: Option<Time>,
    broken_until: Option<Time>,
    standing: Standing,
    /// See [`Peer::window`]; 0 before anything was delivered.
    window: u64,
    pace: Pace,
    /// How often it has lagged.
    lags: u32,
    /// True if it has passed chunks on and not refused since.
    in_step: bool,
    /// True if it has ever passed chunks on.
    has_begun: bool,
    /// Refusals to pass a chunk on since it last did.
    out_of_step: u32,
    aside_until: Option<Time>,
}

impl Peer {
    /// Later than this after being sent, an answer is unusually late.
    pub fn patience(&self) -> Duration {
        Duration::from_micros(self.delay_us + 4 * self.deviation_us)
    }

    /// Most bytes to be asked for at once.
    fn window(&self) -> u64 {
        if self.window == 0 { PEER_WINDOW_FIRST } else { self.window }
    }

    /// How many bytes more it may be asked for with this priority: it owes some already that it sends no later.
    fn room(&self, priority: Priority) -> u64 {
        let before: u64 = self.outstanding_bytes[..=priority as usize].iter().sum();
        // Whoever owes nothing may be asked for one, however long it is.
        if before == 0 { u64::MAX } else { self.window().saturating_sub(before) }
    }

    /// What nobody waits for is asked for so many bytes at a time once the window is full: a request for each answer would
    /// be a packet each, and wake whoever gets it.
    fn batch(&self) -> u64 {
        self.window() / 8
    }

    fn is_usable(&self, now: Time) -> bool {
        let over = |until: Option<Time>| until.is_none_or(|until| until <= now);
        let stalled = self.stalled_since.is_some_and(|since| now - since < STALL_RETRY);
        !stalled && over(self.broken_until) && self.standing.is_good(now)
    }
}

/// All peers ever asked.
#[derive(Debug)]
pub struct Peers {
    peers: BTreeMap<NodeId, Peer>,
    round_robin: bool,
    /// Who has lagged last, and when.
    laggard: Option<(NodeId, Time)>,
    slowest: Slowest,
    tally: Tally,
}

/// The longest that an answer took which came in this span of [`STALL`], or in the one before it.
#[derive(Debug, Default)]
struct Slowest {
    since: Time,
    now: Duration,
    before: Duration,
}

impl Slowest {
    fn came(&mut self, delay: Duration, now: Time) {
        let age = now - self.since;
        if age >= STALL {
            self.before = if age < STALL * 2 { self.now } else { Duration::ZERO };
            (self.since, self.now) = (now, Duration::ZERO);
        }
        self.now = self.now.max(delay);
    }

    fn lately(&self, now: Time) -> Duration {
        match now - self.since {
            age if age < STALL => self.now.max(self.before),
            age if age < STALL * 2 => self.now,
            _ => Duration::ZERO,
        }
    }
}

impl Peers {
    /// Nobody yet. Without `round_robin` the first candidate is taken.
    pub fn new(round_robin: bool) -> Self {
        let (slowest, tally) = (Slowest::default(), Tally::default());
        Self { peers: BTreeMap::new(), round_robin, laggard: None, slowest, tally }
    }

    /// What is known of one.
    pub fn of(&self, node: NodeId) -> Option<&Peer> {
        self.peers.get(&node)
    }

    /// True unless it is known to be stalled or broken, or put aside for what it did.
    pub fn is_usable(&self, node: NodeId, now: Time) -> bool {
        self.peers.get(&node).is_none_or(|peer| peer.is_usable(now))
    }

    /// True unless it has too often refused what it says that it has.
    pub fn is_believed(&self, node: NodeId, now: Time) -> bool {
        self.peers.get(&node).is_none_or(|peer| peer.standing.is_believed(now))
    }

    /// True if it counts as a holder of what it says that it has.
    pub fn counts(&self, node: NodeId, now: Time) -> bool {
        self.peers.get(&node).is_none_or(|peer| peer.standing.counts(now))
    }

    /// The state for people: what is the matter with its [`Standing`], `unreachable`, `stalled`, or nothing special.
    pub fn trouble(&self, node: NodeId, now: Time) -> Option<&'static str> {
        let peer = self.peers.get(&node)?;
        peer.standing.trouble(now).or_else(|| {
            let unreachable = peer.broken_until.is_some_and(|until| until > now);
            if unreachable { Some("unreachable") } else { peer.stalled_since.map(|_| "stalled") }
        })
    }

    /// What all of them did that they should not have.
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// Chooses whom to ask: of two random candidates the one that should answer sooner, by its measured
    /// delay and by what it owes us already (Mitzenmacher's two choices, 2001); of a few, all are compared. All must be
    /// usable. `dice` is any number, another one each time.
    pub fn choose(&self, candidates: &[NodeId], dice: u64) -> Option<NodeId> {
        if !self.round_robin || candidates.len() < 2 {
            return candidates.first().copied();
        }
        let cost = |node: NodeId| {
            self.peers.get(&node).map_or(0, |peer| (u64::from(peer.outstanding) + 1) * (peer.delay_us + 1))
        };
        let mut left = candidates.to_vec();
        let mut best: Option<(u64, NodeId)> = None;
        let looks = if candidates.len() <= FEW { FEW } else { 2 };
        for look in 0..looks.min(candidates.len()) {
            let node = left.swap_remove((mix(dice.wrapping_add(look as u64)) % left.len() as u64) as usize);
            if best.is_none_or(|(least, _)| cost(node) < least) {
                best = Some((cost(node), node));
            }
        }
        best.map(|(_, node)| node)
    }

    /// A request was sent.
    pub fn asked(&mut self, node: NodeId, bytes: u64, priority: Priority, now: Time) {
        let peer = self.peers.entry(node).or_default();
        if peer.outstanding == 0 {
            (peer.progress, peer.answered) = (now, now);
        }
        peer.outstanding += 1;
        peer.outstanding_bytes[priority as usize] += bytes;
        let granted = &mut peer.granted[priority as usize];
        *granted = granted.map(|granted| granted.saturating_sub(bytes));
    }

    /// True if it may be asked for `bytes` more: what it owes, and sends no later than that, is little
    /// enough to come within [`PEER_DELAY`].
    pub fn has_room(&self, node: NodeId, bytes: u64, priority: Priority) -> bool {
        self.peers.get(&node).is_none_or(|peer| {
            let room = peer.room(priority);
            // What waits already comes first.
            let granted = peer.granted[priority as usize].filter(|_| room != u64::MAX).unwrap_or(room);
            peer.stalled_since.is_some() || bytes <= granted.min(room)
        })
    }

    /// Something waits until it may be asked for more with this priority.
    pub fn waited_for(&mut self, node: NodeId, priority: Priority) {
        if let Some(peer) = self.peers.get_mut(&node)
            && priority != Priority::Demand
            && peer.room(priority) < peer.batch()
        {
            peer.granted[priority as usize].get_or_insert(0);
        }
    }

    /// How many bytes of what waits for it may be asked for now, with this priority.
    pub fn room(&self, node: NodeId, priority: Priority) -> u64 {
        self.peers.get(&node).map_or(PEER_WINDOW_FIRST, |peer| {
            let room = peer.room(priority);
            if peer.granted[priority as usize].is_some() && room < peer.batch() { 0 } else { room }
        })
    }

    /// So many bytes of what waits for it are asked for now; `None` if nothing waits any more.
    pub fn grant(&mut self, node: NodeId, priority: Priority, bytes: Option<u64>) {
        if let Some(peer) = self.peers.get_mut(&node)
            && priority != Priority::Demand
        {
            peer.granted[priority as usize] = bytes;
        }
    }

    /// Bytes that it has been asked for and has not delivered.
    pub fn owed(&self, node: NodeId) -> u64 {
        self.peers.get(&node).map_or(0, |peer| peer.outstanding_bytes.iter().sum())
    }

    /// It delivered `bytes` after `delay`, when it owed `owed` in all: so much comes in such a time, and the
    /// window moves towards what comes in [`PEER_DELAY`] (FAST TCP's rule; Jin, Wei and Low, 2004). It grows by no
    /// more than was delivered and shrinks by no more than an eighth, and never exceeds `window_max`.
    pub fn delivered(&mut self, node: NodeId, bytes: u64, delay: Duration, owed: u64, window_max: u64) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        let window = peer.window();
        let delay_us = delay.as_micros().max(1);
        let target = u64::try_from(u128::from(owed) * PEER_DELAY.as_micros() / delay_us).unwrap_or(u64::MAX);
        peer.window = target.clamp(window - window / 8, window + bytes).clamp(bytes, window_max.max(bytes));
    }

    /// It delivered `bytes`, which it could have begun to send at `ready`.
    pub fn paced(&mut self, node: NodeId, bytes: u64, ready: Time, now: Time) {
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.pace.came(bytes, ready, now);
        }
    }

    /// True if one that others wait for has become much slower than it was; it is put aside then.
    pub fn lags(&mut self, node: NodeId, now: Time) -> bool {
        let Some(peer) = self.peers.get_mut(&node).filter(|peer| peer.pace.is_slow()) else { return false };
        let own_fault = self.laggard.is_some_and(|(other, at)| other != node && now - at < OWN_FAULT);
        self.laggard = Some((node, now));
        if own_fault {
            peer.pace.accept();
            return false;
        }
        let pause = (LAGGARD * 2u32.saturating_pow(peer.lags.min(16))).min(LAGGARD_MAX);
        peer.lags += 1;
        (peer.in_step, peer.aside_until) = (false, Some(now + pause));
        peer.pace.try_again();
        true
    }

    /// It passed a chunk on along the chain.
    pub fn in_step(&mut self, node: NodeId) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        (peer.in_step, peer.has_begun, peer.out_of_step, peer.aside_until) = (true, true, 0, None);
    }

    /// Nobody is held to be out of step any more.
    pub fn begin(&mut self) {
        for peer in self.peers.values_mut() {
            (peer.out_of_step, peer.aside_until) = (0, None);
        }
    }

    /// Bytes that those who pass chunks on, and these `origins`, deliver in [`PEER_DELAY`].
    pub fn passing(&self, origins: &[NodeId]) -> u64 {
        let passing = self.peers.iter().filter(|(node, peer)| peer.in_step || origins.contains(node));
        passing.map(|(_, peer)| peer.window()).sum()
    }

    /// True if it has passed chunks on and not refused since.
    pub fn is_in_step(&self, node: NodeId) -> bool {
        self.peers.get(&node).is_some_and(|peer| peer.in_step)
    }

    /// It would not pass a chunk on.
    pub fn out_of_step(&mut self, node: NodeId, now: Time) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        let pause = (ASIDE * 2u32.saturating_pow(peer.out_of_step.min(16))).min(ASIDE_MAX);
        // The refusals of one burst count once.
        if peer.aside_until.is_none_or(|until| until <= now) {
            peer.in_step = false;
            peer.out_of_step += 1;
            peer.aside_until = Some(now + pause);
        }
    }

    /// True if it has refused to pass chunks on a moment ago and for the first times: it may only just begin. One
    /// that passes others on refuses for another reason: perhaps it waits for us, and must not be waited for.
    pub fn may_begin(&self, node: NodeId, now: Time) -> bool {
        let begins = |peer: &Peer| !peer.has_begun && peer.out_of_step <= BEGINNINGS;
        !self.may_be_in_step(node, now) && self.peers.get(&node).is_some_and(begins)
    }

    /// For how long it is left alone yet.
    pub fn aside_for(&self, node: NodeId, now: Time) -> Duration {
        self.peers.get(&node).and_then(|peer| peer.aside_until).map_or(Duration::ZERO, |until| until - now)
    }

    /// True unless it has refused to pass chunks on lately.
    pub fn may_be_in_step(&self, node: NodeId, now: Time) -> bool {
        self.peers.get(&node).is_none_or(|peer| peer.aside_until.is_none_or(|until| until <= now))
    }

    /// A request ended; `delay` if it was answered, from being sent.
    pub fn ended(&mut self, node: NodeId, bytes: u64, priority: Priority, delay: Option<Duration>, now: Time) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        peer.outstanding = peer.outstanding.saturating_sub(1);
        let owed = &mut peer.outstanding_bytes[priority as usize];
        *owed = owed.saturating_sub(bytes);
        if let Some(delay) = delay {
            self.slowest.came(delay, now);
            let us = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
            if peer.delay_us == 0 {
                (peer.delay_us, peer.deviation_us) = (us, us / 2);
            } else {
                let off = us.abs_diff(peer.delay_us);
                peer.deviation_us = smooth(peer.deviation_us, off, DEVIATION_SHIFT);
                peer.delay_us = smooth(peer.delay_us, us, MEAN_SHIFT);
            }
            peer.answered = now;
            self.progressed(node, now);
        }
    }

    /// Some bytes came from it.
    pub fn progressed(&mut self, node: NodeId, now: Time) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        peer.progress = now;
        peer.stalled_since = None;
        peer.broken_until = None;
    }

    /// True if it owes us something and has been silent for so long.
    pub fn silent_for(&self, node: NodeId, now: Time) -> Duration {
        self.peers.get(&node).filter(|peer| peer.outstanding > 0).map_or(Duration::ZERO, |peer| now - peer.progress)
    }

    /// Whoever owes something and is silent for so long has stalled: [`STALL`], or as long as the answers took that came
    /// of late. If those are late as well, it is this node's own link that is slow, and what is asked of others because of it
    /// would make it slower still.
    pub fn stall(&self, now: Time) -> Duration {
        self.slowest.lately(now).clamp(STALL, STALL_MAX)
    }

    /// True if an answer that has not come after this time is later than all that came of late: what it waits for is not what all
    /// wait for.
    pub fn is_late_alone(&self, age: Duration, now: Time) -> bool {
        let lately = self.slowest.lately(now);
        !lately.is_zero() && age >= lately + LATE_ALONE
    }

    /// It accepts requests and does not answer; true if that is news, or still so after it was tried again. The time from
    /// which it is tried again does not move while it is only looked at.
    pub fn stalled(&mut self, node: NodeId, now: Time) -> bool {
        let peer = self.peers.entry(node).or_default();
        let news = peer.stalled_since.is_none_or(|since| now - since >= STALL_RETRY);
        if news {
            peer.stalled_since = Some(now);
        }
        news
    }

    /// It cannot be reached.
    pub fn broken(&mut self, node: NodeId, now: Time) {
        self.peers.entry(node).or_default().broken_until = Some(now + BROKEN_RETRY);
    }

    /// It sent wrong bytes, or broke the protocol. Returns for how long it is put aside.
    pub fn lied(&mut self, node: NodeId, now: Time) -> Duration {
        self.tally.lies += 1;
        if self.peers.len() >= PEERS_MAX {
            self.peers.retain(|_, peer| peer.outstanding > 0 || !peer.standing.has_lied() || !peer.is_usable(now));
        }
        if self.peers.len() >= PEERS_MAX && !self.peers.contains_key(&node) {
            return Standing::default().lied(now);
        }
        self.peers.entry(node).or_default().standing.lied(now)
    }

    /// True if it was asked for `bytes` with this reach, by now `age` ago, and has given nobody a whole answer for so long
    /// that it is put aside: bytes that trickle, and promises that are not kept.
    pub fn drags(&mut self, node: NodeId, reach: Reach, bytes: u64, age: Duration, now: Time) -> bool {
        let Some(peer) = self.peers.get_mut(&node) else { return false };
        let within = whole_within(reach, bytes);
        if age < within || now - peer.answered < within {
            return false;
        }
        // What it owes by then does not count against it a second time.
        peer.answered = now + peer.standing.dragged(now);
        self.tally.drags += 1;
        true
    }

    /// It refused what it says that it has.
    /// True if its claims are not believed from now on.
    pub fn claimed_falsely(&mut self, node: NodeId, now: Time) -> bool {
        self.tally.false_claims += 1;
        self.peers.get_mut(&node).is_some_and(|peer| peer.standing.claimed_falsely(now))
    }

    /// It delivered what it says that it has.
    pub fn kept_its_word(&mut self, node: NodeId) {
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.standing.kept_its_word();
        }
    }

    /// Forgets all that are gone and owe nothing, but for their lies, which [`Peers::lied`] bounds.
    pub fn sweep(&mut self, is_there: impl Fn(NodeId) -> bool) {
        self.peers.retain(|node, peer| is_there(*node) || peer.outstanding > 0 || peer.standing.has_lied());
    }

    /// Forgets one that is gone, but for its lies. If it owes something, [`Peers::sweep`] does so later.
    pub fn forget(&mut self, node: NodeId) {
        if self.peers.get(&node).is_some_and(|peer| !peer.standing.has_lied() && peer.outstanding == 0) {
            self.peers.remove(&node);
        }
    }
}

fn smooth(mean: u64, value: u64, shift: u32) -> u64 {
    (mean - (mean >> shift)).saturating_add(value >> shift)
}

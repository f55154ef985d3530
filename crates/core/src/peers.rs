//! Peers: how each has answered so far, and whom to ask next.
//!
//! Owned by [`crate::node::Node`]. Measures delay, counts what is outstanding, remembers stalls, broken
//! links and lies. Decides only between peers that it is given; who has a chunk is placement's to say.

use crate::identity::NodeId;
use crate::placement::map::mix;
use crate::time::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// A peer that has requests and delivers no byte for so long is asked no more until it delivers again.
/// Below a second, so that a read that hung on it is answered elsewhere within one (promise P2).
pub const STALL: Duration = Duration::from_millis(600);
/// A stalled peer is tried again after this, in case that all it owed us was lost with a connection.
const STALL_RETRY: Duration = Duration::from_secs(5);
/// A peer whose link is broken is not dialled for so long. Dead ones are forgotten by membership.
const BROKEN_RETRY: Duration = Duration::from_millis(500);
/// The first lie costs a minute, each later one twice as long, up to a day.
const BLAME: Duration = Duration::from_secs(60);
const BLAME_MAX: Duration = Duration::from_secs(86_400);
/// Weight of a new delay in the mean (RFC 6298: 1/8 for the mean, 1/4 for the deviation).
const MEAN_SHIFT: u32 = 3;
const DEVIATION_SHIFT: u32 = 2;

/// What is known of one peer.
#[derive(Debug, Clone, Default)]
pub struct Peer {
    /// Requests sent and not answered.
    pub outstanding: u32,
    /// Bytes they ask for.
    pub outstanding_bytes: u64,
    delay_us: u64,
    deviation_us: u64,
    /// When it last delivered a byte, or was first asked for one.
    progress: Time,
    stalled_since: Option<Time>,
    broken_until: Option<Time>,
    lies: u32,
    blamed_until: Option<Time>,
}

impl Peer {
    /// Later than this after being sent, an answer is unusually late.
    pub fn patience(&self) -> Duration {
        Duration::from_micros(self.delay_us + 4 * self.deviation_us)
    }

    fn is_usable(&self, now: Time) -> bool {
        let over = |until: Option<Time>| until.is_none_or(|until| until <= now);
        let stalled = self.stalled_since.is_some_and(|since| now - since < STALL_RETRY);
        !stalled && over(self.broken_until) && over(self.blamed_until)
    }
}

/// All peers ever asked.
#[derive(Debug)]
pub struct Peers {
    peers: BTreeMap<NodeId, Peer>,
    turn: u64,
    round_robin: bool,
}

impl Peers {
    /// Nobody yet. `seed` makes choices repeatable; without `round_robin` the first candidate is taken.
    pub fn new(seed: u64, round_robin: bool) -> Self {
        Self { peers: BTreeMap::new(), turn: seed, round_robin }
    }

    /// What is known of one.
    pub fn of(&self, node: NodeId) -> Option<&Peer> {
        self.peers.get(&node)
    }

    /// True unless it is known to be stalled, broken or lying.
    pub fn is_usable(&self, node: NodeId, now: Time) -> bool {
        self.peers.get(&node).is_none_or(|peer| peer.is_usable(now))
    }

    /// The state for people: `blamed`, `unreachable`, `stalled`, or nothing special.
    pub fn trouble(&self, node: NodeId, now: Time) -> Option<&'static str> {
        let peer = self.peers.get(&node)?;
        if peer.blamed_until.is_some_and(|until| until > now) {
            Some("blamed")
        } else if peer.broken_until.is_some_and(|until| until > now) {
            Some("unreachable")
        } else {
            peer.stalled_since.map(|_| "stalled")
        }
    }

    /// Chooses whom to ask: of two random candidates the one that should answer sooner, by its measured
    /// delay and by what it owes us already (Mitzenmacher's two choices, 2001). All must be usable.
    pub fn choose(&mut self, candidates: &[NodeId]) -> Option<NodeId> {
        if !self.round_robin || candidates.len() < 2 {
            return candidates.first().copied();
        }
        self.turn = self.turn.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let random = mix(self.turn);
        let first = (random % candidates.len() as u64) as usize;
        let second = (first + 1 + (random >> 32) as usize % (candidates.len() - 1)) % candidates.len();
        let cost = |node: NodeId| {
            self.peers.get(&node).map_or(0, |peer| (u64::from(peer.outstanding) + 1) * (peer.delay_us + 1))
        };
        let (first, second) = (candidates[first], candidates[second]);
        Some(if cost(second) < cost(first) { second } else { first })
    }

    /// A request was sent.
    pub fn asked(&mut self, node: NodeId, bytes: u64, now: Time) {
        let peer = self.peers.entry(node).or_default();
        if peer.outstanding == 0 {
            peer.progress = now;
        }
        peer.outstanding += 1;
        peer.outstanding_bytes += bytes;
    }

    /// A request ended; `delay` if it was answered, from being sent.
    pub fn ended(&mut self, node: NodeId, bytes: u64, delay: Option<Duration>, now: Time) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        peer.outstanding = peer.outstanding.saturating_sub(1);
        peer.outstanding_bytes = peer.outstanding_bytes.saturating_sub(bytes);
        if let Some(delay) = delay {
            let us = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
            if peer.delay_us == 0 {
                (peer.delay_us, peer.deviation_us) = (us, us / 2);
            } else {
                let off = us.abs_diff(peer.delay_us);
                peer.deviation_us = smooth(peer.deviation_us, off, DEVIATION_SHIFT);
                peer.delay_us = smooth(peer.delay_us, us, MEAN_SHIFT);
            }
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

    /// It accepts requests and does not answer; true if that is news.
    pub fn stalled(&mut self, node: NodeId, now: Time) -> bool {
        let peer = self.peers.entry(node).or_default();
        let news = peer.stalled_since.is_none();
        peer.stalled_since = Some(now);
        news
    }

    /// It cannot be reached.
    pub fn broken(&mut self, node: NodeId, now: Time) {
        self.peers.entry(node).or_default().broken_until = Some(now + BROKEN_RETRY);
    }

    /// It sent wrong bytes. Returns for how long it is put aside.
    pub fn lied(&mut self, node: NodeId, now: Time) -> Duration {
        let peer = self.peers.entry(node).or_default();
        let pause = (BLAME * 2u32.saturating_pow(peer.lies.min(16))).min(BLAME_MAX);
        peer.lies += 1;
        peer.blamed_until = Some(now + pause);
        pause
    }

    /// Forgets one that is gone, but for its lies.
    pub fn forget(&mut self, node: NodeId) {
        if self.peers.get(&node).is_some_and(|peer| peer.lies == 0 && peer.outstanding == 0) {
            self.peers.remove(&node);
        }
    }
}

fn smooth(mean: u64, value: u64, shift: u32) -> u64 {
    (mean - (mean >> shift)).saturating_add(value >> shift)
}

//! Peers: how each has answered so far, and which one to ask next.
//!
//! Owned by [`crate::node::Node`]. It measures delay, counts outstanding requests, and remembers
//! stalls, broken links and each peer's [`Standing`]. It decides only between given peers;
//! placement says which peers have a chunk.

use crate::fetch::ImageNumber;
use crate::identity::NodeId;
use crate::misdeed::{Misdeed, Tally};
use crate::pace::Pace;
use crate::placement::map::mix;
use crate::reach::Reach;
use crate::slowest::Slowest;
use crate::speed::{Meter, Shown, Speed, Transit, Window as Measured};
use crate::standing::{Standing, whole_within};
use crate::time::Time;
use crate::tuning::{
    BACKOFF, BEGINNINGS, BROKEN, DEVIATION_SHIFT, DEVIATIONS, GAIN_SHIFT, GIVEN_UP_FOR, IDLE_WINDOWS, LAGGARD,
    LATE_ALONE, LOOKS, OWN_FAULT, PEER_WINDOW_FIRST, STALL, STALL_MAX, STALLED,
};
use crate::window::Window;
use crate::wire::Priority;
use std::collections::BTreeMap;
use std::time::Duration;

/// Most remembered peers. Beyond it, liars whose ban has ended are forgotten. A liar may choose new
/// ids freely.
const PEERS_MAX: usize = 4096;
/// Steps by which the speed of a peer's answers has to change before it is told so again.
const TOLD_STEPS: u8 = 4;
/// Time after which it is told so in any case: the other side forgets measurements after a second.
const TOLD_EVERY: Duration = Duration::from_millis(900);

/// All that one peer is asked for of one image.
pub type Flow = (NodeId, ImageNumber);

/// The state of one peer.
#[derive(Debug, Clone, Default)]
pub struct Peer {
    /// Requests sent and not answered.
    pub outstanding: u32,
    /// The windows of the images that it was asked for.
    windows: Vec<(ImageNumber, Window)>,
    delay_us: u64,
    deviation_us: u64,
    /// When it last delivered a byte, or got its first request.
    progress: Time,
    /// When it last gave a whole answer, or got its first request.
    answered: Time,
    stalled_since: Option<Time>,
    /// Times it has stalled since it last delivered.
    stalls: u32,
    /// When it last stalled or timed out, unless it has answered since.
    given_up: Option<Time>,
    broken_until: Option<Time>,
    /// Times that connections to it broke, or none could be made, since something came from it.
    breaks: u32,
    standing: Standing,
    pace: Pace,
    meter: Meter,
    /// Windows in a row in which its link was idle.
    idle_windows: u32,
    /// The speed that it was told last, and when.
    told: Option<(Speed, Time)>,
    /// Times it has lagged.
    lags: u32,
    /// True if it has passed chunks on and not refused since.
    in_step: bool,
    /// True if it has ever passed chunks on.
    has_begun: bool,
    /// Refusals to pass a chunk on since it last did.
    out_of_step: u32,
    backoff_until: Option<Time>,
}

impl Peer {
    /// Later than this after being sent, an answer is unusually late.
    pub fn patience(&self) -> Duration {
        Duration::from_micros(self.delay_us + DEVIATIONS * self.deviation_us)
    }

    /// The window of an image; `None` before anything of it was requested.
    fn window(&self, image: ImageNumber) -> Option<&Window> {
        self.windows.iter().find(|(of, _)| *of == image).map(|(_, window)| window)
    }

    fn is_usable(&self, now: Time) -> bool {
        let over = |until: Option<Time>| until.is_none_or(|until| until <= now);
        !self.is_left_alone(now) && over(self.broken_until) && !self.standing.is_banned(now)
    }

    /// True until a stalled peer is tried again.
    fn is_left_alone(&self, now: Time) -> bool {
        let pause = STALLED.pause(self.stalls.saturating_sub(1));
        self.stalled_since.is_some_and(|since| now - since < pause)
    }
}

/// All peers ever asked.
#[derive(Debug)]
pub struct Peers {
    peers: BTreeMap<NodeId, Peer>,
    round_robin: bool,
    /// The peer that lagged last, and when.
    laggard: Option<(NodeId, Time)>,
    slowest: Slowest,
    tally: Tally,
}

impl Peers {
    /// No peers yet. Without `round_robin` the first candidate is taken.
    pub fn new(round_robin: bool) -> Self {
        let (slowest, tally) = (Slowest::default(), Tally::default());
        Self { peers: BTreeMap::new(), round_robin, laggard: None, slowest, tally }
    }

    /// The state of one peer; `None` if it was never asked.
    pub fn of(&self, node: NodeId) -> Option<&Peer> {
        self.peers.get(&node)
    }

    /// True unless the peer is known to be stalled or broken, or banned.
    pub fn is_usable(&self, node: NodeId, now: Time) -> bool {
        self.peers.get(&node).is_none_or(|peer| peer.is_usable(now))
    }

    /// True if the peer did not answer lately, whatever signs of life it gives.
    pub fn is_given_up(&self, node: NodeId, now: Time) -> bool {
        let since = self.peers.get(&node).and_then(|peer| peer.given_up);
        since.is_some_and(|since| now - since < GIVEN_UP_FOR)
    }

    /// True unless the peer refused announced chunks too often.
    pub fn is_believed(&self, node: NodeId, now: Time) -> bool {
        self.peers.get(&node).is_none_or(|peer| peer.standing.is_believed(now))
    }

    /// True if the peer counts as a holder of the chunks it announces.
    pub fn counts(&self, node: NodeId, now: Time) -> bool {
        self.peers.get(&node).is_none_or(|peer| peer.standing.counts(now))
    }

    /// The state for display: that of its [`Standing`], `unreachable`, `stalled`, or `None`. A peer
    /// that stalled, owes nothing any more and may be asked again is no longer in trouble.
    pub fn trouble(&self, node: NodeId, now: Time) -> Option<&'static str> {
        let peer = self.peers.get(&node)?;
        peer.standing.trouble(now).or_else(|| {
            let is_unreachable = peer.broken_until.is_some_and(|until| until > now);
            let is_stalled = peer.is_left_alone(now) || (peer.stalled_since.is_some() && peer.outstanding > 0);
            if is_unreachable { Some("unreachable") } else { is_stalled.then_some("stalled") }
        })
    }

    /// Counts of all peers' misdeeds.
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// Chooses the peer to ask: the better of two random candidates, by measured delay and by what
    /// each owes (Mitzenmacher's two choices, 2001). Of up to three candidates all are compared.
    /// All must be usable. `dice` is a random number, new for each call.
    pub fn choose(&self, candidates: &[NodeId], dice: u64) -> Option<NodeId> {
        if !self.round_robin || candidates.len() < 2 {
            return candidates.first().copied();
        }
        let cost = |node: NodeId| {
            self.peers.get(&node).map_or(0, |peer| (u64::from(peer.outstanding) + 1) * (peer.delay_us + 1))
        };
        let mut left = candidates.to_vec();
        let mut best: Option<(u64, NodeId)> = None;
        let looks = if candidates.len() <= LOOKS { LOOKS } else { 2 };
        for look in 0..looks.min(candidates.len()) {
            let node = left.swap_remove((mix(dice.wrapping_add(look as u64)) % left.len() as u64) as usize);
            if best.is_none_or(|(least, _)| cost(node) < least) {
                best = Some((cost(node), node));
            }
        }
        best.map(|(_, node)| node)
    }

    /// A request was sent.
    pub fn asked(&mut self, (node, image): Flow, bytes: u64, priority: Priority, now: Time) {
        let peer = self.peers.entry(node).or_default();
        if peer.outstanding == 0 {
            (peer.progress, peer.answered) = (now, now);
        }
        peer.outstanding += 1;
        if peer.window(image).is_none() {
            peer.windows.push((image, Window::default()));
        }
        self.change((node, image), |window| window.asked(bytes, priority));
    }

    fn window_of(&self, (node, image): Flow) -> Option<&Window> {
        self.peers.get(&node)?.window(image)
    }

    fn change(&mut self, (node, image): Flow, change: impl FnOnce(&mut Window)) {
        let windows = self.peers.get_mut(&node).into_iter().flat_map(|peer| &mut peer.windows);
        if let Some((_, window)) = { windows }.find(|(of, _)| *of == image) {
            change(window);
        }
    }

    /// True if the peer may be asked for `bytes` more; see [`Window::has_room`].
    pub fn has_room(&self, flow: Flow, bytes: u64, priority: Priority) -> bool {
        let is_stalled = |peer: &Peer| peer.stalled_since.is_some();
        self.window_of(flow).is_none_or(|window| window.has_room(bytes, priority))
            || self.peers.get(&flow.0).is_some_and(is_stalled)
    }

    /// Notes that chunks are parked for it with this priority.
    pub fn waited_for(&mut self, flow: Flow, priority: Priority) {
        self.change(flow, |window| window.waited_for(priority));
    }

    /// Bytes of parked chunks that may be requested now with this priority.
    pub fn room(&self, flow: Flow, priority: Priority) -> u64 {
        self.window_of(flow).map_or(PEER_WINDOW_FIRST, |window| window.room(priority))
    }

    /// Sets the bytes of parked chunks that are requested now; `None` if nothing is parked any
    /// more.
    pub fn set_credit(&mut self, flow: Flow, priority: Priority, bytes: Option<u64>) {
        self.change(flow, |window| window.set_credit(priority, bytes));
    }

    /// Bytes of an image requested of it and not yet delivered.
    pub fn owed(&self, flow: Flow) -> u64 {
        self.window_of(flow).map_or(0, Window::owed)
    }

    /// True if it was asked for something and has not delivered it yet.
    pub fn owes(&self, node: NodeId) -> bool {
        self.peers.get(&node).is_some_and(|peer| peer.outstanding > 0)
    }

    /// Notes `bytes` delivered after `delay`, when it owed `owed` of the image; see
    /// [`Window::delivered`].
    pub fn delivered(&mut self, flow: Flow, bytes: u64, delay: Duration, owed: u64, window_max: u64) {
        self.change(flow, |window| window.delivered(bytes, delay, owed, window_max));
    }

    /// Forgets the windows of an image that is gone.
    pub fn drop_image(&mut self, image: ImageNumber) {
        self.peers.values_mut().for_each(|peer| peer.windows.retain(|(of, _)| *of != image));
    }

    /// Notes `bytes` delivered, which the peer could have begun to send at `ready`.
    pub fn paced(&mut self, node: NodeId, bytes: u64, ready: Time, now: Time) {
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.pace.came(bytes, ready, now);
        }
    }

    /// Notes an answer of `bytes`, whose last byte came now. Returns what the peer's [`Meter`]
    /// shows at the end of each window, and the peer's speed if it is to be told.
    pub fn carried(&mut self, node: NodeId, bytes: u64, transit: Transit, now: Time) -> (Option<Shown>, Option<Speed>) {
        let Some(peer) = self.peers.get_mut(&node) else { return (None, None) };
        let shown = peer.meter.came(bytes, transit, now);
        peer.idle_windows = match shown {
            Some(Shown::Idle) => peer.idle_windows + 1,
            Some(Shown::Rate(_)) => 0,
            None => peer.idle_windows,
        };
        if shown == Some(Shown::Idle) && peer.idle_windows < IDLE_WINDOWS {
            return (None, None);
        }
        let Some(Shown::Rate(Measured { peers, .. })) = shown else { return (shown, None) };
        let told = peer.told;
        let is_news = |speed: &Speed| {
            told.is_none_or(|(told, at)| speed.0.abs_diff(told.0) >= TOLD_STEPS || now - at >= TOLD_EVERY)
        };
        let news = peers.filter(is_news);
        peer.told = news.map(|speed| (speed, now)).or(told);
        (shown, news)
    }

    /// True if a peer that others wait for has become much slower; it then backs off.
    pub fn lags(&mut self, node: NodeId, now: Time) -> bool {
        let Some(peer) = self.peers.get_mut(&node).filter(|peer| peer.pace.is_slow()) else { return false };
        let own_fault = self.laggard.is_some_and(|(other, at)| other != node && now - at < OWN_FAULT);
        self.laggard = Some((node, now));
        if own_fault {
            peer.pace.accept();
            return false;
        }
        let pause = LAGGARD.pause(peer.lags);
        peer.lags += 1;
        (peer.in_step, peer.has_begun, peer.backoff_until) = (false, true, Some(now + pause));
        peer.pace.try_again();
        true
    }

    /// Notes that it passed a chunk on along the chain.
    pub fn in_step(&mut self, node: NodeId) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        (peer.in_step, peer.has_begun, peer.out_of_step, peer.backoff_until) = (true, true, 0, None);
    }

    /// Forgets that peers are out of step.
    pub fn begin(&mut self) {
        for peer in self.peers.values_mut() {
            (peer.out_of_step, peer.backoff_until) = (0, None);
        }
    }

    /// Bytes of an image that peers in step, and these `origins`, deliver in
    /// [`crate::tuning::PEER_DELAY`].
    pub fn passing(&self, image: ImageNumber, origins: &[NodeId]) -> u64 {
        let passing = self.peers.iter().filter(|(node, peer)| peer.in_step || origins.contains(node));
        passing.map(|(_, peer)| peer.window(image).map_or(PEER_WINDOW_FIRST, Window::bytes)).sum()
    }

    /// True if it has passed chunks on and not refused since.
    pub fn is_in_step(&self, node: NodeId) -> bool {
        self.peers.get(&node).is_some_and(|peer| peer.in_step)
    }

    /// Notes that it refused to pass a chunk on.
    pub fn out_of_step(&mut self, node: NodeId, now: Time) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        let pause = BACKOFF.pause(peer.out_of_step);
        // The refusals of one burst count once.
        if peer.backoff_until.is_none_or(|until| until <= now) {
            peer.in_step = false;
            peer.out_of_step += 1;
            peer.backoff_until = Some(now + pause);
        }
    }

    /// True if it has refused to pass chunks on recently and for the first times: it may only just
    /// begin. A peer that passes others on refuses for another reason. Perhaps it waits for this
    /// node, and must not be waited for.
    pub fn may_begin(&self, node: NodeId, now: Time) -> bool {
        let begins = |peer: &Peer| !peer.has_begun && peer.out_of_step <= BEGINNINGS;
        !self.may_be_in_step(node, now) && self.peers.get(&node).is_some_and(begins)
    }

    /// The rest of its backoff.
    pub fn backoff_left(&self, node: NodeId, now: Time) -> Duration {
        self.peers.get(&node).and_then(|peer| peer.backoff_until).map_or(Duration::ZERO, |until| until - now)
    }

    /// True unless it has refused to pass chunks on lately.
    pub fn may_be_in_step(&self, node: NodeId, now: Time) -> bool {
        self.peers.get(&node).is_none_or(|peer| peer.backoff_until.is_none_or(|until| until <= now))
    }

    /// A request ended; `delay` if it was answered, from being sent.
    pub fn ended(&mut self, flow: Flow, bytes: u64, priority: Priority, delay: Option<Duration>, now: Time) {
        self.change(flow, |window| window.ended(bytes, priority));
        let node = flow.0;
        let Some(peer) = self.peers.get_mut(&node) else { return };
        peer.outstanding = peer.outstanding.saturating_sub(1);
        if let Some(delay) = delay {
            self.slowest.came(delay, now);
            let us = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
            if peer.delay_us == 0 {
                (peer.delay_us, peer.deviation_us) = (us, us / 2);
            } else {
                let off = us.abs_diff(peer.delay_us);
                peer.deviation_us = smooth(peer.deviation_us, off, DEVIATION_SHIFT);
                peer.delay_us = smooth(peer.delay_us, us, GAIN_SHIFT);
            }
            (peer.answered, peer.given_up) = (now, None);
            self.progressed(node, now);
        }
    }

    /// Some bytes came from it.
    pub fn progressed(&mut self, node: NodeId, now: Time) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        peer.progress = now;
        (peer.stalled_since, peer.stalls) = (None, 0);
        (peer.broken_until, peer.breaks) = (None, 0);
    }

    /// How long the peer has been silent while it owes something; zero if it owes nothing.
    pub fn silent_for(&self, node: NodeId, now: Time) -> Duration {
        self.peers.get(&node).filter(|peer| peer.outstanding > 0).map_or(Duration::ZERO, |peer| now - peer.progress)
    }

    /// The stall timeout: [`STALL`], or the longest recent answer time if that is longer. If recent
    /// answers are late too, this node's own link is slow, and requests elsewhere would make it
    /// slower still.
    pub fn stall(&self, now: Time) -> Duration {
        self.slowest.lately(now).clamp(STALL, STALL_MAX)
    }

    /// True if an answer of this age is later than every recent one: its peer is slow, not all of
    /// them.
    pub fn is_late_alone(&self, age: Duration, now: Time) -> bool {
        let lately = self.slowest.lately(now);
        !lately.is_zero() && age >= lately + LATE_ALONE
    }

    /// Notes that the peer accepts requests and does not answer. True if that is new, or still so
    /// after a retry. Repeated calls do not move the time of the retry.
    pub fn stalled(&mut self, node: NodeId, now: Time) -> bool {
        let peer = self.peers.entry(node).or_default();
        let news = !peer.is_left_alone(now);
        if news {
            (peer.stalled_since, peer.given_up) = (Some(now), Some(now));
            peer.stalls = peer.stalls.saturating_add(1);
        }
        news
    }

    /// Notes that the peer cannot be reached.
    pub fn broken(&mut self, node: NodeId, now: Time) {
        let peer = self.peers.entry(node).or_default();
        // The requests of one connection break at once.
        if peer.broken_until.is_none_or(|until| until <= now) {
            peer.broken_until = Some(now + BROKEN.pause(peer.breaks));
            peer.breaks = peer.breaks.saturating_add(1);
        }
    }

    /// Notes that the peer is new, back, or elsewhere: it may be tried at once.
    pub fn is_back(&mut self, node: NodeId) {
        if let Some(peer) = self.peers.get_mut(&node) {
            (peer.broken_until, peer.breaks) = (None, 0);
        }
    }

    /// True if it could not be reached when it was last tried.
    pub fn is_unreached(&self, node: NodeId) -> bool {
        self.peers.get(&node).is_some_and(|peer| peer.breaks > 0)
    }

    /// Notes wrong bytes or a broken protocol. Returns the length of the ban.
    pub fn lied(&mut self, node: NodeId, now: Time) -> Duration {
        self.tally.add(Misdeed::Lies);
        if self.peers.len() >= PEERS_MAX {
            self.peers.retain(|_, peer| peer.outstanding > 0 || !peer.standing.has_lied() || !peer.is_usable(now));
        }
        if self.peers.len() >= PEERS_MAX && !self.peers.contains_key(&node) {
            return Standing::default().lied(now);
        }
        self.peers.entry(node).or_default().standing.lied(now)
    }

    /// True if a request for `bytes` with this reach, sent `age` ago, has timed out: the peer gave
    /// no whole answer for so long that it is banned. This covers trickling bytes and broken
    /// promises.
    pub fn times_out(&mut self, node: NodeId, reach: Reach, bytes: u64, age: Duration, now: Time) -> bool {
        let Some(peer) = self.peers.get_mut(&node) else { return false };
        let within = whole_within(reach, bytes);
        if age < within || now - peer.answered < within {
            return false;
        }
        // Debts of the time of the ban do not count a second time.
        peer.answered = now + peer.standing.timed_out(now);
        peer.given_up = Some(now);
        self.tally.add(Misdeed::Drags);
        true
    }

    /// Notes the refusal of a chunk that others announced for the peer. True once there are as many
    /// as make claims false.
    pub fn contradicted(&mut self, node: NodeId) -> bool {
        self.tally.add(Misdeed::FalseClaims);
        self.peers.get_mut(&node).is_some_and(|peer| peer.standing.contradicted())
    }

    /// Notes the refusal of a chunk that the peer announced. True if the peer's claims are not
    /// believed from now on.
    pub fn claimed_falsely(&mut self, node: NodeId, now: Time) -> bool {
        self.tally.add(Misdeed::FalseClaims);
        self.peers.get_mut(&node).is_some_and(|peer| peer.standing.claimed_falsely(now))
    }

    /// Notes the delivery of an announced chunk.
    pub fn delivered_as_claimed(&mut self, node: NodeId) {
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.standing.delivered_as_claimed();
        }
    }

    /// Forgets departed peers that owe nothing, but for liars, which [`Peers::lied`] bounds.
    pub fn sweep(&mut self, is_there: impl Fn(NodeId) -> bool) {
        self.peers.retain(|node, peer| is_there(*node) || peer.outstanding > 0 || peer.standing.has_lied());
    }

    /// Forgets a departed peer, unless it lied. If it owes something, [`Peers::sweep`] forgets it
    /// later.
    pub fn forget(&mut self, node: NodeId) {
        if self.peers.get(&node).is_some_and(|peer| !peer.standing.has_lied() && peer.outstanding == 0) {
            self.peers.remove(&node);
        }
    }
}

fn smooth(mean: u64, value: u64, shift: u32) -> u64 {
    (mean - (mean >> shift)).saturating_add(value >> shift)
}

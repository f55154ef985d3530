//! Limits of a node's traffic with other nodes: one token bucket a direction, shared by all
//! connections, and one for the answers of each limited image.
//!
//! A connection asks for a turn before it moves bytes. Turns are granted in the order of priority,
//! then of arrival; each eighth turn is the oldest one's that is no demand. So a limit slows fills
//! first, and no peer takes this node for a silent one. The first in the queue holds the timer, and
//! wakes its successor. Messages without a chunk pass at once, and are charged all the same.
//!
//! To peers the node looks like a link of that rate, because each turn is a few milliseconds of it.
//! An answer of a limited image waits for a turn of its image first, and gets all of it. So it does
//! not occupy its connection, on which other images go too. The core limits the bytes that come of
//! an image: it requests no more of them.
//!
//! [`vfield_core::bucket`] has the arithmetic.

use crate::server::Leaves;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use vfield_core::bucket::Bucket;
use vfield_core::names::Names;
use vfield_core::speed::LinkBounds;
use vfield_core::time::Time;
use vfield_core::tuning::field::RATE_MIN;
use vfield_core::wire::Priority;

/// Lowest limit in bytes a second. At half of it a node is of no use to its peers, and they ban it
/// for its timeouts. Gossip and requests take a tenth of it in a room of 50 nodes.
pub const LIMIT_MIN: u64 = 2 * RATE_MIN;
/// Of so many turns, one is for the oldest that is no demand. So a fill goes on at an eighth of the
/// limit, and its peer neither hedges nor bans this node.
const TURNS: u64 = 8;

/// Limits in bytes a second; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rates {
    /// To other nodes.
    pub up: Option<NonZeroU64>,
    /// From other nodes.
    pub down: Option<NonZeroU64>,
}

impl From<Rates> for LinkBounds {
    fn from(rates: Rates) -> Self {
        let [up, down] = [rates.up, rates.down].map(|rate| rate.map(NonZeroU64::get));
        Self { up, down }
    }
}

/// The limits of both directions.
#[derive(Debug, Default)]
pub struct Limits {
    /// To other nodes.
    pub up: Arc<Pacer>,
    /// From other nodes.
    pub down: Arc<Pacer>,
    /// Whose turn it is among the leaves that this node sends to.
    pub leaves: Leaves,
    /// Those of single images, by any of an image's names.
    images: Mutex<Vec<(String, Rates)>>,
}

impl Limits {
    /// Sets both limits; bytes that wait follow them at once.
    pub fn set(&self, rates: Rates) {
        self.up.set(rates.up);
        self.down.set(rates.down);
    }

    /// The limits in force.
    pub fn rates(&self) -> Rates {
        Rates { up: self.up.rate(), down: self.down.rate() }
    }

    /// Replaces the limits of single images.
    pub fn set_images(&self, images: Vec<(String, Rates)>) {
        *self.images.lock().unwrap_or_else(PoisonError::into_inner) = images;
    }

    /// The limits of an image with these names: those of the first name that has some.
    pub fn of_image(&self, names: &Names) -> Rates {
        let images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        names
            .iter()
            .find_map(|name| images.iter().find(|(of, _)| of == name))
            .map(|(_, rates)| *rates)
            .unwrap_or_default()
    }
}

/// The limit of one direction.
#[derive(Debug)]
pub struct Pacer {
    start: Instant,
    is_limited: AtomicBool,
    /// For how long turns were waited for, in all, in microseconds.
    held_us: AtomicU64,
    state: Mutex<State>,
}

/// What a turn is asked for.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    /// A part of so many bytes.
    Some(u64),
    /// All of them at once.
    All(u64),
}

impl Wanted {
    const fn bytes(self) -> u64 {
        let (Self::Some(bytes) | Self::All(bytes)) = self;
        bytes
    }
}

/// A place in the queue: turns are granted by the lowest.
type Place = (Priority, u64);

#[derive(Debug, Default)]
struct State {
    bucket: Bucket,
    queue: BTreeMap<Place, Arc<Notify>>,
    /// Places given out.
    places: u64,
    /// Turns granted to those that waited.
    turns: u64,
}

impl State {
    /// Whose turn is next.
    fn first(&self) -> Option<Place> {
        let patient = self.queue.keys().filter(|(priority, _)| *priority != Priority::Demand);
        let oldest = patient.min_by_key(|(_, number)| *number);
        let is_theirs = self.turns % TURNS == TURNS - 1;
        oldest.filter(|_| is_theirs).or_else(|| self.queue.keys().next()).copied()
    }

    fn wake_first(&self) {
        if let Some(notify) = self.first().and_then(|place| self.queue.get(&place)) {
            notify.notify_one();
        }
    }

    /// Takes a part of `wanted` bytes, or says how long to wait for it.
    fn take(&mut self, wanted: Wanted, now: Time) -> Result<u64, Duration> {
        let wait = self.bucket.wait(now);
        if !wait.is_zero() {
            return Err(wait);
        }
        let granted = match wanted {
            Wanted::Some(bytes) => bytes.min(self.bucket.at_once(self.queue.len())),
            Wanted::All(bytes) => bytes,
        };
        self.bucket.take(granted, now);
        Ok(granted)
    }
}

impl Default for Pacer {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            is_limited: AtomicBool::new(false),
            held_us: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }
}

impl Pacer {
    /// Sets the limit; those that wait go on by it.
    pub fn set(&self, rate: Option<NonZeroU64>) {
        let mut state = self.state();
        state.bucket.set_rate(rate, self.now());
        self.is_limited.store(rate.is_some(), Ordering::Relaxed);
        state.queue.values().for_each(|notify| notify.notify_one());
    }

    /// The limit in force, in bytes a second.
    pub fn rate(&self) -> Option<NonZeroU64> {
        self.state().bucket.rate()
    }

    /// True if there is a limit. Without one, nobody has to ask for turns.
    pub fn is_limited(&self) -> bool {
        self.is_limited.load(Ordering::Relaxed)
    }

    /// For how long bytes waited for this limit, summed over connections.
    pub fn held(&self) -> Duration {
        Duration::from_micros(self.held_us.load(Ordering::Relaxed))
    }

    /// Notes bytes that did not ask.
    pub fn charge(&self, bytes: u64) {
        if self.is_limited() {
            let now = self.now();
            self.state().bucket.take(bytes, now);
        }
    }

    /// Takes back bytes that were granted and did not go.
    pub fn give_back(&self, bytes: u64) {
        if bytes > 0 && self.is_limited() {
            self.state().bucket.give_back(bytes);
        }
    }

    /// Grants a part of `wanted` bytes, if the limit allows some now and nobody waits.
    pub fn try_turn(&self, wanted: u64) -> Option<u64> {
        self.try_take(Wanted::Some(wanted))
    }

    /// Grants all of so many bytes, if the limit allows some now and nobody waits.
    pub fn try_whole_turn(&self, bytes: u64) -> bool {
        self.try_take(Wanted::All(bytes)).is_some()
    }

    fn try_take(&self, wanted: Wanted) -> Option<u64> {
        let mut state = self.state();
        if !state.queue.is_empty() {
            return None;
        }
        state.take(wanted, self.now()).ok()
    }

    /// Waits for a turn, and grants a part of `wanted` bytes: more than 0 unless that is 0.
    pub async fn turn(self: Arc<Self>, priority: Priority, wanted: u64) -> u64 {
        self.wait(priority, Wanted::Some(wanted)).await
    }

    /// Waits for a turn, and grants all of so many bytes.
    pub async fn whole_turn(&self, priority: Priority, bytes: u64) {
        self.wait(priority, Wanted::All(bytes)).await;
    }

    async fn wait(&self, priority: Priority, wanted: Wanted) -> u64 {
        let asked = Instant::now();
        let waiting = Waiting::new(self, priority);
        loop {
            let left = {
                let mut state = self.state();
                if state.bucket.rate().is_none() {
                    return wanted.bytes();
                }
                if state.first() == Some(waiting.place) {
                    match state.take(wanted, self.now()) {
                        Ok(granted) => {
                            state.turns += 1;
                            self.held_us.fetch_add(asked.elapsed().as_micros() as u64, Ordering::Relaxed);
                            return granted;
                        }
                        Err(wait) => Some(wait),
                    }
                } else {
                    None
                }
            };
            match left {
                Some(left) => {
                    // A new limit, or a more urgent one, ends the pause.
                    let _ = tokio::time::timeout(left, waiting.notify.notified()).await;
                }
                None => waiting.notify.notified().await,
            }
        }
    }

    fn now(&self) -> Time {
        Time::after_start(self.start.elapsed())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the queue, given up by dropping it.
struct Waiting<'a> {
    pacer: &'a Pacer,
    place: Place,
    notify: Arc<Notify>,
}

impl<'a> Waiting<'a> {
    fn new(pacer: &'a Pacer, priority: Priority) -> Self {
        let mut state = pacer.state();
        state.places += 1;
        let (place, notify) = ((priority, state.places), Arc::<Notify>::default());
        state.queue.insert(place, Arc::clone(&notify));
        drop(state);
        Self { pacer, place, notify }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.pacer.state();
        state.queue.remove(&self.place);
        // The timer goes on to the next.
        state.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pacer(rate: u64) -> Arc<Pacer> {
        let pacer = Arc::<Pacer>::default();
        pacer.set(NonZeroU64::new(rate));
        pacer
    }

    /// Sends for a while, and returns the bytes of each sender by priority.
    async fn send(pacer: &Arc<Pacer>, senders: &[Priority], time: Duration) -> Vec<u64> {
        let tasks: Vec<_> = senders
            .iter()
            .map(|priority| {
                let (pacer, priority, start) = (Arc::clone(pacer), *priority, Instant::now());
                tokio::spawn(async move {
                    let mut sent = 0;
                    while start.elapsed() < time {
                        sent += Arc::clone(&pacer).turn(priority, 64 << 10).await;
                    }
                    sent
                })
            })
            .collect();
        let mut sent = Vec::new();
        for task in tasks {
            sent.push(task.await.unwrap());
        }
        sent
    }

    #[tokio::test]
    async fn several_senders_share_one_limit() {
        let pacer = pacer(20_000_000);
        let start = Instant::now();
        let sent = send(&pacer, &[Priority::Demand; 5], Duration::from_secs(1)).await;
        let rate = sent.iter().sum::<u64>() as f64 / start.elapsed().as_secs_f64();
        assert!(rate < 20_600_000.0, "{rate}");
        // A busy machine may be late.
        assert!(rate > 15_000_000.0, "{rate}");
        let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
        assert!(most - least < most / 5, "{sent:?}");
        assert!(pacer.held() > Duration::from_secs(2), "five waited: {:?}", pacer.held());
    }

    #[tokio::test]
    async fn fills_yield_and_go_on() {
        let sent = send(
            &pacer(10_000_000),
            &[Priority::Fill, Priority::Demand, Priority::ReadAhead, Priority::Demand],
            Duration::from_secs(1),
        )
        .await;
        let (patient, demands) = (sent[0] + sent[2], sent[1] + sent[3]);
        assert!(patient * 5 < demands, "{sent:?}");
        assert!(sent[0] * 30 > demands && sent[2] * 30 > demands, "each goes on: {sent:?}");
    }

    /// Each chunk goes whole, and a second has at most a chunk more than the limit.
    #[tokio::test]
    async fn whole_turns_keep_to_the_limit() {
        let (pacer, chunk, time) = (pacer(4_000_000), 64 << 10, Duration::from_secs(1));
        let start = Instant::now();
        let mut sent = 0;
        while start.elapsed() < time {
            if !pacer.try_whole_turn(chunk) {
                pacer.whole_turn(Priority::Demand, chunk).await;
            }
            sent += chunk;
        }
        let most = 4_000_000.0 * 1.03 * start.elapsed().as_secs_f64() + chunk as f64;
        assert!((3_000_000.0..most).contains(&(sent as f64)), "{sent}");
    }

    #[tokio::test]
    async fn a_turn_given_up_is_the_next_ones() {
        let pacer = pacer(LIMIT_MIN);
        pacer.charge(LIMIT_MIN / 10);
        let first = tokio::spawn(Arc::clone(&pacer).turn(Priority::Demand, 1000));
        tokio::task::yield_now().await;
        let second = tokio::spawn(Arc::clone(&pacer).turn(Priority::Fill, 1000));
        tokio::task::yield_now().await;
        assert_eq!(pacer.try_turn(1), None, "others wait");
        first.abort();
        assert_eq!(tokio::time::timeout(Duration::from_secs(20), second).await.unwrap().unwrap(), 1000);
    }

    #[tokio::test]
    async fn an_end_of_the_limit_ends_all_waits() {
        let pacer = pacer(LIMIT_MIN);
        pacer.charge(LIMIT_MIN * 1000);
        let waiting: Vec<_> = (0..9).map(|_| tokio::spawn(Arc::clone(&pacer).turn(Priority::Fill, 5 << 20))).collect();
        tokio::task::yield_now().await;
        pacer.set(None);
        for waiting in waiting {
            let granted = tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap().unwrap();
            assert_eq!(granted, 5 << 20);
        }
        assert!(!pacer.is_limited());
    }
}

//! The lanes to one peer, and the one that a request goes on.
//!
//! One lane is for demands, the others are for the rest. Gossip has a lane of its own if it needs
//! one, so that no chunk delays a sign of life. A lane has one task, so it carries what
//! one processor receives, verifies and stores. A peer that brings nearly as much gets further
//! lanes for the rest, at most one for each of the node's threads. A slower link has one, since
//! nothing is gained by more. [`super::Links`] owns this.

use super::Ask;
use super::lane::{Lane, Role};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vfield_core::chunk::Chunk;
use vfield_core::doubling::Doubling;
use vfield_core::image::ImageId;
use vfield_core::tuning::SPAN;

/// Bytes a second for which a peer gets one more lane: half of what a lane carried (decision
/// 0089). So the next one is open before it is needed. With less, links of 2.5 Gbit/s have two.
pub const LANE_BYTES_PER_S: u64 = 400_000_000;
/// Most lanes for the rest: a link of 100 Gbit/s fills so many.
const LANES_MAX: usize = 12;
/// Bytes of chunks in a row that come on one lane. Fewer make more requests for each byte; more
/// leave lanes without work, since all lanes share the peer's window.
const RUN_BYTES: u64 = 256 << 10;
/// How long a peer has one lane after a further one has ended: it may have no place for more.
const PAUSE: Doubling = Doubling { first: Duration::from_secs(1), longest: Duration::from_secs(60) };

/// Most lanes for the rest of a node with so many threads.
pub fn most(threads: usize) -> usize {
    threads.clamp(1, LANES_MAX)
}

/// The lanes to one peer.
#[derive(Default)]
pub struct PeerLanes {
    demand: Option<Arc<Lane>>,
    /// In the order in which they were opened.
    bulk: Vec<Arc<Lane>>,
    width: Width,
    run: Option<Run>,
    gossip: Option<Arc<Lane>>,
}

/// Chunks that go on one lane.
struct Run {
    image: ImageId,
    next: Chunk,
    left_bytes: u64,
    lane: Arc<Lane>,
}

impl PeerLanes {
    /// The lane for demands; `open` makes one.
    pub fn demand(&mut self, fits: impl Fn(&Lane) -> bool, open: impl FnOnce() -> Arc<Lane>) -> Arc<Lane> {
        self.demand = self.demand.take().filter(|lane| fits(lane));
        Arc::clone(self.demand.get_or_insert_with(open))
    }

    /// The lane for gossip; `open` makes one.
    pub fn gossip(&mut self, fits: impl Fn(&Lane) -> bool, open: impl FnOnce() -> Arc<Lane>) -> Arc<Lane> {
        self.gossip = self.gossip.take().filter(|lane| fits(lane));
        Arc::clone(self.gossip.get_or_insert_with(open))
    }

    /// The lane for any other request, which is for `bytes`; `open` makes one.
    pub fn bulk(
        &mut self,
        ask: &Ask,
        bytes: impl FnOnce() -> u64,
        fits: impl Fn(&Lane) -> bool,
        open: impl FnOnce(Role) -> Arc<Lane>,
    ) -> Arc<Lane> {
        self.bulk.retain(|lane| fits(lane));
        let lanes = self.width.lanes;
        if lanes == 1 {
            self.run = None;
            if self.bulk.is_empty() {
                self.bulk.push(open(Role::Pooled));
            }
            return Arc::clone(&self.bulk[0]);
        }
        let bytes = bytes();
        let goes_on = |run: &Run| run.image == ask.image && run.next == ask.chunk && run.left_bytes >= bytes;
        let (lane, left_bytes) = match self.run.take().filter(|run| goes_on(run) && fits(&run.lane)) {
            Some(run) => (run.lane, run.left_bytes),
            None => (self.least_busy(lanes, open), RUN_BYTES.max(bytes)),
        };
        let (image, next, left_bytes) = (ask.image, Chunk(ask.chunk.0 + 1), left_bytes - bytes);
        self.run = Some(Run { image, next, left_bytes, lane: Arc::clone(&lane) });
        lane
    }

    /// The lane that owes the fewest answers: its processor is the first to be free.
    fn least_busy(&mut self, lanes: usize, open: impl FnOnce(Role) -> Arc<Lane>) -> Arc<Lane> {
        if self.bulk.len() < lanes {
            let lane = open(if self.bulk.is_empty() { Role::Pooled } else { Role::Further });
            self.bulk.push(Arc::clone(&lane));
            return lane;
        }
        let least = self.bulk[..lanes].iter().min_by_key(|lane| lane.owed());
        Arc::clone(least.expect("there is at least one"))
    }

    /// Looks whether what the peer brings is enough for another lane, at most for `most`.
    pub fn look(&mut self, lane_bytes_per_s: u64, most: usize, now: Instant) {
        if let Some(lane) = self.bulk.first().filter(|_| most > 1) {
            self.width.came(lane.came(), lane_bytes_per_s, most, now);
        }
    }

    /// A lane has ended, and is forgotten.
    pub fn ended(&mut self, lane: &Arc<Lane>, now: Instant) {
        let is_it = |known: &Arc<Lane>| Arc::ptr_eq(known, lane);
        self.demand = self.demand.take().filter(|known| !is_it(known));
        self.run = self.run.take().filter(|run| !is_it(&run.lane));
        self.bulk.retain(|known| !is_it(known));
        if self.gossip.as_ref().is_some_and(is_it) {
            self.gossip = None;
        } else if lane.role() == Role::Further {
            self.width.narrow(now);
        }
    }

    /// All lanes, those for the rest first.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Lane>> {
        self.bulk.iter().chain(&self.demand).chain(&self.gossip)
    }

    /// Forgets and closes the lanes that are not to stay.
    pub fn retain(&mut self, stays: impl Fn(&Lane) -> bool) {
        self.all().filter(|lane| !stays(lane)).for_each(|lane| lane.close());
        self.bulk.retain(|lane| stays(lane));
        self.demand = self.demand.take().filter(|lane| stays(lane));
        self.gossip = self.gossip.take().filter(|lane| stays(lane));
        self.run = None;
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.bulk.is_empty() && self.demand.is_none() && self.gossip.is_none()
    }
}

/// How many lanes for the rest a peer has, by what it brings.
struct Width {
    lanes: usize,
    /// Begin of the span, and the bytes until then.
    span: Option<(Instant, u64)>,
    /// Further lanes that have ended, and until when there is none.
    ended: u32,
    narrow_until: Option<Instant>,
}

impl Default for Width {
    fn default() -> Self {
        Self { lanes: 1, span: None, ended: 0, narrow_until: None }
    }
}

impl Width {
    /// Looks once in a [`SPAN`]. Lanes come at once, and go one by one: a pause is no slower link.
    fn came(&mut self, bytes: u64, lane_bytes_per_s: u64, most: usize, now: Instant) {
        let (since, before) = *self.span.get_or_insert((now, bytes));
        let lasted = now.saturating_duration_since(since);
        if lasted < SPAN {
            return;
        }
        self.span = Some((now, bytes));
        if self.narrow_until.is_some_and(|until| now < until) {
            return;
        }
        let rate = u128::from(bytes.saturating_sub(before)) * 1_000_000 / lasted.as_micros();
        let wanted = usize::try_from(rate.div_ceil(u128::from(lane_bytes_per_s.max(1)))).unwrap_or(usize::MAX);
        self.lanes = wanted.max(self.lanes - 1).clamp(1, most);
    }

    /// A further lane has ended. Those that end together count once.
    fn narrow(&mut self, now: Instant) {
        if self.narrow_until.is_some_and(|until| now < until) {
            return;
        }
        self.lanes = 1;
        self.narrow_until = Some(now + PAUSE.pause(self.ended));
        self.ended = self.ended.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lanes after each span at so many MB/s, of at most `most`.
    fn widths(most: usize, rates: &[u64]) -> Vec<usize> {
        let (mut width, mut now, mut bytes) = (Width::default(), Instant::now(), 0);
        width.came(bytes, LANE_BYTES_PER_S, most, now);
        let span = |rate: &u64| {
            now += SPAN;
            bytes += rate * 200_000;
            width.came(bytes, LANE_BYTES_PER_S, most, now);
            width.lanes
        };
        rates.iter().map(span).collect()
    }

    #[test]
    fn slow_links_have_one_lane_whatever_the_machine() {
        for mbyte_per_s in [0, 1, 12, 118, 295] {
            assert_eq!(widths(64, &[mbyte_per_s; 50]), [1; 50], "{mbyte_per_s} MB/s");
        }
    }

    #[test]
    fn lanes_follow_the_rate_and_the_processors() {
        assert_eq!(widths(most(8), &[800, 1600, 3200]), [2, 4, 8]);
        assert_eq!(widths(most(2), &[800, 1600, 3200]), [2, 2, 2]);
        assert_eq!(widths(most(1), &[800, 1600, 3200]), [1, 1, 1]);
        assert_eq!(widths(most(256), &[100_000]), [LANES_MAX]);
        assert_eq!(widths(most(8), &[1600, 0, 0, 0, 0, 100, 1600]), [4, 3, 2, 1, 1, 1, 4]);
    }

    #[test]
    fn a_peer_that_ends_further_lanes_is_asked_for_them_ever_more_seldom() {
        let (mut width, mut now, mut bytes) = (Width::default(), Instant::now(), 0);
        let mut opened = 0;
        for _ in 0..5 * 600 {
            now += SPAN;
            bytes += 200_000_000;
            width.came(bytes, LANE_BYTES_PER_S, 4, now);
            if width.lanes > 1 {
                opened += 1;
                width.narrow(now);
            }
        }
        assert!((8..20).contains(&opened), "{opened} times in ten minutes");
    }
}

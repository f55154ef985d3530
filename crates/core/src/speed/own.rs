//! A node's own speed: what the samples of its links show.

use super::meter::Stream;
use super::{DIFFER, Link, Speed, bytes_in};
use crate::identity::NodeId;
use crate::time::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// For how long another partner is remembered.
const PARTNERS_FOR: Duration = Duration::from_secs(10);
/// For how long a sample counts. Within it a node also hears from others than the one it takes most
/// from.
const LATELY: Duration = Duration::from_secs(1);
/// Samples that have to reach a speed. On a machine that is short of processors a single one may
/// be twice of what its link carries. With three, a node behind a slow one is taken for slow
/// itself.
pub const ENOUGH: usize = 2;
/// Most samples that are kept: a second of windows of six partners at once. Of more, the last tell
/// as much.
const SAMPLES_MAX: usize = 64;

/// A measurement between this node and another.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The other node.
    pub partner: NodeId,
    /// What the partner says of its link.
    pub announced: Link,
    /// What both links together carried.
    pub speed: Speed,
    /// The direction in which they did.
    pub way: Way,
}

/// A direction of this node's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Chunks came from others.
    In,
    /// Chunks were sent.
    Out,
}

impl Sample {
    /// True if the partner's own link explains why it is not higher.
    const fn is_partners(&self) -> bool {
        let most = match self.way {
            Way::In => self.announced.passes_on(),
            Way::Out => self.announced.speed(),
        };
        most.is_known() && most.0 < self.speed.0.saturating_add(DIFFER)
    }

    /// True if it can only be this node's own link that kept it from being higher.
    const fn is_own(&self) -> bool {
        self.announced.measured.is_known() && !self.is_partners()
    }
}

/// This node's own speed.
#[derive(Debug, Default)]
pub struct OwnSpeed {
    /// The samples that count, and when they were taken, the oldest first.
    samples: VecDeque<(Time, Sample)>,
    /// The partners of the last samples, the latest first: when that was, and the speed.
    partners: [Option<(NodeId, Time, Speed)>; 2],
    /// All that came.
    stream: Stream,
    /// The speed that enough of them reach.
    reached: Speed,
    /// The last measurement that differed enough, and the card's word. In place of that stands what
    /// an earlier process measured, until more is measured.
    link: Link,
    /// What the card says itself.
    card: Speed,
    bounds: LinkBounds,
}

/// What an operator lets this node's link carry, in bytes a second; `None` is all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkBounds {
    /// From this node to others.
    pub up: Option<u64>,
    /// From others into this node.
    pub down: Option<u64>,
}

impl LinkBounds {
    /// What a node with these bounds says of its link if it measured `link`. A speed of which
    /// nothing is known stays so, since a known one never becomes unknown again.
    pub fn announced(self, link: Link) -> Link {
        let [up, down] = [self.up, self.down].map(|bound| bound.map(Speed::of));
        let link = down.map_or(link, |down| link.map(|speed| speed.min(down)));
        let out = up.map_or(link.out, |up| if link.out.is_known() { link.out.min(up) } else { up });
        Link { out, ..link }
    }
}

impl OwnSpeed {
    /// Of a machine whose network card says that it carries so many bytes a second, and of which an
    /// earlier process has measured so many. Until this one has measured, the lower one counts, as
    /// what a card says: nothing follows from it for partners.
    pub fn known(card: Option<u64>, before: Option<u64>) -> Self {
        let [card, before] = [card, before].map(|bytes_per_s| bytes_per_s.map(Speed::of));
        let first = [card, before].into_iter().flatten().min().unwrap_or_default();
        // A card's word stays once it was said, since a smaller number is no news.
        let card = card.or(before.map(|_| Speed(u8::MAX))).unwrap_or_default();
        Self { link: Link { card: first, ..Link::default() }, card, ..Self::default() }
    }

    /// Sets the bounds of the link. True if the announced speed has changed.
    pub fn bound(&mut self, bounds: LinkBounds) -> bool {
        let before = self.announced();
        self.bounds = bounds;
        self.announced() != before
    }

    /// Notes a sample. True if the announced speed has changed.
    pub fn measured(&mut self, sample: Sample, now: Time) -> bool {
        // What this node may send shows in it, and nothing else.
        let out = self.announced().out;
        if sample.way == Way::Out && out.is_known() && !sample.speed.is_below(out) {
            return false;
        }
        // Nothing follows from it but that this node is not slower.
        if !sample.speed.is_known() || (sample.is_partners() && sample.speed < self.link.speed()) {
            return false;
        }
        while self.samples.front().is_some_and(|(at, _)| now - *at >= LATELY) || self.samples.len() >= SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back((now, sample));
        self.reached = self.reached();
        if self.partners[0].is_some_and(|(node, ..)| node != sample.partner) {
            self.partners.swap(0, 1);
        }
        self.partners[0] = Some((sample.partner, now, sample.speed));
        // A partner that is slower, and whose link others use too, does not show how slow this node
        // is; nor does one that saw it fast.
        let falls = self.reached.is_below(self.link.speed());
        // One partner alone does not outweigh the card's word, or an earlier measurement.
        let is_doubtful = falls && !self.link.measured.is_known();
        let is_own = sample.is_own() && !is_doubtful && !sample.announced.speed().is_below(self.link.speed());
        let saw_it = |&(_, at, speed): &(NodeId, Time, Speed)| {
            now - at < PARTNERS_FOR && (!falls || speed.is_below(self.link.speed()))
        };
        let tells = is_own || self.partners.iter().all(|partner| partner.as_ref().is_some_and(saw_it));
        let Link { measured, .. } = self.link;
        let differs = !measured.is_known() || self.reached.0.abs_diff(measured.0) >= DIFFER;
        let changes = differs && self.reached.is_known() && tells;
        if changes {
            self.has_measured(self.reached.max(self.stream.least()));
        }
        changes
    }

    /// Notes bytes that came, from any peer. True if they show that the announced speed is too low;
    /// it is then raised.
    pub fn came(&mut self, bytes: u64, now: Time) -> bool {
        let Some(least) = self.stream.came(bytes, now) else { return false };
        let rises = self.link.speed().is_below(least);
        if rises {
            self.has_measured(least);
            self.reached = self.reached.max(least);
        }
        rises
    }

    /// What an earlier process measured bounds this one as a card does, until twice as much is
    /// measured: no burst is so fast.
    fn has_measured(&mut self, speed: Speed) {
        self.link.measured = speed;
        if self.link.card.is_below(speed) {
            self.link.card = self.card;
        }
    }

    /// The speed that [`ENOUGH`] samples reach; unknown before there are so many.
    fn reached(&self) -> Speed {
        let mut speeds: Vec<Speed> = self.samples.iter().map(|(_, sample)| sample.speed).collect();
        speeds.sort_unstable_by(|a, b| b.cmp(a));
        speeds.get(ENOUGH - 1).copied().unwrap_or_default()
    }

    /// Bytes that the link carries within a time; all if its speed is not known.
    pub fn carries_in(&self, time: Duration) -> u64 {
        self.bytes_per_s().map_or(u64::MAX, |rate| bytes_in(rate, time))
    }

    /// The rate that comes in lately, or may; `None` if nothing was measured and nothing bounds it.
    pub fn bytes_per_s(&self) -> Option<u64> {
        let rates = [self.reached.bytes_per_s(), self.bounds.down];
        rates.into_iter().flatten().min()
    }

    /// The link as it is announced: within the bounds.
    pub fn announced(&self) -> Link {
        self.bounds.announced(self.link)
    }

    /// What this process has measured.
    pub const fn last(&self) -> Speed {
        self.link.measured
    }

    /// True if the link was measured.
    pub const fn is_measured(&self) -> bool {
        self.link.measured.is_known()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speed::{Meter, Shown, Transit};

    const CHUNK: u64 = 64 << 10;

    /// Answers of a chunk each, from one sender, at this rate.
    fn answers(own: &mut OwnSpeed, meter: &mut Meter, sender: u64, count: u32, rate: u64, now: &mut Time) -> bool {
        let took = Duration::from_micros(CHUNK * 1_000_000 / rate);
        (0..count).fold(false, |changed, _| {
            *now = *now + took * 5 / 4;
            let window = meter.came(CHUNK, Transit { took, beside: 0 }, *now);
            let Some(Shown::Rate(window)) = window else { return changed };
            let sample =
                Sample { partner: NodeId(sender), announced: Link::default(), speed: window.all, way: Way::In };
            own.measured(sample, *now) | changed
        })
    }

    #[test]
    fn a_slow_sender_does_not_make_its_receiver_slow() {
        let (mut own, mut now) = (OwnSpeed::default(), Time::ZERO);
        let (mut slow, mut fast) = (Meter::default(), Meter::default());
        assert!(!answers(&mut own, &mut slow, 1, 40, 1_250_000, &mut now));
        assert!(!own.announced().measured.is_known());
        assert!(answers(&mut own, &mut fast, 2, 40, 12_500_000, &mut now));
        assert_eq!(own.announced().measured, Speed::of(12_500_000));
        // The fast sender has nothing more for it: the slow one alone is no reason within seconds.
        answers(&mut own, &mut slow, 1, 4, 1_250_000, &mut now);
        assert_eq!(own.announced().measured, Speed::of(12_500_000));
    }

    #[test]
    fn a_single_burst_is_no_speed() {
        let (mut own, mut now) = (OwnSpeed::default(), Time::ZERO);
        let mut meters = [Meter::default(), Meter::default()];
        for _ in 0..9 {
            answers(&mut own, &mut meters[0], 1, 10, 6_250_000, &mut now);
            answers(&mut own, &mut meters[1], 2, 10, 6_250_000, &mut now);
        }
        assert_eq!(own.announced().measured, Speed::of(6_250_000));
        assert!(!answers(&mut own, &mut meters[0], 1, 39, 25_000_000, &mut now), "one window of it");
        assert_eq!(own.announced().measured, Speed::of(6_250_000));
    }

    #[test]
    fn a_link_that_falls_back_and_recovers_is_announced() {
        let (mut own, mut now) = (OwnSpeed::default(), Time::ZERO);
        let mut meters = [Meter::default(), Meter::default()];
        let mut both = |own: &mut OwnSpeed, count, rate, now: &mut Time| {
            for _ in 0..count {
                answers(own, &mut meters[0], 1, 40, rate, now);
                answers(own, &mut meters[1], 2, 40, rate, now);
            }
            own.announced().measured
        };
        assert_eq!(both(&mut own, 9, 12_500_000, &mut now), Speed::of(12_500_000));
        assert_eq!(both(&mut own, 9, 1_250_000, &mut now), Speed::of(1_250_000));
        assert_eq!(both(&mut own, 9, 12_500_000, &mut now), Speed::of(12_500_000));
    }

    #[test]
    fn a_window_of_an_idle_link_shows_no_rate() {
        let (mut meter, mut now) = (Meter::default(), Time::ZERO);
        let mut came = |every: u64| {
            now = now + Duration::from_millis(every);
            meter.came(CHUNK, Transit { took: Duration::from_millis(5), beside: 0 }, now)
        };
        let shown: Vec<Shown> = (0..12).filter_map(|_| came(50)).collect();
        assert!(!shown.is_empty() && shown.iter().all(|shown| *shown == Shown::Idle), "{shown:?}");
        let shown: Vec<Shown> = (0..60).filter_map(|_| came(5)).collect();
        assert!(matches!(shown.last(), Some(Shown::Rate(_))), "{shown:?}");
    }

    #[test]
    fn a_bound_lowers_a_measured_speed() {
        let mut own = OwnSpeed::default();
        assert!(own.bound(LinkBounds { up: Some(1_250_000), down: None }));
        assert_eq!(
            (own.announced().measured, own.bytes_per_s()),
            (Speed::UNKNOWN, None),
            "the link may be slower still"
        );
        own.link.measured = Speed::of(12_500_000);
        let said = |own: &OwnSpeed| (own.announced().speed(), own.announced().passes_on());
        assert_eq!(said(&own), (Speed::of(12_500_000), Speed::of(1_250_000)), "it takes in as much as before");
        assert!(own.bound(LinkBounds { up: Some(1_250_000), down: Some(5_000_000) }));
        assert_eq!(said(&own), (Speed::of(5_000_000), Speed::of(1_250_000)));
        assert_eq!((own.bytes_per_s(), own.carries_in(Duration::from_secs(2))), (Some(5_000_000), 10_000_000));
        assert!(own.bound(LinkBounds { up: Some(125_000_000), down: None }));
        assert_eq!(said(&own), (Speed::of(12_500_000), Speed::of(12_500_000)), "no link is faster than it is");
    }

    /// Five senders at a fifth of the link each: no window of one of them is busy.
    #[test]
    fn all_that_comes_shows_that_a_speed_is_too_low() {
        let (mut own, mut now) = (OwnSpeed::default(), Time::ZERO);
        own.link.measured = Speed::of(1_250_000);
        let mut come = |own: &mut OwnSpeed, chunks: u32, every: Duration| {
            (0..chunks).fold(false, |rises, _| {
                now = now + every;
                own.came(CHUNK, now) | rises
            })
        };
        let (fast, slow) = (Duration::from_micros(5500), Duration::from_micros(55_000));
        assert!(!come(&mut own, 20, slow));
        assert!(!come(&mut own, 40, Duration::from_micros(100)), "what came late, at once");
        assert!(!come(&mut own, 20, slow));
        assert_eq!(own.announced().measured, Speed::of(1_250_000));
        assert!(come(&mut own, 100, fast));
        assert!(own.announced().measured >= Speed::of(11_000_000) && !come(&mut own, 100, fast));
    }

    #[test]
    fn a_slow_partner_does_not_show_how_slow_a_fast_node_is() {
        let speed = |mbit: u64| Speed::of(mbit * 125_000);
        let mut own = OwnSpeed::default();
        let mut now = Time::ZERO;
        let mut measured = |partner, announced, mbit| {
            let announced = Link { measured: announced, ..Link::default() };
            now = now + LATELY / 2;
            for _ in 0..ENOUGH {
                own.measured(Sample { partner: NodeId(partner), announced, speed: speed(mbit), way: Way::In }, now);
            }
            own.announced().measured
        };
        measured(1, Speed::UNKNOWN, 94);
        assert_eq!(measured(2, Speed::UNKNOWN, 94), speed(94));
        for _ in 0..4 {
            assert_eq!(measured(3, speed(13), 6), speed(94), "others use its link too");
        }
        (0..4).for_each(|_| assert!(measured(1, speed(94), 10) <= speed(10), "a fast one shows it"));
    }

    #[test]
    fn a_card_is_announced_until_something_is_measured() {
        let speed = |mbit: u64| Speed::of(mbit * 125_000);
        let card = Some(125_000_000);
        let mut own = OwnSpeed::known(card, None);
        assert_eq!(own.announced(), Link { card: speed(1000), ..Link::default() });
        let mut measured = |partner, announced, mbit| {
            for _ in 0..ENOUGH {
                own.measured(
                    Sample { partner: NodeId(partner), announced, speed: speed(mbit), way: Way::In },
                    Time::ZERO,
                );
            }
            own.announced().measured
        };
        let card = |mbit| Link { card: speed(mbit), ..Link::default() };
        // Two partners whose own cables are bad: no word of this node's.
        assert_eq!(measured(1, card(100), 94), Speed::UNKNOWN);
        assert_eq!(measured(2, card(100), 94), Speed::UNKNOWN);
        // A card tells of its cable only: the network behind it may be slow.
        assert_eq!(measured(3, card(1000), 94), Speed::UNKNOWN);
        assert_eq!(measured(4, card(1000), 94), speed(94));
    }

    /// A sender that serves many at once seems slow. The own card's word is not given up for one.
    #[test]
    fn one_partner_does_not_outweigh_a_card() {
        let speed = |mbit: u64| Speed::of(mbit * 125_000);
        let fast = Link { measured: speed(1000), ..Link::default() };
        let after = |card: Option<u64>, partners: &[u64]| {
            let mut own = OwnSpeed::known(card, None);
            for partner in partners.iter().flat_map(|partner| [*partner; ENOUGH]) {
                let sample = Sample { partner: NodeId(partner), announced: fast, speed: speed(94), way: Way::In };
                own.measured(sample, Time::ZERO);
            }
            own.announced().measured
        };
        let card = Some(125_000_000);
        assert_eq!((after(card, &[1, 1]), after(card, &[1, 2])), (Speed::UNKNOWN, speed(94)));
        assert_eq!(after(None, &[1]), speed(94), "where nothing is known, it counts");
    }

    /// What an earlier process measured stands for the card until this one has measured, and bounds
    /// what it measures, as bursts do not last. Twice as much is no burst.
    #[test]
    fn what_was_measured_before_counts_as_a_card() {
        let speed = |mbit: u64| Speed::of(mbit * 125_000);
        let bytes = |mbit: u64| Some(mbit * 125_000);
        assert_eq!(OwnSpeed::known(bytes(1000), bytes(94)).announced(), Link { card: speed(94), ..Link::default() });
        assert_eq!(OwnSpeed::known(bytes(10), bytes(94)).announced().speed(), speed(10), "the cable is bad today");
        for (card, most) in [(None, 940), (bytes(100), 100)] {
            let mut own = OwnSpeed::known(card, bytes(20));
            assert_eq!((own.announced().speed(), own.is_measured()), (speed(20), false));
            let mut measured = |mbit, at: u64| {
                let sample = |partner| Sample {
                    partner: NodeId(partner),
                    announced: Link::default(),
                    speed: speed(mbit),
                    way: Way::In,
                };
                let now = Time::ZERO + LATELY * at as u32;
                [1, 2, 1, 2].iter().for_each(|partner| _ = own.measured(sample(*partner), now));
                own.announced()
            };
            assert_eq!(measured(30, 1).speed(), speed(20));
            let fast = measured(940, 3);
            assert_eq!(fast.speed(), speed(most));
            assert!(fast.card.is_known(), "what was said is not unsaid");
        }
    }
}

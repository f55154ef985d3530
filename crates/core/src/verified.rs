//! Verified claims: how much of what holders announce they have shown to hold.
//!
//! A claim is divided into [`PARTS`] parts, in the order of the image. Once its holder has
//! delivered a chunk of each part, the claim counts as verified. Deliveries to readers and fills
//! count. Spot checks draw chunks of the parts that are left. Data only; [`crate::node`] draws and
//! asks.

use crate::chunk::Chunk;
use crate::identity::NodeId;
use crate::placement::{Arc, Filled, Holding};
use crate::standing::Offence;
use crate::time::Time;
use crate::tuning::CLAIM;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// Parts of a claim. A holder that lacks half of what it claims passes with a chance of 1 to 256.
/// With more parts, a room of small stores would cost its origin more than a thousandth of a storm.
pub const PARTS: u64 = 8;
const ALL: u8 = u8::MAX;
const _: () = assert!(ALL.count_ones() as u64 == PARTS);

/// The number of a part of a claim, below [`PARTS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part(u64);

/// What one holder has shown of its claim about one image.
#[derive(Debug, Clone, Copy, Default)]
struct Shown {
    /// The arc and the first chunk number of the claim: with others its store has moved.
    arc: Arc,
    from: u64,
    /// Chunk numbers from there on that count as verified.
    count: u64,
    /// Chunk numbers of the claim that is being verified; 0 if none is.
    target: u64,
    /// The parts of that claim of which it has delivered a chunk, a bit for each.
    parts: u8,
    /// When it was verified.
    at: Time,
    /// Failed checks since the last verified claim. While their ban lasts, it is not checked.
    failed: Offence,
    /// Checks since the last delivery that ended without one. While their ban lasts, it is not
    /// checked; what it has shown counts.
    evaded: Offence,
}

/// What the holders of one image have shown of their claims.
#[derive(Debug, Default)]
pub struct Verified {
    holders: BTreeMap<NodeId, Shown>,
}

impl Verified {
    /// The verified part of a holding.
    pub fn of(&self, holding: &Holding) -> Filled {
        let shown = self.holders.get(&holding.node).filter(|shown| shown.is_of(holding));
        let count = shown.map_or(0, |shown| shown.count.min(holding.filled.count));
        Filled { from: holding.filled.from, count }
    }

    /// The parts of a claim to check now, as distances of chunks from its first one; a part may be
    /// empty. None if all of the claim is verified, or a check of it ended in vain a moment ago.
    pub fn open_parts(&mut self, holding: &Holding, now: Time) -> impl Iterator<Item = (Part, Range<u64>)> + use<> {
        let shown = self.shown(holding);
        let waits = shown.failed.lasts(now) || shown.evaded.lasts(now);
        let (parts, target) = if !waits && shown.begin(holding) { (shown.parts, shown.target) } else { (ALL, 0) };
        (0..PARTS).filter(move |part| parts & (1 << part) == 0).map(move |part| {
            let first = |part: u64| (u128::from(part) * u128::from(target)).div_ceil(u128::from(PARTS)) as u64;
            (Part(part), first(part)..first(part + 1))
        })
    }

    /// Notes that a holder delivered a chunk of its claim about an image of `size` chunks; true if
    /// the claim is verified by it.
    pub fn delivered(&mut self, holding: &Holding, chunk: Chunk, size: u64, now: Time) -> bool {
        let distance = holding.filled.distance(chunk, size);
        let shown = self.shown(holding);
        shown.evaded = Offence::default();
        let begun = shown.begin(holding) && distance < shown.target;
        begun && shown.note(Part((u128::from(distance) * u128::from(PARTS) / u128::from(shown.target)) as u64), now)
    }

    /// Notes that an open part has no chunk to ask for, since they are zeros, or on other arcs.
    /// True if the claim is verified by it.
    pub fn has_none(&mut self, holding: &Holding, part: Part, now: Time) -> bool {
        let shown = self.shown(holding);
        shown.target > 0 && shown.note(part, now)
    }

    /// Notes that a holder did not deliver a chunk that it claims to hold: nothing of its claim
    /// counts as verified.
    pub fn failed(&mut self, node: NodeId, now: Time) {
        let shown = self.holders.entry(node).or_default();
        shown.failed.again(&CLAIM, now);
        *shown = Shown { failed: shown.failed, evaded: shown.evaded, ..Shown::default() };
    }

    /// Notes that a check of a holder has ended. Unless [`Verified::delivered`] follows, the holder
    /// may be busy, or evade checks: nothing of it is checked for a while.
    pub fn ended(&mut self, node: NodeId, now: Time) {
        if let Some(shown) = self.holders.get_mut(&node).filter(|shown| !shown.evaded.lasts(now)) {
            shown.evaded.again(&CLAIM, now);
        }
    }

    /// Forgets claims that were verified longer than `age` ago, so that they are verified again.
    pub fn forget_older(&mut self, age: Duration, now: Time) {
        for shown in self.holders.values_mut().filter(|shown| shown.count > 0 && now - shown.at > age) {
            (shown.count, shown.target, shown.parts) = (0, 0, 0);
        }
    }

    /// Forgets all but these nodes.
    pub fn keep(&mut self, is_there: impl Fn(NodeId) -> bool) {
        self.holders.retain(|node, _| is_there(*node));
    }

    /// The entry of a holder, made anew if its store has moved.
    fn shown(&mut self, holding: &Holding) -> &mut Shown {
        let shown = self.holders.entry(holding.node).or_default();
        if !shown.is_of(holding) {
            let &mut Shown { failed, evaded, .. } = shown;
            *shown = Shown { arc: holding.arc, from: holding.filled.from, failed, evaded, ..Shown::default() };
        }
        shown
    }
}

impl Shown {
    fn is_of(&self, holding: &Holding) -> bool {
        (self.arc, self.from) == (holding.arc, holding.filled.from)
    }

    /// Begins to verify a claim, unless one is being verified that still holds; false if there is
    /// nothing to verify.
    fn begin(&mut self, holding: &Holding) -> bool {
        let claimed = holding.filled.count;
        self.count = self.count.min(claimed);
        if self.target > claimed || self.target <= self.count {
            (self.target, self.parts) = (0, 0);
        }
        if self.target == 0 && claimed > self.count {
            self.target = claimed;
        }
        self.target > 0
    }

    /// Notes a part as shown; true if it was the last one.
    fn note(&mut self, part: Part, now: Time) -> bool {
        self.parts |= 1 << part.0;
        let verified = self.parts == ALL;
        if verified {
            *self = Self { count: self.target, target: 0, parts: 0, at: now, failed: Offence::default(), ..*self };
        }
        verified
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Arrival;
    use crate::speed::Class;

    const SIZE: u64 = 100;

    fn holding(from: u64, count: u64) -> Holding {
        let arc = Arc { start: 0, length: SIZE };
        Holding {
            node: NodeId(1),
            class: Class::default(),
            arrival: Arrival(1),
            arc,
            filled: Filled { from, count },
            leaving: false,
            suspect: false,
        }
    }

    /// Delivers the first chunk of each open part, and returns how many there were.
    fn deliver(verified: &mut Verified, holding: &Holding) -> usize {
        let parts: Vec<_> = verified.open_parts(holding, Time::ZERO).collect();
        for (part, distances) in &parts {
            if distances.is_empty() {
                verified.has_none(holding, *part, Time::ZERO);
            } else {
                verified.delivered(holding, Chunk((holding.filled.from + distances.start) % SIZE), SIZE, Time::ZERO);
            }
        }
        parts.len()
    }

    #[test]
    fn a_claim_is_verified_once_each_part_was_shown() {
        let (mut verified, claim) = (Verified::default(), holding(90, 40));
        for step in 0..40 {
            let done = verified.delivered(&claim, Chunk((90 + step) % SIZE), SIZE, Time::ZERO);
            assert_eq!(done, step == 35, "the last part begins at 35");
            assert_eq!(verified.of(&claim).count, if step < 35 { 0 } else { 40 });
        }
        assert_eq!(verified.open_parts(&claim, Time::ZERO).count(), 0);
        // The rest of a larger claim is verified by eight more chunks.
        let grown = holding(90, 80);
        assert_eq!((verified.of(&grown).count, deliver(&mut verified, &grown), verified.of(&grown).count), (40, 8, 80));
    }

    #[test]
    fn chunks_of_one_part_verify_nothing_else() {
        let (mut verified, claim) = (Verified::default(), holding(0, SIZE));
        assert!((0..13).all(|chunk| !verified.delivered(&claim, Chunk(chunk), SIZE, Time::ZERO)));
        assert!(!verified.delivered(&holding(0, 50), Chunk(60), SIZE, Time::ZERO), "it is not claimed");
        assert_eq!(verified.open_parts(&claim, Time::ZERO).count(), 8, "a smaller claim began anew");
    }

    #[test]
    fn parts_cover_a_claim_of_any_length() {
        for count in 1..=SIZE {
            let (mut verified, claim) = (Verified::default(), holding(7, count));
            let parts: Vec<_> = verified.open_parts(&claim, Time::ZERO).map(|(_, distances)| distances).collect();
            assert_eq!((parts[0].start, parts[7].end), (0, count));
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert_eq!((deliver(&mut verified, &claim), verified.of(&claim).count), (8, count));
        }
    }

    #[test]
    fn after_a_failed_check_nothing_is_verified_for_longer_each_time() {
        let (mut verified, claim, mut now) = (Verified::default(), holding(0, SIZE), Time::ZERO);
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            deliver(&mut verified, &claim);
            verified.failed(NodeId(1), now);
            assert_eq!(verified.of(&claim).count, 0);
            assert_eq!(verified.open_parts(&claim, now + Duration::from_millis(pause * 1000 - 1)).count(), 0);
            now = now + Duration::from_secs(pause);
            assert_eq!(verified.open_parts(&claim, now).count(), 8, "after {pause} s");
        }
    }

    #[test]
    fn a_claim_that_was_verified_long_ago_is_verified_again() {
        let (mut verified, claim) = (Verified::default(), holding(0, SIZE));
        deliver(&mut verified, &claim);
        let (age, then) = (Duration::from_secs(10), Time::ZERO + Duration::from_secs(10));
        verified.forget_older(age, then);
        assert_eq!(verified.of(&claim).count, SIZE);
        verified.forget_older(age, then + Duration::from_nanos(1));
        assert_eq!((verified.of(&claim).count, deliver(&mut verified, &claim)), (0, 8));
        assert_eq!(verified.of(&claim).count, SIZE);
    }

    #[test]
    fn a_store_that_moved_is_verified_anew() {
        let (mut verified, claim) = (Verified::default(), holding(0, SIZE));
        deliver(&mut verified, &claim);
        let moved = Holding { arc: Arc { start: 1, length: SIZE - 1 }, ..claim };
        assert_eq!((verified.of(&claim).count, verified.of(&moved).count), (SIZE, 0));
        assert_eq!(verified.open_parts(&moved, Time::ZERO).count(), 8);
        verified.keep(|_| false);
        assert_eq!(verified.of(&moved).count, 0);
    }
}

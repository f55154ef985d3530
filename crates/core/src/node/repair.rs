//! Repair: if nodes go and too few hold a stretch of the ring, spare nodes move their arcs there,
//! or towards it.

use super::images::Image;
use super::{Node, Timer, TimerKey};
use crate::config::REPAIR_STEP;
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::placement::coverage::{Coverage, Layers};
use crate::placement::{Arc, Filled, Holding};
use crate::time::Time;

/// The gain of a move, in sixteenths of the gain of staying. It is a little more while the store is
/// empty. It is half more once the store is full, since a move then costs the field a whole store's
/// fill.
const WORTH_MOVING: (u128, u128) = (17, 24);

/// Copies of every place elsewhere at which a store stays that would give up more than is left to
/// fetch: a field of hundreds would never rest.
const PLENTY: u64 = 6;

/// A considered move.
pub(super) struct Repair {
    /// The arcs it is based on, and whether others may count on all of them, if that matters.
    line: Vec<(NodeId, Arc, bool)>,
    /// True if a move must lose nothing, since no origin is sure.
    last: bool,
    /// When it is this node's turn.
    turn: TimerKey,
    /// Since when it waits for its turn, however often the order has changed meanwhile.
    since: Time,
}

impl Image {
    /// How much a move would give up: bytes in the store, of how many that it is to hold. It does
    /// not matter where they came from: after a move, those from another version would be fetched.
    fn held(&self) -> (u128, u128) {
        let all = u128::from(self.capacity_bytes().max(1));
        if self.fill.is_done() { (all, all) } else { (u128::from(self.held_bytes()).min(all), all) }
    }
}

impl Node {
    /// Schedules the consideration of a move. Nodes whose place is worth least go first, one step
    /// apart, so that each sees the moves before its own. When arcs change, the order is computed
    /// anew. A member may change its arc as often as it likes, so each node has its turn within two
    /// rounds. Suspects have a place in the order: any member may call others suspect.
    pub(super) fn repair_soon(&mut self, id: ImageId) {
        let (me, leaving) = (self.me().node, !self.stays());
        let Some(last) = self.images.get(&id).map(|image| self.lacks_origins(image)) else { return };
        let Some(image) = self.images.get_mut(&id) else { return };
        let size = image.map.ring().size();
        let arc = image.fill.arc();
        if leaving || image.care.gives_up() || arc.length == 0 || arc.length == size {
            return;
        }
        let staying: Vec<&Holding> = image.map.holdings().iter().filter(|h| !h.leaving).collect();
        let round = REPAIR_STEP * staying.len() as u32;
        // Without an origin a move must lose nothing. Which nodes may move changes with each full
        // store, and with each suspicion.
        let matters = last && !image.claimed_whole;
        let line = staying.iter().map(|h| (h.node, h.arc, matters && h.is_sure() && h.filled.count == size)).collect();
        if image.repair.as_ref().is_some_and(|repair| repair.line == line && repair.last == last) {
            return;
        }
        let arcs: Vec<Arc> = staying.iter().map(|h| h.arc).collect();
        let layers = Layers::of(&arcs, size);
        let mine = (layers.gain(arc), me);
        let rank = staying.iter().filter(|h| (layers.gain(h.arc), h.node) < mine).count();
        let after = REPAIR_STEP * (rank as u32 + 1);
        let before = image.repair.take();
        let waits = before.as_ref().filter(|repair| repair.turn.0 > self.now);
        let since = waits.map_or(self.now, |repair| repair.since);
        let latest = since + round + after;
        let timer = Timer::Repair(image.number);
        self.cancel(before.map(|repair| repair.turn));
        let turn = self.set(after.min(latest - self.now), timer);
        let Some(image) = self.images.get_mut(&id) else { return };
        image.repair = Some(Repair { line, last, turn, since });
    }

    /// Moves this node's arc if that does the field enough good.
    pub(super) fn repair(&mut self, id: ImageId) {
        let (me, dice) = (self.me().node, self.dice());
        let Some(last) = self.images.get(&id).map(|image| self.lacks_origins(image)) else { return };
        let Some(image) = self.images.get_mut(&id) else { return };
        if image.repair.as_ref().is_none_or(|repair| repair.turn.0 > self.now) {
            return;
        }
        if image.care.gives_up() || image.surveying {
            // Within a second it is known which chunks are here.
            image.repair = None;
            return;
        }
        let arc = image.fill.arc();
        // A suspicion moves no store, since the arcs of suspects count. Nor does it keep stores
        // from moving, since any member may raise one at any time. But suspects are no holders of
        // what this node gives up.
        let better = if last {
            image.map.least_covered_keeping(arc, me, dice)
        } else {
            image.map.least_covered(arc.length, me, dice)
        };
        let (now, then) = (image.map.gain(arc, me), image.map.gain(better, me));
        let (empty, full) = WORTH_MOVING;
        let (size, (held, all)) = (image.map.ring().size(), image.held());
        let plenty = held * 2 >= all && image.map.least(me) >= PLENTY;
        let worth_it = !plenty && then * 16 * all > now * (empty * all + (full - empty) * held);
        // Chunks without a home would be lost with the origin, so any move that saves some is worth
        // it. Until there are none no other move is, since it might undo the repair by other nodes.
        let bare = |arc| image.map.bare(arc, me);
        let here = bare(arc);
        let saves = bare(better) > here;
        let complete = bare(Arc { start: 0, length: size }) == here;
        let to = if saves {
            Some(better)
        } else if complete {
            worth_it.then_some(better)
        } else {
            image.map.moving_up(me).filter(|to| !last || image.map.keeps(arc, *to, me))
        };
        // A store that takes in nothing today is worth more where it is.
        if let Some(to) = to.filter(|_| self.stays() && self.budget.is_open(self.now)) {
            self.take_arc(id, to);
        }
    }

    /// True if no origin of the image is sure: it lives, and nobody suspects it.
    pub(super) fn lacks_origins(&self, image: &Image) -> bool {
        image.map.origins().iter().all(|origin| self.membership.suspects().contains_key(origin))
    }

    /// The number of chunks that would be lost with this node: the sum of [`Node::sole`].
    pub fn sole_chunks(&self) -> u64 {
        self.sole().iter().map(|(_, chunks)| chunks).sum()
    }

    /// The same if each node holds what it claims.
    pub fn unclaimed_chunks(&self) -> u64 {
        self.sole_by(|_, holding| holding.filled).iter().map(|(_, chunks)| chunks).sum()
    }

    /// Chunks of each image that would be lost with this node, as far as it knows.
    ///
    /// For images without another live origin these are its stored chunks that no staying, counting
    /// node was seen to hold. For images whose only origin it is, they are the chunks that no store
    /// was seen to hold. Images without such chunks are left out.
    pub fn sole(&self) -> Vec<(ImageId, u64)> {
        self.sole_by(|image, holding| image.verified.of(holding))
    }

    /// The same of one image: as far as others were seen to hold it, or as if none was.
    pub(super) fn sole_of(&self, image: &Image, verified: bool) -> u64 {
        let seen = |image: &Image, holding: &Holding| match verified {
            true => image.verified.of(holding),
            false => Filled::default(),
        };
        self.sole_in(image, seen).unwrap_or(0)
    }

    fn sole_by(&self, verify: impl Fn(&Image, &Holding) -> Filled + Copy) -> Vec<(ImageId, u64)> {
        self.images.iter().filter_map(|(id, image)| Some((*id, self.sole_in(image, verify)?))).collect()
    }

    fn sole_in(&self, image: &Image, verify: impl Fn(&Image, &Holding) -> Filled + Copy) -> Option<u64> {
        let me = self.me().node;
        let elsewhere = image.outside.hold_all(self.me().zone);
        if elsewhere || !self.lacks_origins(image) {
            return None;
        }
        let kept = |chunk| {
            let size = image.map.ring().size();
            let counts = |home: &Holding| home.node != me && home.is_sure() && self.counts(home.node);
            image.map.homes(chunk).any(|home| counts(home) && verify(image, home).contains(chunk, size))
        };
        let chunks = if image.origin {
            let coverage = Coverage::of(image.map.ring(), &self.holdings_elsewhere(image, verify));
            let bare = (1.0 - coverage.share) * image.inventory.geometry().stored_max() as f64;
            if coverage.multiplicity_min > 0 { 0 } else { (bare.ceil() as u64).max(1) }
        } else {
            image.inventory.iter_stored().filter(|chunk| !kept(*chunk)).count() as u64
        };
        (chunks > 0).then_some(chunks)
    }
}

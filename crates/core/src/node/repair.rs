//! Repair: when nodes go and a stretch of the ring is held by too few, nodes that others could do without
//! move their arcs there, or towards it.

use super::{Node, Timer, TimerKey};
use crate::config::REPAIR_STEP;
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::placement::coverage::Layers;
use crate::placement::{Arc, Holding};

/// A move has to be worth so much more than staying (in sixteenths): a little more while the store is empty,
/// half more once it is full, since it then costs the field a whole store's fill.
const WORTH_MOVING: (u128, u128) = (17, 24);

/// A full store stays where it is once everything is held so often elsewhere: a field of hundreds would never be still.
const PLENTY: u64 = 6;

/// A move that is to be considered, or was.
pub(super) struct Repair {
    /// Of which arcs, and whether they are full, if that matters.
    line: Vec<(NodeId, Arc, bool)>,
    /// When it is this node's turn.
    turn: TimerKey,
}

impl Node {
    /// Considers a move after a while: nodes whose place is worth least go first, a step apart, so that
    /// each sees what those before it did. Whenever arcs change they line up anew, all from that moment on.
    pub(super) fn repair_soon(&mut self, id: ImageId) {
        let (me, leaving) = (self.me().node, !self.stays());
        let Some(image) = self.images.get_mut(&id) else { return };
        let size = image.map.ring().size();
        let arc = image.fill.arc();
        if leaving || arc.length == 0 || arc.length == size {
            return;
        }
        let staying: Vec<&Holding> = image.map.holdings().iter().filter(|h| !h.leaving).collect();
        // Without an origin nobody moves who would lose something: who may, changes with each store that fills.
        let matters = image.map.origins().is_empty() && !image.told_covered;
        let line = staying.iter().map(|h| (h.node, h.arc, matters && h.filled.count == size)).collect();
        if image.repair.as_ref().is_some_and(|repair| repair.line == line) {
            return;
        }
        let arcs: Vec<Arc> = staying.iter().map(|h| h.arc).collect();
        let layers = Layers::of(&arcs, size);
        let mine = (layers.gain(arc), me);
        let rank = staying.iter().filter(|h| (layers.gain(h.arc), h.node) < mine).count();
        let after = REPAIR_STEP * (rank as u32 + 1);
        let before = image.repair.take();
        let timer = Timer::Repair(image.number);
        before.map(|repair| self.timers.remove(&repair.turn));
        let turn = self.set(after, timer);
        let Some(image) = self.images.get_mut(&id) else { return };
        image.repair = Some(Repair { line, turn });
    }

    /// Moves this node's arc if that does the field enough good.
    pub(super) fn repair(&mut self, id: ImageId) {
        let (me, dice) = (self.me().node, self.dice());
        let suspects = self.membership.suspects();
        let Some(image) = self.images.get_mut(&id) else { return };
        if image.repair.as_ref().is_none_or(|repair| repair.turn.0 > self.now) {
            return;
        }
        if image.surveying || !suspects.is_empty() {
            // Within a second it is known who is dead, and what is here; a store is not moved on a suspicion.
            image.repair = None;
            return;
        }
        let arc = image.fill.arc();
        let last = image.map.origins().is_empty();
        let better = if last {
            image.map.least_covered_keeping(arc, me, dice)
        } else {
            image.map.least_covered(arc.length, me, dice)
        };
        let (now, then) = (image.map.gain(arc, me), image.map.gain(better, me));
        let (empty, full) = WORTH_MOVING;
        let (size, filled) = (image.map.ring().size(), u128::from(image.fill.filled().count));
        let plenty = image.fill.is_done() && image.map.least(me) >= PLENTY;
        let worth_it = !plenty && then * 16 > now * (empty + (full - empty) * filled / u128::from(size));
        // Chunks that nobody is to hold would be lost with the origin: any move that saves some is worth it, and until there are
        // none no other is, since it might undo what others do about them.
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
        if let Some(to) = to.filter(|_| self.stays()) {
            self.take_arc(id, to);
        }
    }

    /// How many chunks would be lost with this node: the sum of [`Node::sole`].
    pub fn sole_chunks(&self) -> u64 {
        self.sole().iter().map(|(_, chunks)| chunks).sum()
    }

    /// How many chunks of which images would be lost with this node, as far as it knows: those of its stores that no
    /// node which stays, and counts, has, of images without another live origin; and of images that it is the only origin
    /// of, those that no store has. Images of which nothing would be lost are left out.
    pub fn sole(&self) -> Vec<(ImageId, u64)> {
        let me = self.me().node;
        let suspects = self.membership.suspects();
        let mut sole = Vec::new();
        for (id, image) in &self.images {
            let elsewhere = image.outside.hold_all(self.me().zone);
            if elsewhere || image.map.origins().iter().any(|origin| !suspects.contains(origin)) {
                continue;
            }
            let kept = |chunk| {
                let mut homes = image.map.homes(chunk).into_iter();
                let counts = |home: &Holding| home.node != me && !home.leaving && self.counts(home.node);
                homes.any(|home| counts(&home) && image.map.has(&home, chunk))
            };
            let chunks = if image.origin {
                let coverage = image.map.coverage(|node| node != me && self.counts(node));
                let bare = (1.0 - coverage.share) * image.inventory.geometry().stored_max() as f64;
                if coverage.multiplicity_min > 0 { 0 } else { (bare.ceil() as u64).max(1) }
            } else {
                image.inventory.iter_stored().filter(|chunk| !kept(*chunk)).count() as u64
            };
            sole.extend((chunks > 0).then_some((*id, chunks)));
        }
        sole
    }
}

//! Apart: nodes that have no way to stores with all of an image.
//!
//! A switch may isolate its ports, or a firewall let rooms reach a server and not one another. Then
//! the stores may add up to the image, and without the origin nobody could read it. So a node that
//! could not reach a holder tries the others, and says so if those within its reach do not hold
//! everything ([`Record::needs_origin`]). While any node says that, no origin may leave. A node
//! that reaches every holder that it asks tries none for this.

use super::Node;
use super::images::Image;
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::placement::Holding;
use crate::placement::coverage::Coverage;
use crate::placement::map::mix;
use crate::wire::Priority;

#[cfg(doc)]
use crate::record::Record;

/// Most holders tried in each sweep that were never asked for anything. Each sends one chunk, so
/// with chunks of 64 KiB that is half a megabyte in ten seconds at most.
const NEW_AT_ONCE: usize = 8;
/// The same of holders that could not be reached, so that a mended way is found.
const AGAIN_AT_ONCE: usize = 2;

impl Node {
    /// Finds out whether this node needs an origin of any image.
    pub(super) fn look_around(&mut self) {
        for id in self.image_ids() {
            let Some(image) = self.images.get(&id).filter(|image| !image.origin) else { continue };
            let holdings = self.holdings_of_others(image);
            let is_apart = holdings.iter().any(|holding| self.peers.is_unreached(holding.node));
            let needs = is_apart && self.misses_some(image);
            if let Some(image) = self.images.get_mut(&id)
                && std::mem::replace(&mut image.needs_origin, needs) != needs
            {
                self.announce(id);
            }
            if is_apart {
                self.try_holders(id, holdings);
            }
        }
    }

    fn holdings_of_others(&self, image: &Image) -> Vec<Holding> {
        image.map.staying(|node| node != self.me().node && self.counts(node))
    }

    /// True if the stores within reach lack a chunk.
    fn misses_some(&self, image: &Image) -> bool {
        let within_reach = image.map.staying(|node| self.counts(node) && !self.peers.is_unreached(node));
        Coverage::lowest(image.map.ring(), &within_reach, 1) == 0 && !image.outside.hold_all(self.me().zone)
    }

    /// Asks holders for a chunk each, others each time.
    fn try_holders(&mut self, id: ImageId, holdings: Vec<Holding>) {
        let mut dice = self.dice();
        let usable = |holding: &Holding| holding.filled.count > 0 && self.peers.is_usable(holding.node, self.now);
        let of = |some: &dyn Fn(NodeId) -> bool, most: usize| {
            let mut some: Vec<Holding> = holdings.iter().filter(|holding| some(holding.node)).copied().collect();
            some.sort_unstable_by_key(|holding| mix(holding.node.0 ^ dice));
            some.into_iter().filter(usable).take(most).collect::<Vec<_>>()
        };
        let unasked = of(&|node| self.peers.of(node).is_none(), NEW_AT_ONCE);
        let unreached = of(&|node| self.peers.is_unreached(node), AGAIN_AT_ONCE);
        for holding in unasked.into_iter().chain(unreached) {
            dice = mix(dice);
            if let Some(chunk) = self.draw(id, &holding, &(0..holding.filled.count), dice)
                && self.has_window(Priority::Fill)
            {
                self.check_holder(id, holding.node, chunk);
            }
        }
    }

    /// Live nodes that say that they need an origin of an image, this one too.
    pub(super) fn dependents_of(&self, image: &Image) -> Vec<NodeId> {
        let (me, id, live) = (self.me().node, image.subject.image, self.membership.live());
        let said = self.membership.records().iter().filter(|record| record.image() == id && record.needs_origin());
        said.map(|record| record.node).filter(|node| *node == me || live.contains_key(node)).collect()
    }

    /// Live nodes that could not read all of some image if this node left. It is the only origin,
    /// and they have no way to stores with the rest.
    pub fn dependents(&self) -> Vec<NodeId> {
        let images = self.images.values().filter(|image| image.origin && self.lacks_origins(image));
        images.flat_map(|image| self.dependents_of(image)).collect()
    }
}

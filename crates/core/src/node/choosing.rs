//! The choice of a peer for a chunk: what this node knows, put before the [`crate::plan`].

use super::Node;
use super::images::Image;
use crate::chunk::Chunk;
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::placement::Place;
use crate::plan::{Choice, Members, Situation, Wanted};
use crate::reach::Reach;
use crate::wire::Priority;

/// The nodes that can be asked for an image.
struct Participants<'a> {
    node: &'a Node,
    image: &'a Image,
}

impl Members for Participants<'_> {
    fn place(&self, node: NodeId) -> Option<Place> {
        self.node.place_of(self.image, node)
    }

    fn is_there(&self, node: NodeId) -> bool {
        self.node.identity_of(node).is_some()
    }
}

impl Node {
    /// Chooses a peer for a chunk that has a fetch.
    pub(super) fn choose(&mut self, id: ImageId, chunk: Chunk) -> Choice {
        let dice = self.dice();
        let Some(image) = self.images.get(&id) else { return Choice::Nobody };
        let Some(fetch) = self.fetches.get((image.number, chunk)) else { return Choice::Nobody };
        let geometry = image.inventory.geometry();
        let wanted = Wanted {
            image: image.number,
            chunk,
            bytes: geometry.length(chunk),
            is_data: geometry.is_data(chunk),
            priority: fetch.priority(),
            reach: fetch.reach,
            tried: &fetch.tried,
            advice: fetch.advice,
            insist: fetch.insist,
            firm: fetch.firm,
            stream: fetch.stream,
            overdue: fetch.is_overdue(),
        };
        self.situation(image, wanted, dice, |situation| situation.choice())
    }

    /// The node to ask for so many bytes of a chunk that it has for sure.
    pub(super) fn directly(&mut self, id: ImageId, chunk: Chunk, bytes: u64) -> Option<NodeId> {
        let dice = self.dice();
        let image = self.images.get(&id)?;
        let wanted = Wanted {
            image: image.number,
            chunk,
            bytes,
            is_data: true,
            priority: Priority::Demand,
            reach: Reach::READER,
            tried: &[],
            advice: None,
            insist: false,
            firm: false,
            stream: false,
            overdue: false,
        };
        self.situation(image, wanted, dice, |situation| situation.direct())
    }

    /// Decides about a wanted chunk.
    fn situation<T>(&self, image: &Image, wanted: Wanted<'_>, dice: u64, decide: impl Fn(&Situation<'_>) -> T) -> T {
        let me = *self.me();
        decide(&Situation {
            now: self.now,
            me: me.node,
            zone: me.zone,
            place: self.place_of(image, me.node),
            intake: self.intake(image),
            wanted,
            map: &image.map,
            chain: &image.chain,
            gateways: &image.gateways,
            outside: &image.outside,
            members: &Participants { node: self, image },
            peers: &self.peers,
            keeps_all: image.fill.arc().length == image.map.ring().size(),
            discovers: self.now < image.discovery_until,
            warms_up: self.now < image.warm_up_until,
            asks_leaving: false,
            dice,
        })
    }
}

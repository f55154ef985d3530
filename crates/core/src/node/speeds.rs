//! Speeds: the measurements of this node's link, and the places of all nodes that follow from what
//! each announces.

use super::images::Image;
use super::{Node, Output};
use crate::chunk::Chunk;
use crate::fetch::RequestId;
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::placement::Place;
use crate::record::{Record, RecordKey};
use crate::speed::{Class, Classes, Link, LinkBounds, Sample, Shown, Speed, Transit, Way};

impl Node {
    /// The links between this node and a peer have this speed together, as one of the two measured.
    /// A guest, which is no member, may say anything.
    pub(super) fn delivers(&mut self, node: NodeId, speed: Speed, way: Way) {
        let sample = Sample { partner: node, announced: self.announced_link(node), speed, way };
        if self.identity_of(node).is_some() && self.speed.measured(sample, self.now) {
            self.announce_all();
        }
    }

    /// Notes how an answer came that a reader waits for, or will.
    pub(super) fn measure(&mut self, id: ImageId, peer: NodeId, bytes: u64, transit: Transit) {
        let (shown, told) = self.peers.carried(peer, bytes, transit, self.now);
        self.outputs.extend(told.map(|speed| Output::TellSpeed(peer, speed)));
        match shown {
            Some(Shown::Rate(window)) => {
                self.delivers(peer, window.all, Way::In);
                self.probe_faster(id);
            }
            Some(Shown::Idle) => self.probe(id, peer),
            None => {}
        }
    }

    /// Bytes a second that this node has measured; `None` before it has.
    pub fn measured_bytes_per_s(&self) -> Option<u64> {
        self.speed.last().bytes_per_s()
    }

    /// Takes note of what this node's link may carry. Fewer bytes are then requested at once, and
    /// others take the node for one with such a link.
    pub(super) fn bound_link(&mut self, bounds: LinkBounds) {
        if self.speed.bound(bounds) {
            self.announce_all();
        }
    }

    /// The classes of those who take part in an image, by what they say of their speed.
    pub(super) fn classes(&self, id: ImageId) -> Classes {
        let (me, live) = (self.me().node, self.membership.live());
        let records = self.membership.records().iter().filter(|record| record.image() == id);
        Classes::of(records.filter(|r| r.node == me || live.contains_key(&r.node)).map(Record::link))
    }

    /// What a node says of its link.
    pub(super) fn announced_link(&self, node: NodeId) -> Link {
        self.membership.records().of(node).iter().map(Record::link).max().unwrap_or_default()
    }

    /// The place of a node in the order of a chain.
    pub(super) fn place_of(&self, image: &Image, node: NodeId) -> Option<Place> {
        let identity = if node == self.me().node { self.me() } else { self.identity_of(node)? };
        Some(Place::of(identity, image.classes.class(self.link_for(image, node))))
    }

    /// The slowest class whose nodes pass on as much of an image as this node takes in.
    pub(super) fn intake(&self, image: &Image) -> Class {
        image.classes.intake(self.link_for(image, self.me().node))
    }

    /// True for a leaf: a node that takes in more of an image than it passes on
    /// ([`crate::placement::Chain::leaf`]).
    pub fn is_leaf(&self, id: ImageId, node: NodeId) -> bool {
        self.images.get(&id).is_some_and(|image| image.classes.is_leaf(self.link_for(image, node)))
    }

    /// What a node says of its link with an image.
    fn link_for(&self, image: &Image, node: NodeId) -> Link {
        let record = self.membership.records().get(&RecordKey { node, image: image.subject.image });
        record.map(Record::link).unwrap_or_default()
    }

    /// Requests elsewhere what slower nodes owe, if an origin is faster: all behind this node would
    /// wait for it.
    pub(super) fn leave_slower(&mut self) {
        for id in self.image_ids() {
            let Some(image) = self.images.get(&id) else { continue };
            let class = |node| self.place_of(image, node).map(|place| place.class);
            let mine = self.intake(image);
            let mut origins = image.map.origins().iter().filter(|node| self.peers.is_usable(**node, self.now));
            if !origins.any(|origin| class(*origin).is_some_and(|class| class <= mine)) {
                continue;
            }
            let owed = self.requests.iter().filter(|(_, request)| request.image == image.number && !request.orphan);
            let slower = |node| class(node).is_some_and(|class| class > mine);
            let owed = owed.filter(|(_, request)| !request.check && slower(request.peer));
            let mut owed: Vec<(Chunk, RequestId)> = owed.map(|(id, request)| (request.chunk, RequestId(id))).collect();
            // Each goes to the front of its line, the first one last.
            owed.sort_unstable_by(|one, other| other.cmp(one));
            for (chunk, request) in owed {
                self.orphan(request);
                self.try_another(request, id, chunk);
            }
        }
    }
}

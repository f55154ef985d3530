//! A node's picture of the field: its stores on the ring, the copies of each part, open waits.
//!
//! Read-only, for the page and the metrics. Owns nothing, and decides nothing. Its size is bounded
//! by the members, the images and [`WAITS_MAX`].

use super::Node;
use super::images::Image;
use crate::chunk::Chunk;
use crate::fetch::{Fetch, Stage, Why};
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::placement::Holding;
use crate::placement::coverage::{Cell, band};
use crate::wire::Priority;
use std::collections::BTreeMap;
use std::time::Duration;
use vfield_block::gather::Gather as _;

/// Most chunks listed that local readers wait for, the longest first.
const WAITS_MAX: usize = 32;

/// The picture at one moment.
#[derive(Debug, Clone, Default)]
pub struct Picture {
    /// The ring of each image.
    pub rings: Vec<RingView>,
    /// Peers that owe this node an answer, the longest first.
    pub owing: Vec<OwingView>,
    /// Chunks that local readers wait for, the longest first.
    pub waits: Vec<WaitView>,
    /// Chunks that local readers wait for, those that are not listed too.
    pub awaited: u64,
}

/// The ring of one image.
#[derive(Debug, Clone)]
pub struct RingView {
    /// The image's id.
    pub image: ImageId,
    /// Equal parts of the ring, with the copies that stores announce.
    pub claimed: Vec<Cell>,
    /// The same parts, with the copies that this node verified, and its own.
    pub verified: Vec<Cell>,
    /// The stores, by node.
    pub stores: Vec<StoreView>,
}

/// One store on the ring.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StoreView {
    /// The node that holds it.
    pub node: NodeId,
    /// First place of its arc, as a share of the ring: 0 to 1.
    pub start: f64,
    /// Length of its arc, as a share of the ring: 0 to 1.
    pub length: f64,
    /// Filled share of the arc, as announced: 0 to 1.
    pub filled: f64,
    /// Share of the arc that this node verified: 0 to 1.
    pub verified: f64,
}

/// A peer that owes answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwingView {
    /// The asked peer.
    pub peer: NodeId,
    /// Requests under way.
    pub requests: u64,
    /// Those of them for which a reader waits, here or elsewhere.
    pub demands: u64,
    /// Bytes of the answers.
    pub bytes: u64,
    /// Time since the oldest request.
    pub oldest: Duration,
}

/// A chunk that a local reader waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitView {
    /// The image it belongs to.
    pub image: ImageId,
    /// The awaited one; data chunks come first, then pages.
    pub chunk: Chunk,
    /// The stage of its fetch.
    pub stage: Stage,
    /// The reason, if no peer can be asked.
    pub why: Option<Why>,
    /// The peer that is asked or waited for.
    pub peer: Option<NodeId>,
    /// Time in this stage, as far as it is known: of a request or of a wait in vain.
    pub wait: Duration,
    /// Requests of other nodes that wait for the same chunk.
    pub askers: u64,
}

impl Node {
    /// Its picture of the field, with `cells` parts of each ring.
    pub fn picture(&self, cells: u64) -> Picture {
        let rings = self.images.values().map(|image| self.ring_view(image, cells)).collect();
        let mut waits: Vec<WaitView> = self.images.values().flat_map(|image| self.waits(image)).collect();
        waits.sort_unstable_by_key(|wait| (std::cmp::Reverse(wait.wait), wait.image, wait.chunk));
        let awaited = waits.len() as u64;
        waits.truncate(WAITS_MAX);
        Picture { rings, owing: self.owing(), waits, awaited }
    }

    fn ring_view(&self, image: &Image, cells: u64) -> RingView {
        let ring = image.map.ring();
        let verified = self.verified_holdings(image);
        let seen: BTreeMap<NodeId, u64> = verified.iter().map(|h| (h.node, h.filled.count)).gathered();
        let share = |places: u64| places.min(ring.size()) as f64 / ring.size() as f64;
        let store = |h: &Holding| StoreView {
            node: h.node,
            start: share(h.arc.start),
            length: share(h.arc.length),
            filled: share(h.filled.count),
            verified: share(seen.get(&h.node).copied().unwrap_or_default()),
        };
        RingView {
            image: image.subject.image,
            claimed: band(ring, &image.map.staying(|node| self.counts(node)), cells),
            verified: band(ring, &verified, cells),
            stores: image.map.holdings().iter().map(store).collect(),
        }
    }

    /// The peers that were asked and did not answer yet.
    fn owing(&self) -> Vec<OwingView> {
        let mut owing: BTreeMap<NodeId, OwingView> = BTreeMap::new();
        for (_, request) in self.requests.iter().filter(|(_, request)| !request.orphan) {
            let peer = request.peer;
            let none = OwingView { peer, requests: 0, demands: 0, bytes: 0, oldest: Duration::ZERO };
            let view = owing.entry(peer).or_insert(none);
            view.requests += 1;
            view.demands += u64::from(request.priority == Priority::Demand && !request.check);
            view.bytes += request.bytes;
            view.oldest = view.oldest.max(self.now - request.sent);
        }
        let mut owing: Vec<OwingView> = owing.into_values().collect();
        owing.sort_unstable_by_key(|view| (std::cmp::Reverse(view.oldest), view.peer));
        owing
    }

    fn waits<'a>(&'a self, image: &'a Image) -> impl Iterator<Item = WaitView> + 'a {
        let wanted = self.fetches.of(image.number).filter(|(_, fetch)| !fetch.waiters.is_empty());
        wanted.map(|(chunk, fetch)| {
            let (peer, asked) = self.asked_peer(fetch);
            let vain = fetch.waiting.map(|(since, _)| self.now - since);
            WaitView {
                image: image.subject.image,
                chunk,
                stage: fetch.stage(),
                why: fetch.waiting.map(|(_, why)| why),
                peer,
                wait: vain.unwrap_or_default().max(asked),
                askers: fetch.askers.iter().count() as u64,
            }
        })
    }

    /// The peer of a fetch, and for how long it has been asked.
    fn asked_peer(&self, fetch: &Fetch) -> (Option<NodeId>, Duration) {
        let requests = fetch.requests().iter().filter_map(|request| self.requests.get(request.0));
        let oldest = requests.min_by_key(|request| request.sent);
        match (oldest, fetch.stage()) {
            (Some(request), _) => (Some(request.peer), self.now - request.sent),
            (None, Stage::Parked(peer)) => (Some(peer), Duration::ZERO),
            (None, _) => (None, Duration::ZERO),
        }
    }
}

//! A node's view of itself: read-only, for status and tests.

use super::explain::WaitView;
use super::images::Image;
use super::{Former, Node};
use crate::chunk::Chunk;
use crate::fetch::{RequestId, Stage, Why};
use crate::identity::{Identity, NodeId, Zone};
use crate::image::ImageId;
use crate::membership::Membership;
use crate::misdeed::{Misdeed, Tally};
use crate::placement::Arc;
use crate::placement::coverage::Coverage;
use crate::reach::Reach;
use crate::signing::PublicKey;
use crate::speed::Speed;
use crate::time::Time;
use crate::wire::Priority;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use vfield_block::gather::Gather as _;

/// A node's view of one image.
#[derive(Debug, Clone)]
pub struct ImageView {
    /// The image's id.
    pub id: ImageId,
    /// The image's name.
    pub name: String,
    /// How well the field's stores hold it, as they announce. Stores of nodes that were caught
    /// without announced chunks do not count.
    pub coverage: Coverage,
    /// The same of stores that this node saw to hold what they announce, and its own.
    pub verified: Coverage,
    /// Nodes that need an origin all the same: they have no way to stores with all of it.
    pub dependents: Vec<NodeId>,
    /// Live origins other than this node.
    pub origins: u64,
    /// True if this node is one.
    pub origin: bool,
    /// The node with which most of it would be lost if there were no origin, and that share, 0 to
    /// 1. `None` if each chunk is held twice.
    pub at_risk: Option<(NodeId, f64)>,
    /// Chunks that its store may hold.
    pub capacity: u64,
    /// Chunks that its store holds.
    pub stored: u64,
    /// Number of transient chunks.
    pub transient: u64,
    /// True once its store is full.
    pub filled: bool,
    /// Chunks that local readers wait for and that no peer can be asked for.
    pub waiting: Vec<Waited>,
}

/// A chunk that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waited {
    /// The chunk that readers want.
    pub chunk: Chunk,
    /// The seconds waited so far.
    pub wait: Duration,
    /// The reason of the wait.
    pub why: Why,
}

/// The longest wait of the readers of an image.
#[derive(Debug, Clone)]
pub struct LongestWait {
    /// The image it belongs to.
    pub image: ImageId,
    /// The chunk that is waited for, or the page that has to come first.
    pub chunk: Chunk,
    /// For how long the reader waits.
    pub wait: Duration,
    /// What it waits for.
    pub held_up: HeldUp,
    /// The chunk's last holder, and the time since that one departed.
    pub holder: Option<(Former, Duration)>,
}

/// What a read waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeldUp {
    /// A node that can be asked.
    Nobody(Why),
    /// The answers of these peers.
    Answers(Vec<SocketAddr>),
    /// Room among the requests to this peer, or to all.
    Room(Option<SocketAddr>),
    /// A pause, since no answer was usable.
    Pause,
    /// A part of the chunk, which was asked for alone.
    Part,
}

impl std::fmt::Display for HeldUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nobody(why) => why.fmt(f),
            Self::Answers(peers) => {
                let peers: Vec<String> = peers.iter().map(SocketAddr::to_string).collect();
                write!(f, "no answer has come from {}", peers.join(" and "))
            }
            Self::Room(Some(peer)) => write!(f, "{peer} has as many requests as it takes at once"),
            Self::Room(None) => f.write_str("other requests of this node go first"),
            Self::Pause => f.write_str("no answer was usable, and it is asked for again"),
            Self::Part => f.write_str("a part of it was asked for and has not come"),
        }
    }
}

/// A chunk under way, or about to be.
#[derive(Debug, Clone)]
pub struct FetchView {
    /// The stage of its fetch.
    pub stage: Stage,
    /// The highest priority among its beneficiaries.
    pub priority: Priority,
    /// The requests under way: peer, reach, age.
    pub requests: Vec<(NodeId, Reach, Duration)>,
    /// Peers that failed this time round.
    pub tried: Vec<NodeId>,
}

/// A member of the field, this node too.
#[derive(Debug, Clone)]
pub struct MemberView {
    /// The member's identity.
    pub identity: Identity,
    /// The member's public key.
    pub key: PublicKey,
    /// `self`, `alive`, `leaving`, `suspect`, `stalled`, `unreachable`, `doubted`, `dragging` or
    /// `blamed`.
    pub state: &'static str,
    /// Sum of its committed stores in bytes, for images that this node has.
    pub capacity_bytes: u64,
    /// Sum of the bytes in them, likewise; an estimate for others while they fill.
    pub held_bytes: u64,
    /// Names of the images it is an origin of.
    pub origin_of: Vec<String>,
    /// What its link carries, as it announces.
    pub speed: Speed,
}

/// A node's view of the zones.
#[derive(Debug, Clone, Default)]
pub struct ZonesView {
    /// True if this node is a gateway of its zone for any image.
    pub is_gateway: bool,
    /// The gateways of its zone, for any image.
    pub near: BTreeSet<NodeId>,
    /// The gateways of other zones, and their state as in [`MemberView::state`]; only a gateway
    /// knows them.
    pub far: Vec<(Identity, &'static str)>,
    /// Zones that it has heard of, its own among them.
    pub zones: usize,
}

impl Image {
    /// The capacity of its store.
    pub(super) fn capacity_bytes(&self) -> u64 {
        let geometry = self.inventory.geometry();
        self.inventory.capacity().min(geometry.stored_max()) * geometry.chunk_bytes()
    }

    /// The bytes in its store.
    pub(super) fn held_bytes(&self) -> u64 {
        self.inventory.stored() * self.inventory.geometry().chunk_bytes()
    }
}

impl Node {
    /// All images that this node takes part in.
    pub fn images(&self) -> Vec<ImageView> {
        let now = self.now;
        let view = |image: &Image| ImageView {
            id: image.subject.image,
            name: image.subject.names.first().to_owned(),
            coverage: image.map.coverage(|node| self.counts(node)),
            verified: self.verified_coverage(image),
            dependents: self.dependents_of(image),
            at_risk: image.map.worst_loss().map(|(node, lost)| (node, lost as f64 / image.map.ring().size() as f64)),
            origins: image.map.origins().len() as u64,
            origin: image.origin,
            capacity: image.inventory.capacity(),
            stored: image.inventory.stored(),
            transient: image.inventory.transient(),
            filled: image.fill.is_done(),
            waiting: self
                .fetches
                .of(image.number)
                .filter(|(_, fetch)| !fetch.waiters.is_empty() || !fetch.children.is_empty())
                .filter_map(|(chunk, fetch)| fetch.waiting.map(|(since, why)| Waited { chunk, wait: now - since, why }))
                .collect(),
        };
        self.images.values().map(|image| view(image)).collect()
    }

    /// Most chunks to fetch ahead of a sequential reader of an image; 0 for an unknown image.
    pub fn chunks_ahead(&self, id: ImageId) -> u64 {
        let image = self.images.get(&id).filter(|_| self.config.read_ahead);
        image.map_or(0, |image| self.config.chunks_ahead(image.inventory.geometry().chunk_bytes()))
    }

    /// Of each image the longest wait of a local reader, and what holds it up. Shorter ones than
    /// `least` are left out, and cost next to nothing.
    pub fn longest_waits(&self, least: Duration) -> Vec<LongestWait> {
        self.images.keys().filter_map(|id| self.longest_wait(*id, least)).collect()
    }

    fn longest_wait(&self, id: ImageId, least: Duration) -> Option<LongestWait> {
        let (since, chunk) = self.longest_read(id).filter(|(since, _)| self.now - *since >= least)?;
        // If it needs its page, that is the last step.
        let step = self.explain(id, chunk).pop()?;
        let held_up = match step.fetch {
            None => HeldUp::Part,
            Some(WaitView { why: Some((why, _)), .. }) => HeldUp::Nobody(why),
            Some(WaitView { stage: Stage::Parked(peer), .. }) => HeldUp::Room(self.addr_of(peer)),
            Some(WaitView { stage: Stage::Paused, .. }) => HeldUp::Pause,
            Some(WaitView { requests, .. }) => {
                let asked: Vec<_> = requests.iter().filter_map(|(peer, ..)| self.addr_of(*peer)).collect();
                if asked.is_empty() { HeldUp::Room(None) } else { HeldUp::Answers(asked) }
            }
        };
        let nobody = matches!(held_up, HeldUp::Nobody(_));
        let holder = self.images.get(&id).filter(|_| nobody);
        let holder = holder.and_then(|image| self.former.last_holder(id, image.map.ring(), step.chunk));
        let holder = holder.map(|former| (former.clone(), self.now - former.at));
        Some(LongestWait { image: id, chunk: step.chunk, wait: self.now - since, held_up, holder })
    }

    /// True while peers are to ask this node last.
    pub const fn is_draining(&self) -> bool {
        self.draining
    }

    /// Reads of this machine that wait for a chunk.
    pub fn waits_here(&self) -> usize {
        self.reads.len()
    }

    /// Counts of the peers' misdeeds.
    pub fn misdeeds(&self) -> Tally {
        let outside = self.outside.backbone.as_ref().map_or(0, Membership::denials);
        let mut tally = self.peers.tally();
        tally.add_many(Misdeed::Denials, self.membership.denials() + outside);
        tally
    }

    /// True once it has left.
    pub const fn has_left(&self) -> bool {
        self.membership.has_left()
    }

    /// True if no other live member is known.
    pub fn is_alone(&self) -> bool {
        self.membership.live().is_empty()
    }

    /// Addresses of some other members, at most `most`.
    pub fn some_members(&self, most: usize) -> Vec<SocketAddr> {
        self.membership.live().values().take(most).map(|member| member.addr).collect()
    }

    /// Members that went, the latest last, and how long ago.
    pub fn former(&self) -> Vec<(Former, Duration)> {
        self.former.iter().map(|former| (former.clone(), self.now - former.at)).collect()
    }

    /// All live members, this node first.
    pub fn members(&self) -> Vec<MemberView> {
        let me = *self.me();
        let records = self.membership.records();
        let suspects = self.membership.suspects();
        let view = |identity: Identity, state| {
            let (mut capacity_bytes, mut held_bytes, mut origin_of) = (0, 0, Vec::new());
            for record in records.of(identity.node) {
                let Ok(header) = crate::image::Header::decode(&record.subject.header) else { continue };
                let geometry = crate::image::Geometry::new(header);
                let bytes = |chunks: u64| geometry.stored_share(chunks).saturating_mul(geometry.chunk_bytes());
                let size = geometry.chunks();
                // Others may say what they like: no more than there is.
                let (arc, filled) = (record.arc.length.min(size), record.filled.count.min(size));
                capacity_bytes = bytes(arc).saturating_add(capacity_bytes);
                held_bytes =
                    bytes((u128::from(arc) * u128::from(filled) / u128::from(size)) as u64).saturating_add(held_bytes);
                if record.origin {
                    origin_of.push(record.subject.names.to_string());
                }
            }
            let key = self.membership.statement(identity.node).map_or_else(|| self.keys.key(), |member| member.key);
            let speed = self.announced_link(identity.node).speed();
            MemberView { identity, key, state, capacity_bytes, held_bytes, origin_of, speed }
        };
        // Of itself a node knows more than its records say.
        let own = |bytes: fn(&Image) -> u64| self.images.values().map(|image| bytes(image)).sum();
        let mine = MemberView {
            capacity_bytes: own(Image::capacity_bytes),
            held_bytes: own(Image::held_bytes),
            ..view(me, "self")
        };
        let others = self.membership.live().values();
        let others = others.map(|identity| view(*identity, self.state_of(identity.node, suspects)));
        std::iter::once(mine).chain(others).collect()
    }

    /// The state of a live member.
    pub(super) fn state_of(&self, node: NodeId, suspects: &BTreeMap<NodeId, Time>) -> &'static str {
        let suspect = suspects.contains_key(&node).then_some("suspect");
        let said = if self.announces_leaving(node) { "leaving" } else { "alive" };
        self.peers.trouble(node, self.now).or(suspect).unwrap_or(said)
    }

    /// Live members, of this zone and gateways, between which and this node no datagrams have come
    /// through for a while, though connections do.
    pub fn without_datagrams(&self) -> impl Iterator<Item = Identity> + '_ {
        self.memberships().flat_map(|membership| membership.without_datagrams(self.now))
    }

    /// The same to which this node has no way at all: neither datagrams nor connections come
    /// through, though others say that they live.
    pub fn without_a_way(&self) -> impl Iterator<Item = Identity> + '_ {
        self.memberships().flat_map(|membership| membership.without_a_way(self.now))
    }

    /// True if there is more to know of other nodes' images than this node remembers.
    pub fn remembers_no_more(&self) -> bool {
        self.memberships().any(|membership| !membership.records().has_room(false, false))
    }

    /// That of its zone, and on a gateway that of all gateways.
    fn memberships(&self) -> impl Iterator<Item = &Membership> {
        std::iter::once(&self.membership).chain(&self.outside.backbone)
    }

    /// All known zones; in a field without zones, its own only.
    pub fn zones(&self) -> ZonesView {
        let me = *self.me();
        let near: BTreeSet<NodeId> = self.images.values().flat_map(|image| image.gateways.nodes()).copied().gathered();
        let far = self.outside.backbone.iter().flat_map(|backbone| {
            let far = backbone.live().values().filter(|gateway| gateway.zone != me.zone);
            far.map(|gateway| (*gateway, self.state_of(gateway.node, backbone.suspects())))
        });
        let far: Vec<_> = far.collect();
        let known = far.iter().map(|(gateway, _)| gateway.zone).chain(self.outside.contacts.zones()).chain([me.zone]);
        let zones = known.gathered::<BTreeSet<Zone>>().len();
        ZonesView { is_gateway: near.contains(&me.node), near, far, zones }
    }

    /// The fetch of a chunk that is wanted and not here.
    pub fn fetch(&self, id: ImageId, chunk: Chunk) -> Option<FetchView> {
        let fetch = self.fetch_of(id, chunk)?;
        let requests = fetch.requests().iter().filter_map(|request| self.requests.get(request.0));
        Some(FetchView {
            stage: fetch.stage(),
            priority: fetch.priority(),
            requests: requests.map(|request| (request.peer, request.reach, self.now - request.sent)).collect(),
            tried: fetch.tried.to_vec(),
        })
    }

    /// The other gateways of all zones that a gateway knows; nobody for a node that is none.
    pub fn backbone(&self) -> Vec<Identity> {
        self.outside.backbone.iter().flat_map(|backbone| backbone.live().values().copied()).collect()
    }

    /// Known nodes of other zones besides the backbone's; they may be dead.
    pub fn contacts(&self) -> impl Iterator<Item = &Identity> {
        self.outside.contacts.iter().map(|member| &member.identity)
    }

    /// The stall timeout now: see [`crate::peers::Peers::stall`].
    pub fn stall(&self) -> Duration {
        self.peers.stall(self.now)
    }

    /// The image and chunk of an open request whose chunk is to be kept; `None` after its end.
    pub fn asked_for(&self, request: RequestId) -> Option<(ImageId, Chunk)> {
        let request = self.requests.get(request.0).filter(|request| !request.check && request.slice.is_none());
        request.map(|request| (self.id_of(request.image), request.chunk))
    }

    /// The arc that this node's store of an image is committed to.
    pub fn arc(&self, id: ImageId) -> Option<Arc> {
        self.images.get(&id).map(|image| image.fill.arc())
    }

    /// True once the stores of all images are full.
    pub fn is_filled(&self) -> bool {
        self.images.values().all(|image| image.fill.is_done())
    }

    /// True if the field's stores were seen to hold all images of this node `times` times, origins
    /// not counted, and each node has a way to them.
    pub fn is_covered(&self, times: u64) -> bool {
        self.images.values().all(|image| self.is_verified(image, times) && self.dependents_of(image).is_empty())
    }
}

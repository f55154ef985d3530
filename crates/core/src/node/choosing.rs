//! The choice of the peer that is asked for a chunk.
//!
//! [`Node::choose`] decides for one chunk at a time, from the map, the chain and the peers'
//! standing. It sends nothing: [`super::requests`] does.

use super::Node;
use super::images::Image;
use crate::chunk::Chunk;
use crate::config::OVERDUE_AFTER;
use crate::fetch::Fetch;
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::placement::chain::Way;
use crate::placement::{Chain, Holding, Place, mix, zones};
use crate::reach::Reach;
use crate::speed::Class;
use crate::wire::Priority;

/// Nodes that may have read a hash page, and are asked for it at once if no home and no origin has
/// it.
const PAGE_HOLDERS_TRIED_MAX: usize = 8;
/// Upstream nodes considered: the next one, and those after it if that one is out of step, slow, or
/// gone.
const UPSTREAM_MAX: usize = 3;

/// Fewest nodes that form a chain, unless stores are full-size. Fewer nodes may well all ask each
/// other, and a chunk relayed by its home is kept there. A node that holds all chunks is a home of
/// all.
const CHAIN_NODES_MIN: usize = 8;

/// The peer to ask, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    pub peer: NodeId,
    /// To be sent along.
    pub reach: Reach,
    /// The rank of the request; see [`crate::fetch::Fetch::rank`].
    pub rank: Option<Reach>,
}

impl Source {
    /// An announced holder. The announcement may be out of date. Of two nodes that each take the
    /// other for a holder, neither may wait for the other.
    const fn holder(peer: NodeId) -> Self {
        Self { peer, reach: Reach::HOLDER, rank: Some(Reach::HOLDER) }
    }

    /// An origin, which has it for sure.
    const fn origin(peer: NodeId) -> Self {
        Self { peer, reach: Reach::HOLDER, rank: None }
    }

    const fn passing(peer: NodeId, reach: Reach) -> Self {
        Self { peer, reach, rank: Some(reach) }
    }
}

/// The decision about a wanted chunk.
#[derive(Debug, Clone, Copy)]
pub(super) enum Choice {
    Ask(Source),
    /// Wait until this peer can take more.
    Park(NodeId),
    Nobody,
}

impl Node {
    /// Chooses whom to ask for a chunk, in this order:
    ///
    /// - the upstream in the chain, if it is in step,
    /// - a holder,
    /// - the home that relays the chunk,
    /// - an origin, or the gateway through which the chunk enters this zone.
    pub(super) fn choose(&mut self, id: ImageId, chunk: Chunk) -> Choice {
        let dice = self.dice();
        let Some(image) = self.images.get(&id) else { return Choice::Nobody };
        let Some(fetch) = image.fetches.get(&chunk) else { return Choice::Nobody };
        let bytes = image.inventory.geometry().length(chunk);
        Choosing { node: self, image, fetch, chunk, bytes, dice }.choose()
    }
}

/// The state of one choice.
struct Choosing<'a> {
    node: &'a Node,
    image: &'a Image,
    fetch: &'a Fetch,
    chunk: Chunk,
    bytes: u64,
    dice: u64,
}

/// The node at which a chunk enters this zone. All nodes of the zone agree on it; the chain begins
/// there.
#[derive(Debug, Clone, Copy)]
enum EntryPoint {
    /// At an origin.
    Origin(NodeId),
    /// At a gateway, which is to get it.
    Gateway(NodeId),
    /// At this node, which is the gateway.
    Here,
}

impl EntryPoint {
    /// The gateway, if it is another node.
    const fn gateway(self) -> Option<NodeId> {
        if let Self::Gateway(gateway) = self { Some(gateway) } else { None }
    }
}

impl Choosing<'_> {
    fn choose(&self) -> Choice {
        if let Some(choice) = self.advised() {
            return choice;
        }
        let entry = self.entry_point();
        self.ask_chain(entry)
            .or_else(|| self.ask_holder())
            .or_else(|| self.ask_relay())
            .or_else(|| self.ask_origin(entry))
            .or_else(|| self.ask_gateway(entry))
            .or_else(|| self.ask_outside())
            .unwrap_or_else(|| self.ask_anybody())
    }

    fn me(&self) -> NodeId {
        self.node.me().node
    }

    /// True if several announced holders of the chunk can be asked.
    fn has_several_holders(&self) -> bool {
        let having = self.image.map.homes(self.chunk).filter(|home| self.has(home));
        having.filter(|home| self.usable(home.node)).nth(1).is_some()
    }

    /// True if a home announces the chunk, is believed, and is as fast as the others that have it.
    fn has(&self, home: &Holding) -> bool {
        self.image.map.has(home, self.chunk) && self.is_believed(home.node) && !self.is_bypassed(home)
    }

    /// True for a home that is slower than this node and than an origin. Chunks that only slow
    /// nodes hold enter the chain at the origin.
    fn is_bypassed(&self, home: &Holding) -> bool {
        let origins =
            || self.image.map.origins().iter().filter(|node| self.node.peers.is_usable(**node, self.node.now));
        home.class > Class::default()
            && self.class(self.me()) < home.class
            && origins().any(|origin| self.class(*origin) < home.class)
    }

    fn class(&self, node: NodeId) -> Class {
        self.place_of(node).map_or(Class::default(), |place| place.class)
    }

    fn is_believed(&self, node: NodeId) -> bool {
        self.node.peers.is_believed(node, self.node.now)
    }

    /// True if all homes have filled their stores.
    fn is_settled(&self) -> bool {
        let size = self.image.map.ring().size();
        self.image.map.homes(self.chunk).all(|home| home.filled.count == size)
    }

    fn usable(&self, node: NodeId) -> bool {
        let untried = node != self.me() && !self.fetch.tried.contains(&node);
        untried && self.node.identity_of(node).is_some() && self.node.peers.is_usable(node, self.node.now)
    }

    fn has_room(&self, node: NodeId) -> bool {
        self.node.peers.has_room(node, self.bytes, self.fetch.priority)
    }

    /// True if this node may ask its own zone for the askers that wait.
    fn may_ask_zone(&self) -> bool {
        self.fetch.reach >= Reach::GATEWAY
    }

    /// The peer that an origin advised, or an origin if the asker insists. Advice to ask a slower
    /// node is no help.
    fn advised(&self) -> Option<Choice> {
        let mine = self.class(self.me());
        if let Some(peer) = self.fetch.advice.filter(|node| self.usable(*node) && self.class(*node) <= mine) {
            return Some(Choice::Ask(Source::holder(peer)));
        }
        let mut origins = self.image.map.origins().iter().copied().filter(|node| self.usable(*node));
        origins.next().filter(|_| self.fetch.insist).map(|peer| Choice::Ask(Source::origin(peer)))
    }

    /// An upstream in the chain of this zone.
    fn ask_chain(&self, entry: Option<EntryPoint>) -> Option<Choice> {
        let way = self.way(entry).filter(|_| self.may_ask_zone())?;
        let (map, me, source) = (&self.image.map, self.me(), way.source.node);
        let (gateway, origins) = (entry.and_then(EntryPoint::gateway), map.origins());
        // The entry point serves only chunks that no other node of the zone has yet.
        let had = || map.homes(self.chunk).any(|home| home.node != me && self.has(home));
        let shut = |peer: NodeId| {
            (origins.contains(&peer) && had())
                || (gateway == Some(peer) && !map.holds(peer, self.chunk) && self.full().any(|home| home.node != me))
        };
        let at_source = if gateway == Some(source) { Reach::GATEWAY } else { Reach::HOLDER };
        let upstream = self.image.chain.upstream(self.place_of(me)?, way).filter(|(peer, _)| !shut(*peer));
        let steps = upstream.map(|(peer, distance)| Step {
            peer,
            reach: if peer == source { at_source } else { Reach::in_zone(distance) },
            has: (peer == source || map.holds(peer, self.chunk)) && self.is_believed(peer),
        });
        self.along(steps)
    }

    /// The way of the chunk along the chain to this node.
    fn way(&self, entry: Option<EntryPoint>) -> Option<Way> {
        let (map, chain, me) = (&self.image.map, &self.image.chain, self.place_of(self.me())?);
        match entry {
            Some(EntryPoint::Here) => None,
            Some(EntryPoint::Gateway(gateway)) => Some(chain.way_from(self.place_of(gateway)?, me, self.full())),
            Some(EntryPoint::Origin(origin)) => {
                // Once stores are full no chunk enters at the origin any more, and chains go on
                // past it.
                let past = if self.is_settled() { Chain::way_around(me, self.full()) } else { None };
                past.or_else(|| {
                    let origins = map.origins().iter().filter_map(|origin| self.place_of(*origin));
                    Some(chain.way_from(self.place_of(origin)?, me, self.full().chain(origins)))
                })
            }
            None => {
                let filling = || map.homes(self.chunk).filter(|home| self.has_chain() && home.filled.count > 0);
                Chain::way_around(me, self.full()).or_else(|| Chain::way_around(me, filling().map(Holding::place)))
            }
        }
    }

    /// Holders at which the chain may begin. While stores fill, news of progress reaches some nodes
    /// earlier than others, so only full holders count.
    fn full(&self) -> impl Iterator<Item = Place> + '_ {
        let (size, has_chain) = (self.image.map.ring().size(), self.has_chain());
        let full = self.image.map.homes(self.chunk);
        let full = full.filter(move |home| has_chain && home.filled.count == size && !self.is_bypassed(home));
        full.map(Holding::place)
    }

    fn place_of(&self, node: NodeId) -> Option<Place> {
        self.node.place_of(self.image, node)
    }

    /// The first upstream node that is in step and has room.
    fn along(&self, upstream: impl Iterator<Item = Step>) -> Option<Choice> {
        let (fetch, peers, now) = (self.fetch, &self.node.peers, self.node.now);
        let upstream = self.considered(upstream).into_iter();
        let (in_step, aside): (Vec<Step>, Vec<Step>) = upstream.partition(|step| peers.may_be_in_step(step.peer, now));
        // While a room is switched on, the upstream may only just begin; a reader that is alone
        // need not wait.
        let patient = fetch.priority != Priority::Demand || now < self.image.warm_up_until;
        if let Some(step) = aside.first().filter(|step| patient && peers.may_begin(step.peer, now)) {
            return Some(Choice::Park(step.peer));
        }
        let mut full: Option<Step> = None;
        for step in in_step {
            let Step { peer, reach, has } = step;
            if !has && reach == Reach::HOLDER {
                break;
            }
            // Among several holders an upstream that is out of step is but one of them. Once stores
            // are full, an upstream in step is waited for: chunks from others would slow the chain
            // down behind them. While stores fill, it leads as long as its window has room. Random
            // readers are in step with no other node; while stores fill, though, the first reads of
            // a chain look like random ones.
            let has_room = self.has_room(peer);
            let is_one_of_many = has || (!fetch.stream && self.is_settled());
            let leads = peers.is_in_step(peer) && (has_room || !has || self.is_settled());
            if is_one_of_many && !leads && self.has_several_holders() {
                break;
            }
            if has_room {
                let origin = self.image.map.origins().contains(&peer);
                return Some(Choice::Ask(Source { peer, reach, rank: (!origin).then_some(reach) }));
            }
            full = full.or(Some(step));
            // Do not bypass an upstream that still delivers: its own upstream already serves it.
            // Both would get half of that link, and the slower one would fall behind for good.
            let delivers = peers.is_in_step(peer) && peers.silent_for(peer, now) < OVERDUE_AFTER;
            if !fetch.overdue || delivers {
                break;
            }
        }
        // Windows that wait for each other around the chain would wait for ever.
        full.map(
            |Step { peer, reach, .. }| {
                if fetch.overdue { Choice::Ask(Source::passing(peer, reach)) } else { Choice::Park(peer) }
            },
        )
    }

    /// The upstream nodes that are considered.
    ///
    /// If the first one is banned but goes on reading, its own upstream already serves it. That
    /// node would slow the whole chain down if it had to replace all of the first one's deliveries.
    /// So the upstream nodes take turns, chunk by chunk; the source stays last.
    fn considered(&self, upstream: impl Iterator<Item = Step>) -> Vec<Step> {
        let mut upstream = upstream.peekable();
        let is_aside = |step: &Step| !self.node.peers.is_usable(step.peer, self.node.now);
        let usable = |step: &Step| self.usable(step.peer);
        if !upstream.peek().is_some_and(is_aside) {
            return upstream.filter(usable).take(UPSTREAM_MAX).collect();
        }
        let mut upstream: Vec<Step> = upstream.collect();
        if let [_, others @ .., _] = &mut upstream[..]
            && !others.is_empty()
        {
            others.rotate_left((mix(self.chunk.0) % others.len() as u64) as usize);
        }
        upstream.into_iter().filter(usable).take(UPSTREAM_MAX).collect()
    }

    /// A holder. Holders take turns once stores are full. While stores fill it is the nearest one
    /// upstream of this node, and is waited for. Of readers that began one after the other, each
    /// then takes from its predecessor, and from no node that another needs.
    fn ask_holder(&self) -> Option<Choice> {
        let map = &self.image.map;
        let mut holders: Vec<Holding> = map.homes_in_turn(self.chunk);
        holders.retain(|home| self.has(home) && self.usable(home.node));
        if !self.is_settled() {
            let me = self.place_of(self.me())?;
            holders.sort_by_key(|home| me.behind(&home.place()));
            let mut nearest = holders.iter().filter(|home| self.node.peers.may_be_in_step(home.node, self.node.now));
            if let Some(last) = nearest.next() {
                return Some(self.ask_or_park(Source::holder(last.node)));
            }
        }
        self.one_of(&holders.iter().map(|home| home.node).collect::<Vec<_>>(), Source::holder)
    }

    /// One of several equal nodes, with room if any has.
    fn one_of(&self, nodes: &[NodeId], source: impl Fn(NodeId) -> Source) -> Option<Choice> {
        let free: Vec<NodeId> = nodes.iter().copied().filter(|node| self.has_room(*node)).collect();
        if let Some(peer) = self.node.peers.choose(&free, self.dice) {
            return Some(Choice::Ask(source(peer)));
        }
        self.node.peers.choose(nodes, self.dice).map(|peer| self.ask_or_park(source(peer)))
    }

    /// Asks a peer that has room, or that keeps a chunk waiting while it delivers nothing. One that
    /// delivers will have room: more at once would only wait on this node's own link.
    fn ask_or_park(&self, source: Source) -> Choice {
        let Source { peer, .. } = source;
        let waits = self.fetch.overdue && !self.delivers(peer);
        if self.has_room(peer) || waits { Choice::Ask(source) } else { Choice::Park(peer) }
    }

    /// True if the peer owes something and sent some of it a moment ago.
    fn delivers(&self, peer: NodeId) -> bool {
        self.node.peers.owed(peer) > 0 && self.node.peers.silent_for(peer, self.node.now) < OVERDUE_AFTER
    }

    /// The first home, which relays chunks without a holder: homes ask as one, so that two never
    /// wait for each other.
    fn ask_relay(&self) -> Option<Choice> {
        let me = self.me();
        let is_home = self.image.map.homes(self.chunk).any(|home| home.node == me);
        let reach = self.fetch.reach.min(if is_home { Reach::HOME } else { Reach::READER });
        if !reach.is_relay() {
            return None;
        }
        let could = |node: &NodeId| *node == me || (self.usable(*node) && self.is_believed(*node));
        let homes = self.image.map.homes_in_turn(self.chunk);
        let relay = if homes.is_empty() {
            self.image.map.relay(self.chunk, self.image.map.participants().iter().copied().filter(could))
        } else {
            homes.iter().map(|home| home.node).find(could)
        };
        relay.filter(|node| *node != me).map(|peer| self.ask_or_park(Source::passing(peer, reach)))
    }

    /// An origin. In a field of zones only gateways ask it, each for the chunks that enter there.
    fn ask_origin(&self, entry: Option<EntryPoint>) -> Option<Choice> {
        // A request from outside the zone may not go to another node of it: its sender had reasons
        // not to.
        let turns = self.may_ask_zone() && matches!(entry, Some(EntryPoint::Gateway(_)));
        if turns && self.usable_gateways().next().is_some() {
            return None;
        }
        let mut origins: Vec<NodeId> =
            self.image.map.origins().iter().copied().filter(|node| self.usable(*node)).collect();
        // A node that is not believed is asked last, or if it is the only one.
        if origins.iter().any(|node| self.is_believed(*node)) {
            origins.retain(|node| self.is_believed(*node));
        }
        self.one_of(&origins, Source::origin)
    }

    /// A gateway of this zone, beginning with the one whose turn it is.
    fn ask_gateway(&self, entry: Option<EntryPoint>) -> Option<Choice> {
        if !self.may_ask_zone() || matches!(entry, Some(EntryPoint::Here)) {
            return None;
        }
        let peer = self.usable_gateways().next()?;
        Some(self.ask_or_park(Source::passing(peer, Reach::GATEWAY)))
    }

    fn usable_gateways(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.image.gateways.in_turn(self.chunk).filter(|node| self.usable(*node))
    }

    fn is_gateway(&self) -> bool {
        self.image.gateways.contains(self.me())
    }

    /// A gateway of another zone, if this node is one.
    fn ask_outside(&self) -> Option<Choice> {
        // Only nodes that announce the chunk are asked for a holder's answer.
        if !self.is_gateway() || self.fetch.reach == Reach::HOLDER {
            return None;
        }
        let (zone, outside) = (self.node.me().zone, &self.image.outside);
        let ways = outside.upstream(zone, self.chunk);
        let steps = ways.iter().filter_map(|way| {
            let peer = way.gateways.in_turn(self.chunk).find(|node| self.usable(*node))?;
            Some(Step { peer, reach: Reach::outside(way.distance).min(self.fetch.reach), has: false })
        });
        self.along(steps).or_else(|| {
            // No zone on the way is in step: ask the source directly, then any other.
            let ask = |way: zones::Way<'_>| {
                let reach = Reach::outside(way.distance).min(self.fetch.reach);
                let peer = way.gateways.in_turn(self.chunk).find(|node| self.usable(*node))?;
                Some(self.ask_or_park(Source::passing(peer, reach)))
            };
            ways.last().copied().into_iter().chain(outside.further(zone)).find_map(ask)
        })
    }

    /// A home. Announcements are a moment old: homes may have the chunk by now.
    fn ask_anybody(&self) -> Choice {
        let mut others: Vec<NodeId> = self
            .image
            .map
            .homes_in_turn(self.chunk)
            .iter()
            .map(|home| home.node)
            .filter(|node| self.usable(*node))
            .collect();
        // A holder of data has had the pages above it, whether it is their home or not.
        if !self.image.inventory.geometry().is_data(self.chunk) && self.fetch.tried.len() < PAGE_HOLDERS_TRIED_MAX {
            others.extend(self.image.map.participants().iter().filter(|node| self.usable(**node)));
        }
        let other = self.node.peers.choose(&others, self.dice);
        other.map_or(Choice::Nobody, |peer| Choice::Ask(Source::holder(peer)))
    }

    /// The gateway whose turn it is; in a field without zones, an origin.
    fn entry_point(&self) -> Option<EntryPoint> {
        if let Some(gateway) = self.image.gateways.in_turn(self.chunk).next() {
            return Some(if gateway == self.me() { EntryPoint::Here } else { EntryPoint::Gateway(gateway) });
        }
        self.image.map.origins().iter().min().filter(|_| self.has_chain()).map(|origin| EntryPoint::Origin(*origin))
    }

    /// True if this node follows the chain. A newcomer knows few of perhaps many nodes. If some
    /// nodes asked homes and others their upstream, they would fetch all chunks twice, and could
    /// wait for each other.
    fn has_chain(&self) -> bool {
        let image = self.image;
        let keeps_all = image.fill.arc().length == image.map.ring().size();
        let few = image.map.participants().len() < CHAIN_NODES_MIN && self.node.now >= image.discovery_until;
        keeps_all || !few
    }
}

/// An upstream node, as a candidate.
#[derive(Debug, Clone, Copy)]
struct Step {
    peer: NodeId,
    reach: Reach,
    /// True if it has announced the chunk.
    has: bool,
}

//! The plan: which peer a node asks for a chunk, and when it waits instead.
//!
//! [`Situation::choice`] is a pure function. A [`Situation`] is all that a node knows of it:
//! the wanted chunk, the map, the chain, the gateways, and how each peer has answered so far. The
//! plan changes nothing and sends nothing: [`crate::node`] does, and makes the situation.
//!
//! docs/explanation/choosing.md has all steps in a table. Each has its tests in `tests/plan/`.

mod upstream;

use crate::chunk::Chunk;
use crate::fetch::ImageNumber;
use crate::identity::{NodeId, Zone};
use crate::peers::Peers;
use crate::placement::{Chain, Gateways, Holding, Map, Place, Zones, zones};
use crate::reach::Reach;
use crate::speed::Class;
use crate::time::Time;
use crate::tuning::field::CHAIN_NODES_MIN;
use crate::tuning::{OVERDUE_AFTER, PAGE_HOLDERS_TRIED_MAX};
use crate::wire::Priority;
use upstream::{EntryPoint, Step};

/// The peer to ask, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// The peer that gets the request.
    pub peer: NodeId,
    /// To be sent along.
    pub reach: Reach,
    /// The rank of the request; see [`crate::fetch::Fetch::rank`].
    pub rank: Option<Reach>,
}

impl Source {
    /// An announced holder. The announcement may be out of date. Of two nodes that each take the
    /// other for a holder, neither may wait for the other.
    pub const fn holder(peer: NodeId) -> Self {
        Self { peer, reach: Reach::HOLDER, rank: Some(Reach::HOLDER) }
    }

    /// An origin, which has it for sure.
    pub const fn origin(peer: NodeId) -> Self {
        Self { peer, reach: Reach::HOLDER, rank: None }
    }

    /// A peer that may have to get it from elsewhere.
    pub const fn passing(peer: NodeId, reach: Reach) -> Self {
        Self { peer, reach, rank: Some(reach) }
    }
}

/// The decision about a wanted chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Ask this peer.
    Ask(Source),
    /// Wait until this peer can take more.
    Park(NodeId),
    /// There is no peer to ask.
    Nobody,
}

/// The live nodes, as far as they can be asked.
pub trait Members {
    /// The place of one in the chain of the image; `None` if this node cannot ask it.
    fn place(&self, node: NodeId) -> Option<Place>;

    /// True if this node can ask it.
    fn is_there(&self, node: NodeId) -> bool {
        self.place(node).is_some()
    }
}

/// The goal of the fetch that needs a peer; see [`crate::fetch::Fetch`].
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The number of its image.
    pub image: ImageNumber,
    /// The chunk, of data or of hashes.
    pub chunk: Chunk,
    /// Length of the chunk.
    pub bytes: u64,
    /// True for a chunk of data, false for a hash page.
    pub is_data: bool,
    /// The highest priority among its beneficiaries.
    pub priority: Priority,
    /// The most reach that a request may have.
    pub reach: Reach,
    /// Peers that were asked in this round.
    pub tried: &'a [NodeId],
    /// The node that an origin advised to ask instead.
    pub advice: Option<NodeId>,
    /// An origin has given advice before, and is to send the chunk itself.
    pub insist: bool,
    /// It has given advice again, which counts even if the advised node is slower.
    pub firm: bool,
    /// A reader that goes through the image in order is about to want it.
    pub stream: bool,
    /// It has waited for a peer's window for so long that others may be asked.
    pub overdue: bool,
}

/// What a node knows when it chooses a peer.
pub struct Situation<'a> {
    /// The time of the choice.
    pub now: Time,
    /// The node that chooses.
    pub me: NodeId,
    /// The zone of that node.
    pub zone: Zone,
    /// That node's place in the chain; `None` if it takes no part.
    pub place: Option<Place>,
    /// The slowest class whose nodes pass on as much as that node takes in.
    pub intake: Class,
    /// The fetch that needs a peer.
    pub wanted: Wanted<'a>,
    /// The stores and origins.
    pub map: &'a Map,
    /// The lockstep readers.
    pub chain: &'a Chain,
    /// The gateways of this zone.
    pub gateways: &'a Gateways,
    /// The other zones, as a gateway knows them.
    pub outside: &'a Zones,
    /// The nodes that can be asked.
    pub members: &'a dyn Members,
    /// How they have answered.
    pub peers: &'a Peers,
    /// This node's store is to hold the whole image.
    pub keeps_all: bool,
    /// The image is so new here that this node may not know all others.
    pub discovers: bool,
    /// The image is so new here that nodes switched on together with this one may still begin.
    pub warms_up: bool,
    /// Nodes that leave may be asked like others. While false they are not there: that is the
    /// first attempt of each choice.
    pub asks_leaving: bool,
    /// A random number, new for each choice.
    pub dice: u64,
}

impl Situation<'_> {
    /// Chooses the peer to ask for a chunk, in this order:
    ///
    /// - the one that an origin advised,
    /// - the upstream in the chain, if it is in step,
    /// - a holder,
    /// - the home that relays the chunk,
    /// - an origin, or the gateway through which the chunk enters this zone,
    /// - if this node is a gateway, one of another zone.
    ///
    /// If that leads to nobody, it is done again with the nodes that leave.
    pub fn choice(&self) -> Choice {
        match self.choice_of_these() {
            Choice::Nobody if self.spares_some() => Situation { asks_leaving: true, ..*self }.choice_of_these(),
            choice => choice,
        }
    }

    /// True if this attempt leaves out nodes that leave.
    fn spares_some(&self) -> bool {
        !self.asks_leaving && !self.map.leaving().is_empty()
    }

    /// The choice among the nodes of this attempt.
    fn choice_of_these(&self) -> Choice {
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

    /// The node to ask for a slice: a holder with room, else an origin with room. `None` if the
    /// chunk has to come another way, as from other zones.
    ///
    /// While the stores of many nodes fill, all of them read the same. Slices for each would fill
    /// the origin's link.
    pub fn direct(&self) -> Option<NodeId> {
        let again = || Situation { asks_leaving: true, ..*self }.direct_of_these();
        self.direct_of_these().or_else(|| if self.spares_some() { again() } else { None })
    }

    fn direct_of_these(&self) -> Option<NodeId> {
        if self.has_chain() && !self.is_settled() {
            return None;
        }
        let holders = self.map.homes_in_turn(self.wanted.chunk);
        let holders = holders.iter().filter(|home| self.has(home) && self.usable(home.node)).map(|home| home.node);
        let holders: Vec<NodeId> = holders.filter(|node| self.has_room(*node)).collect();
        self.peers.choose(&holders, self.dice).or_else(|| {
            let enters_elsewhere = matches!(self.entry_point(), Some(EntryPoint::Gateway(_)));
            let origins = self.map.origins().iter().copied().filter(|_| !enters_elsewhere);
            let usable = |node: &NodeId| self.usable(*node) && self.is_believed(*node) && self.has_room(*node);
            self.peers.choose(&origins.filter(usable).collect::<Vec<_>>(), self.dice)
        })
    }

    /// True if several announced holders of the chunk can be asked.
    fn has_several_holders(&self) -> bool {
        let having = self.homes().filter(|home| self.has(home));
        having.filter(|home| self.usable(home.node)).nth(1).is_some()
    }

    /// True if a home announces the chunk, is believed, and is as fast as the others that have it.
    fn has(&self, home: &Holding) -> bool {
        self.map.has(home, self.wanted.chunk) && self.is_believed(home.node) && !self.is_bypassed(home)
    }

    /// True for a home that is slower than this node and than an origin. Chunks that only slow
    /// nodes hold enter the chain at the origin.
    fn is_bypassed(&self, home: &Holding) -> bool {
        self.is_too_slow(home.class)
    }

    /// True for a class that is slower than this node and than an origin.
    fn is_too_slow(&self, class: Class) -> bool {
        let origins = || self.origins().filter(|node| self.peers.is_usable(*node, self.now));
        class > Class::default() && self.intake < class && origins().any(|origin| self.class_of(origin) < class)
    }

    /// The place from which this node takes the chunk.
    fn stands(&self) -> Option<Place> {
        let place = self.place?;
        if self.intake >= place.class {
            return Some(place);
        }
        let from_origin = self.homes().next().is_none() || !self.is_settled();
        Some(self.chain.leaf(self.intake, self.wanted.chunk, from_origin))
    }

    fn class_of(&self, node: NodeId) -> Class {
        self.place_of(node).map_or(Class::default(), |place| place.class)
    }

    fn is_believed(&self, node: NodeId) -> bool {
        self.peers.is_believed(node, self.now)
    }

    /// True if all homes have filled their stores.
    fn is_settled(&self) -> bool {
        let size = self.map.ring().size();
        self.homes().all(|home| home.filled.count == size)
    }

    /// True if the node takes part in this attempt.
    fn is_meant(&self, node: NodeId) -> bool {
        self.asks_leaving || !self.map.is_leaving(node)
    }

    /// The homes of the chunk in this attempt.
    fn homes(&self) -> impl Iterator<Item = &Holding> {
        self.map.homes(self.wanted.chunk).filter(|home| self.is_meant(home.node))
    }

    /// The origins in this attempt, by node.
    fn origins(&self) -> impl Iterator<Item = NodeId> {
        self.map.origins().iter().copied().filter(|node| self.is_meant(*node))
    }

    fn usable(&self, node: NodeId) -> bool {
        let untried = node != self.me && !self.wanted.tried.contains(&node) && self.is_meant(node);
        untried && self.members.is_there(node) && self.peers.is_usable(node, self.now)
    }

    fn has_room(&self, node: NodeId) -> bool {
        self.peers.has_room((node, self.wanted.image), self.wanted.bytes, self.wanted.priority)
    }

    /// True if this node may ask its own zone for the askers that wait.
    fn may_ask_zone(&self) -> bool {
        self.wanted.reach >= Reach::GATEWAY
    }

    /// The peer that an origin advised, or an origin if the asker insists. Advice to ask a slower
    /// node is no help, unless the origin says so again.
    fn advised(&self) -> Option<Choice> {
        let helps = |node: &NodeId| self.usable(*node) && (self.wanted.firm || self.class_of(*node) <= self.intake);
        if let Some(peer) = self.wanted.advice.filter(helps) {
            return Some(Choice::Ask(Source::holder(peer)));
        }
        let mut origins = self.map.origins().iter().copied().filter(|node| self.usable(*node));
        origins.next().filter(|_| self.wanted.insist).map(|peer| Choice::Ask(Source::origin(peer)))
    }

    fn place_of(&self, node: NodeId) -> Option<Place> {
        self.members.place(node)
    }

    /// A holder. Holders take turns once stores are full. While stores fill it is the nearest one
    /// upstream of this node, and is waited for until the chunk is overdue. Of readers that began
    /// one after the other, each then takes from its predecessor, and from no node that another
    /// needs.
    fn ask_holder(&self) -> Option<Choice> {
        let map = self.map;
        let mut holders: Vec<Holding> = map.homes_in_turn(self.wanted.chunk);
        holders.retain(|home| self.has(home) && self.usable(home.node));
        if !self.is_settled() {
            let me = Place { class: self.intake, ..self.place? };
            holders.sort_unstable_by_key(|home| me.behind(&home.place()));
            let mut nearest = holders.iter().filter(|home| self.peers.may_be_in_step(home.node, self.now));
            if let Some(last) = nearest.next() {
                // Many may wait for one link while others are idle.
                let passes = self.wanted.overdue && !self.has_room(last.node);
                let next = |home: &&Holding| passes && home.class <= last.class && self.has_room(home.node);
                return Some(nearest.find(next).map_or_else(
                    || self.ask_or_park(Source::holder(last.node)),
                    |home| Choice::Ask(Source::holder(home.node)),
                ));
            }
        }
        self.one_of(&holders.iter().map(|home| home.node).collect::<Vec<_>>(), Source::holder)
    }

    /// One of several equal nodes, with room if any has.
    fn one_of(&self, nodes: &[NodeId], source: impl Fn(NodeId) -> Source) -> Option<Choice> {
        let free: Vec<NodeId> = nodes.iter().copied().filter(|node| self.has_room(*node)).collect();
        if let Some(peer) = self.peers.choose(&free, self.dice) {
            return Some(Choice::Ask(source(peer)));
        }
        self.peers.choose(nodes, self.dice).map(|peer| self.ask_or_park(source(peer)))
    }

    /// Asks a peer that has room, or that keeps a chunk waiting while it delivers nothing. One that
    /// delivers will have room: more at once would only wait on this node's own link.
    fn ask_or_park(&self, source: Source) -> Choice {
        let Source { peer, .. } = source;
        let waits = self.wanted.overdue && !self.delivers(peer);
        if self.has_room(peer) || waits { Choice::Ask(source) } else { Choice::Park(peer) }
    }

    /// True if the peer owes something and sent some of it a moment ago.
    fn delivers(&self, peer: NodeId) -> bool {
        self.peers.owes(peer) && self.peers.silent_for(peer, self.now) < OVERDUE_AFTER
    }

    /// The first home, which relays chunks without a holder: homes ask as one, so that two never
    /// wait for each other. If all homes are too slow, it is another node.
    fn ask_relay(&self) -> Option<Choice> {
        let me = self.me;
        let is_home = self.homes().any(|home| home.node == me);
        let reach = self.wanted.reach.min(if is_home { Reach::HOME } else { Reach::READER });
        if !reach.is_relay() {
            return None;
        }
        let fits = |node: NodeId| self.is_believed(node) && !self.is_too_slow(self.class_of(node));
        let could = |node: &NodeId| self.is_meant(*node) && (*node == me || (self.usable(*node) && fits(*node)));
        let mut homes = self.map.homes_in_turn(self.wanted.chunk);
        homes.retain(|home| self.is_meant(home.node) && !self.is_bypassed(home));
        let relay = if homes.is_empty() {
            self.map.relay(self.wanted.chunk, self.map.participants().iter().copied().filter(could))
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
        let mut origins: Vec<NodeId> = self.map.origins().iter().copied().filter(|node| self.usable(*node)).collect();
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
        self.gateways.in_turn(self.wanted.chunk).filter(|node| self.usable(*node))
    }

    fn is_gateway(&self) -> bool {
        self.gateways.contains(self.me)
    }

    /// A gateway of another zone, if this node is one.
    fn ask_outside(&self) -> Option<Choice> {
        // Only nodes that announce the chunk are asked for a holder's answer.
        if !self.is_gateway() || self.wanted.reach == Reach::HOLDER {
            return None;
        }
        let (zone, outside) = (self.zone, self.outside);
        let ways = outside.upstream(zone, self.wanted.chunk);
        let steps = ways.iter().filter_map(|way| {
            let peer = way.gateways.in_turn(self.wanted.chunk).find(|node| self.usable(*node))?;
            Some(Step { peer, reach: Reach::outside(way.distance).min(self.wanted.reach), has: false })
        });
        self.along(steps).or_else(|| {
            // No zone on the way is in step: ask the source directly, then any other.
            let ask = |way: zones::Way<'_>| {
                let reach = Reach::outside(way.distance).min(self.wanted.reach);
                let peer = way.gateways.in_turn(self.wanted.chunk).find(|node| self.usable(*node))?;
                Some(self.ask_or_park(Source::passing(peer, reach)))
            };
            ways.last().copied().into_iter().chain(outside.further(zone)).find_map(ask)
        })
    }

    /// A home, for a reader. Announcements are a moment old: homes may have the chunk by now. A
    /// fill waits for them: in a room whose origin went, all stores would ask all others for all
    /// chunks.
    fn ask_anybody(&self) -> Choice {
        if self.wanted.is_data && self.wanted.priority == Priority::Fill {
            return Choice::Nobody;
        }
        let mut others: Vec<NodeId> = self
            .map
            .homes_in_turn(self.wanted.chunk)
            .iter()
            .map(|home| home.node)
            .filter(|node| self.usable(*node))
            .collect();
        // A holder of data has had the pages above it, whether it is their home or not.
        if !self.wanted.is_data && self.wanted.tried.len() < PAGE_HOLDERS_TRIED_MAX {
            others.extend(self.map.participants().iter().filter(|node| self.usable(**node)));
        }
        let other = self.peers.choose(&others, self.dice);
        other.map_or(Choice::Nobody, |peer| Choice::Ask(Source::holder(peer)))
    }

    /// True if this node follows the chain. A newcomer knows few of perhaps many nodes. If some
    /// nodes asked homes and others their upstream, they would fetch all chunks twice, and could
    /// wait for each other.
    fn has_chain(&self) -> bool {
        let few = self.map.participants().len() < CHAIN_NODES_MIN && !self.discovers;
        self.keeps_all || !few
    }
}

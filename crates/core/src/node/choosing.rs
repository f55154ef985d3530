//! Whom to ask for a chunk.

use super::Node;
use super::images::Image;
use crate::chunk::Chunk;
use crate::config::OVERDUE_AFTER;
use crate::fetch::Fetch;
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::placement::crowd::Way;
use crate::placement::{Crowd, Holding, Place, mix};
use crate::reach::Reach;
use crate::wire::Priority;

/// A hash page that no home and no origin has is asked for from so many nodes at a time that may have read it.
const STRANGERS_MAX: usize = 8;
/// So many nodes upstream in the crowd are considered: the next, and those after it if that one is not
/// in step, too slow, or gone.
const NEIGHBOURS: usize = 3;

/// With fewer nodes than this, and small stores, there is no crowd: all may well ask all, and a chunk that comes by
/// way of its home is kept there. Who keeps all is home of all.
const CROWD: usize = 8;

/// Whom to ask.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    pub peer: NodeId,
    /// To be sent along.
    pub reach: Reach,
    /// See [`crate::fetch::Fetch::rank`].
    pub rank: Option<Reach>,
}

impl Source {
    /// A node that has said that it has the chunk. That may be out of date, and of two nodes that each
    /// believe that the other has it neither may wait for the other.
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

/// What to do about a chunk that is wanted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Choice {
    Ask(Source),
    /// Wait until this peer can take more.
    Park(NodeId),
    Nobody,
}

impl Node {
    /// Whom to ask for a chunk: the neighbour in the crowd, if it is in step; else one that has it; else the
    /// home that is to relay it; else an origin, or the gateway through which it comes into this zone.
    pub(super) fn choose(&mut self, id: ImageId, chunk: Chunk) -> Choice {
        let dice = self.dice();
        let Some(image) = self.images.get(&id) else { return Choice::Nobody };
        let Some(fetch) = image.fetches.get(&chunk) else { return Choice::Nobody };
        let bytes = image.inventory.geometry().length(chunk);
        Choosing { node: self, image, fetch, chunk, bytes, dice }.choose()
    }
}

/// One choice, and what it is made from.
struct Choosing<'a> {
    node: &'a Node,
    image: &'a Image,
    fetch: &'a Fetch,
    chunk: Chunk,
    bytes: u64,
    dice: u64,
}

/// Where a chunk comes into this zone, so that all its nodes agree; the crowd begins there.
#[derive(Debug, Clone, Copy)]
enum Door {
    /// At an origin.
    Origin(NodeId),
    /// At a gateway, which is to get it.
    Gateway(NodeId),
    /// At this node, which is the gateway.
    Here,
}

impl Door {
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
        let door = self.door();
        self.ask_crowd(door)
            .or_else(|| self.ask_holder())
            .or_else(|| self.ask_relay())
            .or_else(|| self.ask_origin(door))
            .or_else(|| self.ask_gateway(door))
            .or_else(|| self.ask_outside())
            .unwrap_or_else(|| self.ask_anybody())
    }

    fn me(&self) -> NodeId {
        self.node.me().node
    }

    /// True if more than one node that has said that it has the chunk can be asked.
    fn has_several_holders(&self) -> bool {
        let having = self.image.map.keepers(self.chunk).filter(|home| self.has(home));
        having.filter(|home| self.usable(home.node)).nth(1).is_some()
    }

    /// True if a home says that it has the chunk, and is believed.
    fn has(&self, home: &Holding) -> bool {
        self.image.map.has(home, self.chunk) && self.is_believed(home.node)
    }

    fn is_believed(&self, node: NodeId) -> bool {
        self.node.peers.is_believed(node, self.node.now)
    }

    /// True if all homes have filled their stores.
    fn is_settled(&self) -> bool {
        let size = self.image.map.ring().size();
        self.image.map.keepers(self.chunk).all(|home| home.filled.count == size)
    }

    fn usable(&self, node: NodeId) -> bool {
        let untried = node != self.me() && !self.fetch.tried.contains(&node);
        untried && self.node.identity_of(node).is_some() && self.node.peers.is_usable(node, self.node.now)
    }

    fn has_room(&self, node: NodeId) -> bool {
        self.node.peers.has_room(node, self.bytes, self.fetch.priority)
    }

    /// True if this node may ask its own zone on behalf of those who wait.
    fn may_ask_zone(&self) -> bool {
        self.fetch.reach >= Reach::GATEWAY
    }

    /// What an origin said.
    fn advised(&self) -> Option<Choice> {
        if let Some(peer) = self.fetch.advice.filter(|node| self.usable(*node)) {
            return Some(Choice::Ask(Source::holder(peer)));
        }
        let mut origins = self.image.map.origins().iter().copied().filter(|node| self.usable(*node));
        origins.next().filter(|_| self.fetch.insist).map(|peer| Choice::Ask(Source::origin(peer)))
    }

    /// One of those upstream in the crowd of this zone.
    fn ask_crowd(&self, door: Option<Door>) -> Option<Choice> {
        let way = self.way(door).filter(|_| self.may_ask_zone())?;
        let (map, me, source) = (&self.image.map, self.me(), way.source.node);
        let (gateway, origins) = (door.and_then(Door::gateway), map.origins());
        // The door is for what nobody has yet.
        let had = || map.keepers(self.chunk).any(|home| home.node != me && map.has(home, self.chunk));
        let shut = |peer: NodeId| {
            (origins.contains(&peer) && had())
                || (gateway == Some(peer) && !map.holds(peer, self.chunk) && self.full().any(|home| home.node != me))
        };
        let at_source = if gateway == Some(source) { Reach::GATEWAY } else { Reach::HOLDER };
        let line = self.image.crowd.upstream(self.place(), way).filter(|(peer, _)| !shut(*peer));
        let steps = line.map(|(peer, distance)| Step {
            peer,
            reach: if peer == source { at_source } else { Reach::in_zone(distance) },
            has: (peer == source || map.holds(peer, self.chunk)) && self.is_believed(peer),
        });
        self.along(steps)
    }

    /// The way of the chunk through the crowd to this node.
    fn way(&self, door: Option<Door>) -> Option<Way> {
        let (map, crowd, me) = (&self.image.map, &self.image.crowd, self.place());
        match door {
            Some(Door::Here) => None,
            Some(Door::Gateway(gateway)) => Some(crowd.way_from(self.place_of(gateway)?, me, self.full())),
            Some(Door::Origin(origin)) => {
                // Once stores are full nothing comes in at the origin any more, and chains go on past it.
                let past = if self.is_settled() { Crowd::way_around(me, self.full()) } else { None };
                past.or_else(|| {
                    let origins = map.origins().iter().filter_map(|origin| self.place_of(*origin));
                    Some(crowd.way_from(self.place_of(origin)?, me, self.full().chain(origins)))
                })
            }
            None => {
                let filling = || map.keepers(self.chunk).filter(|home| self.is_crowd() && home.filled.count > 0);
                Crowd::way_around(me, self.full()).or_else(|| Crowd::way_around(me, filling().map(Holding::place)))
            }
        }
    }

    /// Those of whom a crowd may take the chunk: while stores fill, what each says that it has reaches some earlier than
    /// others, so only full ones count.
    fn full(&self) -> impl Iterator<Item = Place> + '_ {
        let (size, is_crowd) = (self.image.map.ring().size(), self.is_crowd());
        let full = self.image.map.keepers(self.chunk).filter(move |home| is_crowd && home.filled.count == size);
        full.map(Holding::place)
    }

    /// Where this node stands.
    fn place(&self) -> Place {
        Place::from(self.node.me())
    }

    fn place_of(&self, node: NodeId) -> Option<Place> {
        self.node.identity_of(node).map(Place::from)
    }

    /// The first of a line of nodes upstream that is in step and can take more.
    fn along(&self, line: impl Iterator<Item = Step>) -> Option<Choice> {
        let (fetch, peers, now) = (self.fetch, &self.node.peers, self.node.now);
        let line = self.looked_at(line).into_iter();
        let (in_step, aside): (Vec<Step>, Vec<Step>) = line.partition(|step| peers.may_be_in_step(step.peer, now));
        // In a room that is switched on the neighbour may only just begin; a reader that is alone need not wait.
        let patient = fetch.priority != Priority::Demand || now < self.image.young_until;
        if let Some(step) = aside.first().filter(|step| patient && peers.may_begin(step.peer, now)) {
            return Some(Choice::Park(step.peer));
        }
        let mut full: Option<Step> = None;
        for step in in_step {
            let Step { peer, reach, has } = step;
            if !has && reach == Reach::HOLDER {
                break;
            }
            // Among many that have it the neighbour is but one, unless it is in step anyway: once stores are full it is
            // waited for, since what others sent besides would slow the chain down behind them. While stores fill it
            // leads as long as it can take more. And whoever reads here and there is in step with nobody; while stores
            // fill, though, the first reads of a crowd look like that.
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
            // Whoever stands before one that delivers sends to it: both would have half of that, and the one that then falls
            // behind would deliver too little for good.
            let delivers = peers.is_in_step(peer) && peers.silent_for(peer, now) < OVERDUE_AFTER;
            if !fetch.overdue || delivers {
                break;
            }
        }
        // Windows that wait for each other around the crowd would wait for ever.
        full.map(
            |Step { peer, reach, .. }| {
                if fetch.overdue { Choice::Ask(Source::passing(peer, reach)) } else { Choice::Park(peer) }
            },
        )
    }

    /// Those of a line upstream that are considered.
    ///
    /// If the first is put aside, for its lies perhaps, and goes on to read, then whoever stands before it sends to it already,
    /// and would slow the chain down for all if it were asked for everything that the first one does not deliver. So
    /// those upstream take turns, chunk by chunk; the source is still the last to be asked.
    fn looked_at(&self, line: impl Iterator<Item = Step>) -> Vec<Step> {
        let mut line = line.peekable();
        let is_aside = |step: &Step| !self.node.peers.is_usable(step.peer, self.node.now);
        let usable = |step: &Step| self.usable(step.peer);
        if !line.peek().is_some_and(is_aside) {
            return line.filter(usable).take(NEIGHBOURS).collect();
        }
        let mut line: Vec<Step> = line.collect();
        if let [_, others @ .., _] = &mut line[..]
            && !others.is_empty()
        {
            others.rotate_left((mix(self.chunk.0) % others.len() as u64) as usize);
        }
        line.into_iter().filter(usable).take(NEIGHBOURS).collect()
    }

    /// Those who have it take turns; while stores fill it is whoever came last before this node, and is waited for: of readers
    /// that began one after the other each then takes from the one before it, and from nobody whom another needs.
    fn ask_holder(&self) -> Option<Choice> {
        let map = &self.image.map;
        let mut holders: Vec<Holding> = map.homes(self.chunk);
        holders.retain(|home| self.has(home) && self.usable(home.node));
        if !self.is_settled() {
            let me = self.place();
            holders.sort_by_key(|home| me.arrival.since(home.place().arrival));
            let mut last_come = holders.iter().filter(|home| self.node.peers.may_be_in_step(home.node, self.node.now));
            if let Some(last) = last_come.next() {
                return Some(self.ask_or_park(Source::holder(last.node)));
            }
        }
        self.one_of(&holders.iter().map(|home| home.node).collect::<Vec<_>>(), Source::holder)
    }

    /// One of several that are as good as each other, with room if any has.
    fn one_of(&self, nodes: &[NodeId], source: impl Fn(NodeId) -> Source) -> Option<Choice> {
        let free: Vec<NodeId> = nodes.iter().copied().filter(|node| self.has_room(*node)).collect();
        if let Some(peer) = self.node.peers.choose(&free, self.dice) {
            return Some(Choice::Ask(source(peer)));
        }
        self.node.peers.choose(nodes, self.dice).map(|peer| self.ask_or_park(source(peer)))
    }

    fn ask_or_park(&self, source: Source) -> Choice {
        if self.has_room(source.peer) || self.fetch.overdue { Choice::Ask(source) } else { Choice::Park(source.peer) }
    }

    /// The first home, which is to relay what nobody has: homes ask as one, so that two never wait for each other.
    fn ask_relay(&self) -> Option<Choice> {
        let me = self.me();
        let is_home = self.image.map.keepers(self.chunk).any(|home| home.node == me);
        let reach = self.fetch.reach.min(if is_home { Reach::HOME } else { Reach::READER });
        if !reach.is_relay() {
            return None;
        }
        let could = |node: &NodeId| *node == me || (self.usable(*node) && self.is_believed(*node));
        let homes = self.image.map.homes(self.chunk);
        let relay = if homes.is_empty() {
            self.image.map.relay(self.chunk, self.image.map.participants().iter().copied().filter(could))
        } else {
            homes.iter().map(|home| home.node).find(could)
        };
        relay.filter(|node| *node != me).map(|peer| self.ask_or_park(Source::passing(peer, reach)))
    }

    /// An origin; but in a field of zones those are for the gateways, each for the chunks that enter there.
    fn ask_origin(&self, door: Option<Door>) -> Option<Choice> {
        // Who was asked from outside cannot turn to another of its zone: whoever asked has reasons not to.
        let turns = self.may_ask_zone() && matches!(door, Some(Door::Gateway(_)));
        if turns && self.usable_gateways().next().is_some() {
            return None;
        }
        let mut origins: Vec<NodeId> =
            self.image.map.origins().iter().copied().filter(|node| self.usable(*node)).collect();
        // Who is not believed is asked last, or with nobody else to ask.
        if origins.iter().any(|node| self.is_believed(*node)) {
            origins.retain(|node| self.is_believed(*node));
        }
        self.one_of(&origins, Source::origin)
    }

    /// A gateway of this zone, the one whose turn it is first.
    fn ask_gateway(&self, door: Option<Door>) -> Option<Choice> {
        if !self.may_ask_zone() || matches!(door, Some(Door::Here)) {
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
        if !self.is_gateway() {
            return None;
        }
        let ways = self.image.outside.upstream(self.node.me().zone, self.chunk);
        let steps = ways.iter().filter_map(|way| {
            let peer = way.gateways.in_turn(self.chunk).find(|node| self.usable(*node))?;
            Some(Step { peer, reach: Reach::outside(way.distance).min(self.fetch.reach), has: false })
        });
        self.along(steps).or_else(|| {
            // Nobody on the way is in step: straight to where it is.
            let last = ways.last()?;
            let reach = Reach::outside(last.distance).min(self.fetch.reach);
            let peer = last.gateways.in_turn(self.chunk).find(|node| self.usable(*node))?;
            Some(self.ask_or_park(Source::passing(peer, reach)))
        })
    }

    /// What homes have said of themselves is a moment old: they may have it by now.
    fn ask_anybody(&self) -> Choice {
        let mut others: Vec<NodeId> =
            self.image.map.homes(self.chunk).iter().map(|home| home.node).filter(|node| self.usable(*node)).collect();
        // Whoever has data has had the pages above it, whether it is their home or not.
        if !self.image.inventory.geometry().is_data(self.chunk) && self.fetch.tried.len() < STRANGERS_MAX {
            others.extend(self.image.map.participants().iter().filter(|node| self.usable(**node)));
        }
        let other = self.node.peers.choose(&others, self.dice);
        other.map_or(Choice::Nobody, |peer| Choice::Ask(Source::holder(peer)))
    }

    /// The gateway whose turn it is, or in a field without zones an origin.
    fn door(&self) -> Option<Door> {
        if let Some(gateway) = self.image.gateways.in_turn(self.chunk).next() {
            return Some(if gateway == self.me() { Door::Here } else { Door::Gateway(gateway) });
        }
        self.image.map.origins().iter().min().filter(|_| self.is_crowd()).map(|origin| Door::Origin(*origin))
    }

    /// Who has just come knows few, perhaps of many; those who then ask homes and those who take from their neighbours
    /// would fetch everything twice, and could wait for each other.
    fn is_crowd(&self) -> bool {
        let image = self.image;
        let keeps_all = image.fill.arc().length == image.map.ring().size();
        let few = image.map.participants().len() < CROWD && self.node.now >= image.blind_until;
        keeps_all || !few
    }
}

/// One of those upstream.
#[derive(Debug, Clone, Copy)]
struct Step {
    peer: NodeId,
    reach: Reach,
    /// True if it has said that it has the chunk.
    has: bool,
}

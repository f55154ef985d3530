//! The chain: the common order in which lockstep readers serve each other.
//!
//! If all nodes read the same place at the same time, each chunk has to cross each node's link
//! once. Nothing is faster than a pipeline: all nodes are in the order of their joins, and each
//! takes a chunk from its upstream and passes it downstream. A chunk enters wherever a node holds
//! it. Compared with asking each home directly, a node has two connections instead of many, and one
//! long stream instead of many short ones. No link has two senders that collide. (Two trees with
//! half of the chunks each would be less deep. In the simulator they were slower from 100 nodes on,
//! since a node's two parents are not in step with each other.)
//!
//! Later joiners usually read later. Ordering the chain by join time puts each node's upstream
//! ahead of it; newcomers go to the end and break nothing. (In the order of ids, a room whose
//! machines began 20 to 300 ms apart took two to four times as long. Each node was asked for chunks
//! that it had not come to yet, fetched them out of turn, and fell back itself.)
//!
//! The gateways of a zone have more to send than their part of the chain. They are at its end,
//! where one of them has nothing to pass on; for chunks that enter elsewhere it is another one.
//!
//! Between zones the order is a tree: see [`super::zones`].

use crate::identity::{Arrival, Identity, NodeId};

/// The place of a node in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The node's place in the order of joins.
    pub arrival: Arrival,
    /// The node at this place.
    pub node: NodeId,
}

impl Place {
    /// The distance around the circle from `start`; unique for each node.
    const fn since(&self, start: Arrival) -> (u64, NodeId) {
        (self.arrival.since(start), self.node)
    }
}

impl From<&Identity> for Place {
    fn from(identity: &Identity) -> Self {
        Self { arrival: identity.arrival(), node: identity.node }
    }
}

/// How far downstream of the chain's beginning a node is; 0 for the source. It counts joins and not
/// nodes, so nodes with different views still agree. It counts from the beginning and not from the
/// current holders, since nodes hear of those one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Distance(pub u64);

impl Distance {
    /// The number of bits that are used.
    pub const BITS: u32 = Arrival::BITS + 1;
    /// Lowest distance of the nodes at the end of the chain.
    const END: u64 = 1 << Arrival::BITS;

    /// From the beginning to a place on the way around.
    const fn between(start: Arrival, place: Place) -> Self {
        Self(place.arrival.since(start))
    }

    /// From the beginning to a place at the end of the chain.
    const fn to_end(start: Arrival, place: Place) -> Self {
        Self(Self::END + place.arrival.since(start))
    }
}

/// Most upstream nodes that are asked to pass a chunk on; beyond them the source is asked.
const LOOK: usize = 8;

/// The way of a chunk along a chain.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    /// Where the chain begins.
    pub start: Arrival,
    /// The node before all others, whatever its own place, if there is one.
    pub root: Option<Place>,
    /// The node that has the chunk, or is to get it: the root, or a holder on the way.
    pub source: Place,
}

/// The order of the nodes of one zone.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    /// The nodes that are not at the end, ascending.
    places: Vec<Place>,
    /// The nodes at the end, ascending.
    end: Vec<Place>,
}

impl Chain {
    /// A chain of nodes, given in any order, some of them at the end. A source need not be one of
    /// them.
    pub fn of(places: impl Iterator<Item = Place>, stands_at_end: impl Fn(NodeId) -> bool) -> Self {
        let mut places: Vec<Place> = places.collect();
        places.sort_unstable();
        places.dedup();
        let (end, places) = places.into_iter().partition(|place| stands_at_end(place.node));
        Self { places, end }
    }

    /// The way from a root, which precedes all others, to `me`. It begins at the nearest upstream
    /// among `sources`.
    pub fn way_from(&self, root: Place, me: Place, sources: impl Iterator<Item = Place>) -> Way {
        let start = Arrival::FIRST;
        let mine = self.last_before(me, start);
        let upstream = sources.filter(|source| *source != me && *source != root && source.since(start) < mine);
        let source = upstream.max_by_key(|source| source.since(start)).unwrap_or(root);
        Way { start, root: Some(root), source }
    }

    /// The way to `me` from the nearest of several sources, around; `None` without any other than
    /// `me`.
    pub fn way_around(me: Place, sources: impl Iterator<Item = Place>) -> Option<Way> {
        let others = sources.filter(|source| source.node != me.node);
        let source = others.min_by_key(|source| (me.arrival.since(source.arrival), source.node))?;
        Some(Way { start: source.arrival, root: None, source })
    }

    /// The nodes from which `me` takes a chunk that goes this way, with their distances: the
    /// nearest first, the source last. `me` need not be in the chain.
    pub fn upstream(&self, me: Place, way: Way) -> impl Iterator<Item = (NodeId, Distance)> + '_ {
        let Way { start, root, source } = way;
        let end = if self.is_at_end(me) { &self.end[..] } else { &[] };
        let after = (root != Some(source)).then(|| source.since(start));
        // The nodes at the end are in an order that begins with the root, so each is the last for
        // some chunks.
        let turn = root.map_or(start, |root| root.arrival);
        let ending = before(end, turn, me.since(turn), None).map(move |place| (place, Distance::to_end(turn, place)));
        let others = before(&self.places, start, self.last_before(me, start), after)
            .map(move |place| (place, Distance::between(start, place)));
        let between =
            ending.chain(others).filter(move |(place, _)| *place != source && Some(*place) != root).take(LOOK);
        between.map(|(place, distance)| (place.node, distance)).chain([(source.node, Distance(0))])
    }

    fn is_at_end(&self, me: Place) -> bool {
        self.end.binary_search(&me).is_ok()
    }

    /// Where the way along the nodes before the end leads: to `me`, or past all of them.
    fn last_before(&self, me: Place, start: Arrival) -> (u64, NodeId) {
        if self.is_at_end(me) { (u64::MAX, me.node) } else { me.since(start) }
    }
}

/// Of the sorted `places` those on the way back from before `last` to after `first`, or to `start`.
fn before(
    places: &[Place],
    start: Arrival,
    last: (u64, NodeId),
    first: Option<(u64, NodeId)>,
) -> impl Iterator<Item = Place> + '_ {
    let (around, ahead) = places.split_at(places.partition_point(|place| place.arrival < start));
    let up_to = move |places: &[Place]| places.partition_point(|place| place.since(start) < last);
    let back = around[..up_to(around)].iter().rev().chain(ahead[..up_to(ahead)].iter().rev()).copied();
    back.take_while(move |place| first.is_none_or(|first| place.since(start) > first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::map::mix;

    fn places(count: u64) -> Vec<Place> {
        let place = |node| Place { arrival: Arrival(mix(node + 1) >> (u64::BITS - Arrival::BITS)), node: NodeId(node) };
        let mut places: Vec<Place> = (0..count).map(place).collect();
        places.sort_unstable();
        places
    }

    /// The indexes of the upstream nodes.
    fn line(chain: &Chain, places: &[Place], me: usize, way: Way) -> Vec<usize> {
        let line: Vec<(NodeId, Distance)> = chain.upstream(places[me], way).collect();
        assert!(line.is_sorted_by(|a, b| a.1 > b.1), "{line:?}");
        line.iter().map(|(node, _)| places.iter().position(|place| place.node == *node).unwrap()).collect()
    }

    fn around(places: &[Place], me: usize, sources: &[usize]) -> Way {
        Chain::way_around(places[me], sources.iter().map(|source| places[*source])).unwrap()
    }

    #[test]
    fn each_upstream_is_nearer_than_its_asker() {
        for count in [1, 2, 10, 500] {
            let places = places(count);
            let chain = Chain::of(places.iter().copied(), |_| false);
            let root = Place { arrival: Arrival(Arrival::BITS.into()), node: NodeId(u64::MAX) };
            for me in &places {
                let line: Vec<_> = chain.upstream(*me, chain.way_from(root, *me, [].into_iter())).collect();
                assert!(line.is_sorted_by(|a, b| a.1 > b.1), "{line:?}");
                assert!(line.iter().all(|(other, _)| *other != me.node));
                assert_eq!(line.last(), Some(&(root.node, Distance(0))));
            }
        }
    }

    #[test]
    fn later_nodes_take_from_earlier_ones_wherever_the_root_is() {
        let places = places(6);
        let chain = Chain::of(places.iter().copied().filter(|place| *place != places[3]), |_| false);
        let from = |me: usize| line(&chain, &places, me, chain.way_from(places[3], places[me], [].into_iter()));
        assert_eq!(from(0), [3]);
        assert_eq!(from(2), [1, 0, 3]);
        assert_eq!(from(5), [4, 2, 1, 0, 3]);
    }

    #[test]
    fn gateways_stand_at_the_end() {
        let places = places(10);
        let gateways = [2, 5, 8].map(|at| places[at].node);
        let chain = Chain::of(places.iter().copied(), |node| gateways.contains(&node));
        let from = |me: usize, root: usize| {
            line(&chain, &places, me, chain.way_from(places[root], places[me], [].into_iter()))
        };
        assert_eq!(from(0, 5), [5]);
        assert_eq!(from(6, 5), [4, 3, 1, 0, 5]);
        assert_eq!(from(8, 5), [9, 7, 6, 4, 3, 1, 0, 5]);
        assert_eq!(from(2, 5), [8, 9, 7, 6, 4, 3, 1, 0, 5], "who is last for some chunks is not for others");
        assert_eq!(from(8, 2), [5, 9, 7, 6, 4, 3, 1, 0, 2]);
        assert_eq!(from(2, 8), [9, 7, 6, 4, 3, 1, 0, 8]);
    }

    #[test]
    fn new_holders_change_no_distance() {
        let places = places(40);
        let chain = Chain::of(places.iter().copied(), |_| false);
        let root = places[7];
        let upstream = |me: usize, sources: &[Place]| {
            let way = chain.way_from(root, places[me], sources.iter().copied());
            chain.upstream(places[me], way).collect::<Vec<_>>()
        };
        let full = [places[3], places[12], places[30]];
        for me in (0..40).filter(|me| *me != 7) {
            let (before, after) = (upstream(me, &[]), upstream(me, &full));
            let passing = &after[..after.len() - 1];
            assert!(passing.iter().all(|step| before.contains(step)), "{before:?} {after:?}");
            assert!(passing.iter().all(|(node, _)| full.iter().all(|full| full.node != *node)), "{after:?}");
        }
        let source = |me: usize| chain.way_from(root, places[me], full.into_iter()).source;
        assert_eq!([0, 3, 4, 12, 31].map(source), [root, root, places[3], places[3], places[30]]);
    }

    #[test]
    fn a_chain_goes_around_to_its_source() {
        let places = places(10);
        let chain = Chain::of(places.iter().copied(), |_| false);
        assert_eq!(line(&chain, &places, 5, around(&places, 5, &[8])), [4, 3, 2, 1, 0, 9, 8]);
        assert_eq!(line(&chain, &places, 5, around(&places, 5, &[8, 2, 7])), [4, 3, 2]);
        assert!(Chain::way_around(places[5], [places[5]].into_iter()).is_none());
    }
}

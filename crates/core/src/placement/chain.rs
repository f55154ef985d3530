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
//! A pipeline is as fast as its slowest part. So faster nodes stand before slower ones
//! ([`crate::speed`]), and the order of joins counts among equals: no node takes from a slower one.
//! A chunk that enters at a slow node goes on to the fastest, and passes no slow one on the way to
//! them. (In the order of joins alone, one slow machine of ten made all those behind it as slow as
//! itself.)
//!
//! A node whose way out is narrower than its way in is a leaf. Others find it among those that pass
//! on as little. It takes in more than its neighbours there could send. So it takes each chunk from
//! another one of the faster nodes, as if it stood behind that one: see [`Chain::leaf`].
//!
//! The gateways of a zone have more to send than their part of the chain. They are at the end of
//! their class, where one of them has nothing to pass on to equals. For chunks that enter elsewhere
//! it is another one.
//!
//! Between zones the order is a tree: see [`super::zones`].

use super::map::turn;
use crate::chunk::Chunk;
use crate::identity::{Arrival, Identity, NodeId};
use crate::speed::Class;

/// The place of a node in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The class of the node's speed, which comes first.
    pub class: Class,
    /// The node's place in the order of joins.
    pub arrival: Arrival,
    /// The node at this place.
    pub node: NodeId,
}

impl Place {
    /// The place of a node of this class.
    pub const fn of(identity: &Identity, class: Class) -> Self {
        Self { class, arrival: identity.arrival(), node: identity.node }
    }

    /// How far upstream of this node another one is. Nodes of its class come first, around the
    /// circle. Those of faster classes follow, from the end of the next one, and then slower ones.
    pub fn behind(&self, other: &Self) -> (bool, u8, u64) {
        let around = if self.class == other.class {
            self.arrival.since(other.arrival)
        } else {
            u64::MAX - other.arrival.since(Arrival::FIRST)
        };
        (other.class > self.class, self.class.0.abs_diff(other.class.0), around)
    }

    /// The distance on the way that begins at `start`, apart from the end of a class. Unique for
    /// each node.
    fn since(&self, start: Arrival) -> (Distance, NodeId) {
        (Distance::of(self.class, false, self.arrival.since(start)), self.node)
    }
}

/// How far downstream of the chain's beginning a node is; 0 for the source. It counts classes and
/// joins and not nodes, so nodes with different views still agree. It counts from the beginning and
/// not from the current holders, since nodes hear of those one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Distance(pub u64);

impl Distance {
    /// The number of bits that are used.
    pub const BITS: u32 = Class::BITS + 1 + Arrival::BITS;

    /// Of a place that is so far around the circle of its class, or of the end of its class.
    const fn of(class: Class, at_end: bool, around: u64) -> Self {
        Self((class.0 as u64) << (Arrival::BITS + 1) | (at_end as u64) << Arrival::BITS | around)
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
    /// All nodes, class by class, those at the end of a class last, ascending.
    places: Vec<(Class, bool, Place)>,
    /// The nodes at the end of their class, by id.
    ending: Vec<NodeId>,
}

impl Chain {
    /// A chain of nodes, given in any order, some of them at the end of their class. A source need
    /// not be one of them.
    pub fn of(places: impl Iterator<Item = Place>, stands_at_end: impl Fn(NodeId) -> bool) -> Self {
        let mut places: Vec<_> = places.map(|place| (place.class, stands_at_end(place.node), place)).collect();
        places.sort_unstable();
        places.dedup();
        let mut ending: Vec<NodeId> = places.iter().filter(|(_, at_end, _)| *at_end).map(|(.., p)| p.node).collect();
        ending.sort_unstable();
        Self { places, ending }
    }

    /// The place of a leaf for this chunk. It takes in as much as nodes of the class `intake` pass
    /// on. All of them take turns, and so does the chain's source. An origin sends each chunk once,
    /// so its turns are those of the last one, which passes nothing on along the chain.
    pub fn leaf(&self, intake: Class, chunk: Chunk, from_origin: bool) -> Place {
        let faster = &self.places[..self.places.partition_point(|(class, ..)| *class <= intake)];
        let first = Place { class: Class::default(), arrival: Arrival::FIRST, node: NodeId(0) };
        let before = match turn(chunk, faster.len() + 1) {
            0 if from_origin => faster.last(),
            0 => None,
            number => faster.get(number - 1),
        };
        // Behind a place are those of the same join that have a higher id.
        before.map_or(first, |(.., place)| Place { node: NodeId(u64::MAX), ..*place })
    }

    /// The nodes that are not in the fastest class, by id.
    pub fn slow(&self) -> Vec<(NodeId, Class)> {
        let slow = self.places.iter().filter(|(class, ..)| *class > Class::default());
        let mut slow: Vec<_> = slow.map(|(class, _, place)| (place.node, *class)).collect();
        slow.sort_unstable();
        slow
    }

    /// The way from a root, which precedes all others, to `me`. It begins at the nearest upstream
    /// among `sources`.
    pub fn way_from(&self, root: Place, me: Place, sources: impl Iterator<Item = Place>) -> Way {
        let start = Arrival::FIRST;
        let mine = self.distance(me, start, root.arrival);
        let upstream = sources.filter(|source| *source != me && *source != root && source.since(start) < mine);
        let source = upstream.max_by_key(|source| source.since(start)).unwrap_or(root);
        Way { start, root: Some(root), source }
    }

    /// The way to `me` from the nearest of several sources, around; from a slow source only if none
    /// is faster. `None` without any other than `me`.
    pub fn way_around(me: Place, sources: impl Iterator<Item = Place>) -> Option<Way> {
        let others = sources.filter(|source| source.node != me.node);
        let distance = |source: &Place| (source.class, me.arrival.since(source.arrival), source.node);
        let source = others.min_by_key(distance)?;
        Some(Way { start: source.arrival, root: None, source })
    }

    /// The nodes from which `me` takes a chunk that goes this way, with their distances: the
    /// nearest first, the source last. `me` need not be in the chain.
    pub fn upstream(&self, me: Place, way: Way) -> impl Iterator<Item = (NodeId, Distance)> + '_ {
        let Way { start, root, source } = way;
        // A source at which the way begins precedes all others, whatever its class.
        let after = root.filter(|root| *root != source).map(|_| source.since(start));
        // The nodes at the end are in an order that begins with the root, so each is the last for
        // some chunks.
        let turn = root.map_or(start, |root| root.arrival);
        let last = self.distance(me, start, turn);
        let equals = self.places.chunk_by(|one, next| (one.0, one.1) == (next.0, next.1));
        let back = equals.rev().flat_map(move |equal| {
            let start = if equal[0].1 { turn } else { start };
            let (around, ahead) = equal.split_at(equal.partition_point(|(.., place)| place.arrival < start));
            let distance = move |&(class, at_end, place): &(Class, bool, Place)| {
                (Distance::of(class, at_end, place.arrival.since(start)), place.node)
            };
            let before = move |places: &'_ [_]| places.partition_point(|place| distance(place) < last);
            let upstream = around[..before(around)].iter().rev().chain(ahead[..before(ahead)].iter().rev());
            upstream.map(move |place| (distance(place), place.2))
        });
        let between = back.take_while(move |(distance, _)| after.is_none_or(|after| *distance > after));
        let between = between.filter(move |(_, place)| *place != source && Some(*place) != root).take(LOOK);
        between.map(|((distance, node), _)| (node, distance)).chain([(source.node, Distance(0))])
    }

    /// The distance of a node on a way, with its own `turn` at the end of a class.
    fn distance(&self, of: Place, start: Arrival, turn: Arrival) -> (Distance, NodeId) {
        let at_end = self.ending.binary_search(&of.node).is_ok();
        let from = if at_end { turn } else { start };
        (Distance::of(of.class, at_end, of.arrival.since(from)), of.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::map::mix;

    fn places(count: u64) -> Vec<Place> {
        let arrival = |node| Arrival(mix(node + 1) >> (u64::BITS - Arrival::BITS));
        let place = |node| Place { class: Class(0), arrival: arrival(node), node: NodeId(node) };
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
            let root = Place { class: Class(0), arrival: Arrival(Arrival::BITS.into()), node: NodeId(u64::MAX) };
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

    #[test]
    fn faster_nodes_come_before_slower_ones() {
        let mut places = places(10);
        for (slow, class) in [(2, 1), (5, 2), (7, 1)] {
            places[slow].class = Class(class);
        }
        let chain = Chain::of(places.iter().copied(), |_| false);
        let from = |me: usize| line(&chain, &places, me, chain.way_from(places[0], places[me], [].into_iter()));
        assert_eq!(from(3), [1, 0]);
        assert_eq!(from(8), [6, 4, 3, 1, 0]);
        assert_eq!(from(2), [9, 8, 6, 4, 3, 1, 0]);
        assert_eq!(from(7), [2, 9, 8, 6, 4, 3, 1, 0]);
        assert_eq!(from(5), [7, 2, 9, 8, 6, 4, 3, 1, 0]);
        // Around, a slow holder is a source only if no other is, and is passed by.
        assert_eq!(line(&chain, &places, 3, around(&places, 3, &[2, 8])), [1, 0, 9, 8]);
        assert_eq!(line(&chain, &places, 3, around(&places, 3, &[7])), [1, 0, 9, 8, 7]);
        assert_eq!(line(&chain, &places, 2, around(&places, 2, &[7])), [6, 4, 3, 1, 0, 9, 8, 7]);
    }
}

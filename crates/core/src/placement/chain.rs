//! The crowd: one common order of those who read in step, along which each chunk is passed on.
//!
//! When everybody reads the same place at the same time, each chunk has to cross each node's link once, and
//! nothing is faster than a pipeline, a chain: all nodes stand in the order in which they came, each takes a chunk from the one
//! before it and passes it to the next, and it enters wherever somebody holds it. Unlike asking each home directly it needs two
//! neighbours a node and not all of them, one long stream and not many short ones, and no link has two senders that collide.
//! (Two trees with half of the chunks each would be less deep; in the simulator they were slower from 100 nodes on, since a
//! node's two parents are not in step with each other.)
//!
//! The order of arrival is that of reading, mostly: nobody starts all machines of a room in the same moment. So whoever is asked is
//! ahead of the one that asks; and who comes stands at the end, where the chain goes on without being broken.
//! (In the order of ids a room whose machines began 20 to 300 ms apart took two to four times as long: each was asked for what
//! it had not come to yet, fetched that out of turn, and fell back itself.)
//!
//! Those who have more to send than their part of the chain, the gateways of a zone, stand at its end, where
//! one of them has nothing to pass on: it is another for chunks that enter elsewhere.
//!
//! Between zones it is otherwise: see [`super::zones`].

use crate::identity::{Arrival, Identity, NodeId};

/// Who stands where in the crowd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Where.
    pub arrival: Arrival,
    /// Who.
    pub node: NodeId,
}

impl Place {
    /// How far around from `start`; no two stand at the same place.
    const fn since(&self, start: Arrival) -> (u64, NodeId) {
        (self.arrival.since(start), self.node)
    }
}

impl From<&Identity> for Place {
    fn from(identity: &Identity) -> Self {
        Self { arrival: identity.arrival(), node: identity.node }
    }
}

/// How far downstream somebody stands of where the chain begins: by arrivals and not by nodes, so that those who know of
/// different nodes between still agree, and from the beginning whoever has the chunk by now, since they hear of that one
/// after the other. 0 for whoever has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Distance(pub u64);

impl Distance {
    /// The number of bits that are used.
    pub const BITS: u32 = Arrival::BITS + 1;
    /// Whoever stands at the end of the chain is as far as this at least.
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

/// Who is further away is never asked to pass a chunk on: whoever has it, is.
const LOOK: usize = 8;

/// The way of a chunk through a crowd.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    /// Where the chain begins.
    pub start: Arrival,
    /// Who stands before all others, wherever its own place is, if somebody does.
    pub root: Option<Place>,
    /// Who has the chunk, or is to get it: the root, or one on the way.
    pub source: Place,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Crowd {
    /// In order.
    places: Vec<Place>,
    /// Those at the end, in order.
    end: Vec<Place>,
}

impl Crowd {
    /// A crowd of nodes, in any order, of which some stand at the end. A source need not be one of them.
    pub fn of(places: impl Iterator<Item = Place>, stands_at_end: impl Fn(NodeId) -> bool) -> Self {
        let mut places: Vec<Place> = places.collect();
        places.sort_unstable();
        places.dedup();
        let (end, places) = places.into_iter().partition(|place| stands_at_end(place.node));
        Self { places, end }
    }

    /// The way from a root, which stands before all others, to `me`: it begins anew at the nearest upstream of those that
    /// are sources as well.
    pub fn way_from(&self, root: Place, me: Place, sources: impl Iterator<Item = Place>) -> Way {
        let start = Arrival::FIRST;
        let mine = self.last_before(me, start);
        let upstream = sources.filter(|source| *source != me && *source != root && source.since(start) < mine);
        let source = upstream.max_by_key(|source| source.since(start)).unwrap_or(root);
        Way { start, root: Some(root), source }
    }

    /// The way to `me` from the nearest of several sources, around; `None` without any other than `me`.
    pub fn way_around(me: Place, sources: impl Iterator<Item = Place>) -> Option<Way> {
        let others = sources.filter(|source| source.node != me.node);
        let source = others.min_by_key(|source| (me.arrival.since(source.arrival), source.node))?;
        Some(Way { start: source.arrival, root: None, source })
    }

    /// From whom `me`, which need not be in the crowd itself, takes a chunk that goes this way: the nearest first, the source
    /// last, with their distances.
    pub fn upstream(&self, me: Place, way: Way) -> impl Iterator<Item = (NodeId, Distance)> + '_ {
        let Way { start, root, source } = way;
        let end = if self.is_at_end(me) { &self.end[..] } else { &[] };
        let after = (root != Some(source)).then(|| source.since(start));
        // Those at the end stand in an order that begins with the root, so that each is the last for some chunks.
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

    /// Where the way along those that do not stand at the end leads to: to `me`, or past all of them.
    fn last_before(&self, me: Place, start: Arrival) -> (u64, NodeId) {
        if self.is_at_end(me) { (u64::MAX, me.node) } else { me.since(start) }
    }
}

/// Those of `places`, which are sorted, that one meets on the way back from before `last` to after `first`, or to `start`.
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

    /// The numbers of those upstream.
    fn line(crowd: &Crowd, places: &[Place], me: usize, way: Way) -> Vec<usize> {
        let line: Vec<(NodeId, Distance)> = crowd.upstream(places[me], way).collect();
        assert!(line.is_sorted_by(|a, b| a.1 > b.1), "{line:?}");
        line.iter().map(|(node, _)| places.iter().position(|place| place.node == *node).unwrap()).collect()
    }

    fn around(places: &[Place], me: usize, sources: &[usize]) -> Way {
        Crowd::way_around(places[me], sources.iter().map(|source| places[*source])).unwrap()
    }

    #[test]
    fn each_is_nearer_than_the_one_that_asks_it() {
        for count in [1, 2, 10, 500] {
            let places = places(count);
            let crowd = Crowd::of(places.iter().copied(), |_| false);
            let root = Place { arrival: Arrival(Arrival::BITS.into()), node: NodeId(u64::MAX) };
            for me in &places {
                let line: Vec<_> = crowd.upstream(*me, crowd.way_from(root, *me, [].into_iter())).collect();
                assert!(line.is_sorted_by(|a, b| a.1 > b.1), "{line:?}");
                assert!(line.iter().all(|(other, _)| *other != me.node));
                assert_eq!(line.last(), Some(&(root.node, Distance(0))));
            }
        }
    }

    #[test]
    fn who_came_later_takes_from_who_came_earlier_wherever_the_root_is() {
        let places = places(6);
        let crowd = Crowd::of(places.iter().copied().filter(|place| *place != places[3]), |_| false);
        let from = |me: usize| line(&crowd, &places, me, crowd.way_from(places[3], places[me], [].into_iter()));
        assert_eq!(from(0), [3]);
        assert_eq!(from(2), [1, 0, 3]);
        assert_eq!(from(5), [4, 2, 1, 0, 3]);
    }

    #[test]
    fn gateways_stand_at_the_end() {
        let places = places(10);
        let gateways = [2, 5, 8].map(|at| places[at].node);
        let crowd = Crowd::of(places.iter().copied(), |node| gateways.contains(&node));
        let from = |me: usize, root: usize| {
            line(&crowd, &places, me, crowd.way_from(places[root], places[me], [].into_iter()))
        };
        assert_eq!(from(0, 5), [5]);
        assert_eq!(from(6, 5), [4, 3, 1, 0, 5]);
        assert_eq!(from(8, 5), [9, 7, 6, 4, 3, 1, 0, 5]);
        assert_eq!(from(2, 5), [8, 9, 7, 6, 4, 3, 1, 0, 5], "who is last for some chunks is not for others");
        assert_eq!(from(8, 2), [5, 9, 7, 6, 4, 3, 1, 0, 2]);
        assert_eq!(from(2, 8), [9, 7, 6, 4, 3, 1, 0, 8]);
    }

    #[test]
    fn whoever_comes_to_have_it_changes_no_distance() {
        let places = places(40);
        let crowd = Crowd::of(places.iter().copied(), |_| false);
        let root = places[7];
        let upstream = |me: usize, sources: &[Place]| {
            let way = crowd.way_from(root, places[me], sources.iter().copied());
            crowd.upstream(places[me], way).collect::<Vec<_>>()
        };
        let full = [places[3], places[12], places[30]];
        for me in (0..40).filter(|me| *me != 7) {
            let (before, after) = (upstream(me, &[]), upstream(me, &full));
            let passing = &after[..after.len() - 1];
            assert!(passing.iter().all(|step| before.contains(step)), "{before:?} {after:?}");
            assert!(passing.iter().all(|(node, _)| full.iter().all(|full| full.node != *node)), "{after:?}");
        }
        let source = |me: usize| crowd.way_from(root, places[me], full.into_iter()).source;
        assert_eq!([0, 3, 4, 12, 31].map(source), [root, root, places[3], places[3], places[30]]);
    }

    #[test]
    fn a_chain_goes_around_to_its_source() {
        let places = places(10);
        let crowd = Crowd::of(places.iter().copied(), |_| false);
        assert_eq!(line(&crowd, &places, 5, around(&places, 5, &[8])), [4, 3, 2, 1, 0, 9, 8]);
        assert_eq!(line(&crowd, &places, 5, around(&places, 5, &[8, 2, 7])), [4, 3, 2]);
        assert!(Crowd::way_around(places[5], [places[5]].into_iter()).is_none());
    }
}

//! The zones of a field, as gateways see them, and the trees in which chunks go from zone to zone.
//!
//! A chain of zones would be as long as their number, and each adds the delay of a busy gateway. In
//! a tree a zone sends several copies or none. So there are many trees, for a few chunks each. A
//! zone that is high in one is low in others, and sends one copy of the image on the whole. A
//! zone's height in a tree is drawn from its name, so gateways with different views make no
//! circles: the asked zone is always higher.

use super::chain::Distance;
use super::gateways::Gateways;
use super::map::mix;
use crate::chunk::{Chunk, ChunkSize};
use crate::identity::{NodeId, Zone};
use crate::small_list::SmallList;
use std::collections::BTreeMap;
use vfield_block::gather::Gather as _;

/// Number of trees: enough to even out what zones send, and not more than a gateway can have
/// connections.
const TREES: u64 = 64;
/// Bytes in a row that take the same tree. Each gateway of a zone has a few chunks of them.
/// Read-ahead spans several trees, or a reader would get no more than some of the links above it
/// carry.
const TREE_BYTES: u64 = 1 << 20;
/// Zones that a zone may take a chunk from, besides the one where it enters.
const LOOK: usize = 2;

/// The holding of a zone for one image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stock {
    /// Its stores hold all of it.
    pub whole: bool,
    /// True if one of its nodes is an origin.
    pub origin: bool,
}

impl Stock {
    /// True if each chunk can be had in the zone.
    const fn has_all(self) -> bool {
        self.whole || self.origin
    }
}

/// A zone and its holding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Station {
    gateways: Gateways,
    stock: Stock,
}

/// The zones that take part in one image.
#[derive(Debug, Clone)]
pub struct Zones {
    /// Chunks in a row that take the same tree; see [`TREE_BYTES`].
    tree_chunks: u64,
    stations: BTreeMap<NodeId, Station>,
    /// From which zones this one takes chunks, in each tree: of the trees themselves nothing is
    /// kept, which are as large as the field.
    parents: Vec<SmallList<(Distance, NodeId)>>,
}

/// A zone on the way to where a chunk comes from.
#[derive(Debug, Clone, Copy)]
pub struct Way<'a> {
    /// The gateways through which chunks leave it.
    pub gateways: &'a Gateways,
    /// How low the zone is; 0 for the source of the chunk.
    pub distance: Distance,
}

impl Zones {
    /// No zones yet, of an image with such chunks.
    pub fn new(chunk: ChunkSize) -> Self {
        let tree_chunks = (TREE_BYTES / chunk.bytes()).max(1);
        Self { tree_chunks, stations: BTreeMap::new(), parents: Vec::new() }
    }

    /// Takes in what each gateway says of its zone now, for a gateway of the zone `mine`.
    pub fn update(&mut self, mine: Zone, said: impl Iterator<Item = (Zone, NodeId, Stock)>) {
        let mut members = BTreeMap::<NodeId, (Vec<NodeId>, Stock)>::new();
        for (zone, gateway, said) in said {
            let (gateways, stock) = members.entry(place(zone)).or_default();
            gateways.push(gateway);
            *stock = Stock { whole: stock.whole || said.whole, origin: stock.origin || said.origin };
        }
        let station =
            |(gateways, stock): (Vec<NodeId>, Stock)| Station { gateways: Gateways::of(gateways.into_iter()), stock };
        let stations: BTreeMap<NodeId, Station> =
            members.into_iter().map(|(place, members)| (place, station(members))).gathered();
        // Gateways come and go while the zones are the same, and so are the trees.
        if self.parents.is_empty() || !passing(&self.stations).eq(passing(&stations)) {
            let (me, zones) = (place(mine), passing(&stations).collect::<Vec<_>>());
            self.parents = (0..TREES).map(|tree| parents(me, tree, &zones)).collect();
        }
        self.stations = stations;
    }

    /// The zones through which a chunk enters `zone`: those to ask first, then the zone of the
    /// holder, or all that may have it. Empty if there is no other zone.
    pub fn upstream(&self, zone: Zone, chunk: Chunk) -> Vec<Way<'_>> {
        let me = place(zone);
        let others = || self.stations.iter().filter(|(place, _)| **place != me);
        let having = others().filter(|(_, station)| station.stock.has_all());
        let nearest = having.map(|(place, _)| *place).min_by_key(|place| me.0.wrapping_sub(place.0));
        let number = chunk.0 / self.tree_chunks % TREES;
        let parents = self.parents.get(number as usize).into_iter().flat_map(|parents| parents.iter().copied());
        // If nobody is known to have all of it, each may have some.
        let sources: Vec<NodeId> =
            nearest.map_or_else(|| others().map(|(place, _)| *place).collect(), |place| vec![place]);
        let ways = parents.filter(|(_, place)| Some(*place) != nearest);
        let ways = ways.chain(sources.into_iter().map(|place| (Distance(0), place)));
        let way = |(distance, place)| Some(Way { gateways: &self.stations.get(&place)?.gateways, distance });
        ways.filter_map(way).collect()
    }

    /// The zones to ask once all [upstream](Zones::upstream) have refused: what a zone says may be
    /// wrong. Those that say that they have all come first, the nearest before others.
    pub fn further(&self, zone: Zone) -> impl Iterator<Item = Way<'_>> {
        let me = place(zone);
        let mut others: Vec<(bool, u64, &Station)> = self
            .stations
            .iter()
            .filter(|(place, _)| **place != me)
            .map(|(place, station)| (!station.stock.has_all(), me.0.wrapping_sub(place.0), station))
            .collect();
        others.sort_unstable_by_key(|(lacks, distance, _)| (*lacks, *distance));
        others.into_iter().map(|(_, _, station)| Way { gateways: &station.gateways, distance: Distance(0) })
    }

    /// True if all of the image is in stores of a zone other than `zone`.
    pub fn hold_all(&self, zone: Zone) -> bool {
        self.stations.iter().any(|(at, station)| *at != place(zone) && station.stock.whole)
    }

    /// Zones that take part, and how many gateways they have.
    pub fn count(&self) -> (usize, usize) {
        (self.stations.len(), self.stations.values().map(|station| station.gateways.nodes().len()).sum())
    }
}

/// The zones that pass chunks on: what an origin's zone sends is enough if it sends it once.
fn passing(stations: &BTreeMap<NodeId, Station>) -> impl Iterator<Item = NodeId> + '_ {
    stations.iter().filter(|(_, station)| !station.stock.origin).map(|(place, _)| *place)
}

/// Of `zones` those from which the zone `me` takes chunks in a tree, with their heights.
fn parents(me: NodeId, tree: u64, zones: &[NodeId]) -> SmallList<(Distance, NodeId)> {
    let mine = height(me, tree);
    let heights = || zones.iter().map(|place| (height(*place, tree), *place));
    // Between a quarter and a half of the own height there are as many zones as take from them,
    // about; at the top the next.
    let between = mine.0 / 4..mine.0 / 2;
    let mut candidates: Vec<(Distance, NodeId)> = heights().filter(|(height, _)| between.contains(&height.0)).collect();
    candidates.sort_unstable();
    if candidates.is_empty() {
        candidates.extend(heights().filter(|above| *above < (mine, me)).max());
    }
    let first = mix(me.0 ^ mix(tree)) as usize;
    let mut parents = SmallList::None;
    for look in 0..candidates.len().min(LOOK) {
        parents.push(candidates[(first + look) % candidates.len()]);
    }
    parents
}

/// How low a zone is in a tree: a lower zone has a higher value.
fn height(place: NodeId, tree: u64) -> Distance {
    // 0 is the source of the chunk.
    Distance((mix(place.0 ^ mix(tree.wrapping_add(1))) >> (u64::BITS - Distance::BITS)).max(1))
}

/// A number for a zone, from its name.
fn place(zone: Zone) -> NodeId {
    NodeId(zone.place())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const CHUNK: u64 = 64 << 10;
    const NONE: Stock = Stock { whole: false, origin: false };

    fn zone(number: u64) -> Zone {
        Zone::named(&format!("z{number}")).expect("a name")
    }

    const ORIGIN: Stock = Stock { origin: true, ..NONE };
    /// The zones but that of the origin, with one chunk of each tree.
    fn ways(count: u64) -> impl Iterator<Item = (u64, Chunk)> {
        (0..count).filter(|number| *number != 1).flat_map(|number| chunks().map(move |chunk| (number, chunk)))
    }

    fn chunks() -> impl Iterator<Item = Chunk> {
        (0..TREES).map(|tree| Chunk(tree * TREE_BYTES / CHUNK))
    }

    fn of(mine: u64, said: impl Iterator<Item = (Zone, NodeId, Stock)>) -> Zones {
        let mut zones = Zones::new(ChunkSize::new(CHUNK as u32).expect("a size"));
        zones.update(zone(mine), said);
        zones
    }

    /// As each of some zones sees them, with one gateway each, of which that of zone 1 has an
    /// origin.
    fn zones(count: u64) -> Vec<Zones> {
        let said = |number| (zone(number), NodeId(number), if number == 1 { ORIGIN } else { NONE });
        (0..count).map(|mine| of(mine, (0..count).map(said))).collect()
    }

    fn gateway(way: &Way<'_>) -> u64 {
        way.gateways.nodes()[0].0
    }

    #[test]
    fn every_way_leads_up_to_the_zone_that_has_it() {
        for count in [2, 5, 63, 64, 300] {
            let maps = zones(count);
            let upstream = |number: u64, chunk| maps[number as usize].upstream(zone(number), chunk);
            for (number, chunk) in ways(count) {
                let mut line = upstream(number, chunk);
                assert_eq!(line.last().map(gateway), Some(1));
                let mut depth = 0;
                let mut before = Distance(u64::MAX);
                while gateway(&line[0]) != 1 {
                    assert!(line[0].distance < before && line[0].distance > Distance(0));
                    before = line[0].distance;
                    line = upstream(gateway(&line[0]), chunk);
                    depth += 1;
                }
                assert!(depth <= 20, "{count} zones: {depth}");
            }
        }
    }

    #[test]
    fn each_zone_sends_about_one_copy() {
        const COUNT: u64 = 300;
        let maps = zones(COUNT);
        let mut sent = vec![0; COUNT as usize];
        for (number, chunk) in ways(COUNT) {
            sent[gateway(&maps[number as usize].upstream(zone(number), chunk)[0]) as usize] += 1;
        }
        let most = sent.iter().max().copied().unwrap_or_default();
        assert_eq!(sent[1], TREES, "into the trees a chunk comes once");
        assert!(most < 2 * TREES, "{most} copies of {TREES} chunks");
    }

    #[test]
    fn without_a_whole_zone_all_others_are_asked() {
        let map = of(2, (0..5).map(|number| (zone(number), NodeId(number), NONE)));
        let asked = |chunk| map.upstream(zone(2), chunk).iter().map(gateway).collect::<BTreeSet<u64>>();
        assert!(chunks().all(|chunk| asked(chunk) == BTreeSet::from([0, 1, 3, 4])));
        assert!(!map.hold_all(zone(2)));
        assert!(of(2, [(zone(2), NodeId(2), NONE)].into_iter()).upstream(zone(2), Chunk(0)).is_empty());
    }

    /// What a zone says may be wrong, so no other zone is left out for it.
    #[test]
    fn zones_that_say_nothing_are_asked_last() {
        let map =
            of(2, (0..6).map(|number| (zone(number), NodeId(number), if number % 3 == 1 { ORIGIN } else { NONE })));
        let further: Vec<u64> = map.further(zone(2)).map(|way| gateway(&way)).collect();
        assert_eq!(map.upstream(zone(2), Chunk(0)).last().map(gateway), Some(further[0]), "the nearest first");
        let (having, rest) = further.split_at(2);
        assert_eq!(having.iter().copied().collect::<BTreeSet<u64>>(), BTreeSet::from([1, 4]));
        assert_eq!(rest.iter().copied().collect::<BTreeSet<u64>>(), BTreeSet::from([0, 3, 5]));
    }
}

//! The zones of a field, as the gateways see them: each stands in the order of zones like one node that holds what its
//! zone holds.

use super::crowd::{Crowd, Distance};
use super::gateways::Gateways;
use crate::identity::{NodeId, Zone};
use std::collections::BTreeMap;

/// What a zone has of one image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stock {
    /// Its stores hold all of it.
    pub whole: bool,
    /// One of its nodes can read all of it from a file.
    pub origin: bool,
}

/// One zone.
#[derive(Debug, Clone, Default)]
struct Station {
    gateways: Gateways,
    stock: Stock,
}

/// The zones that take part in one image.
#[derive(Debug, Clone, Default)]
pub struct Zones {
    stations: BTreeMap<NodeId, Station>,
    crowd: Crowd,
}

/// A zone on the way to where a chunk comes from.
#[derive(Debug, Clone, Copy)]
pub struct Way<'a> {
    /// Through whom it goes out.
    pub gateways: &'a Gateways,
    /// How far it is from the source.
    pub distance: Distance,
}

impl Zones {
    /// What each gateway has said of its zone.
    pub fn of(said: impl Iterator<Item = (Zone, NodeId, Stock)>) -> Self {
        let mut members = BTreeMap::<NodeId, (Vec<NodeId>, Stock)>::new();
        for (zone, gateway, said) in said {
            let (gateways, stock) = members.entry(place(zone)).or_default();
            gateways.push(gateway);
            *stock = Stock { whole: stock.whole || said.whole, origin: stock.origin || said.origin };
        }
        let station =
            |(gateways, stock): (Vec<NodeId>, Stock)| Station { gateways: Gateways::of(gateways.into_iter()), stock };
        let stations: BTreeMap<NodeId, Station> =
            members.into_iter().map(|(place, members)| (place, station(members))).collect();
        // What an origin's zone sends is enough if it sends it once.
        let passing = stations.iter().filter(|(_, station)| !station.stock.origin);
        let crowd = Crowd::of(passing.map(|(place, _)| *place), |_| false);
        Self { stations, crowd }
    }

    /// Through which zones chunks come into `zone`: the nearest first, the one that has them last. Empty if there is no other.
    pub fn upstream(&self, zone: Zone) -> Vec<Way<'_>> {
        let me = place(zone);
        let others = || self.stations.iter().filter(|(place, _)| **place != me);
        let having = others().filter(|(_, station)| station.stock.whole || station.stock.origin);
        let nearest = having.map(|(place, _)| *place).min_by_key(|place| me.0.wrapping_sub(place.0));
        // If nobody is known to have all of it, each may have some: all around.
        let furthest = || others().map(|(place, _)| *place).max_by_key(|place| me.0.wrapping_sub(place.0));
        let Some(source) = nearest.or_else(furthest) else { return Vec::new() };
        let line = self.crowd.upstream(me, source);
        let way = |(place, distance)| Some(Way { gateways: &self.stations.get(&place)?.gateways, distance });
        line.filter_map(way).collect()
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

/// Where a zone stands among the others.
fn place(zone: Zone) -> NodeId {
    NodeId(zone.place())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Stock = Stock { whole: false, origin: false };

    fn zone(number: u64) -> Zone {
        Zone::named(&format!("z{number}")).expect("a name")
    }

    #[test]
    fn every_way_leads_to_the_zone_that_has_it() {
        for zones in [2, 5, 63, 64, 300] {
            let origin = Stock { origin: true, ..NONE };
            let said = (0..zones).map(|number| (zone(number), NodeId(number), if number == 1 { origin } else { NONE }));
            let map = Zones::of(said);
            for number in (0..zones).filter(|number| *number != 1) {
                let way = map.upstream(zone(number));
                assert_eq!(way.last().map(|last| last.gateways.nodes()), Some(&[NodeId(1)][..]));
                assert!(way.is_sorted_by(|a, b| a.distance > b.distance));
            }
        }
    }

    #[test]
    fn without_a_whole_zone_all_others_are_asked() {
        let map = Zones::of((0..5).map(|number| (zone(number), NodeId(number), NONE)));
        assert_eq!(map.upstream(zone(2)).len(), 4);
        assert!(!map.hold_all(zone(2)));
        assert!(Zones::of([(zone(2), NodeId(2), NONE)].into_iter()).upstream(zone(2)).is_empty());
    }
}

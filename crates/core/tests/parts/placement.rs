//! Placement against naive models: rings, arcs, layers, coverage, homes, the choice of a place.

use proptest::prelude::*;
use std::collections::BTreeSet;
use vfield_core::chunk::Chunk;
use vfield_core::identity::{Arrival, NodeId};
use vfield_core::placement::coverage::{Coverage, Layers};
use vfield_core::placement::{Arc, Filled, Holding, Map, Ring};
use vfield_core::speed::Class;

/// The places of an arc, one by one.
fn places(arc: Arc, size: u64) -> BTreeSet<u64> {
    (0..arc.length).map(|step| (arc.start + step) % size).collect()
}

fn holding(node: u64, arc: Arc, filled: Filled) -> Holding {
    Holding {
        node: NodeId(node),
        class: Class::default(),
        arrival: Arrival(node),
        arc,
        filled,
        leaving: false,
        suspect: false,
    }
}

fn full(node: u64, arc: Arc, size: u64) -> Holding {
    holding(node, arc, Filled { from: 0, count: size })
}

fn map_of(size: u64, holdings: &[Holding]) -> Map {
    let mut map = Map::new(Ring::new(size));
    map.update(holdings.iter().copied(), std::iter::empty());
    map
}

#[test]
fn places_and_chunks_are_inverse_for_every_small_size() {
    for size in 1..=700 {
        let ring = Ring::new(size);
        let mut seen = BTreeSet::new();
        for number in 0..size {
            let place = ring.place(Chunk(number));
            assert!(place < size && seen.insert(place), "size {size}: place {place} twice");
            assert_eq!(ring.chunk(place), Chunk(number), "size {size}");
        }
    }
}

/// Chunks held once are spread. Stores of 40, 70 and 55 % hold 35 % of the image once in any case,
/// but no node holds most of that.
#[test]
fn chunks_held_once_are_spread_over_nodes() {
    let size = 1000;
    for (tie, lengths) in (0..20).flat_map(|tie| [[400, 700, 550], [700, 550, 400], [550, 400, 700]].map(|l| (tie, l)))
    {
        let mut holdings = Vec::new();
        for (node, length) in lengths.into_iter().enumerate() {
            let arc = map_of(size, &holdings).least_covered(length, NodeId(node as u64), tie);
            holdings.push(full(node as u64, arc, size));
        }
        let map = map_of(size, &holdings);
        assert_eq!(map.coverage(|_| true).multiplicity_min, 1);
        let (node, lost) = map.worst_loss().expect("some places have one holder");
        assert!(lost <= 220, "{lost} of {size} would be lost with {node:?}: {holdings:?}");
    }
}

/// Any window of adjacent chunks falls on `count` equal arcs in nearly equal parts. With golden
/// steps the discrepancy grows with the logarithm of the window, in a random order with its square
/// root.
#[test]
fn windows_are_spread_over_equal_arcs() {
    for (size, count, window) in
        [(603, 5, 50), (6_000, 50, 500), (100_000, 50, 1_000), (65_537, 10, 4_000), (1 << 20, 100, 10_000)]
    {
        let ring = Ring::new(size);
        let mut worst = 0.0f64;
        for start in (0..size - window).step_by((size / 97) as usize) {
            let mut shares = vec![0u64; count as usize];
            for number in start..start + window {
                shares[(ring.place(Chunk(number)) * count / size) as usize] += 1;
            }
            let mean = window as f64 / count as f64;
            let off = shares.iter().map(|share| (*share as f64 - mean).abs());
            worst = off.fold(worst, f64::max);
        }
        // Three standard deviations of a random order; the worst of so many windows would exceed
        // it.
        let random = 3.0 * (window as f64 / count as f64).sqrt();
        assert!(worst <= 4.0, "size {size}: off by {worst}");
        assert!(worst < random, "size {size}: off by {worst}, a random order by {random}");
    }
}

/// Each of `count` nodes that hold everything is first home of its share of any window.
#[test]
fn full_holders_take_equal_turns() {
    let size = 5_000;
    for count in [1u64, 2, 3, 5, 8, 13, 50] {
        let holdings: Vec<Holding> =
            (0..count).map(|node| full(node * 77, Arc { start: node * 31 % size, length: size }, size)).collect();
        let map = map_of(size, &holdings);
        for start in [0, 7, 1_000, 3_333] {
            let window = 40 * count;
            let mut firsts = vec![0u64; count as usize];
            for number in start..start + window {
                firsts[(map.homes_in_turn(Chunk(number))[0].node.0 / 77) as usize] += 1;
            }
            assert!(firsts.iter().all(|first| first.abs_diff(40) <= 5), "{count} nodes: {firsts:?}");
        }
    }
}

prop_compose! {
    fn an_arc(size: u64)(start in 0..size, length in 0..=size) -> Arc {
        Arc { start, length }
    }
}

prop_compose! {
    fn a_field()(size in 1u64..80)(
        size in Just(size),
        arcs in prop::collection::vec((an_arc(size), an_arc(size), any::<bool>()), 0..7),
    ) -> (u64, Vec<Holding>) {
        let holding = |(node, (arc, filled, done)): (usize, (Arc, Arc, bool))| {
            let filled = if done { Filled { from: 0, count: size } } else { Filled { from: filled.start, count: filled.length } };
            holding(node as u64 * 1000 + 7, arc, filled)
        };
        (size, arcs.into_iter().enumerate().map(holding).collect())
    }
}

proptest! {
    #[test]
    fn rings_of_any_size_are_bijections(size in prop_oneof![1u64..5_000, 1u64..1 << 50], picks in prop::collection::vec(any::<u64>(), 20)) {
        let ring = Ring::new(size);
        for pick in picks {
            let chunk = Chunk(pick % size);
            prop_assert!(ring.place(chunk) < size);
            prop_assert_eq!(ring.chunk(ring.place(chunk)), chunk);
        }
    }

    #[test]
    fn arcs_wrap_around((size, arc) in (1u64..90).prop_flat_map(|size| (Just(size), an_arc(size)))) {
        let naive = places(arc, size);
        prop_assert!(arc.fits(size));
        for place in 0..size {
            prop_assert_eq!(arc.contains(place, size), naive.contains(&place));
        }
        let filled = Filled { from: arc.start, count: arc.length };
        for number in 0..size {
            prop_assert_eq!(filled.contains(Chunk(number), size), naive.contains(&number));
        }
        match filled.next(size) {
            None => prop_assert_eq!(arc.length, size),
            Some(next) => prop_assert_eq!(next, Chunk((arc.start + arc.length) % size)),
        }
    }

    #[test]
    fn layers_count_what_lies_over_each_place((size, holdings) in a_field(), probe: u64, length: u64) {
        let arcs: Vec<Arc> = holdings.iter().map(|holding| holding.arc).collect();
        let layers = Layers::of(&arcs, size);
        let mut counts = Vec::new();
        for run in layers.runs() {
            prop_assert_eq!(run.start, counts.len() as u64, "runs cover the ring in order");
            prop_assert!(run.length > 0);
            counts.extend((0..run.length).map(|_| run.count));
        }
        let naive: Vec<u64> = (0..size).map(|place| arcs.iter().filter(|arc| arc.contains(place, size)).count() as u64).collect();
        prop_assert_eq!(&counts, &naive);

        let arc = Arc { start: probe % size, length: 1 + length % size };
        let over = |place: &u64| naive[*place as usize];
        let over_arc: Vec<u64> = places(arc, size).iter().map(over).collect();
        prop_assert_eq!(Some(layers.lowest(arc)), over_arc.iter().copied().min());
        prop_assert_eq!(layers.bare(arc), over_arc.iter().filter(|count| **count == 0).count() as u64);
        for most in 0..3 {
            let ahead = (0..size).find(|steps| naive[((arc.start + steps) % size) as usize] <= most);
            prop_assert_eq!(layers.next(arc.start, most).map(|(distance, _)| distance), ahead);
        }
        let least = naive.iter().copied().min().unwrap_or(0);
        let gain: u128 = over_arc.iter().map(|count| 100u128.pow(6 - (*count - least).min(6) as u32)).sum();
        prop_assert_eq!(layers.gain(arc), gain);
    }

    /// Exact once fills are done; during a fill never more than the truth.
    #[test]
    fn coverage_agrees_with_a_count((size, holdings) in a_field()) {
        let ring = Ring::new(size);
        let map = map_of(size, &holdings);
        let holders = |number: u64| {
            let has = |holding: &&Holding| {
                holding.arc.contains(ring.place(Chunk(number)), size) && holding.filled.contains(Chunk(number), size)
            };
            holdings.iter().filter(has).count() as u64
        };
        let counts: Vec<u64> = (0..size).map(holders).collect();
        let lowest = counts.iter().copied().min().unwrap_or(0);
        let Coverage { share, multiplicity_min } = map.coverage(|_| true);
        prop_assert!((0.0..=1.0).contains(&share));
        prop_assert!(multiplicity_min <= lowest, "{} claimed, {} in truth", multiplicity_min, lowest);
        prop_assert_eq!(multiplicity_min > 0, share == 1.0);
        prop_assert_eq!(multiplicity_min > 0, map.is_whole(|_| true));
        if holdings.iter().all(|holding| holding.filled.count == size) {
            prop_assert_eq!(multiplicity_min, lowest);
            let covered = counts.iter().filter(|count| **count > 0).count() as f64 / size as f64;
            prop_assert!((share - covered).abs() < 1e-9, "{} against {}", share, covered);
        }
    }

    /// The homes are those whose arcs lie over the chunk, each once, in the same order for all
    /// viewers.
    #[test]
    fn homes_are_the_same_for_all((size, holdings) in a_field()) {
        let (map, mut reversed) = (map_of(size, &holdings), holdings.clone());
        reversed.reverse();
        let other = map_of(size, &reversed);
        for number in 0..size {
            let chunk = Chunk(number);
            let homes = map.homes_in_turn(chunk);
            prop_assert_eq!(&homes, &other.homes_in_turn(chunk));
            let nodes: BTreeSet<NodeId> = homes.iter().map(|home| home.node).collect();
            prop_assert_eq!(nodes.len(), homes.len());
            let place = map.ring().place(chunk);
            let covering = holdings.iter().filter(|holding| holding.arc.contains(place, size));
            prop_assert_eq!(nodes, covering.map(|holding| holding.node).collect::<BTreeSet<_>>());
        }
    }

    /// No place on the ring has a greater gain than the chosen one.
    #[test]
    fn the_least_covered_place_is_found((size, holdings) in a_field(), length: u64, tie: u64, mine: usize) {
        let map = map_of(size, &holdings);
        let me = holdings.get(mine % 8).map_or(NodeId(1), |holding| holding.node);
        let length = length % (size + 1);
        let chosen = map.least_covered(length, me, tie);
        prop_assert_eq!(chosen.length, length);
        prop_assert!(chosen.fits(size));
        let best = (0..size).map(|start| map.gain(Arc { start, length }, me)).max();
        prop_assert_eq!(Some(map.gain(chosen, me)), best);
    }

    /// The loss with a node, counted place by place.
    #[test]
    fn the_worst_loss_agrees_with_a_count((size, holdings) in a_field()) {
        let alone = |holding: &&Holding| {
            let others = holdings.iter().filter(|other| other.node != holding.node);
            let others: BTreeSet<u64> = others.flat_map(|other| places(other.arc, size)).collect();
            places(holding.arc, size).difference(&others).count() as u64
        };
        let worst = holdings.iter().map(|holding| alone(&holding)).max().unwrap_or(0);
        prop_assert_eq!(map_of(size, &holdings).worst_loss().map_or(0, |(_, places)| places), worst);
    }

    /// A node that must not lose anything keeps all that no other has in full, and does what good
    /// it can.
    #[test]
    fn a_move_can_keep_what_nobody_else_has((size, holdings) in a_field(), arc in (0u64..80, 0u64..80), tie: u64) {
        let me = NodeId(1);
        let arc = Arc { start: arc.0 % size, length: arc.1 % (size + 1) };
        let map = map_of(size, &holdings);
        let chosen = map.least_covered_keeping(arc, me, tie);
        prop_assert_eq!(chosen.length, arc.length);
        for place in places(arc, size) {
            let sure = holdings.iter().any(|holding| holding.filled.count == size && holding.arc.contains(place, size));
            prop_assert!(sure || chosen.contains(place, size), "place {} is lost", place);
        }
        prop_assert!(map.gain(chosen, me) <= map.gain(map.least_covered(arc.length, me, tie), me));
    }

    /// Nodes move up one after the other. At the end the stores cover as much as they have room
    /// for.
    #[test]
    fn moving_up_covers_what_there_is_room_for((size, mut holdings) in a_field()) {
        let covered = |holdings: &[Holding]| holdings.iter().flat_map(|h| places(h.arc, size)).collect::<BTreeSet<u64>>();
        let room: u64 = holdings.iter().map(|holding| holding.arc.length).sum();
        let mut before = covered(&holdings);
        // Each of six goes around once at most.
        let moves_max = size * 6;
        for moved in 0..=moves_max {
            let map = map_of(size, &holdings);
            let up: Vec<(usize, Arc)> =
                (0..holdings.len()).filter_map(|at| Some((at, map.moving_up(holdings[at].node)?))).collect();
            prop_assert!(up.len() <= 1, "one at a time");
            let Some((at, to)) = up.first().copied() else { break };
            prop_assert!(moved < moves_max && to.length == holdings[at].arc.length);
            holdings[at].arc = to;
            let now = covered(&holdings);
            prop_assert!(now.is_superset(&before), "nothing is bared");
            before = now;
        }
        prop_assert_eq!(before.len() as u64, room.min(size));
    }

    /// Any set of announcements makes a map.
    #[test]
    fn hostile_holdings_are_harmless(size in 1u64..2_000, claims in prop::collection::vec(any::<[u64; 4]>(), 0..6), chunk: u64) {
        let claim = |(node, claim): (usize, &[u64; 4])| {
            let [start, length, from, count] = *claim;
            holding(node as u64, Arc { start, length }, Filled { from, count })
        };
        let holdings: Vec<Holding> = claims.iter().enumerate().map(claim).collect();
        let map = map_of(size, &holdings);
        prop_assert_eq!(map.participants().len(), holdings.len());
        let chunk = Chunk(chunk % size);
        let _ = map.homes_in_turn(chunk).iter().filter(|home| map.has(home, chunk)).count();
        let _ = (map.coverage(|_| true), map.coverage(|node| node != NodeId(0)), map.least_covered(size / 2, NodeId(0), 1));
    }

    /// A node's death moves only its own share of the relayed chunks.
    #[test]
    fn relays_move_only_what_they_have_to(ids in prop::collection::btree_set(any::<u64>(), 2..20), chunks in prop::collection::vec(any::<u64>(), 50)) {
        let map = map_of(10, &[]);
        let nodes: Vec<NodeId> = ids.into_iter().map(NodeId).collect();
        for chunk in chunks.into_iter().map(Chunk) {
            let before = map.relay(chunk, nodes.iter().copied()).expect("somebody");
            let dead = nodes[0];
            let after = map.relay(chunk, nodes[1..].iter().copied()).expect("somebody");
            prop_assert!(before == dead || before == after);
        }
    }
}

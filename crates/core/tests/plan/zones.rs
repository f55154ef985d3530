//! Fields of zones: the gateways of this one, and those of others.

use super::room::{ORIGIN, Room, SIZE};
use super::{origin, park};
use vfield_core::chunk::Chunk;
use vfield_core::identity::NodeId;
use vfield_core::placement::Gateways;
use vfield_core::placement::zones::Stock;
use vfield_core::plan::{Choice, Source};
use vfield_core::reach::Reach;

const GATEWAYS: [u64; 3] = [1, 2, 3];
const WHOLE: Stock = Stock { whole: true, origin: false };
const NOTHING: Stock = Stock { whole: false, origin: false };

/// A zone of ten nodes with three gateways, the origin elsewhere.
fn zone(me: u64) -> Room {
    let mut room = Room::of(10, me);
    (room.zone, room.gateways, room.origins) = ("here", GATEWAYS.to_vec(), Vec::new());
    room
}

/// The gateway whose turn chunk 3 is, and the other two.
fn turn() -> [u64; 3] {
    let gateways = Gateways::of(GATEWAYS.map(NodeId).into_iter());
    let turn: Vec<u64> = gateways.in_turn(Chunk(3)).map(|node| node.0).collect();
    turn.try_into().expect("three")
}

#[test]
fn a_chunk_enters_at_the_gateway_whose_turn_it_is() {
    let [first, second, third] = turn();
    // Gateways stand at the end; node 4 is the first of the others.
    assert_eq!(zone(4).asks(), (first, Reach::GATEWAY));
    assert_eq!(zone(5).asks().0, 4);
    assert!(zone(5).asks().1.is_chain() && zone(5).asks().1 > Reach::GATEWAY);
    let others = [second, third].map(|me| zone(me).asks().0);
    assert!(others.contains(&10), "the end of the chain comes after node 10: {others:?}");
    let mut room = zone(4);
    room.fill_window(first, 0);
    assert_eq!(room.choice(), park(first));
}

#[test]
fn the_next_gateway_follows_if_the_first_is_lost() {
    let [first, second, third] = turn();
    let mut room = zone(4);
    room.cut(first);
    assert_eq!(room.asks(), (second, Reach::GATEWAY));
    room.cut(second);
    assert_eq!(room.asks(), (third, Reach::GATEWAY));
    room.cut(third);
    assert!(!matches!(room.choice(), Choice::Ask(Source { peer: NodeId(1..=3), .. })));
    let mut room = zone(5);
    room.wanted.tried = &[NodeId(4)];
    let (peer, reach) = room.asks();
    assert_eq!((peer, reach), (first, Reach::GATEWAY));
    // A request from another zone, or to a gateway, does not go to one again.
    let mut room = zone(4);
    room.wanted.reach = Reach(Reach::GATEWAY.0 - 1);
    assert_eq!(room.choice(), Choice::Nobody);
}

#[test]
fn only_the_gateway_whose_turn_it_is_asks_the_origin() {
    let [first, second, _] = turn();
    let with_origin = |me| {
        let mut room = zone(me);
        room.origins = vec![ORIGIN];
        room
    };
    let mut entry = with_origin(first);
    entry.wanted.reach = Reach::GATEWAY;
    assert_eq!(entry.choice(), origin(ORIGIN));
    for me in [second, 4, 5] {
        let mut room = with_origin(me);
        let asked = room.order();
        let at = |node| asked.iter().position(|asked| *asked == node);
        let gateways = GATEWAYS.into_iter().filter(|node| *node != me);
        assert!(gateways.into_iter().all(|node| at(node) < at(ORIGIN)), "{me}: {asked:?}");
    }
    // Asked by another zone it may not turn to its own zone.
    let mut outside = with_origin(4);
    outside.wanted.reach = Reach(1);
    assert_eq!(outside.choice(), origin(ORIGIN));
}

/// A gateway sends to its zone only what no other node there has.
#[test]
fn a_gateway_without_the_chunk_is_spared_if_a_home_is_full() {
    let [first, ..] = turn();
    let room = zone(4).with_stores(&[9], SIZE);
    assert_ne!(room.asks().0, first);
    let room = zone(10).with_stores(&[9], SIZE);
    assert_eq!(room.asks(), (9, Reach::HOLDER));
    let mut cold = zone(4).with_stores(&[9], SIZE - 1);
    cold.cut(9);
    assert_eq!(cold.asks().0, first, "the home is not full");
}

#[test]
fn gateways_ask_the_zones_above_theirs_and_then_the_source() {
    let [first, ..] = turn();
    let gateway = |stocks: [Stock; 4]| {
        let mut room = zone(first);
        room.zones = ["a", "b", "c", "d"]
            .into_iter()
            .zip([21, 22, 23, 24])
            .zip(stocks)
            .map(|((name, node), stock)| (name, node, stock))
            .collect();
        room.wanted.reach = Reach::GATEWAY;
        room
    };
    let mut source = gateway([NOTHING, WHOLE, NOTHING, NOTHING]);
    let order = source.order();
    let mut all = order.clone();
    all.sort_unstable();
    assert_eq!(all, [21, 22, 23, 24], "what a zone says may be wrong, so all are asked in the end");
    let mut only = gateway([NOTHING, WHOLE, NOTHING, NOTHING]);
    only.gone = vec![21, 23, 24];
    let (peer, reach) = only.asks();
    assert_eq!((peer, reach), (22, Reach::outside(vfield_core::placement::chain::Distance(0))));
    only.fill_window(22, 0);
    assert_eq!(only.choice(), park(22));
    only.wanted.reach = Reach::HOLDER;
    assert_eq!(only.choice(), Choice::Nobody, "only a holder may be asked");
    // The tree: each zone above is asked with the reach of its height, at most the fetch's own.
    let mut tree = gateway([WHOLE; 4]);
    let reached = |room: &Room| room.asks().1;
    assert!(reached(&tree).is_outside());
    tree.wanted.reach = Reach(1);
    assert_eq!(reached(&tree), Reach(1));
    let mut not_one = gateway([WHOLE; 4]);
    not_one.me = 5;
    assert!(!(21..=24).contains(&not_one.asks().0), "it is no gateway");
    // All zones on the way are out of step: the source is asked directly.
    let mut aside = gateway([NOTHING, WHOLE, NOTHING, NOTHING]);
    for node in 21..=24 {
        aside.lead(node);
        aside.refuse(node, 1);
    }
    assert_eq!(aside.choice(), Choice::Ask(Source::passing(NodeId(22), Reach(1))));
}

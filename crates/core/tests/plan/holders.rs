//! Holders, relays, origins, and all others in the end.

use super::room::{IMAGE, ORIGIN, Room, SECOND, SIZE};
use super::{holder, origin, park};
use std::time::Duration;
use vfield_core::identity::NodeId;
use vfield_core::plan::{Choice, Source};
use vfield_core::reach::Reach;
use vfield_core::wire::Priority;

/// A field that is too small for a chain.
fn small(me: u64) -> Room {
    Room::of(6, me)
}

#[test]
fn while_stores_fill_the_nearest_upstream_holder_is_asked() {
    let of = |me| small(me).with_stores(&[1, 3, 5], SIZE - 1);
    let asks = [2, 4, 6, 1].map(|me| of(me).choice());
    assert_eq!(asks, [1, 3, 5, 5].map(holder));
    let mut room = of(4);
    room.fill_window(3, 0);
    assert_eq!(room.choice(), park(3), "it is waited for");
    room.wanted.overdue = true;
    assert_eq!(room.choice(), holder(1), "another has room");
    [1, 5].into_iter().for_each(|node| room.fill_window(node, 0));
    assert_eq!(room.choice(), park(3), "as long as it delivers");
    let mut room = of(4);
    room.wanted.overdue = true;
    [1, 3, 5].into_iter().for_each(|node| room.fill_window(node, 300));
    assert_eq!(room.choice(), holder(3), "beyond its window");
    let mut room = of(4);
    room.refuse(3, 1);
    assert_eq!(room.choice(), holder(1), "out of step");
    let mut room = of(4);
    [1, 3, 5].into_iter().for_each(|node| room.refuse(node, 1));
    assert!(matches!(room.choice(), Choice::Ask(Source { peer: NodeId(1 | 3 | 5), rank: Some(Reach::HOLDER), .. })));
}

/// One node may have many takers, while others are idle that have all.
#[test]
fn while_stores_fill_an_overdue_chunk_is_asked_of_the_next_holder_with_room_that_is_no_slower() {
    let of = || small(4).with_stores(&[1, 3, 5], SIZE - 1).with_slow(&[3, 4]);
    assert_eq!(of().choice(), holder(3));
    let mut room = of();
    room.fill_window(3, 0);
    assert_eq!(room.choice(), park(3), "for a moment");
    room.wanted.overdue = true;
    assert_eq!(room.choice(), holder(5));
    room.fill_window(5, 0);
    assert_eq!(room.choice(), holder(1), "it has room");
    room.fill_window(1, 0);
    assert_eq!(room.choice(), park(3));
    let mut room = small(4).with_stores(&[1, 3, 5], SIZE - 1);
    room.fill_window(3, 0);
    assert_eq!(room.choice(), park(3), "for a moment");
    room.wanted.overdue = true;
    assert_eq!(room.choice(), holder(1), "it is as fast");
    let mut room = small(4).with_stores(&[1, 3, 5], SIZE - 1).with_slow(&[1, 5]);
    room.fill_window(3, 0);
    room.wanted.overdue = true;
    assert_eq!(room.choice(), park(3), "the others are slower");
}

#[test]
fn full_holders_take_turns_by_room_then_delay_and_debt() {
    let of = || small(4).with_stores(&[1, 3, 5], SIZE);
    let asked = |room: &mut Room| {
        let mut times = [0; 7];
        for dice in 0..300 {
            room.dice = dice * 16;
            times[room.asks().0 as usize] += 1;
        }
        times
    };
    let times = asked(&mut of());
    assert!([1, 3, 5].iter().all(|node| times[*node] > 60), "{times:?}");
    let mut room = of();
    room.fill_window(3, 0);
    assert_eq!(asked(&mut room)[3], 0, "the others have room");
    room.fill_window(1, 0);
    assert_eq!(asked(&mut room)[5], 300);
    room.fill_window(5, 0);
    assert!(matches!(room.choice(), Choice::Park(_)));
    let mut room = of();
    for (node, delay) in [(1, 40), (3, 5), (5, 40)] {
        room.peers.asked((NodeId(node), IMAGE), 1, Priority::Demand, super::room::ago(100));
        room.peers.ended(
            (NodeId(node), IMAGE),
            1,
            Priority::Demand,
            Some(Duration::from_millis(delay)),
            super::room::ago(50),
        );
    }
    assert_eq!(asked(&mut room)[3], 300);
}

#[test]
fn only_believed_homes_with_the_chunk_are_holders() {
    let mut room = small(4).with_stores(&[1], SIZE).with_stores(&[3], 3).with_stores(&[5], 4);
    assert_eq!(room.choice(), holder(1), "node 3 has filled up to chunk 2");
    room.doubt(1);
    assert_eq!(room.choice(), holder(5));
    room.wanted.tried = &[NodeId(5)];
    assert_eq!(room.choice(), Choice::Ask(Source::passing(NodeId(3), Reach::READER)), "a home that relays it");
}

#[test]
fn the_first_home_relays_and_asks_the_origin() {
    let of = |me| small(me).with_stores(&[1, 3, 5], 0);
    let relays: Vec<(u64, u64, Reach)> =
        (1..=6).map(|me| (me, of(me).asks())).map(|(me, (peer, reach))| (me, peer, reach)).collect();
    let first = relays.iter().find(|(_, peer, _)| *peer == ORIGIN).expect("one of them is the first home").0;
    assert!([1, 3, 5].contains(&first));
    for (me, peer, reach) in relays {
        let expected = match me {
            me if me == first => (ORIGIN, Reach::HOLDER),
            1 | 3 | 5 => (first, Reach::HOME),
            _ => (first, Reach::READER),
        };
        assert_eq!((peer, reach), expected, "{me}");
    }
    // A fetch for others may not go back to where their requests came from.
    let mut room = of(2);
    room.wanted.reach = Reach::CHAIN_MAX;
    assert_eq!(room.choice(), origin(ORIGIN));
    room.wanted.reach = Reach::HOME;
    assert_eq!(room.asks(), (first, Reach::HOME));
    // Without a believed home that can be asked, the origin.
    let mut room = of(2);
    [1, 3, 5].into_iter().for_each(|node| room.doubt(node));
    assert_eq!(room.choice(), origin(ORIGIN));
    let mut room = of(2);
    room.fill_window(first, 0);
    assert_eq!(room.choice(), park(first));
}

/// A slow home would relay at its own pace what faster nodes wait for.
#[test]
fn slow_homes_relay_for_slow_nodes_only() {
    let of = |me, slow: &[u64]| small(me).with_stores(&[1, 3, 5], 0).with_slow(slow);
    let asked = |nodes: [u64; 3], slow: &[u64]| nodes.map(|me| of(me, slow).asks().0);
    let relay = asked([2, 4, 6], &[1, 3, 5]).into_iter().find(|peer| *peer != ORIGIN).expect("one of them is asked");
    assert_eq!(asked([2, 4, 6], &[1, 3, 5]), [2, 4, 6].map(|me| if me == relay { ORIGIN } else { relay }));
    let first = asked([2, 4, 6], &[])[0];
    let other = asked([2, 4, 6], &[first])[0];
    assert!([1, 3, 5].contains(&other) && other != first, "a fast home relays");
    // A node that is as slow loses nothing; nor does one whose origin is no faster.
    assert!([1, 3, 5].contains(&of(6, &[1, 3, 5, 6]).asks().0));
    assert_eq!(of(2, &[1, 3, 5, ORIGIN]).asks().0, first);
}

#[test]
fn a_chunk_that_no_store_is_to_hold_has_one_relay() {
    let relays: Vec<(u64, Reach)> = (1..=6).map(|me| small(me).asks()).collect();
    let relay = relays.iter().map(|(peer, _)| *peer).find(|peer| *peer != ORIGIN).expect("a relay");
    for (me, (peer, reach)) in (1..).zip(relays) {
        assert_eq!((peer, reach), if me == relay { (ORIGIN, Reach::HOLDER) } else { (relay, Reach::READER) });
    }
    let mut room = small(if relay == 1 { 2 } else { 1 });
    room.gone.push(relay);
    assert_ne!(room.asks().0, relay);
}

#[test]
fn origins_that_are_believed_are_asked_first() {
    let of = || {
        let mut room = Room::of(1, 1);
        room.origins.push(SECOND);
        room
    };
    let mut asked = std::collections::BTreeSet::new();
    for dice in 0..32 {
        asked.insert(Room { dice, ..of() }.asks().0);
    }
    assert_eq!(asked.len(), 2);
    for dice in 0..32 {
        let mut room = Room { dice, ..of() };
        room.doubt(ORIGIN);
        assert_eq!(room.choice(), origin(SECOND));
        room.wanted.tried = &[NodeId(SECOND)];
        assert_eq!(room.choice(), origin(ORIGIN), "the only one");
    }
    let mut room = of();
    room.gone.push(SECOND);
    room.fill_window(ORIGIN, 0);
    assert_eq!(room.choice(), park(ORIGIN));
    room.wanted.overdue = true;
    assert_eq!(room.choice(), park(ORIGIN), "it delivers");
    let mut room = of();
    room.gone.push(SECOND);
    room.fill_window(ORIGIN, 300);
    room.wanted.overdue = true;
    assert_eq!(room.choice(), origin(ORIGIN));
}

/// In the end homes are asked whatever they announce, and for pages all that take part.
#[test]
fn announcements_are_a_moment_old() {
    let mut room = small(4).with_stores(&[1, 3], 0);
    (room.origins, room.wanted.reach) = (Vec::new(), Reach::CHAIN_MAX);
    let mut asked = room.order();
    asked.sort_unstable();
    assert_eq!(asked, [1, 3]);
    let mut room = Room { peers: vfield_core::peers::Peers::new(true), ..small(4).with_stores(&[1, 3], 0) };
    (room.origins, room.wanted.reach, room.wanted.is_data) = (Vec::new(), Reach::CHAIN_MAX, false);
    let mut asked = room.order();
    asked.sort_unstable();
    assert_eq!(asked, [1, 2, 3, 5, 6], "holders of data have had the pages");
    let mut room = Room::of(20, 4);
    (room.origins, room.wanted.reach, room.wanted.is_data) = (Vec::new(), Reach::HOLDER, false);
    assert_eq!(room.order().len(), 8, "as many as are asked for a page");
    room.wanted.tried = &[];
    room.wanted.is_data = true;
    assert_eq!(room.choice(), Choice::Nobody);
}

#[test]
fn refusals_lead_through_all_steps_to_nobody() {
    let mut room = small(4).with_stores(&[1, 3, 5], SIZE);
    let order = room.order();
    let (holders, rest) = order.split_at(3);
    let mut holders = holders.to_vec();
    holders.sort_unstable();
    assert_eq!((holders, rest), (vec![1, 3, 5], &[ORIGIN][..]));
}

//! The chain's step: the upstream node that is asked, or waited for.

use super::room::{ORIGIN, Room, SIZE};
use super::{holder, origin, park};
use std::collections::BTreeMap;
use vfield_core::chunk::Chunk;
use vfield_core::identity::NodeId;
use vfield_core::plan::{Choice, Source};
use vfield_core::reach::Reach;
use vfield_core::wire::Priority;

#[test]
fn each_asks_the_one_before_it_and_the_first_the_origin() {
    assert_eq!(Room::of(10, 1).choice(), origin(ORIGIN));
    let mut before = Reach::HOLDER;
    for me in 2..=10 {
        let Choice::Ask(Source { peer, reach, rank }) = Room::of(10, me).choice() else { panic!("{me} waits") };
        assert_eq!((peer, rank), (NodeId(me - 1), Some(reach)));
        assert!(reach.is_chain() && reach > before, "it falls towards the beginning");
        before = reach;
    }
}

#[test]
fn fast_nodes_come_first_whenever_they_came() {
    let of = |me| Room::of(10, me).with_slow(&[1, 4]);
    let asks = [2, 3, 5, 10, 1, 4].map(|me| of(me).asks().0);
    assert_eq!(asks, [ORIGIN, 2, 3, 9, 10, 1]);
}

/// No node takes from a leaf. A leaf takes from each faster one in turn. The last one, which passes
/// nothing on, has the turns of the origin too.
#[test]
fn leaves_take_turns_at_the_others() {
    let leaves = [2, 5, 6, 9];
    let of = |me| Room::of(10, me).with_leaves(&leaves);
    assert_eq!([1, 3, 4, 7, 8, 10].map(|me| of(me).asks().0), [ORIGIN, 1, 3, 4, 7, 8]);
    let mut asked = BTreeMap::<u64, u32>::new();
    for (leaf, chunk) in leaves.iter().flat_map(|leaf| (0..SIZE).map(move |chunk| (*leaf, chunk))) {
        let mut room = of(leaf);
        room.wanted.chunk = Chunk(chunk);
        *asked.entry(room.asks().0).or_default() += 1;
    }
    let last = asked.remove(&10);
    assert!(last.is_some_and(|times| times > 12), "{last:?}");
    assert_eq!(asked.keys().copied().collect::<Vec<_>>(), [1, 3, 4, 7, 8]);
    assert!(asked.values().all(|times| (4..=12).contains(times)), "{asked:?}");
}

/// What a slow node has is no help to a leaf, which has a faster way.
#[test]
fn a_leaf_passes_slow_holders_by() {
    let mut room = Room::of(10, 5).with_slow(&[2, 5]).with_stores(&[2], SIZE);
    room.wanted.reach = Reach(Reach::GATEWAY.0 - 1);
    assert_eq!(room.choice(), holder(2), "a slow node has none");
    assert_eq!(room.with_leaves(&[5]).choice(), origin(ORIGIN));
}

#[test]
fn a_node_that_may_only_ask_holders_leaves_the_chain_alone() {
    let mut room = Room::of(10, 5);
    room.wanted.reach = Reach(Reach::GATEWAY.0 - 1);
    assert_eq!(room.choice(), origin(ORIGIN));
    room.wanted.reach = Reach::GATEWAY;
    assert_eq!(room.asks().0, 4);
}

/// Rule d to g: a node with a full window is waited for, and bypassed only if it delivers nothing.
#[test]
fn an_upstream_without_room_is_waited_for() {
    let full = |overdue: bool, leads: bool, silent: u64, full: &[u64]| {
        let mut room = Room::of(10, 5);
        for node in full {
            if leads {
                room.lead(*node);
            }
            room.fill_window(*node, silent);
        }
        room.wanted.overdue = overdue;
        room.choice()
    };
    let ask = |choice: Choice| match choice {
        Choice::Ask(source) => source.peer.0,
        other => panic!("{other:?}"),
    };
    for (leads, silent) in [(false, 0), (true, 0), (true, 299), (true, 300)] {
        assert_eq!(full(false, leads, silent, &[4]), park(4), "{leads} {silent}");
    }
    assert_eq!(ask(full(true, true, 299, &[4])), 4, "beyond its window: it delivers");
    assert_eq!(ask(full(true, true, 300, &[4])), 3);
    assert_eq!(ask(full(true, false, 0, &[4])), 3, "it has passed nothing on yet");
    assert_eq!(ask(full(true, false, 0, &[4, 3])), 2);
    assert_eq!(ask(full(true, false, 0, &[4, 3, 2])), 4, "beyond the first window: all are full");
    let Choice::Ask(Source { reach, rank, .. }) = full(true, true, 0, &[4]) else { panic!("it asks") };
    assert!(reach.is_chain() && rank == Some(reach));
}

/// Rule a: a peer that never passed a chunk on and has refused a few times may only just begin.
#[test]
fn an_upstream_that_may_only_begin_is_waited_for() {
    let refused = |times: u64, change: &dyn Fn(&mut Room)| {
        let mut room = Room::of(10, 5);
        room.refuse(4, times);
        change(&mut room);
        room.choice()
    };
    let asks_next = |choice: Choice| matches!(choice, Choice::Ask(Source { peer: NodeId(3), .. }));
    assert_eq!(refused(1, &|_| {}), park(4));
    assert_eq!(refused(4, &|_| {}), park(4));
    assert!(asks_next(refused(5, &|_| {})), "it has not begun for too long");
    let demand = |room: &mut Room| room.wanted.priority = Priority::Demand;
    assert!(asks_next(refused(1, &demand)), "a reader need not wait");
    assert_eq!(refused(1, &|room| (room.wanted.priority, room.warms_up) = (Priority::Demand, true)), park(4));
    let has_begun = |room: &mut Room| {
        room.lead(4);
        room.refuse(4, 1);
    };
    assert!(asks_next(refused(0, &has_begun)), "it passes others on, and refuses for another reason");
    assert_eq!(refused(0, &|_| {}), Room::of(10, 5).choice());
}

#[test]
fn the_nearest_three_are_considered() {
    let mut room = Room::of(10, 9);
    for (out_of_step, next) in [(8, Some(7)), (7, Some(6)), (6, None)] {
        room.lead(out_of_step);
        room.refuse(out_of_step, 1);
        match next {
            Some(next) => assert_eq!(room.asks().0, next),
            // Beyond them a relay, by a later step.
            None => assert!(room.asks().1.is_relay()),
        }
    }
}

#[test]
fn the_load_of_a_lost_upstream_is_shared() {
    let mut asked = std::collections::BTreeSet::new();
    for chunk in 0..SIZE {
        let mut room = Room::of(10, 9);
        room.wanted.chunk = Chunk(chunk);
        room.cut(8);
        asked.insert(room.asks().0);
    }
    assert!(asked.len() >= 5 && asked.iter().all(|node| *node < 8), "but not the origin: {asked:?}");
    // Nodes that are there, but were tried, are no reason for that.
    for chunk in 0..SIZE {
        let mut room = Room::of(10, 9);
        (room.wanted.chunk, room.wanted.tried) = (Chunk(chunk), &[NodeId(8)]);
        assert_eq!(room.asks().0, 7);
    }
    let mut room = Room::of(10, 2);
    room.cut(1);
    assert_eq!(room.choice(), origin(ORIGIN), "the source alone is left");
}

/// Chunks begin at their homes once all of these are full, and go around the circle.
#[test]
fn chunks_begin_at_the_nearest_full_home() {
    let of = |me| {
        let mut room = Room::of(10, me).with_stores(&[3, 8], SIZE);
        [3, 8].into_iter().for_each(|node| room.lead(node));
        room
    };
    let asks = [1, 2, 4, 5, 7, 9, 10].map(|me| of(me).asks());
    assert_eq!(asks.map(|(peer, _)| peer), [10, 1, 3, 4, 6, 8, 9]);
    let at_home: Vec<bool> = asks.iter().map(|(_, reach)| *reach == Reach::HOLDER).collect();
    assert_eq!(at_home, [false, false, true, false, false, true, false]);
    // Holders next to each other, or a single one.
    assert_eq!(Room::of(10, 9).with_stores(&[8], SIZE).choice(), holder(8));
    let mut without = of(4);
    without.origins.clear();
    assert_eq!(without.choice(), holder(3));
}

#[test]
fn while_homes_fill_chunks_begin_at_the_origin() {
    let filling = |me, full: &[u64]| Room::of(10, me).with_stores(&[3, 8], 2).with_stores(full, SIZE);
    assert_eq!(filling(1, &[]).choice(), origin(ORIGIN));
    assert_eq!(filling(9, &[]).asks().0, 8);
    assert_eq!(filling(1, &[8]).choice(), holder(8), "the origin is spared, as a home has the chunk");
    // A full home before this one is nearer than the origin.
    assert_eq!(filling(4, &[3]).choice(), holder(3));
    let mut without = filling(9, &[]);
    without.origins.clear();
    assert_eq!(without.choice(), holder(8), "it has announced a part");
    without.holdings = Room::of(10, 9).with_stores(&[3, 8], 0).holdings;
    assert!(without.asks().1.is_relay(), "nobody has any of it");
}

/// What only slow homes hold enters the chain at the origin.
#[test]
fn slow_homes_are_bypassed_as_long_as_there_is_an_origin() {
    let of = |me| Room::of(10, me).with_stores(&[8], SIZE).with_slow(&[8]);
    assert_eq!(of(1).choice(), origin(ORIGIN));
    assert_eq!(of(9).asks().0, 7);
    // A node that is as slow does not bypass it: the chunk comes by all fast ones before.
    assert_eq!(of(10).with_slow(&[10]).asks().0, 7);
    assert_eq!(Room::of(10, 10).with_slow(&[8, 10]).asks().0, 8, "the way from the origin");
    assert_eq!(of(1).with_slow(&[ORIGIN]).asks().0, 10, "the origin is no faster");
    assert_eq!(of(9).with_slow(&[ORIGIN]).choice(), holder(8));
    let mut cut = of(1);
    cut.cut(ORIGIN);
    assert_eq!(cut.asks().0, 10, "the origin cannot be asked");
}

/// Rule c: among several holders an upstream that does not lead is one of many.
#[test]
fn among_several_holders_only_an_upstream_in_step_goes_first() {
    let of = |stream| {
        let mut room = Room::of(10, 5).with_stores(&[2, 4, 8], SIZE);
        room.wanted.stream = stream;
        room
    };
    let asked = |room: &mut Room| {
        let asks = |dice| {
            room.dice = dice;
            room.asks().0
        };
        (0..64).map(asks).collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    for stream in [false, true] {
        assert_eq!(asked(&mut of(stream)), [2, 4, 8]);
        let mut leads = of(stream);
        leads.lead(4);
        assert_eq!(asked(&mut leads), [4]);
        // Once stores are full it is waited for.
        leads.fill_window(4, 0);
        assert_eq!(leads.choice(), park(4));
    }
    // A single holder is asked in step or not.
    assert_eq!(asked(&mut Room::of(10, 5).with_stores(&[4], SIZE)), [4]);
    // An upstream without the chunk: random readers take any holder, those in order the chain.
    let mut random = Room::of(10, 5).with_stores(&[2, 8], SIZE);
    assert_eq!(asked(&mut random), [4]);
    random.wanted.stream = false;
    assert_eq!(asked(&mut random), [2, 8]);
    random.lead(4);
    assert_eq!(asked(&mut random), [4], "it leads");
}

#[test]
fn while_stores_fill_an_upstream_leads_as_long_as_it_has_room() {
    let mut room = Room::of(10, 5).with_stores(&[2, 4, 8], SIZE - 1);
    room.lead(4);
    assert!(room.asks().0 == 4 && room.asks().1.is_chain());
    room.fill_window(4, 0);
    assert_eq!(room.choice(), park(4), "it is the nearest holder");
    let mut silent = Room::of(10, 5).with_stores(&[2, 4, 8], SIZE - 1);
    silent.lead(4);
    silent.fill_window(4, 400);
    silent.wanted.overdue = true;
    assert_eq!(silent.choice(), holder(2), "and not the next one of the chain, which has nothing");
    room.cut(8);
    room.cut(2);
    assert_eq!(room.choice(), park(4), "and the only one");
}

#[test]
fn a_source_that_is_not_believed_is_not_waited_for() {
    let mut room = Room::of(10, 9).with_stores(&[8], SIZE);
    room.doubt(8);
    assert_eq!(room.choice(), origin(ORIGIN));
}

#[test]
fn few_nodes_have_no_chain() {
    // Origins do not count.
    for (nodes, in_chain) in [(7, false), (8, true)] {
        let asks = Room::of(nodes, 5).asks();
        assert_eq!(asks.1.is_chain(), in_chain, "{nodes}: {asks:?}");
    }
    let mut room = Room::of(3, 3);
    room.discovers = true;
    assert_eq!(room.asks().0, 2, "it may not know all of them yet");
    (room.discovers, room.keeps_all) = (false, true);
    assert_eq!(room.asks().0, 2, "a node that is to hold all of it is a home of all");
}

#[test]
fn a_node_that_takes_no_part_asks_holders_at_random() {
    let mut room = Room::of(10, 5).with_stores(&[2, 8], SIZE);
    room.gone.push(5);
    assert!([2, 8].contains(&room.asks().0));
}

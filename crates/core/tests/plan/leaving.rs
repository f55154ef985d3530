//! Nodes that say that they leave are asked last, in each step.

use super::{holder, origin};
use crate::room::{ORIGIN, Room, SECOND};
use vfield_core::identity::NodeId;
use vfield_core::plan::{Choice, Source};
use vfield_core::reach::Reach;
use vfield_core::wire::Priority;

/// A field whose stores are full, with the origin.
fn full(nodes: u64, me: u64, stores: &[u64]) -> Room {
    let mut room = Room::of(nodes, me).with_stores(stores, 16);
    room.wanted.priority = Priority::Demand;
    room.wanted.stream = false;
    room
}

#[test]
fn a_holder_that_leaves_is_asked_after_all_others() {
    let mut room = full(5, 5, &[1, 2, 3]);
    let before = room.order();
    assert_eq!(before.len(), 4, "three holders and the origin: {before:?}");
    for leaving in [1, 2, 3] {
        let mut room = full(5, 5, &[1, 2, 3]);
        room.leaving = vec![leaving];
        let order = room.order();
        assert_eq!(order.last(), Some(&leaving), "{order:?}");
        assert_eq!(order.len(), 4, "it is asked: {order:?}");
    }
}

#[test]
fn the_last_holder_is_asked_though_it_leaves() {
    let mut room = full(5, 5, &[2]);
    room.leaving = vec![2];
    // Without another home the chunk is relayed; the relay asks the origin.
    room.wanted.tried = &[NodeId(1), NodeId(3), NodeId(4)];
    assert_eq!(room.choice(), origin(ORIGIN), "the origin has it too");
    room.origins.clear();
    assert_eq!(room.choice(), holder(2));
    room.wanted.priority = Priority::Fill;
    assert_eq!(room.choice(), holder(2), "stores take over what only it has");
}

#[test]
fn an_origin_that_leaves_is_asked_last() {
    let mut room = full(5, 5, &[1, 2, 3]);
    room.leaving = vec![ORIGIN];
    assert_eq!(room.order().last(), Some(&ORIGIN));
    // Cold stores: the other origin has it.
    let mut room = full(3, 3, &[]);
    (room.origins, room.leaving) = (vec![ORIGIN, SECOND], vec![ORIGIN]);
    for dice in 0..8 {
        room.dice = dice;
        assert_eq!(room.choice(), Choice::Ask(Source::passing(NodeId(1), Reach::READER)));
    }
    room.wanted.tried = &[NodeId(1), NodeId(2)];
    assert_eq!(room.choice(), origin(SECOND));
}

#[test]
fn a_chain_goes_around_nodes_that_leave() {
    let mut room = Room::of(10, 5);
    assert_eq!(room.asks().0, 4);
    room.leaving = vec![4, 3];
    assert_eq!(room.asks().0, 2);
    // A node that leaves goes on reading, and takes from its upstream.
    room.leaving = vec![5];
    assert_eq!(room.asks().0, 4);
}

#[test]
fn advice_to_ask_a_node_that_leaves_is_not_followed() {
    let mut room = Room::of(10, 5);
    (room.wanted.advice, room.wanted.insist) = (Some(NodeId(9)), true);
    room.leaving = vec![9];
    assert_eq!(room.choice(), origin(ORIGIN));
}

#[test]
fn a_home_that_leaves_relays_nothing() {
    let mut room = full(5, 5, &[]).with_stores(&[1, 2], 0);
    let relay = room.asks().0;
    assert!([1, 2].contains(&relay));
    room.leaving = vec![relay];
    assert_eq!(room.asks().0, 3 - relay);
    // It is a home no more: it asks the others as a reader.
    let mut room = full(5, 1, &[]).with_stores(&[1, 2], 0);
    room.leaving = vec![1];
    assert_eq!(room.asks().0, 2);
}

/// Its store fills no more. Other nodes do not take that for an image that is still spread.
#[test]
fn an_unfilled_store_that_leaves_unsettles_nobody() {
    let settled = full(12, 5, &[1, 2, 3]).order();
    let mut room = full(12, 5, &[1, 2, 3]).with_stores(&[8], 4);
    room.leaving = vec![8];
    let order = room.order();
    assert_eq!(order[..settled.len()], settled);
}

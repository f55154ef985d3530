//! The plan, step by step: a row for each of docs/explanation/choosing.md.

mod chain;
mod direct;
mod holders;
mod leaving;
mod room;
mod zones;

use room::{ORIGIN, Room, SECOND};
use vfield_core::identity::NodeId;
use vfield_core::plan::{Choice, Source};
use vfield_core::reach::Reach;
use vfield_core::wire::Priority;

const fn holder(node: u64) -> Choice {
    Choice::Ask(Source::holder(NodeId(node)))
}

const fn origin(node: u64) -> Choice {
    Choice::Ask(Source::origin(NodeId(node)))
}

const fn park(node: u64) -> Choice {
    Choice::Park(NodeId(node))
}

#[test]
fn advice_goes_before_all_else() {
    let mut room = Room::of(10, 5);
    room.wanted.advice = Some(NodeId(9));
    assert_eq!(room.choice(), holder(9));
    // The origin that gave it is to send the chunk itself if that node does not.
    room.wanted.insist = true;
    room.origins = vec![ORIGIN, SECOND];
    assert_eq!(room.choice(), holder(9));
    for useless in [&mut |room: &mut Room| room.wanted.tried = &[NodeId(9)], &mut |room: &mut Room| room.gone = vec![9]]
        as [&mut dyn FnMut(&mut Room); 2]
    {
        let mut room = Room { wanted: room.wanted, origins: room.origins.clone(), ..Room::of(10, 5) };
        useless(&mut room);
        assert_eq!(room.choice(), origin(ORIGIN));
        room.wanted.tried = &[NodeId(9), NodeId(ORIGIN)];
        assert_eq!(room.choice(), origin(SECOND));
        room.cut(SECOND);
        assert_eq!(room.asks().0, 4, "the chain follows");
    }
}

#[test]
fn advice_to_ask_a_slower_node_does_not_help() {
    let mut room = Room::of(10, 5).with_slow(&[9]);
    (room.wanted.advice, room.wanted.insist) = (Some(NodeId(9)), true);
    assert_eq!(room.choice(), origin(ORIGIN));
    // It does for a node that is as slow.
    let mut room = room.with_slow(&[5]);
    assert_eq!(room.choice(), holder(9));
    room.wanted.advice = Some(NodeId(2));
    assert_eq!(room.choice(), holder(2), "a faster one always does");
}

#[test]
fn advice_that_is_given_again_is_followed() {
    let mut room = Room::of(10, 5).with_slow(&[9]);
    (room.wanted.advice, room.wanted.insist, room.wanted.firm) = (Some(NodeId(9)), true, true);
    assert_eq!(room.choice(), holder(9));
    room.wanted.tried = &[NodeId(9)];
    assert_eq!(room.choice(), origin(ORIGIN));
}

#[test]
fn without_anybody_it_waits() {
    let mut room = Room::of(10, 5);
    room.gone = (1..=10).chain([ORIGIN]).filter(|node| *node != 5).collect();
    assert_eq!(room.choice(), Choice::Nobody);
    let mut alone = Room::of(1, 1);
    alone.origins.clear();
    assert_eq!(alone.choice(), Choice::Nobody);
}

#[test]
fn without_an_origin_a_fill_asks_no_store_that_has_nothing() {
    let mut room = Room::of(10, 5).with_stores(&[1, 2, 3, 5], 0);
    room.origins.clear();
    room.wanted.reach = Reach::HOLDER;
    assert!(matches!(room.choice(), Choice::Ask(_)));
    room.wanted.priority = Priority::Fill;
    assert_eq!(room.choice(), Choice::Nobody);
}

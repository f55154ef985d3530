//! Slices: the node that is asked for a part of a chunk, which it has for sure.

use super::room::{ORIGIN, Room, SECOND, SIZE};
use std::collections::BTreeSet;
use vfield_core::identity::NodeId;

/// The nodes that are asked, over many throws.
fn asked(room: &mut Room) -> BTreeSet<Option<u64>> {
    let asks = |dice| {
        room.dice = dice;
        room.direct()
    };
    (0..64).map(asks).collect()
}

#[test]
fn holders_with_room_are_asked_then_origins() {
    let mut room = Room::of(10, 5).with_stores(&[2, 8], SIZE);
    assert_eq!(asked(&mut room), [Some(2), Some(8)].into());
    room.fill_window(8, 0);
    assert_eq!(asked(&mut room), [Some(2)].into());
    room.doubt(2);
    assert_eq!(asked(&mut room), [Some(ORIGIN)].into());
    room.origins.push(SECOND);
    assert_eq!(asked(&mut room), [Some(ORIGIN), Some(SECOND)].into());
    room.doubt(ORIGIN);
    assert_eq!(asked(&mut room), [Some(SECOND)].into());
    room.fill_window(SECOND, 0);
    assert_eq!(asked(&mut room), [None].into(), "the chunk comes as chunks do");
}

#[test]
fn a_holder_that_cannot_be_asked_is_none() {
    let mut room = Room::of(10, 5).with_stores(&[2, 5, 8], SIZE);
    assert_eq!(asked(&mut room), [Some(2), Some(8)].into(), "not the node itself");
    room.cut(2);
    assert_eq!(asked(&mut room), [Some(8)].into());
    room.wanted.tried = &[NodeId(8)];
    assert_eq!(asked(&mut room), [Some(ORIGIN)].into());
}

/// In a large room all read the same while its stores fill. A small one has no chain.
#[test]
fn while_stores_fill_a_large_room_asks_nobody_directly() {
    assert_eq!(asked(&mut Room::of(10, 5).with_stores(&[2, 8], SIZE - 1)), [None].into());
    assert_eq!(asked(&mut Room::of(4, 3).with_stores(&[2], SIZE - 1)), [Some(2)].into());
}

#[test]
fn a_chunk_that_enters_elsewhere_is_not_asked_of_the_origin() {
    let mut room = Room::of(10, 5);
    assert_eq!(asked(&mut room), [Some(ORIGIN)].into());
    room.gateways = vec![1, 2, 3];
    assert_eq!(asked(&mut room), [None].into());
}

#[test]
fn nodes_that_leave_are_asked_last() {
    let mut room = Room::of(10, 5).with_stores(&[2, 8], SIZE);
    room.leaving = vec![8];
    assert_eq!(asked(&mut room), [Some(2)].into());
    room.origins.clear();
    room.cut(2);
    assert_eq!(asked(&mut room), [Some(8)].into());
}

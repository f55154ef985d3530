//! Rooms in which not every machine has a way to every other one.

use crate::{field_of, one_image, secs};
use std::collections::BTreeSet;
use vfield_core::node::Notice;
use vfield_sim::field::Field;
use vfield_sim::network::walls::Wall;

/// A field of one image in which the first machine reaches all, and all others only those that
/// `rooms` says are in the same room.
fn parted(seed: u64, count: usize, capacity: u64, room: impl Fn(usize) -> usize) -> (Field, Vec<usize>) {
    let mut field = one_image(seed);
    for one in 1..=count {
        let to: BTreeSet<u32> = (1..=count).filter(|to| room(*to) != room(one)).map(|to| to as u32).collect();
        field.build(Wall { from: BTreeSet::from([one as u32]), to });
    }
    let nodes: Vec<usize> = (0..count).map(|_| field.join(0, &[(0, capacity)])).collect();
    (field, nodes)
}

fn assert_nobody_is_buried(field: &Field, nodes: &[usize]) {
    for &node in nodes.iter().chain([&0]) {
        let went = field.machines[node].notices.iter().find(|(_, notice)| matches!(notice, Notice::Down(_)));
        assert!(went.is_none(), "node {node}: {went:?}");
    }
}

fn until_the_origin_may_leave(field: &mut Field) {
    let start = field.now();
    while !field.verified(&[0]) {
        assert!(field.now() - start < secs(120), "{:?}", field.machines[0].node.images());
        field.run(secs(1));
    }
}

/// The stores add up to the image, and each reaches its own and the origin's only.
#[test]
fn no_origin_may_leave_machines_that_have_no_way_to_the_stores() {
    for seed in 0..4 {
        let (mut field, nodes) = parted(seed, 12, 180, |machine| machine);
        field.until("stores filled", secs(60), |field| field.filled(&nodes));
        let readers = field.read_all(&nodes, 0);
        field.until_read(&readers, secs(60));
        assert_nobody_is_buried(&field, &nodes);
        assert!(field.covered(&[0]), "the stores add up to the image");
        field.until("all say that they need it", secs(30), |field| field.machines[0].node.dependents().len() == 12);
        assert!(!field.verified(&[0]));
        field.run(secs(60));
        assert!(!field.verified(&[0]));
        assert_eq!(field.machines[0].node.images()[0].dependents.len(), 12);
        field.tear_all_down();
        until_the_origin_may_leave(&mut field);
        assert_eq!(field.machines[0].node.dependents(), []);
        field.kill(0, true);
        let readers = field.read_all(&nodes, 0);
        field.until_read(&readers, secs(20));
    }
}

/// Two rooms that a firewall lets reach the server and not each other, each with room for all of
/// it.
#[test]
fn rooms_whose_stores_suffice_need_no_origin() {
    for seed in 0..4 {
        let (mut field, nodes) = parted(seed, 12, 402, |machine| machine % 2);
        field.until("stores filled", secs(60), |field| field.filled(&nodes));
        field.run(secs(30));
        assert_nobody_is_buried(&field, &nodes);
        until_the_origin_may_leave(&mut field);
        field.kill(0, true);
        let readers = field.read_all(&nodes, 0);
        field.until_read(&readers, secs(20));
    }
}

/// Where everybody has a way to everybody nobody says anything of the kind, whoever dies.
#[test]
fn in_a_room_without_walls_nobody_needs_an_origin() {
    for seed in 0..4 {
        let (mut field, mut nodes) = field_of(seed, 8, 300);
        for _ in 0..3 {
            field.run(secs(12));
            field.kill(nodes.remove(0), false);
            nodes.push(field.join(0, &[(0, 300)]));
        }
        for _ in 0..30 {
            field.run(secs(1));
            assert_eq!(field.machines[0].node.dependents(), []);
        }
    }
}

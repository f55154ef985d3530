//! Placement in fields of many nodes with stores of all sizes, and the cost of joins and
//! departures.

use crate::secs;
use std::time::Duration;
use vfield_core::chunk::Chunk;
use vfield_core::config::Config;
use vfield_core::placement::map::mix;
use vfield_core::placement::{Arc, Ring};
use vfield_sim::field::Field;
use vfield_sim::machine::Machine;
use vfield_sim::original::Original;

const CHUNKS: u64 = 400;

/// An origin and nodes with stores of any size up to the whole image, started one every `gap_ms`,
/// full and settled.
fn field(seed: u64, count: usize, gap_ms: u64) -> (Field, Vec<usize>) {
    let mut field = Field::new(seed, vec![Original::dense(1, CHUNKS)]);
    field.config = Config { join_boost: 9, ..Config::default() };
    field.origin(None, &[0]);
    let all = field.images[0].chunks();
    let start = |node| {
        field.run(crate::ms(gap_ms));
        field.join(0, &[(0, mix(seed << 32 | node as u64) % (all + 1))])
    };
    let nodes: Vec<usize> = (0..count).map(start).collect();
    settle(&mut field, &nodes);
    (field, nodes)
}

/// Waits until stores are full and nobody has moved for a while.
fn settle(field: &mut Field, nodes: &[usize]) {
    const STILL: Duration = Duration::from_secs(15);
    let (mut since, mut came) = (field.now(), came_to(field));
    field.until("settled", secs(600), |field| {
        if came_to(field) != came || !field.filled(nodes) {
            (since, came) = (field.now(), came_to(field));
        }
        field.now() - since > STILL
    });
}

fn came_to(field: &Field) -> u64 {
    field.machines.iter().map(|machine| machine.traffic.payload_came).sum()
}

fn capacity(field: &Field, node: usize) -> u64 {
    field.machines[node].node.images()[0].capacity
}

/// The number of live stores that hold the rarest chunk; transient copies do not count.
fn least_held(field: &Field) -> u64 {
    let (id, ring) = (field.images[0].id, Ring::new(field.images[0].chunks()));
    let held = |chunk| {
        let has = |machine: &&Machine| {
            let arc = machine.node.arc(id).filter(|arc| arc.contains(ring.place(Chunk(chunk)), ring.size()));
            machine.alive && arc.is_some() && machine.has(0, Chunk(chunk))
        };
        field.machines.iter().filter(has).count() as u64
    };
    (0..field.images[0].chunks()).map(held).min().unwrap_or(0)
}

/// If each node knows the others when it chooses, the counts are within one of what the total
/// allows. Nodes that start within a few milliseconds do not know each other. Full stores stay once
/// everything is held often. So this is a bound against regressions.
#[test]
fn stores_of_all_sizes_hold_every_chunk_almost_equally_often() {
    for (seed, count, gap_ms, short) in [(1, 12, 400, 1), (2, 40, 400, 1), (3, 80, 400, 1), (2, 40, 5, 3)] {
        let (field, nodes) = field(seed, count, gap_ms);
        let room: u64 = nodes.iter().map(|node| capacity(&field, *node)).sum();
        let (least, allowed) = (least_held(&field), room / field.images[0].chunks());
        assert!(least + short >= allowed, "{count} nodes hold some chunk {least} times, {allowed} would be possible");
    }
}

/// Nodes that start together may get arcs of which none can cover a bare place without baring
/// another. In zones of four, those without the origin among them.
#[test]
fn a_zone_holds_what_it_has_room_for() {
    const SIZE: usize = 4;
    // 258 chunks. Stores of 30 %, stores that just add up, stores that do not.
    for (seed, capacity) in (0..20).flat_map(|seed| [77, 65, 50].map(|capacity| (seed, capacity))) {
        let mut field = Field::new(seed, vec![Original::usual(1, 257)]);
        field.config = Config { join_boost: 9, ..Config::default() };
        field.links.zone_size = SIZE;
        field.origin(None, &[0]);
        let nodes: Vec<usize> = (0..3 * SIZE).map(|_| field.join(0, &[(0, capacity)])).collect();
        let allowed = field.images[0].chunks().min(SIZE as u64 * capacity);
        let held = |field: &Field| nodes.chunks(SIZE).all(|zone| held_by(field, zone) == allowed);
        field.until("each zone holds so much", secs(60), |field| held(field) && field.filled(&nodes));
    }
}

/// The number of chunks that the stores of these machines are to hold.
fn held_by(field: &Field, machines: &[usize]) -> u64 {
    let (id, size) = (field.images[0].id, field.images[0].chunks());
    let arcs: Vec<Arc> = machines.iter().filter_map(|machine| field.machines[*machine].node.arc(id)).collect();
    (0..size).filter(|place| arcs.iter().any(|arc| arc.contains(*place, size))).count() as u64
}

#[test]
fn joins_and_departures_move_little_more_than_a_share() {
    for (seed, count) in [(4, 20), (5, 50)] {
        let (mut field, mut nodes) = field(seed, count, 20);
        let chunk_bytes = field.images[0].geometry.chunk_bytes();
        let share = CHUNKS / 2;
        let before = came_to(&field);
        let newcomer = field.join(0, &[(0, share)]);
        nodes.push(newcomer);
        settle(&mut field, &nodes);
        let came = (came_to(&field) - before) / chunk_bytes;
        assert!(came <= share * 5 / 4 + 8, "{came} chunks were moved for a store of {share}");

        let before = came_to(&field);
        let going = nodes.remove(count / 2);
        let share = capacity(&field, going);
        field.kill(going, true);
        settle(&mut field, &nodes);
        let came = (came_to(&field) - before) / chunk_bytes;
        assert!(came <= share * 5 / 4 + 8, "{came} chunks were moved when a store of {share} went");
    }
}

/// A third of all nodes and the origin depart at once: each chunk with a copy left is held by a
/// remaining node, and read by all.
#[test]
fn a_third_that_goes_at_once_leaves_the_image_covered() {
    for (seed, count) in [(6, 30), (7, 60)] {
        let (mut field, nodes) = field(seed, count, 20);
        field.kill(0, false);
        let (gone, left): (Vec<usize>, Vec<usize>) = nodes.iter().partition(|node| **node % 3 == 0);
        for node in gone {
            field.kill(node, false);
        }
        let (bare, room) = (field.bare(0), left.iter().map(|node| capacity(&field, *node)).sum::<u64>());
        assert_eq!(bare, 0, "the seed leaves nothing of some chunk");
        settle(&mut field, &left);
        let (least, allowed) = (least_held(&field), room / field.images[0].chunks());
        assert!(least >= 1 && field.covered(&left), "some chunk is held {least} times, {allowed} would be possible");
        let readers = field.read_all(&left, 0);
        field.until_read(&readers, secs(60));
    }
}

//! Versions of an image: what a machine has of one it does not fetch for the other.

use crate::secs;
use vfield_core::chunk::Chunk;
use vfield_core::node::Input;
use vfield_sim::field::Field;
use vfield_sim::original::Original;

/// 50 Mbit/s, in bytes per second.
const RATE: u64 = 6_250_000;
/// Chunks of data of the image.
const CHUNKS: u64 = 1_000;

/// A room whose stores of the old version are full. The origin has the new one as well. Every
/// seventh chunk of that differs.
fn room(seed: u64, nodes: usize, capacity: u64) -> (Field, Vec<usize>) {
    let old = Original::usual(1, CHUNKS);
    let new = old.next(2, (0..CHUNKS).step_by(7));
    let mut field = Field::new(seed, vec![old, new]);
    field.config = vfield_core::config::Config { join_boost: 9, ..Default::default() };
    field.links.rate = RATE;
    field.origin(None, &[0]);
    let nodes: Vec<usize> = (0..nodes).map(|_| field.join(0, &[(0, capacity)])).collect();
    field.until("stores filled", secs(600), |field| field.filled(&nodes));
    field.run(secs(3));
    field.add_image(0, 1, true, 0);
    field.run(secs(3));
    (field, nodes)
}

/// Bytes of chunks that these machines received.
fn came(field: &Field, nodes: &[usize]) -> u64 {
    nodes.iter().map(|node| field.machines[*node].traffic.payload_came).sum()
}

/// The room of the design's figures: thirty machines with stores of 30 %.
#[test]
fn a_room_that_holds_the_last_version_fetches_what_is_new() {
    (1..=4).for_each(fetches_what_is_new);
}

fn fetches_what_is_new(seed: u64) {
    let capacity = (CHUNKS + 1) * 3 / 10;
    let (mut field, nodes) = room(seed, 30, capacity);
    let (before, began) = (came(&field, &nodes), field.now());
    nodes.iter().for_each(|node| field.add_image(*node, 1, false, capacity));
    field.until("stores of the new version filled", secs(600), |field| field.filled(&nodes));
    let link = (CHUNKS * (64 << 10)) as f64 / RATE as f64;
    let took = (field.now() - began).as_secs_f64() / link;
    assert!(took < 0.2, "seed {seed}: the stores took {took} of what the link needs for an image");
    let stored = 30 * capacity * (64 << 10);
    let share = (came(&field, &nodes) - before) as f64 / stored as f64;
    assert!(share < 0.15, "seed {seed}: {share} of what the stores hold was fetched");
    // The homes did not move: each store holds the same chunks of both.
    for &node in &nodes {
        let held = |image: usize| {
            let shelf = field.machines[node].shelf(image);
            (0..CHUNKS).map(Chunk).filter(|chunk| shelf.is_some_and(|shelf| shelf.held.contains(*chunk))).count()
        };
        let both = (0..CHUNKS).map(Chunk).filter(|chunk| (0..2).all(|image| field.machines[node].has(image, *chunk)));
        assert!(both.count() * 20 >= held(1) * 19, "seed {seed}: machine {node} holds other chunks of the new version");
    }
}

/// The new version outlives the old one on the machine, and its origin.
#[test]
fn what_was_taken_from_the_old_version_stays_when_that_goes() {
    let (mut field, nodes) = room(2, 5, (CHUNKS + 2) / 2);
    nodes.iter().for_each(|node| field.add_image(*node, 1, false, (CHUNKS + 2) / 2));
    field.until("stores of the new version filled", secs(600), |field| field.filled(&nodes));
    field.run(secs(3));
    let old = field.images[0].id;
    for machine in std::iter::once(0).chain(nodes.iter().copied()) {
        field.input(machine, Input::Drop(old));
        field.machines[machine].shelves[0] = None;
    }
    field.run(secs(3));
    field.kill(0, true);
    field.run(secs(5));
    let readers = field.read_all(&nodes, 1);
    field.until_read(&readers, secs(600));
}

/// A machine with all of the old version reads most of the new one from there.
#[test]
fn a_reader_of_the_new_version_fetches_what_is_new() {
    let (mut field, nodes) = room(3, 1, CHUNKS + 1);
    let node = nodes[0];
    let before = came(&field, &nodes);
    field.add_image(node, 1, false, CHUNKS + 1);
    let reader = field.read(node, 1, 0..CHUNKS);
    field.until_read(&[reader], secs(600));
    let came = (came(&field, &nodes) - before) / (64 << 10);
    assert!((CHUNKS / 7..CHUNKS / 7 + 10).contains(&came), "{came} chunks came");
}

//! Versions that no tag keeps: they go, but for what another machine needs.

use crate::secs;
use std::collections::BTreeSet;
use std::time::Duration;
use vfield_core::chunk::Chunk;
use vfield_core::config::Config;
use vfield_core::node::Input;
use vfield_core::rubbish::{SETTLE, Stays};
use vfield_core::signing::Simulated;
use vfield_core::tag::Tag;
use vfield_core::tags::SIGNER_LENGTH;
use vfield_sim::field::Field;
use vfield_sim::network::walls::Wall;
use vfield_sim::original::Original;
use vfield_weather::Thinks;

/// Chunks of data of an image.
const CHUNKS: u64 = 200;
const GRACE: Duration = secs(60);
/// A machine looks again, and acts, within this time after the grace.
const SOON: Duration = secs(20);

/// A room whose machines hold this many chunks each of the first version of a tag; no origin of it
/// is left. The tag then names the second version, which machine 0 serves, and keeps nothing else.
fn room(seed: u64, capacities: &[u64]) -> (Field, Vec<usize>) {
    let old = Original::usual(1, CHUNKS);
    let new = old.next(2, (0..CHUNKS).step_by(7));
    let mut field = Field::new(seed, vec![old, new]);
    field.config = Config { join_boost: 9, rubbish_grace: GRACE, ..Config::default() };
    field.origin(None, &[1]);
    let first = field.origin(Some(0), &[0]);
    let nodes: Vec<usize> = capacities.iter().map(|chunks| field.join(0, &[(0, *chunks)])).collect();
    field.until("stores filled", secs(600), |field| field.filled(&nodes));
    field.run(secs(3));
    // It leaves: its death would leave the room one short for an hour.
    field.input(first, Input::Leave);
    field.input(first, Input::Gone);
    field.kill(first, true);
    move_tag(&mut field, &nodes, 1, 0);
    (field, nodes)
}

/// The tag names this image, and keeps no other one. These machines follow.
fn move_tag(field: &mut Field, nodes: &[usize], serial: u64, image: usize) {
    let tag = Tag::first("prod".parse().unwrap(), field.images[image].id).keeping(1);
    let text = Tag { serial, ..tag }.to_string();
    field.input(0, Input::Tag(Simulated::sign_tag(&"a".repeat(SIGNER_LENGTH), &text)));
    for node in nodes {
        if field.machines[*node].shelf(image).is_none() {
            field.add_image(*node, image, false, CHUNKS / 4);
        }
        field.unwish(*node, image);
    }
    field.until("stores filled", secs(20), |field| field.filled(nodes));
}

/// The machines that have an image.
fn having(field: &Field, nodes: &[usize], image: usize) -> Vec<usize> {
    nodes.iter().copied().filter(|node| field.machines[*node].shelf(image).is_some()).collect()
}

/// The data chunks of an image that a machine has.
fn covered(field: &Field, nodes: &[usize], image: usize) -> usize {
    let has = |chunk: &u64| nodes.iter().any(|node| field.machines[*node].has(image, Chunk(*chunk)));
    (0..CHUNKS).filter(has).count()
}

#[test]
fn a_version_that_no_tag_keeps_goes_after_the_grace() {
    let (mut field, nodes) = room(1, &[CHUNKS / 2; 8]);
    field.run(GRACE * 2);
    assert_eq!(having(&field, &nodes, 0), nodes, "the tag keeps it");
    move_tag(&mut field, &nodes, 2, 1);
    field.run(GRACE - secs(2));
    assert_eq!(having(&field, &nodes, 0), nodes, "the grace is not over");
    field.run(SOON);
    assert!(having(&field, &nodes, 0).is_empty(), "{}", field.describe());
    assert_eq!(having(&field, &nodes, 1), nodes);
}

#[test]
fn a_tag_that_comes_back_within_the_grace_moves_no_byte() {
    let (mut field, nodes) = room(2, &[CHUNKS / 2; 5]);
    move_tag(&mut field, &nodes, 2, 1);
    // Others may even have been told not to count on it.
    field.run(GRACE + SETTLE / 2);
    let before: u64 = nodes.iter().map(|node| field.machines[*node].traffic.payload_came).sum();
    move_tag(&mut field, &nodes, 3, 0);
    field.run(GRACE * 2);
    let after: u64 = nodes.iter().map(|node| field.machines[*node].traffic.payload_came).sum();
    assert_eq!(having(&field, &nodes, 0), nodes);
    // The second version is rubbish now, but for a moment's probes nothing moves.
    assert!(after - before < 5 * nodes.len() as u64 * (64 << 10), "{} bytes came", after - before);
}

#[test]
fn the_last_copy_stays_while_another_machine_reads_and_goes_after_that() {
    // The reader's own store holds little.
    let mut capacities = [CHUNKS / 2; 6];
    capacities[5] = CHUNKS / 10;
    let (mut field, nodes) = room(3, &capacities);
    let reading = nodes[5];
    // It works on each block for a while.
    field.think = Thinks::new([(None, secs(20))]).expect("a time");
    let reader = field.read(reading, 0, 0..CHUNKS);
    move_tag(&mut field, &nodes, 2, 1);
    field.run(GRACE + SOON * 3);
    assert!(field.machines[reading].shelf(0).is_some(), "it is open");
    assert_eq!(covered(&field, &nodes, 0), CHUNKS as usize, "{}", field.describe());
    let stays = |node: usize| field.machines[node].node.rubbish().into_iter().find_map(|(_, rubbish)| rubbish.stays);
    assert!(nodes.iter().any(|node| matches!(stays(*node), Some(Stays::LastCopy(1..)))));
    field.until_read(&[reader], secs(3600));
    field.run(GRACE + SOON);
    assert!(having(&field, &nodes, 0).is_empty(), "{}", field.describe());
}

#[test]
fn a_copy_goes_once_the_machine_that_needs_the_image_has_all_of_it() {
    let mut capacities = [CHUNKS / 2; 6];
    capacities[0] = CHUNKS + 4;
    let (mut field, nodes) = room(4, &capacities);
    let reading = nodes[0];
    // It works on each block for a while.
    field.think = Thinks::new([(None, secs(60))]).expect("a time");
    field.read(reading, 0, 0..CHUNKS);
    move_tag(&mut field, &nodes, 2, 1);
    field.run(GRACE + SOON);
    assert_eq!(having(&field, &nodes, 0), [reading], "{}", field.describe());
    assert_eq!(covered(&field, &nodes, 0), CHUNKS as usize);
}

#[test]
fn a_minority_gives_nothing_up() {
    let (mut field, nodes) = room(5, &[CHUNKS; 6]);
    let (few, most) = nodes.split_at(2);
    let places = |some: &[usize]| some.iter().map(|at| field.machines[*at].place).collect::<BTreeSet<u32>>();
    let (one, other) = (places(few), places(&[&[0], most].concat()));
    move_tag(&mut field, &nodes, 2, 1);
    field.build(Wall { from: one.clone(), to: other.clone() });
    field.build(Wall { from: other, to: one });
    field.run(GRACE + SOON * 2);
    assert_eq!(having(&field, few, 0), few, "they see two of seven");
    field.tear_all_down();
    field.run(secs(90));
    assert!(having(&field, &nodes, 0).is_empty(), "{}", field.describe());
}

#[test]
fn the_operator_need_not_wait_for_the_grace() {
    let (mut field, nodes) = room(6, &[CHUNKS / 2; 4]);
    move_tag(&mut field, &nodes, 2, 1);
    nodes.iter().for_each(|node| field.input(*node, Input::Collect));
    field.run(SETTLE + secs(2));
    assert!(having(&field, &nodes, 0).is_empty(), "{}", field.describe());
}

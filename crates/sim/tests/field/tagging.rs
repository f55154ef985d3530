//! Tags: one machine gets a tag, and all know it within a second, though datagrams are lost.

use crate::{field_of, ms, one_image, secs};
use std::collections::BTreeSet;
use std::time::Duration;
use vfield_core::image::ImageId;
use vfield_core::node::Input;
use vfield_core::signing::Simulated;
use vfield_core::tag::Tag;
use vfield_core::tags::{SIGNER_LENGTH, SignedTag};
use vfield_sim::field::Field;
use vfield_sim::network::walls::Wall;

fn signed(signer: char, serial: u64, image: u8) -> SignedTag {
    let tag = Tag { serial, ..Tag::first("prod".parse().unwrap(), ImageId([image; 32])) };
    Simulated::sign_tag(&signer.to_string().repeat(SIGNER_LENGTH), &tag.to_string())
}

fn serial(field: &Field, machine: usize) -> u64 {
    field.machines[machine].node.tags().all().map(|known| known.tag.serial).max().unwrap_or_default()
}

fn all_know(field: &Field, wanted: u64) -> bool {
    field.there().iter().all(|machine| serial(field, *machine) == wanted)
}

#[test]
fn two_hundred_nodes_know_a_tag_within_a_second() {
    let (mut field, nodes) = field_of(1, 199, 10);
    field.run(secs(5));
    let mut slowest = Duration::ZERO;
    for (at, node) in (1..).zip([nodes[7], 0, nodes[150], nodes[198]]) {
        field.input(node, Input::Tag(signed('a', at, at as u8)));
        slowest = slowest.max(field.until("all know it", secs(1), |field| all_know(field, at)));
        field.run(secs(1));
    }
    println!("200 nodes knew a tag within {slowest:?}");
}

/// A node that missed it hears of it after exchanges of snapshots, by datagrams that may be lost
/// too.
#[test]
fn lost_datagrams_are_made_up_for() {
    let (mut field, nodes) = field_of(2, 40, 10);
    field.run(secs(5));
    field.links.loss_percent = 30;
    field.input(nodes[3], Input::Tag(signed('a', 5, 1)));
    field.until("all know it", secs(120), |field| all_know(field, 5));
}

#[test]
fn a_newcomer_and_both_sides_of_a_partition_learn_it() {
    let (mut field, nodes) = field_of(3, 12, 10);
    field.run(secs(3));
    field.input(nodes[0], Input::Tag(signed('a', 3, 1)));
    field.until("all know it", secs(1), |field| all_know(field, 3));
    let newcomer = field.join(nodes[5], &[(0, 10)]);
    field.until("the newcomer knows it", secs(3), |field| serial(field, newcomer) == 3);
    // The half with an older serial goes forward when they meet.
    let places = |some: &[usize]| some.iter().map(|at| field.machines[*at].place).collect::<BTreeSet<u32>>();
    let (one, other) = (places(&[&[0], &nodes[..6]].concat()), places(&[&nodes[6..], &[newcomer]].concat()));
    field.build(Wall { from: one.clone(), to: other.clone() });
    field.build(Wall { from: other, to: one });
    field.input(nodes[0], Input::Tag(signed('a', 4, 2)));
    field.run(secs(20));
    assert_eq!((serial(&field, nodes[1]), serial(&field, nodes[8])), (4, 3), "{}", field.describe());
    field.tear_all_down();
    field.until("all know the later one", secs(60), |field| all_know(field, 4));
}

/// An old tag, a tag of another signer and a forged one: nobody takes them up, and nobody passes
/// them on.
#[test]
fn what_is_old_foreign_or_forged_ends_at_the_first_node() {
    let (mut field, nodes) = field_of(4, 20, 10);
    let trusted = "a".repeat(SIGNER_LENGTH);
    for machine in field.there() {
        field.machines[machine].node.trust_tags([trusted.clone()]);
    }
    field.run(secs(2));
    field.input(nodes[0], Input::Tag(signed('a', 7, 1)));
    field.until("all know it", secs(1), |field| all_know(field, 7));
    let forged = SignedTag { signature: signed('b', 9, 2).signature, ..signed('a', 9, 2) };
    for bad in [signed('a', 6, 2), signed('b', 9, 2), forged] {
        field.input(nodes[4], Input::Tag(bad));
        field.run(secs(3));
        assert!(all_know(&field, 7), "{}", field.describe());
        assert!(field.there().iter().all(|machine| field.machines[*machine].node.tags().all().count() == 1));
    }
    // Going back is a higher serial that names the old image.
    field.input(nodes[9], Input::Tag(signed('a', 8, 1)));
    field.until("all know it", secs(1), |field| all_know(field, 8));
}

/// Two operators sign at one moment: all nodes end with the same of the two.
#[test]
fn of_two_tags_of_one_serial_all_nodes_keep_the_same() {
    let (mut field, nodes) = field_of(5, 30, 10);
    field.run(secs(3));
    field.input(nodes[0], Input::Tag(signed('a', 2, 1)));
    field.input(nodes[29], Input::Tag(signed('a', 2, 2)));
    let images = |field: &Field| {
        let of = |machine: &usize| field.machines[*machine].node.tags().all().next().map(|known| known.tag.image);
        let mut all: Vec<_> = field.there().iter().map(of).collect();
        all.dedup();
        all
    };
    field.until("they agree", secs(10), |field| images(field).len() == 1 && images(field)[0].is_some());
}

#[test]
fn gateways_carry_a_tag_into_the_other_zones() {
    let mut field = one_image(6);
    field.links.zone_size = 6;
    let nodes: Vec<usize> = (0..23)
        .map(|_| {
            field.run(ms(20));
            field.join(0, &[(0, 40)])
        })
        .collect();
    field.run(secs(8));
    field.input(nodes[20], Input::Tag(signed('a', 1, 1)));
    field.until("all zones know it", secs(2), |field| all_know(field, 1));
}

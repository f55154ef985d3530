//! Speeds that peers tell a node: they count from members, a single partner proves nothing, and no
//! number of them does harm.

use crate::signed::{alive, keys};
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::chunk::ChunkSize;
use vfield_core::config::Config;
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::image::{Header, ImageId};
use vfield_core::node::{ImageConfig, Input, Node};
use vfield_core::record::Record;
use vfield_core::speed::{Link, LinkBounds, Speed};
use vfield_core::time::Time;

const SLOW: Speed = Speed(66);

fn identity(node: u64) -> Identity {
    let addr = SocketAddr::from(([198, 18, 0, node as u8], 4000));
    Identity { addr, node: NodeId(node), generation: 1, zone: Zone::default() }
}

/// A node with one image and the members 2 to 4.
fn node() -> (Node, Time) {
    let now = Time::after_start(Duration::from_secs(1));
    let mut node = Node::new(identity(1), keys(NodeId(1)), Config::default(), 1, now);
    for member in 2..=4 {
        node.handle(now, Input::Met(alive(identity(member))));
    }
    let header = Header::new(1 << 20, ChunkSize::MIN, 64).expect("a header");
    let id = ImageId([7; 32]);
    node.add_image(now, ImageConfig { id, names: "image".into(), header, origin: true, capacity_bytes: 0, kept: None });
    (node, now)
}

fn announced(node: &Node) -> Speed {
    node.members()[0].speed
}

/// The node's own record.
fn record(node: &Node) -> Record {
    let records = node.snapshot(&identity(2), &[]).records;
    records.into_iter().find(|record| record.node == NodeId(1)).expect("it has announced itself")
}

#[test]
fn two_members_that_say_the_same_are_believed() {
    let (mut node, now) = node();
    node.handle(now, Input::Delivers(NodeId(2), SLOW));
    assert_eq!(announced(&node), Speed::UNKNOWN, "the other's link may be the slow one");
    node.handle(now, Input::Delivers(NodeId(3), SLOW));
    assert_eq!(announced(&node), SLOW);
}

#[test]
fn strangers_are_not_believed() {
    let (mut node, now) = node();
    for stranger in [8, 9] {
        node.handle(now, Input::Delivers(NodeId(stranger), SLOW));
    }
    assert_eq!(announced(&node), Speed::UNKNOWN);
}

/// A member that says something else each time changes what the node announces twice a second at
/// most, for else it would make it talk without end.
#[test]
fn a_member_that_lies_causes_few_announcements() {
    let (mut node, mut now) = node();
    node.handle(now, Input::Delivers(NodeId(2), SLOW));
    let mut changes = 0;
    for turn in 0..10_000_u32 {
        now = now + Duration::from_millis(1);
        let before = announced(&node);
        let speed = if turn % 2 == 0 { Speed(u8::MAX) } else { Speed(1) };
        node.handle(now, Input::Delivers(NodeId(3), speed));
        changes += u32::from(announced(&node) != before);
    }
    assert!(changes <= 20, "{changes} changes in ten seconds");
}

#[test]
fn a_progress_carries_a_speed_and_grows_with_its_count() {
    let speeds = [Speed::UNKNOWN, Speed(1), SLOW, Speed(u8::MAX)];
    for (card, out) in speeds.iter().flat_map(|card| speeds.map(|out| (*card, out))) {
        // The last count is all that fits beside three speeds.
        for count in [0, 1, 300, u64::MAX >> 27] {
            let progress = speeds.map(|measured| Record::progress(count, Link { measured, card, out }));
            // Programs that know nothing of speeds compare the whole number.
            let next = speeds.map(|measured| Record::progress(count + 1, Link { measured, card, out }));
            let speed_is_known = if card.is_known() || out.is_known() { 0 } else { 1 };
            let grows = |now: &u64| next[speed_is_known..].iter().all(|next| now < next);
            assert!(
                count == u64::MAX >> 27 || progress[speed_is_known..].iter().all(grows),
                "{count} {card:?} {out:?}"
            );
            assert!(progress[0] < progress[1], "the first measurement is news");
        }
    }
}

/// Nodes of earlier versions read the lowest eight bits, if the highest one is set.
#[test]
fn a_card_is_unknown_to_earlier_versions() {
    let said = Record::progress(7, Link { card: SLOW, ..Link::default() });
    assert_eq!((said >> 63, said as u8), (1, Speed::UNKNOWN.0));
    let said = Record::progress(7, Link { measured: Speed(9), card: SLOW, ..Link::default() });
    assert_eq!((said >> 63, said as u8), (1, 9));
}

/// A smaller number is no news: the end of a bound has to be said.
#[test]
fn a_way_out_that_was_said_is_not_unsaid() {
    let (mut node, now) = node();
    let passes_on = |node: &Node| record(node).link().passes_on();
    node.handle(now, Input::Delivers(NodeId(2), SLOW));
    node.handle(now, Input::Delivers(NodeId(3), SLOW));
    let bound = |up| Input::Bounds(LinkBounds { up, down: None });
    node.handle(now, bound(Some(131_072)));
    assert_eq!((passes_on(&node), announced(&node)), (Speed::of(131_072), SLOW));
    let before = record(&node).progress;
    node.handle(now, bound(None));
    assert_eq!(passes_on(&node), SLOW);
    assert!(record(&node).progress > before);
    // Earlier versions take the rest for the count.
    assert_eq!((before >> 62, before as u8), (2, SLOW.0));
}

/// What a bounded node sends shows its bound, and not what it takes in.
#[test]
fn a_bound_is_not_taken_for_a_slow_link() {
    let (mut node, now) = node();
    node.handle(now, Input::Bounds(LinkBounds { up: SLOW.bytes_per_s(), down: None }));
    for partner in [2, 3, 2, 3] {
        node.handle(now, Input::Delivers(NodeId(partner), SLOW));
    }
    assert_eq!(announced(&node), Speed::UNKNOWN);
}

/// An operator's bound is announced at once, and so is its end.
#[test]
fn a_bounded_link_is_announced() {
    let (mut node, now) = node();
    node.handle(now, Input::Delivers(NodeId(2), SLOW));
    node.handle(now, Input::Delivers(NodeId(3), SLOW));
    assert_eq!(announced(&node), SLOW);
    let bound = |up, down| Input::Bounds(LinkBounds { up, down });
    node.handle(now, bound(None, Some(131_072)));
    assert_eq!(announced(&node), Speed::of(131_072));
    node.handle(now, bound(None, None));
    assert_eq!(announced(&node), SLOW);
}

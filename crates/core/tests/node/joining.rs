//! A newcomer: how often it exchanges snapshots, with which members, and what it is told.

use crate::signed::{alive, keys};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::config::Config;
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::node::{Input, Node, Output};
use vfield_core::snapshot::Snapshot;
use vfield_core::time::Time;

fn identity(number: u16, generation: u64) -> Identity {
    let [high, low] = number.to_be_bytes();
    let addr = SocketAddr::from(([198, 18, high, low], 4000));
    Identity { addr, node: NodeId(number.into()), generation, zone: Zone::default() }
}

fn at(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

/// A node without members.
fn node(number: u16, generation: u64) -> Node {
    let me = identity(number, generation);
    Node::new(me, keys(me.node), Config::default(), 42, at(0))
}

/// The node that 300 others join through at once: those with the numbers 2 to 301, in that order.
fn crowded() -> Node {
    let mut node = node(1, 1000);
    for number in 2..302 {
        node.handle(at(1), Input::Met(alive(identity(number, 1000 + u64::from(number)))));
    }
    node
}

/// Numbers of the members in a snapshot.
fn told(snapshot: &Snapshot) -> BTreeSet<u64> {
    snapshot.members.iter().map(|member| member.identity.node.0).collect()
}

/// The node makes each pause after a join, and at its end asks the eldest, which knows most.
#[test]
fn notes_are_compared_five_times_soon_after_joining() {
    let mut node = node(3, 3000);
    let members = vec![alive(identity(2, 2000)), alive(identity(1, 1000))];
    node.handle(at(1), Input::Learned { from: NodeId(2), snapshot: Snapshot { members, ..Snapshot::default() } });
    let mut syncs = Vec::new();
    for now in (10..10_000).step_by(10) {
        // They live.
        node.handle(at(now), Input::Met(alive(identity(1, 1000))));
        node.handle(at(now), Input::Met(alive(identity(2, 2000))));
        while let Some(output) = node.poll() {
            if let Output::Sync(to) = output {
                syncs.push((now, to.node.0));
            }
        }
    }
    let times: Vec<u64> = syncs.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [100, 300, 500, 800, 1300, 2300]);
    assert!(syncs[..5].iter().all(|(_, node)| *node == 1), "{syncs:?}");
}

/// Everybody joins through one member, whose answers come late: questions that are asked again make
/// them later.
#[test]
fn a_newcomer_asks_nobody_again_while_it_joins() {
    let mut node = node(3, 3000);
    node.handle(at(1), Input::Arrive(1000));
    let mut asks = |at: Time, input: Input| {
        node.handle(at, input);
        std::iter::from_fn(|| node.poll()).filter(|output| matches!(output, Output::Sync(_))).count()
    };
    for ms in (10..4900).step_by(10) {
        assert_eq!(asks(at(ms), Input::Met(alive(identity(1, 1000)))), 0, "after {ms} ms");
    }
    let late = (4900..5250).step_by(10).map(|ms| asks(at(ms), Input::Met(alive(identity(1, 1000)))));
    assert_eq!(late.sum::<usize>(), 1, "an answer that never comes");
}

#[test]
fn in_a_crowd_each_newcomer_is_told_of_some_members_and_the_last() {
    let node = crowded();
    let tells = |newcomer: u16| told(&node.snapshot(&identity(newcomer, 5000), &[]));
    let (first, second) = (tells(150), tells(20));
    assert_eq!((first.len(), second.len()), (129, 129), "itself, and 128 others");
    assert!((238..302).all(|number| first.contains(&number) && second.contains(&number)), "{first:?}");
    assert!((150..214).all(|number| first.contains(&number)), "{first:?}");
    assert!((20..84).all(|number| second.contains(&number)), "{second:?}");
}

/// A member that knows some of the room is told all the rest.
#[test]
fn in_a_crowd_members_that_know_many_are_told_of_all() {
    let (node, mut other) = (crowded(), node(400, 400));
    let newcomer = identity(400, 400);
    other.handle(at(1), Input::Learned { from: NodeId(1), snapshot: node.snapshot(&newcomer, &[]) });
    let known = other.question(&identity(1, 1000)).known;
    let rest = told(&node.snapshot(&newcomer, &known));
    assert_eq!(rest.len(), 1 + 300 - 128);
    other.handle(at(2), Input::Learned { from: NodeId(1), snapshot: node.snapshot(&newcomer, &known) });
    assert_eq!(other.members().len(), 302, "with itself");
}

#[test]
fn a_newcomer_without_a_crowd_is_told_of_all_members() {
    let mut node = crowded();
    node.handle(at(3100), Input::Wake);
    let live = node.members().len();
    assert_eq!(told(&node.snapshot(&identity(500, 5000), &[])).len(), live);
    assert_eq!(live, 301);
}

/// The eldest is beside each newcomer in the order of joins, and all would ask it.
#[test]
fn newcomers_of_a_crowd_compare_notes_with_others_than_the_eldest() {
    let crowd = crowded();
    for number in 400..440 {
        let mut node = node(number, 9000 + u64::from(number));
        let snapshot = crowd.snapshot(node.me(), &[]);
        node.handle(at(1), Input::Learned { from: NodeId(1), snapshot });
        node.handle(at(100), Input::Wake);
        let mut asked = std::iter::from_fn(|| node.poll()).filter_map(|output| match output {
            Output::Sync(to) => Some(to.node.0),
            _ => None,
        });
        assert!(asked.next().is_some_and(|to| to != 1), "node {number}");
    }
}

/// After two seconds it knows most of the others. What it still lacks it hears within a few more,
/// not at an exchange that comes once in minutes.
#[test]
fn newcomers_of_a_crowd_compare_notes_ever_more_seldom() {
    let crowd = crowded();
    let mut node = node(400, 9400);
    let snapshot = crowd.snapshot(node.me(), &[]);
    let members = snapshot.members.clone();
    node.handle(at(1), Input::Learned { from: NodeId(1), snapshot });
    let mut syncs = Vec::new();
    for now in (100..5000).step_by(100) {
        for member in &members {
            node.handle(at(now), Input::Met(*member));
        }
        let asked = std::iter::from_fn(|| node.poll()).filter(|output| matches!(output, Output::Sync(_)));
        syncs.extend(asked.map(|_| now));
    }
    assert_eq!(syncs, [100, 300, 500, 800, 1300, 2300, 4300]);
}

/// A member may answer at an address that is not the one that others have of it.
#[test]
fn a_member_that_answered_at_a_bootstrap_address_is_known_there_when_others_are_added() {
    let (door, other) = (SocketAddr::from(([198, 18, 9, 1], 4000)), SocketAddr::from(([198, 18, 9, 2], 4000)));
    let mut node = node(2, 2000);
    node.handle(at(1), Input::Bootstrap(vec![door]));
    node.handle(at(2), Input::Met(alive(identity(3, 3000))));
    assert!(node.is_needy());
    node.handle(at(3), Input::Answered { addr: door, member: alive(identity(1, 1000)) });
    assert!(!node.is_needy());
    node.handle(at(4), Input::Bootstrap(vec![door, other]));
    assert!(!node.is_needy());
    node.handle(at(5), Input::Bootstrap(vec![other]));
    assert!(node.is_needy());
}

//! Peers that die, stall, lie or disagree: every read is answered in time, and no innocent peer is
//! blamed.

use crate::{field_of, filled_field, ms, one_image, secs};
use std::time::Duration;
use vfield_core::identity::NodeId;
use vfield_core::node::{Input, Notice};
use vfield_core::placement::{Arc, Filled};
use vfield_core::record::{Record, Subject};
use vfield_core::signing::{Signature, Simulated};
use vfield_core::snapshot::Snapshot;
use vfield_sim::field::Field;
use vfield_sim::machine::Fault;
use vfield_sim::original::Original;

fn longest_wait(field: &Field, readers: &[usize]) -> Duration {
    readers.iter().map(|at| field.readers[*at].longest_wait).max().unwrap_or_default()
}

/// Nobody's connection breaks, it just falls silent: all others find out by probing.
#[test]
fn a_silent_death_is_found_within_two_seconds() {
    for seed in 0..8 {
        let (mut field, nodes) = filled_field(seed, 5, 300);
        let dead = nodes[2];
        let identity = field.machines[dead].identity;
        let start = field.now();
        field.kill(dead, false);
        field.run(ms(2500));
        for &node in nodes.iter().filter(|&&node| node != dead) {
            let found = field.machines[node].down_notice(identity).map(|at| at - start);
            assert!(found.is_some_and(|found| found <= secs(2)), "seed {seed}: node {node} found it after {found:?}");
        }
    }
}

#[test]
fn a_broken_connection_sends_reads_elsewhere_at_once() {
    let (mut field, nodes) = filled_field(1, 4, 603);
    let small = field.join(0, &[(0, 0)]);
    field.run(secs(1));
    let reader = field.read(small, 0, 0..600);
    field.run(ms(10));
    field.kill(nodes[0], true);
    field.until_read(&[reader], secs(5));
    assert!(longest_wait(&field, &[reader]) < ms(100), "waited {:?}", longest_wait(&field, &[reader]));
}

#[test]
fn a_death_during_reads_delays_nobody_for_a_second() {
    for at_once in [true, false] {
        let (mut field, nodes) = filled_field(2, 5, 350);
        let readers = field.read_all(&nodes[1..], 0);
        field.run(ms(20));
        field.kill(nodes[0], at_once);
        field.until_read(&readers, secs(20));
        assert!(longest_wait(&field, &readers) < secs(1), "waited {:?}", longest_wait(&field, &readers));
    }
}

/// Firewalls drop datagrams and let connections through, at some machines or at all. Nobody is
/// buried, a newcomer is known soon, and a death is found as fast. Without the firewalls datagrams
/// are used again.
#[test]
fn gossip_goes_over_connections_where_no_datagrams_come_through() {
    for (seed, behind) in [(1, 1..2), (2, 0..8), (3, 3..6), (4, 0..8)] {
        let (mut field, mut nodes) = filled_field(seed, 8, 200);
        let behind: Vec<usize> = behind.map(|at| if at == 0 { 0 } else { nodes[at - 1] }).collect();
        behind.iter().for_each(|machine| field.set_firewall(*machine, true));
        field.run(secs(20));
        let node = field.join(0, &[(0, 100)]);
        nodes.push(node);
        let everybody = |field: &Field, nodes: &[usize]| {
            nodes.iter().all(|node| field.machines[*node].node.members().len() == nodes.len() + 1)
        };
        field.until("all know the newcomer", secs(5), |field| everybody(field, &nodes));
        field.run(secs(20));
        let is_told = |machine: &&usize| field.machines[**machine].node.without_datagrams().next().is_some();
        assert_eq!(behind.iter().filter(is_told).count(), behind.len(), "seed {seed}");
        for &node in nodes.iter().chain([&0]) {
            let went = field.machines[node].notices.iter().find(|(_, notice)| matches!(notice, Notice::Down(_)));
            assert!(went.is_none(), "seed {seed}: node {node}: {went:?}");
        }
        let dead = nodes.remove(2);
        let (identity, start) = (field.machines[dead].identity, field.now());
        field.kill(dead, false);
        field.run(ms(3000));
        for &node in &nodes {
            let found = field.machines[node].down_notice(identity).map(|at| at - start);
            assert!(found.is_some_and(|found| found <= ms(2500)), "seed {seed}: {node} found it after {found:?}");
        }
        behind.iter().for_each(|machine| field.set_firewall(*machine, false));
        let nowhere =
            |field: &Field| nodes.iter().all(|at| field.machines[*at].node.without_datagrams().next().is_none());
        field.until("datagrams are used again", secs(30), nowhere);
    }
}

/// Stores that could hold the image twice lose a node, and the origin: others take over its part.
#[test]
fn repair_restores_coverage() {
    for (seed, count, capacity) in [(3, 4, 310), (4, 5, 200), (5, 4, 240), (6, 8, 120), (7, 3, 402)] {
        let (mut field, mut nodes) = filled_field(seed, count, capacity);
        let dead = nodes.remove(1);
        field.kill(dead, true);
        field.until("repaired", secs(20), |field| field.bare(0) == 0 && field.covered(&nodes) && field.filled(&nodes));
    }
}

/// Without an origin lost chunks are lost; but no node moves away from chunks that only it has.
#[test]
fn repair_without_an_origin_loses_nothing() {
    for seed in 100..112 {
        let (count, capacity) = [(4, 310), (5, 200), (8, 120), (10, 80)][seed as usize % 4];
        let (mut field, nodes) = filled_field(seed, count, capacity);
        field.kill(0, true);
        field.kill(nodes[seed as usize % count], seed % 3 == 0);
        let bare = field.bare(0);
        field.run(secs(15));
        assert_eq!(field.bare(0), bare, "seed {seed}: chunks were dropped by the last that had them");
    }
}

/// It keeps its connections and its gossip, and sends nothing.
#[test]
fn a_stalled_peer_delays_no_read_for_a_second() {
    for seed in 0..4 {
        let (mut field, nodes) = filled_field(10 + seed, 4, 603);
        let small: Vec<usize> = (0..3).map(|_| field.join(0, &[(0, 0)])).collect();
        field.run(secs(1));
        let readers = field.read_all(&small, 0);
        field.run(ms(5));
        field.set_fault(nodes[1], Fault::Stalled);
        field.until_read(&readers, secs(20));
        assert!(longest_wait(&field, &readers) < secs(1), "waited {:?}", longest_wait(&field, &readers));
    }
}

/// A home that is to relay stalls while everything is cold: its askers find another way.
#[test]
fn a_stalled_relay_delays_no_read_for_a_second() {
    let (mut field, nodes) = field_of(20, 5, 150);
    field.run(ms(200));
    field.set_fault(nodes[3], Fault::Stalled);
    let others: Vec<usize> = nodes.iter().copied().filter(|&node| node != nodes[3]).collect();
    let readers = field.read_all(&others, 0);
    field.until_read(&readers, secs(20));
    assert!(longest_wait(&field, &readers) < secs(1), "waited {:?}", longest_wait(&field, &readers));
}

/// Fills have no readers that would hedge: they too go on without the stalled peer, a second time
/// as well.
#[test]
fn a_peer_that_stalls_again_does_not_hold_up_a_fill() {
    let mut field = Field::new(21, vec![Original::dense(1, 400), Original::dense(2, 400)]);
    let origin = field.origin(None, &[0, 1]);
    let nodes = [field.join(origin, &[(0, 402), (1, 402)]), field.join(origin, &[(0, 402), (1, 402)])];
    field.until("filled", secs(10), |field| field.filled(&nodes));
    field.kill(origin, true);
    field.run(secs(3));
    field.set_fault(nodes[0], Fault::Stalled);
    let late = field.join(nodes[1], &[(0, 402)]);
    field.until("filled", secs(10), |field| field.filled(&[late]));
    field.break_link(nodes[0], late);
    field.run(secs(6));
    field.add_image(late, 1, false, 402);
    field.until("filled again", secs(10), |field| field.filled(&[late]));
}

#[test]
fn a_liar_is_blamed_at_once_and_reads_are_served_elsewhere() {
    let (mut field, nodes) = filled_field(22, 3, 603);
    let liar = nodes[1];
    field.set_fault(liar, Fault::Lying);
    let small: Vec<usize> = (0..3).map(|_| field.join(0, &[(0, 0)])).collect();
    let readers = field.read_all(&small, 0);
    field.until_read(&readers, secs(10));
    for host in &field.machines {
        for (_, notice) in &host.notices {
            if let vfield_core::node::Notice::Blamed(node, _) = notice {
                assert_eq!(*node, field.machines[liar].identity.node, "an innocent one is blamed");
            }
        }
    }
    assert!(small.iter().all(|&node| field.machines[node].blamed() >= 1));
    assert!(longest_wait(&field, &readers) < secs(1));
    let wrong = field.machines[liar].sent_of(0);
    field.run(secs(5));
    let again = field.read(small[0], 0, 0..600);
    field.until_read(&[again], secs(10));
    assert_eq!(field.machines[liar].sent_of(0), wrong, "it was asked again");
}

fn full_holder(field: &Field, node: NodeId) -> Record {
    let image = &field.images[0];
    let size = image.chunks();
    let record = Record {
        node,
        version: u64::MAX,
        progress: 0,
        subject: Subject {
            image: image.id,
            names: image.name.as_str().into(),
            header: image.geometry.header().encode(),
        }
        .into(),
        origin: false,
        arc: Arc { start: 0, length: size },
        filled: Filled { from: 0, count: size },
        leaving: false,
        signature: Signature::default(),
    };
    record.signed(&Simulated(node))
}

/// Each believes that another has everything, in a circle, and all read at once: no reader waits
/// for ever, and the origin is asked.
#[test]
fn nodes_that_believe_in_each_other_do_not_wait_for_each_other() {
    for count in [2, 3, 4] {
        for seed in 0..4 {
            let mut field = one_image(30 + seed);
            let nodes: Vec<usize> = (0..count).map(|_| field.join(0, &[(0, 0)])).collect();
            field.run(secs(1));
            let ids: Vec<NodeId> = nodes.iter().map(|&node| field.machines[node].identity.node).collect();
            for (at, &node) in nodes.iter().enumerate() {
                let records = vec![full_holder(&field, ids[(at + 1) % count])];
                let snapshot = Snapshot { records, ..Snapshot::default() };
                field.input(node, Input::Learned { from: ids[(at + 1) % count], snapshot });
            }
            let readers = field.read_all(&nodes, 0);
            field.until_read(&readers, secs(10));
            assert!(longest_wait(&field, &readers) < ms(100), "{count} waited {:?}", longest_wait(&field, &readers));
        }
    }
}

/// The same without any holder: refusals, and waits that are listed; then an origin comes.
#[test]
fn false_hopes_end_when_an_origin_comes() {
    let mut field = one_image(40);
    let nodes = [field.join(0, &[(0, 0)]), field.join(0, &[(0, 0)])];
    field.run(secs(1));
    field.kill(0, true);
    field.run(secs(2));
    let ids = nodes.map(|node| field.machines[node].identity.node);
    for (at, &node) in nodes.iter().enumerate() {
        let records = vec![full_holder(&field, ids[1 - at])];
        let snapshot = Snapshot { records, ..Snapshot::default() };
        field.input(node, Input::Learned { from: ids[1 - at], snapshot });
    }
    let readers = field.read_all(&nodes, 0);
    field.run(secs(3));
    for &node in &nodes {
        assert!(!field.machines[node].node.images()[0].waiting.is_empty());
        assert!(
            field.machines[node].traffic.requests < 2 * 4 * 10 * 4,
            "{} requests in vain",
            field.machines[node].traffic.requests
        );
        let states: Vec<_> = field.machines[node].node.members().iter().map(|member| member.state).collect();
        assert!(!states.contains(&"stalled"), "an innocent one counts as stalled");
    }
    field.origin(Some(nodes[0]), &[0]);
    field.until_read(&readers, secs(5));
}

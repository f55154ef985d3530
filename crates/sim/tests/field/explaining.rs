//! Explanations of waits: the injected fault is known here, so a node's account can be judged.

use crate::{field_of, ms, one_image, secs};
use vfield_core::chunk::Chunk;
use vfield_core::fetch::Stage;
use vfield_core::identity::NodeId;
use vfield_core::pursuit::{End, Pursuit, Said};
use vfield_core::slow_reads::Cause;
use vfield_sim::field::Field;
use vfield_sim::machine::{Fault, number_of};

/// Faults that are judged; of each hundred explanations, at most five may be wrong.
const SEEDS: u64 = 40;
const RIGHT_PERCENT: usize = 95;

fn id_of(field: &Field, machine: usize) -> NodeId {
    field.machines[machine].node.me().node
}

/// The nodes that a reader's wait is due to, by the account of its node: those asked, parked for,
/// asked in vain, or in trouble.
fn named(field: &Field, machine: usize) -> Vec<NodeId> {
    let node = &field.machines[machine].node;
    let awaited = node.awaited(1);
    let steps = awaited.first().map(|(image, chunk)| node.explain(*image, *chunk)).unwrap_or_default();
    let mut named = Vec::new();
    for step in steps {
        let troubled = step.holders.iter().filter(|holder| !matches!(holder.state, "alive" | "self"));
        named.extend(troubled.map(|holder| holder.node));
        let Some(fetch) = step.fetch else { continue };
        named.extend(if let Stage::Parked(peer) = fetch.stage { Some(peer) } else { None });
        named.extend(fetch.requests.iter().map(|(peer, ..)| *peer));
        named.extend(fetch.tried);
    }
    named
}

#[test]
fn a_stalled_origin_is_named_while_a_reader_waits() {
    let mut wrong = Vec::new();
    for seed in 0..SEEDS {
        let mut field = one_image(seed);
        let node = field.join(0, &[(0, 0)]);
        field.run(ms(100));
        field.set_fault(0, Fault::Stalled);
        let first = seed * 13 % 590;
        let reader = field.read(node, 0, first..first + 1);
        field.run(ms(150 + seed * 20));
        assert!(!field.readers[reader].is_done());
        if !named(&field, node).contains(&id_of(&field, 0)) {
            wrong.push(seed);
        }
    }
    assert!(wrong.len() * 100 <= (100 - RIGHT_PERCENT) * SEEDS as usize, "seeds {wrong:?}");
}

/// Follows a machine's oldest wait through the accounts of the others; a stalled one gives none.
fn pursued(field: &Field, machine: usize) -> Option<Pursuit> {
    let node = &field.machines[machine].node;
    let (image, chunk) = *node.awaited(1).first()?;
    let mut pursuit = Pursuit::new(node.me().node, &node.account(image, chunk)?);
    while let Some((next, chunk)) = pursuit.next() {
        let asked = &field.machines[number_of(next)];
        let account = (asked.fault != Fault::Stalled).then(|| asked.node.account(image, chunk));
        pursuit.said(account.map_or(Said::Nothing, |account| account.map_or(Said::Refused, Said::Account)));
    }
    Some(pursuit)
}

#[test]
fn a_stalled_origin_is_named_through_the_nodes_between() {
    let (mut right, mut all) = (0, 0);
    for seed in 0..SEEDS {
        let (mut field, nodes) = field_of(seed, 3, 0);
        field.run(secs(1));
        let first = seed * 2;
        for node in &nodes {
            field.read(*node, 0, first..first + 500);
        }
        field.run(ms(30));
        field.set_fault(0, Fault::Stalled);
        field.run(ms(60 + seed * 5));
        let origin = id_of(&field, 0);
        let pursuits = nodes.iter().filter_map(|node| pursued(&field, *node));
        for pursuit in pursuits.filter(|pursuit| pursuit.hops().len() > 1) {
            right += usize::from(pursuit.end() == Some(End::Silent(origin)));
            all += 1;
        }
    }
    assert!(all >= SEEDS as usize / 2, "{all} waits through others");
    assert!(right * 100 >= RIGHT_PERCENT * all, "{right} of {all}");
}

#[test]
fn a_slow_origin_is_the_cause_of_slow_reads() {
    let (mut right, mut all) = (0, 0);
    for seed in 0..SEEDS / 4 {
        let mut field = one_image(seed);
        let node = field.join(0, &[(0, 0)]);
        field.run(ms(100));
        field.slow(0, 200);
        for turn in 0..8 {
            let first = (seed * 37 + turn * 71) % 590;
            let reader = field.read(node, 0, first..first + 1);
            field.until_read(&[reader], secs(60));
        }
        let origin = id_of(&field, 0);
        for read in field.machines[node].node.slow_reads() {
            // A page that the slow origin sends late is named as a page.
            let cause = read.cause();
            right += usize::from(matches!(cause, Cause::Peer(node) | Cause::PeersWindow(node) if node == origin));
            right += usize::from(cause == Cause::Page);
            all += 1;
        }
    }
    assert!(all >= 40, "{all} reads");
    assert!(right * 100 >= RIGHT_PERCENT * all, "{right} of {all}");
}

/// A node without a wait explains nothing, and a chunk beyond the image is none.
#[test]
fn without_a_fault_there_is_nothing_to_explain() {
    let mut field = one_image(3);
    let node = field.join(0, &[(0, 0)]);
    let reader = field.read(node, 0, 0..4);
    field.until_read(&[reader], secs(5));
    let core = &field.machines[node].node;
    let id = core.images()[0].id;
    assert!(core.awaited(9).is_empty() && core.explain(id, Chunk(1 << 40)).is_empty());
    assert!(core.explain(id, Chunk(0))[0].is_here);
}

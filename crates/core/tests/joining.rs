//! A newcomer: how often it exchanges snapshots, and with which members.

mod signed;

use signed::{alive, keys};
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::config::Config;
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::node::{Input, Node, Output};
use vfield_core::snapshot::Snapshot;
use vfield_core::time::Time;

fn identity(number: u8, generation: u64) -> Identity {
    let addr = SocketAddr::from(([198, 18, 0, number], 4000));
    Identity { addr, node: NodeId(number.into()), generation, zone: Zone::default() }
}

/// The node makes each pause after a join, and at its end asks the eldest, which knows most.
#[test]
fn notes_are_compared_five_times_soon_after_joining() {
    let at = |ms: u64| Time::ZERO + Duration::from_millis(ms);
    let mut node = Node::new(identity(3, 3000), keys(NodeId(3)), Config::default(), 42, at(0));
    let members = vec![alive(identity(2, 2000)), alive(identity(1, 1000))];
    node.handle(at(1), Input::Learned { from: NodeId(2), snapshot: Snapshot { members, ..Snapshot::default() } });
    let mut syncs = Vec::new();
    for now in (10..2500).step_by(10) {
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

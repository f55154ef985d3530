//! Claims about images: a later claim does not displace an earlier one.

use crate::signed::{alive, keys, signed};
use std::net::SocketAddr;
use vfield_core::chunk::ChunkSize;
use vfield_core::config::Config;
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::image::{Header, ImageId};
use vfield_core::node::{Input, Node};
use vfield_core::placement::{Arc, Filled};
use vfield_core::record::{Record, Subject};
use vfield_core::signing::Signature;
use vfield_core::snapshot::Snapshot;
use vfield_core::time::Time;

fn identity(node: u64, zone: &str) -> Identity {
    let addr = SocketAddr::from(([198, 18, 0, node as u8], 4440));
    Identity { addr, node: NodeId(node), generation: node, zone: Zone::named(zone).expect("a zone") }
}

/// An origin's record of image `image` with this name and so many chunks.
fn record(node: u64, image: u8, name: &str, chunks: u64) -> Record {
    let header = Header::new(chunks * ChunkSize::MIN.bytes(), ChunkSize::MIN, chunks).expect("a header").encode();
    let subject = Subject { image: ImageId([image; 32]), names: name.into(), header }.into();
    let (arc, filled) = (Arc { start: 0, length: 0 }, Filled::default());
    let (node, signature) = (NodeId(node), Signature::default());
    signed(Record { node, version: 1, progress: 0, subject, origin: true, arc, filled, leaving: false, signature })
}

/// Id, name, length and number of tellers of each claim.
fn claims(node: &Node) -> Vec<(u8, String, u64, usize)> {
    let chunks = |header: &[u8]| Header::decode(header).expect("a header").length_bytes() / ChunkSize::MIN.bytes();
    let claim = |claim: &vfield_core::node::Claim| {
        let subject = &claim.subject;
        (subject.image.0[0], subject.names.to_string(), chunks(&subject.header), claim.tellers.len())
    };
    node.claims().iter().map(claim).collect()
}

fn hears(node: &mut Node, snapshot: Snapshot) {
    node.handle(Time::ZERO, Input::Learned { from: snapshot.members[0].identity.node, snapshot });
    while node.poll().is_some() {}
}

#[test]
fn all_that_is_said_of_an_image_is_known() {
    let mut node = Node::new(identity(1, ""), keys(NodeId(1)), Config::default(), 7, Time::ZERO);
    let members = [2, 3, 4].map(|node| alive(identity(node, ""))).into();
    let records = vec![record(2, 9, "root", 5), record(3, 9, "root", 5), record(4, 9, "root", 7)];
    hears(&mut node, Snapshot { members, records, ..Snapshot::default() });
    let members = vec![alive(identity(9, ""))];
    hears(&mut node, Snapshot { members, records: vec![record(9, 8, "root", 5)], ..Snapshot::default() });
    let root = || "root".to_owned();
    assert_eq!(claims(&node), [(8, root(), 5, 1), (9, root(), 5, 2), (9, root(), 7, 1)]);
    // A newcomer of another zone gets all of them.
    let told = node.snapshot(&identity(20, "elsewhere"), &[]).outside;
    assert_eq!(told.len(), 3);
}

#[test]
fn claims_of_other_zones_are_bounded_for_each_image() {
    let mut node = Node::new(identity(1, "here"), keys(NodeId(1)), Config::default(), 7, Time::ZERO);
    let said =
        |outside: Vec<Record>| Snapshot { members: vec![alive(identity(2, "there"))], outside, ..Snapshot::default() };
    hears(&mut node, said((1..100).map(|chunks| record(2, 9, "root", chunks)).collect()));
    hears(&mut node, said(vec![record(3, 8, "root", 5)]));
    let claims = claims(&node);
    assert_eq!(claims.iter().filter(|claim| claim.0 == 9).count(), 8, "{claims:?}");
    assert!(claims.contains(&(8, "root".to_owned(), 5, 0)), "there is room for another image: {claims:?}");
}

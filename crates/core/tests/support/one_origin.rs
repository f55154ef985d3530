//! A field with one origin, and a node without a store that joins it.
#![allow(dead_code, reason = "each test file uses some of it")]

use crate::signed::{alive, keys, signed};
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::chunk::ChunkSize;
use vfield_core::config::Config;
use vfield_core::identity::{Identity, NodeId, Zone};
use vfield_core::image::{Header, ImageId};
use vfield_core::node::{ImageConfig, Input, Node};
use vfield_core::placement::{Arc, Filled};
use vfield_core::record::{Record, Subject};
use vfield_core::signing::Signature;
use vfield_core::snapshot::Snapshot;
use vfield_core::time::Time;

pub const IMAGE: ImageId = ImageId([7; 32]);
pub const ORIGIN: NodeId = NodeId(1);
pub const ME: NodeId = NodeId(2);

/// A node at an address of its own.
pub fn identity(node: NodeId) -> Identity {
    let addr = SocketAddr::from(([198, 18, 0, node.0 as u8], 4000));
    Identity { addr, node, generation: 1, zone: Zone::default() }
}

/// What the origin says of itself in this version.
pub fn origin_says(header: Header, version: u64) -> Input {
    says(ORIGIN, header, version)
}

/// The record of an origin of an image with this header, not signed.
pub fn record(node: NodeId, header: Header, version: u64) -> Record {
    Record {
        node,
        version,
        progress: 0,
        subject: Subject { image: IMAGE, names: "image".into(), header: header.encode() }.into(),
        origin: true,
        arc: Arc::default(),
        filled: Filled::default(),
        leaving: false,
        signature: Signature::default(),
    }
}

/// What a member says of itself in this version: that it is an origin of an image with this header.
pub fn says(node: NodeId, header: Header, version: u64) -> Input {
    let record = signed(record(node, header, version));
    let members = vec![alive(identity(node))];
    Input::Learned { from: node, snapshot: Snapshot { members, records: vec![record], ..Snapshot::default() } }
}

/// An image with two pages below the top one.
pub fn three_pages() -> Header {
    Header::new(3000 * ChunkSize::DEFAULT.bytes(), ChunkSize::DEFAULT, 3000).expect("a header")
}

/// The node, and the time at which it has joined.
pub fn joined(header: Header) -> (Node, Time) {
    let now = Time::after_start(Duration::from_secs(1));
    let mut node = Node::new(identity(ME), keys(ME), Config::default(), 2, now);
    node.handle(now, origin_says(header, 1));
    let (id, names) = (IMAGE, "image".into());
    node.add_image(now, ImageConfig { id, names, header, origin: false, capacity_bytes: 0, kept: None });
    (node, now)
}

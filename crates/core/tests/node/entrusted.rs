//! Chunks that an origin entrusts to a home. The home comes for those that it is to store, and says
//! which ones it has. It believes only an origin.

use crate::one_origin::{IMAGE, ORIGIN, identity, origin_says};
use crate::signed::{alive, keys, signed};
use std::time::Duration;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::config::Config;
use vfield_core::fetch::{RequestId, Token};
use vfield_core::identity::NodeId;
use vfield_core::image::Header;
use vfield_core::node::entrusted::{ENTRUSTED_BYTES, Keeper};
use vfield_core::node::{ImageConfig, Input, Node, Output};
use vfield_core::placement::{Arc, Filled};
use vfield_core::record::{Record, Subject};
use vfield_core::signing::Signature;
use vfield_core::snapshot::Snapshot;
use vfield_core::speed::Transit;
use vfield_core::time::Time;
use vfield_core::wire::Refusal;

const CHUNK: u64 = 64 << 10;
const CHUNKS: u64 = 1000;
const ME: NodeId = NodeId(2);

/// A node that is to store a share of the image, in thousandths, and reads without a pause.
fn home(share: u64) -> (Node, Time) {
    let now = Time::after_start(Duration::from_secs(1));
    let mut node = Node::new(identity(ME), keys(ME), Config::default(), 2, now);
    let header = Header::new(CHUNKS * CHUNK, ChunkSize::DEFAULT, CHUNKS).expect("a header");
    node.handle(now, origin_says(header, 1));
    let (id, names, capacity_bytes) = (IMAGE, "image".into(), share * CHUNK);
    node.add_image(now, ImageConfig { id, names, header, origin: false, capacity_bytes, kept: None });
    node.handle(now, Input::Read { token: Token(1), image: IMAGE, chunks: 0..CHUNKS });
    (node, now)
}

/// The chunks that are requested of the origin, by request; pages are answered at once.
fn requests(node: &mut Node, now: Time) -> Vec<(RequestId, Chunk, bool)> {
    let mut of_data = Vec::new();
    while let Some(output) = node.poll() {
        let Output::Request { request, chunk, peer, insists, .. } = output else { continue };
        assert_eq!(peer.node, ORIGIN);
        if chunk.0 < CHUNKS {
            of_data.push((request, chunk, insists));
        } else {
            node.handle(now, arrived(request));
        }
    }
    of_data
}

const fn arrived(request: RequestId) -> Input {
    let transit = Transit { took: Duration::from_millis(1), beside: 0 };
    Input::Arrived { request, waited: Duration::ZERO, transit, zeros: Vec::new() }
}

fn here(node: &mut Node, now: Time, from: NodeId, chunks: impl Iterator<Item = u64>) {
    node.handle(now, Input::Here { from, image: IMAGE, chunks: chunks.map(Chunk).collect() });
}

/// The last chunks of the image, which readers come to last.
const LAST: std::ops::Range<u64> = CHUNKS - 200..CHUNKS;

#[test]
fn a_home_comes_for_its_chunks_at_once_and_for_no_others() {
    let (mut node, now) = home(100);
    let before = requests(&mut node, now);
    assert!(!before.is_empty() && before.iter().all(|(_, chunk, insists)| chunk.0 < LAST.start && !insists));
    here(&mut node, now, ORIGIN, LAST);
    let asked = requests(&mut node, now);
    assert!(asked.iter().all(|(_, chunk, insists)| node.is_home(IMAGE, *chunk, ME) && *insists), "{asked:?}");
    // Its window is full of a reader's chunks, so there is a bound.
    assert!(!asked.is_empty() && asked.len() as u64 * CHUNK <= ENTRUSTED_BYTES, "{}", asked.len());
}

#[test]
fn a_home_says_what_it_stores() {
    let (mut node, now) = home(100);
    requests(&mut node, now);
    here(&mut node, now, ORIGIN, LAST);
    let asked = requests(&mut node, now);
    let (request, chunk, _) = asked[0];
    node.handle(now, arrived(request));
    while node.poll().is_some() {}
    here(&mut node, now, ORIGIN, LAST.chain([u64::MAX, CHUNKS]));
    let says = std::iter::from_fn(|| node.poll()).find_map(|output| match output {
        Output::Here(to, image, chunks) => Some((to, image, chunks)),
        _ => None,
    });
    assert_eq!(says, Some((ORIGIN, IMAGE, vec![chunk])));
}

#[test]
fn others_than_an_origin_are_not_believed() {
    let (mut node, now) = home(100);
    node.handle(now, Input::Met(alive(identity(NodeId(3)))));
    requests(&mut node, now);
    for stranger in [NodeId(3), NodeId(9), ME] {
        here(&mut node, now, stranger, LAST);
    }
    assert!(requests(&mut node, now).is_empty());
    let (mut node, now) = home(0);
    requests(&mut node, now);
    here(&mut node, now, ORIGIN, LAST);
    assert!(requests(&mut node, now).is_empty(), "it stores nothing");
}

#[test]
fn a_refused_chunk_is_asked_for_again_in_its_turn() {
    let (mut node, now) = home(100);
    requests(&mut node, now);
    here(&mut node, now, ORIGIN, LAST);
    let asked = requests(&mut node, now);
    node.handle(now, Input::Refused(asked[0].0, Refusal::Busy));
    here(&mut node, now, ORIGIN, asked[0].1.0..asked[0].1.0 + 1);
    let again = requests(&mut node, now);
    assert!(again.iter().all(|(_, chunk, _)| *chunk == asked[0].1) && again.len() <= 1, "{again:?}");
}

/// What a home says of itself that has come to chunk 100.
fn store_says(node: NodeId, start: u64) -> Input {
    let header = Header::new(CHUNKS * CHUNK, ChunkSize::DEFAULT, CHUNKS).expect("a header");
    let record = signed(Record {
        node,
        version: 1,
        progress: 100,
        subject: Subject { image: IMAGE, names: "image".into(), header: header.encode() }.into(),
        origin: false,
        arc: Arc { start, length: 600 },
        filled: Filled { from: 0, count: 100 },
        leaving: false,
        signature: Signature::default(),
    });
    let members = vec![alive(identity(node))];
    Input::Learned { from: node, snapshot: Snapshot { members, records: vec![record], ..Snapshot::default() } }
}

#[test]
fn an_origin_knows_who_is_to_keep_a_chunk() {
    let (mut node, now) = home(0);
    assert_eq!(node.keeper(IMAGE, Chunk(500), 0), Keeper::Nobody);
    let homes = [NodeId(3), NodeId(4)];
    node.handle(now, store_says(homes[0], 0));
    node.handle(now, store_says(homes[1], 300));
    for chunk in (0..CHUNKS).map(Chunk) {
        let of_chunk: Vec<NodeId> = homes.into_iter().filter(|home| node.is_home(IMAGE, chunk, *home)).collect();
        let keepers: Vec<Keeper> = (0..2).map(|attempt| node.keeper(IMAGE, chunk, attempt)).collect();
        match of_chunk[..] {
            [] => assert_eq!(keepers, [Keeper::Nobody; 2]),
            _ if chunk.0 < 100 => assert_eq!(keepers, [Keeper::Has; 2]),
            [home] => assert_eq!(keepers, [Keeper::ToBe(identity(home)); 2]),
            // Each in its turn.
            _ => assert!(homes.iter().all(|home| keepers.contains(&Keeper::ToBe(identity(*home))))),
        }
    }
}

//! The object that the page draws: `/field.json`.
//!
//! It is the page's own, and changes with it; scripts read `/status.json`. Shares have four digits,
//! since a thousand stores are sent at once.

use super::view::View;
use serde::Serialize;
use std::collections::BTreeMap;
use vfield_block::gather::Gather as _;
use vfield_control::events::EventStatus;
use vfield_control::message::FollowingStatus;
use vfield_control::slow_links::{SlowLink, slow_links};
use vfield_core::fetch::Stage;
use vfield_core::node::picture::{OwingView, Picture, RingView, WaitView};
use vfield_core::placement::coverage::Cell;
use vfield_node::status::{GoneStatus, ImageStatus, NodeStatus, PeerTraffic, RubbishStatus, TagStatus, Traffic};

/// Slow links with a line of their own; the others are marked.
const SLOW_SHOWN: usize = 3;

/// The field, as one node sees it.
#[derive(Debug, Serialize)]
pub struct Field<'a> {
    /// Milliseconds since 1970.
    at_ms: u64,
    version: &'a str,
    uptime_s: f64,
    draining: bool,
    closed: bool,
    zones: u64,
    traffic: &'a Traffic,
    nodes: Vec<Node<'a>>,
    gone: &'a [GoneStatus],
    images: Vec<Image<'a>>,
    tags: &'a [TagStatus],
    following: &'a [FollowingStatus],
    waits: Vec<Wait>,
    /// Chunks that readers wait for, those that `waits` leaves out too.
    awaited: u64,
    warnings: &'a [String],
    /// Links that are slower than those of others, a line each.
    slow: Vec<String>,
    events: &'a [EventStatus],
    memory_bytes: u64,
}

/// A node; the first is the one that answers.
#[derive(Debug, Serialize)]
struct Node<'a> {
    id: &'a str,
    addr: &'a str,
    zone: &'a str,
    state: &'a str,
    gateway: bool,
    origin_of: &'a [String],
    capacity_bytes: u64,
    held_bytes: u64,
    link_bytes_per_s: Option<u64>,
    /// Its link is slower than those of others.
    slow: bool,
    received_bytes: u64,
    sent_bytes: u64,
    /// Its open answers: their number, those for a reader, and the age of the oldest in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    owes: Option<(u64, u64, f64)>,
}

/// An image and its ring.
#[derive(Debug, Serialize)]
struct Image<'a> {
    name: &'a str,
    id: &'a str,
    size_bytes: u64,
    coverage: f64,
    verified: f64,
    copies_min: u64,
    origins: u64,
    origin_may_leave: bool,
    at_risk: Option<(&'a str, f64)>,
    changed: bool,
    /// Nobody needs it here: what becomes of it.
    rubbish: Option<&'a RubbishStatus>,
    capacity_bytes: u64,
    held_bytes: u64,
    filled: bool,
    /// For each part of the ring: held share, and fewest copies.
    claimed: Vec<(f64, u64)>,
    seen: Vec<(f64, u64)>,
    /// Place in `nodes`, start and length of the arc, filled and verified share of it.
    stores: Vec<(usize, f64, f64, f64, f64)>,
}

/// A chunk that a local reader waits for.
#[derive(Debug, Serialize)]
struct Wait {
    image: String,
    chunk: u64,
    /// Place in `nodes` of the peer that is waited for.
    peer: Option<usize>,
    for_s: f64,
    why: String,
    askers: u64,
}

impl<'a> Field<'a> {
    /// The field of a view.
    pub fn of(view: &'a View) -> Self {
        let status = &view.status.node;
        let places: BTreeMap<&str, usize> =
            status.nodes.iter().enumerate().map(|(at, node)| (node.id.as_str(), at)).gathered();
        let traffic: BTreeMap<&str, &PeerTraffic> = status.peers.iter().map(|peer| (peer.id.as_str(), peer)).gathered();
        let owing: BTreeMap<String, &OwingView> =
            view.picture.owing.iter().map(|owing| (owing.peer.to_string(), owing)).gathered();
        let slow = slow_links(status.nodes.iter().filter_map(|node| Some((&*node.addr, node.link_bytes_per_s?))));
        let node = |node: &'a NodeStatus| Node {
            slow: slow.iter().any(|link| link.addr == node.addr),
            ..Node::of(node, traffic.get(node.id.as_str()), owing.get(&node.id))
        };
        let rings: BTreeMap<String, &RingView> =
            view.picture.rings.iter().map(|ring| (ring.image.to_string(), ring)).gathered();
        Self {
            at_ms: view.at_ms,
            version: &status.version,
            uptime_s: status.uptime_s,
            draining: status.draining,
            closed: status.field.closed,
            zones: status.zone.zones,
            traffic: &status.traffic,
            nodes: status.nodes.iter().map(node).collect(),
            gone: &status.gone,
            images: status.images.iter().map(|image| Image::of(image, rings.get(&image.id), &places)).collect(),
            tags: &status.tags,
            following: &view.status.following,
            waits: waits(&view.picture, &places),
            awaited: view.picture.awaited,
            warnings: &status.warnings,
            slow: slow.iter().take(SLOW_SHOWN).map(SlowLink::to_string).collect(),
            events: &view.events,
            memory_bytes: view.status.memory.process_bytes,
        }
    }
}

impl<'a> Node<'a> {
    fn of(node: &'a NodeStatus, traffic: Option<&&PeerTraffic>, owing: Option<&&OwingView>) -> Self {
        Self {
            id: &node.id,
            addr: &node.addr,
            zone: &node.zone,
            state: &node.state,
            gateway: node.gateway,
            origin_of: &node.origin_of,
            capacity_bytes: node.capacity_bytes,
            held_bytes: node.held_bytes,
            link_bytes_per_s: node.link_bytes_per_s,
            slow: false,
            received_bytes: traffic.map_or(0, |peer| peer.received_bytes),
            sent_bytes: traffic.map_or(0, |peer| peer.sent_bytes),
            owes: owing.map(|owing| (owing.requests, owing.demands, short(owing.oldest.as_secs_f64()))),
        }
    }
}

impl<'a> Image<'a> {
    fn of(image: &'a ImageStatus, ring: Option<&&RingView>, places: &BTreeMap<&str, usize>) -> Self {
        let band = |cells: &[Cell]| cells.iter().map(|cell| (short(cell.share), cell.copies_min)).collect();
        let stores = ring.into_iter().flat_map(|ring| &ring.stores).filter_map(|store| {
            let node = *places.get(store.node.to_string().as_str())?;
            Some((node, short(store.start), short(store.length), short(store.filled), short(store.verified)))
        });
        Self {
            name: &image.name,
            id: &image.id,
            size_bytes: image.size_bytes,
            coverage: image.coverage,
            verified: image.verified,
            copies_min: image.multiplicity_min,
            origins: image.origins,
            origin_may_leave: image.origin_may_leave,
            at_risk: image.at_risk.as_ref().map(|risk| (risk.addr.as_str(), risk.share)),
            changed: image.source.as_ref().is_some_and(|source| source.state == "changed"),
            rubbish: image.rubbish.as_ref(),
            capacity_bytes: image.capacity_bytes,
            held_bytes: image.held_bytes,
            filled: image.filled,
            claimed: ring.map_or_else(Vec::new, |ring| band(&ring.claimed)),
            seen: ring.map_or_else(Vec::new, |ring| band(&ring.verified)),
            stores: stores.collect(),
        }
    }
}

fn waits(picture: &Picture, places: &BTreeMap<&str, usize>) -> Vec<Wait> {
    let wait = |wait: &WaitView| Wait {
        image: wait.image.to_string(),
        chunk: wait.chunk.0,
        peer: wait.peer.and_then(|peer| places.get(peer.to_string().as_str()).copied()),
        for_s: short(wait.wait.as_secs_f64()),
        why: wait.why.map_or_else(|| stage(wait.stage).to_owned(), |why| why.to_string()),
        askers: wait.askers,
    };
    picture.waits.iter().map(wait).collect()
}

/// The stage of a fetch for people.
const fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::NeedsParent => "the page with its hash comes first",
        Stage::Queued => "queued here: as many bytes are under way as the window allows",
        Stage::Parked(_) => "queued here: the peer owes as much as its window allows",
        Stage::Requested => "asked, and under way",
        Stage::Paused => "the last answer could not be used; a retry is due",
        Stage::Waiting => "no node can be asked",
    }
}

/// Four digits behind the point.
fn short(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}

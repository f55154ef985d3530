//! A daemon that is none: a room of nodes as one of them sees it, for the tests of the dashboard.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use vfield_control::events::EventStatus;
use vfield_control::message::{DaemonStatus, FollowingStatus, OverlayStatus};
use vfield_control::server::Pending;
use vfield_core::chunk::Chunk;
use vfield_core::fetch::{Stage, Why};
use vfield_core::identity::NodeId;
use vfield_core::image::ImageId;
use vfield_core::node::picture::{OwingView, Picture, RingView, StoreView, WaitView};
use vfield_core::placement::coverage::Cell;
use vfield_dashboard::site::Site;
use vfield_dashboard::view::{RING_CELLS, Source, View};
use vfield_node::delays::Delays;
use vfield_node::status::{
    GoneStatus, ImageStatus, NodeStatus, PeerTraffic, RiskStatus, Status, TagStatus, Traffic, VersionStatus,
};

/// A name as a hostile member would choose it, without what names cannot have.
pub const HOSTILE: &str = "<img src=x onerror=\"document.title='owned'\">\\\" 1\u{2028}}";

/// A room of so many nodes, in zones of forty.
#[derive(Debug)]
pub struct Room {
    /// Number of nodes, the one that answers included.
    pub nodes: u64,
    /// How often it was looked at: its clock.
    pub looks: AtomicU64,
    /// What it does instead of having a view.
    pub starting: Option<&'static str>,
}

impl Room {
    /// A room in the middle of a storm.
    pub fn of(nodes: u64) -> Arc<Self> {
        Arc::new(Self { nodes, looks: AtomicU64::new(0), starting: None })
    }

    /// Listens until the handle aborts it.
    pub async fn serve(self: &Arc<Self>) -> (SocketAddr, AbortHandle) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let addr = listener.local_addr().expect("an address");
        let site = Site::new(Arc::clone(self) as Arc<dyn Source>, ["node-1.lab".to_owned()]);
        (addr, tokio::spawn(site.serve(listener)).abort_handle())
    }

    /// The view at a moment of its clock.
    pub fn view(&self, tick: u64) -> View {
        let nodes: Vec<NodeStatus> = (0..self.nodes).map(|number| self.node(number, tick)).collect();
        let peer = |node: &NodeStatus| PeerTraffic {
            id: node.id.clone(),
            addr: node.addr.clone(),
            received_bytes: tick << 20,
            sent_bytes: tick << 19,
            ..PeerTraffic::default()
        };
        let status = Status {
            node: nodes[0].id.clone(),
            addr: nodes[0].addr.clone(),
            version: "0.1.0".to_owned(),
            uptime_s: tick as f64,
            images: vec![image(1, HOSTILE), image(2, "viver.squash"), image(3, "viver.squash")],
            peers: nodes[1..].iter().map(peer).collect(),
            nodes,
            gone: vec![GoneStatus {
                id: NodeId(u64::MAX).to_string(),
                addr: "192.168.99.1:4440".to_owned(),
                how: "died".to_owned(),
                ago_s: 3.0,
            }],
            traffic: Traffic {
                from_store_bytes: 1 << 20,
                from_peers_bytes: (tick * self.nodes) << 20,
                from_origin_bytes: tick << 20,
                to_peers_bytes: (tick * self.nodes) << 19,
                ..Traffic::default()
            },
            warnings: vec![format!("peer {HOSTILE} lied")],
            tags: vec![tag()],
            ..Status::default()
        };
        let overlay = OverlayStatus { image: HOSTILE.to_owned(), max_bytes: 1 << 30, ..OverlayStatus::default() };
        let following = FollowingStatus {
            tag: "prod".to_owned(),
            serial: 4,
            image: HOSTILE.to_owned(),
            id: ImageId([1; 32]).to_string(),
            state: "waiting".to_owned(),
            why: format!("{HOSTILE} is nowhere"),
        };
        View {
            status: DaemonStatus {
                node: status,
                overlays: vec![overlay],
                following: vec![following],
                ..DaemonStatus::default()
            },
            picture: self.picture(),
            delays: Delays { counts: [5, 4, 3, 2, 1, 0, 0, 0, 0, 0, 7], sum_us: 1_500_000 },
            events: vec![EventStatus {
                number: 1,
                at_ms: 1_700_000_000_000,
                pid: 7,
                event: "joined".to_owned(),
                text: format!("joined {HOSTILE}"),
            }],
            processor_s: 1.5,
            at_ms: 1_700_000_000_000 + tick * 1000,
        }
    }

    fn node(&self, number: u64, tick: u64) -> NodeStatus {
        let state = match number {
            0 => "self",
            3 => "stalled",
            5 => "blamed",
            _ => "alive",
        };
        NodeStatus {
            id: NodeId(number + 1).to_string(),
            addr: format!("192.168.{}.{}:4440", 1 + number / 250, 1 + number % 250),
            state: state.to_owned(),
            zone: format!("rack-{}", number / 40),
            gateway: number % 40 == 7,
            capacity_bytes: if number == 1 { 0 } else { 40 << 20 },
            held_bytes: if number == 1 { 0 } else { (tick << 20).min(40 << 20) },
            origin_of: (number == 1).then(|| HOSTILE.to_owned()).into_iter().collect(),
            link_bytes_per_s: Some(if number == 6 { 12_000_000 } else { 117_000_000 }),
            ..NodeStatus::default()
        }
    }

    fn picture(&self) -> Picture {
        let cell = |at: u64| Cell { share: if at < 10 { 0.4 } else { 1.0 }, copies_min: at / 30 };
        let store = |number: u64| StoreView {
            node: NodeId(number + 1),
            start: (number * 7 % 40) as f64 / 40.0,
            length: 0.3,
            filled: 0.8,
            verified: 0.5,
        };
        let ring = |number: u8| RingView {
            image: ImageId([number; 32]),
            claimed: (0..RING_CELLS).map(cell).collect(),
            verified: (0..RING_CELLS).map(|at| cell(at / 2)).collect(),
            stores: (0..self.nodes).filter(|number| *number != 1).map(store).collect(),
        };
        let wait = |chunk, stage, why, peer: Option<u64>| WaitView {
            image: ImageId([2; 32]),
            chunk: Chunk(chunk),
            stage,
            why,
            peer: peer.map(NodeId),
            wait: Duration::from_millis(340),
            askers: 2,
        };
        Picture {
            rings: [1, 2, 3].map(ring).to_vec(),
            owing: vec![OwingView {
                peer: NodeId(4),
                requests: 12,
                demands: 3,
                bytes: 12 << 16,
                oldest: Duration::from_millis(700),
            }],
            waits: vec![wait(7, Stage::Requested, None, Some(4)), wait(9, Stage::Waiting, Some(Why::NoHolder), None)],
            awaited: 2,
        }
    }
}

/// A tag that has moved from the first image to the second.
fn tag() -> TagStatus {
    let version = |serial, number: u8, filled| VersionStatus {
        serial,
        image: ImageId([number; 32]).to_string(),
        nodes: 9,
        filled,
    };
    TagStatus {
        name: "prod".to_owned(),
        serial: 5,
        image: Some(ImageId([2; 32]).to_string()),
        keep: 2,
        rollout: 40,
        signer: "RW".to_owned(),
        versions: vec![version(5, 2, 4), version(4, 1, 9)],
    }
}

fn image(number: u8, name: &str) -> ImageStatus {
    ImageStatus {
        name: name.to_owned(),
        id: ImageId([number; 32]).to_string(),
        size_bytes: 128 << 20,
        coverage: 0.95,
        verified: 0.6,
        origins: 1,
        at_risk: Some(RiskStatus { addr: "192.168.1.4:4440".to_owned(), share: 0.25 }),
        ..ImageStatus::default()
    }
}

impl Source for Room {
    fn look(&self, _asks: bool) -> Pending<'_, Result<View, String>> {
        let tick = self.looks.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            match self.starting {
                Some(doing) => Err(doing.to_owned()),
                None => Ok(self.view(tick)),
            }
        })
    }
}

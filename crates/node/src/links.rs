//! Links: the pool of connections from this node to its peers.
//!
//! Each peer has two lanes, one for demand requests and one for all others, so that a small read
//! never waits behind a large fill. A peer on a fast link has more of the second kind
//! ([`peer_lanes`]). Many requests are in flight on each. A lane connects at its first use and
//! stays; when it ends, it is forgotten. Every request ends in exactly one input to the core. This
//! module knows connections and frames; the core chooses the peers.

mod inbound;
mod lane;
pub mod peer_lanes;
mod receiver;
mod silence;

use crate::config::Tuning;
use crate::driver::Driver;
use crate::field_keys::FieldKeys;
pub use lane::Lane;
use lane::Role;
use peer_lanes::PeerLanes;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::runtime::Handle;
use vfield_core::admission::Admission;
use vfield_core::chunk::Chunk;
use vfield_core::fetch::RequestId;
use vfield_core::identity::{Identity, NodeId};
use vfield_core::image::ImageId;
use vfield_core::node::Keep;
use vfield_core::reach::Reach;
use vfield_core::slice::Slice;
use vfield_core::wire::{self, Kind, Priority};

/// A request for a chunk.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    /// The core's number for it.
    pub request: RequestId,
    /// For which image.
    pub image: ImageId,
    /// For what of it.
    pub chunk: Chunk,
    /// The priority it is sent with.
    pub priority: Priority,
    /// The reach it is sent with.
    pub reach: Reach,
    /// True if the origin's advice to ask another did not help.
    pub insists: bool,
    /// True if the peer is an origin of the image.
    pub origin: bool,
    /// What becomes of the chunk.
    pub keep: Keep,
    /// The wanted part of the chunk; `None` for all of it.
    pub slice: Option<Slice>,
}

/// All lanes of this node.
pub struct Links {
    pool: bool,
    /// Bytes a second for which a peer gets one more lane.
    lane_bytes_per_s: u64,
    lanes_max: usize,
    peers: Mutex<HashMap<NodeId, PeerLanes>>,
}

/// True for a request that goes on the lane for demands. Chunks along the chain are one long stream
/// in the order of the image. On two lanes they would come in two orders, and both halves would
/// compete for the link.
fn is_demand(ask: &Ask) -> bool {
    ask.priority == Priority::Demand && !ask.reach.is_chain()
}

impl Links {
    /// No connections yet, for the runtime that calls.
    pub fn new(tuning: &Tuning) -> Self {
        let threads = Handle::try_current().map_or(1, |runtime| runtime.metrics().num_workers());
        let (pool, lane_bytes_per_s) = (tuning.pool, tuning.lane_bytes_per_s);
        Self { pool, lane_bytes_per_s, lanes_max: peer_lanes::most(threads), peers: Mutex::default() }
    }

    /// Queues a request, and returns its lane, which is to be flushed.
    pub fn request(&self, driver: &Arc<Driver>, peer: Identity, ask: Ask) -> Option<Arc<Lane>> {
        let lane = match self.pool {
            true if is_demand(&ask) => self.demand(driver, peer),
            true => self.bulk(driver, peer, &ask),
            // It makes its own connection.
            false => Lane::open(driver, peer, Role::Once),
        };
        match lane.request(ask) {
            None => Some(lane),
            Some(input) => {
                driver.hint(input);
                None
            }
        }
    }

    /// Exchanges snapshots with a peer; the answer goes to the core.
    pub fn sync(&self, driver: &Arc<Driver>, peer: Identity) {
        let frame = wire::snapshot_frame(Kind::Sync, 0, driver.look(|core| core.question(&peer)));
        let lane = self.demand(driver, peer);
        lane.send(&frame);
        if let Some(question) = driver.admissions.question() {
            lane.send(&question);
        }
    }

    /// Sends a peer a frame that is answered later, or not at all.
    pub fn ask(&self, driver: &Arc<Driver>, peer: Identity, frame: &[u8]) {
        self.demand(driver, peer).send(frame);
    }

    /// Sends a peer a message of gossip. If the peer cannot be reached, gossip itself finds out.
    pub fn gossip(&self, driver: &Arc<Driver>, peer: Identity, message: &[u8]) {
        let lane = {
            let mut peers = self.peers();
            let lanes = peers.entry(peer.node).or_default();
            lanes.gossip(|lane| lane.leads_to(&peer), || Lane::open(driver, peer, Role::Further))
        };
        lane.send(&wire::gossip_frame(message));
    }

    /// Sends a peer a frame that is not answered, if there is a connection.
    pub fn tell(&self, peer: NodeId, frame: &[u8]) {
        let lane = self.peers().get(&peer).and_then(|lanes| lanes.all().next().cloned());
        if let Some(lane) = lane {
            lane.send(frame);
        }
    }

    /// Tells a peer that an answer is no longer wanted, if it was asked over a pooled lane.
    pub fn cancel(&self, peer: NodeId, request: RequestId) {
        let lanes: Vec<_> = self.peers().get(&peer).into_iter().flat_map(PeerLanes::all).cloned().collect();
        lanes.iter().for_each(|lane| lane.cancel(request));
    }

    /// A lane has ended: nothing of it stays.
    fn ended(&self, peer: NodeId, lane: &Arc<Lane>) {
        let mut peers = self.peers();
        if let Some(lanes) = peers.get_mut(&peer) {
            lanes.ended(lane, Instant::now());
            if lanes.is_empty() {
                peers.remove(&peer);
            }
        }
    }

    /// Closes the connections to a node that is gone.
    pub fn forget(&self, peer: NodeId) {
        let lanes = self.peers().remove(&peer);
        lanes.iter().flat_map(PeerLanes::all).for_each(|lane| lane.close());
    }

    /// Closes the connections to where a node was before: what it owes is asked for anew, where it
    /// is.
    pub fn has_moved(&self, peer: Identity) {
        self.retain(|node, lane| node != peer.node || lane.leads_to(&peer));
    }

    /// Closes the connections to peers that no longer belong to the field.
    pub fn close_strangers(&self, keys: &FieldKeys) {
        self.retain(|_, lane| lane.belongs(keys));
    }

    /// Closes the connections to nodes that are not admitted any more.
    pub fn close_excluded(&self, admission: &Admission) {
        self.retain(|node, _| admission.may_admit(node));
    }

    /// Closes all connections.
    pub fn close(&self) {
        self.retain(|_, _| false);
    }

    fn retain(&self, stays: impl Fn(NodeId, &Lane) -> bool) {
        self.peers().retain(|node, lanes| {
            lanes.retain(|lane| stays(*node, lane));
            !lanes.is_empty()
        });
    }

    fn demand(&self, driver: &Arc<Driver>, peer: Identity) -> Arc<Lane> {
        let mut peers = self.peers();
        let lanes = peers.entry(peer.node).or_default();
        lanes.demand(|lane| lane.leads_to(&peer), || Lane::open(driver, peer, Role::Pooled))
    }

    fn bulk(&self, driver: &Arc<Driver>, peer: Identity, ask: &Ask) -> Arc<Lane> {
        let mut peers = self.peers();
        let lanes = peers.entry(peer.node).or_default();
        lanes.look(self.lane_bytes_per_s, self.lanes_max, Instant::now());
        let bytes = || driver.image(ask.image).map_or(0, |image| image.geometry().chunk_bytes());
        lanes.bulk(ask, bytes, |lane| lane.leads_to(&peer), |role| Lane::open(driver, peer, role))
    }

    fn peers(&self) -> MutexGuard<'_, HashMap<NodeId, PeerLanes>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use std::time::Duration;
    use tokio::net::TcpListener;
    use vfield_core::identity::Zone;

    fn identity(node: u64, addr: SocketAddr) -> Identity {
        Identity { addr, node: NodeId(node), generation: 1, zone: Zone::default() }
    }

    /// One address does not answer, another closes the connection: neither lane is kept.
    #[tokio::test]
    async fn lanes_that_have_ended_are_forgotten() {
        let (driver, _) = Driver::alone(None).await;
        let (closed, rude) =
            (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let addrs = [closed.local_addr().unwrap(), rude.local_addr().unwrap()];
        drop(closed);
        tokio::spawn(async move { while rude.accept().await.is_ok() {} });
        for node in 0..200 {
            driver.links.sync(&driver, identity(100 + node, addrs[node as usize % 2]));
        }
        assert!(!driver.links.peers().is_empty());
        let gone = async {
            while !driver.links.peers().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), gone).await.expect("all of them end");
    }
}

//! Links: the pool of connections from this node to its peers.
//!
//! Each peer has two lanes, one for demand requests and one for all others, so that a small read
//! never waits behind a large fill. Many requests are in flight on each. A lane connects at its
//! first use and stays; when it ends, it is forgotten. Every request ends in exactly one input to
//! the core. This module knows connections and frames; the core chooses the peers.

mod inbound;
mod lane;
mod receiver;
mod silence;

use crate::driver::Driver;
use crate::field_keys::FieldKeys;
pub use lane::Lane;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

/// The lanes of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Purpose {
    Demand,
    Bulk,
}

impl Purpose {
    /// Chunks along the chain are one long stream in the order of the image. On two lanes they
    /// would come in two orders, and both halves would compete for the link.
    fn of(ask: &Ask) -> Self {
        if ask.priority == Priority::Demand && !ask.reach.is_chain() { Self::Demand } else { Self::Bulk }
    }
}

/// All lanes of this node.
pub struct Links {
    pool: bool,
    lanes: Mutex<HashMap<(NodeId, Purpose), Arc<Lane>>>,
}

impl Links {
    /// No connections yet; without `pool` each request makes its own.
    pub fn new(pool: bool) -> Self {
        Self { pool, lanes: Mutex::default() }
    }

    /// Queues a request, and returns its lane, which is to be flushed.
    pub fn request(&self, driver: &Arc<Driver>, peer: Identity, ask: Ask) -> Option<Arc<Lane>> {
        let lane = if self.pool { self.lane(driver, peer, Purpose::of(&ask)) } else { Lane::open(driver, peer, true) };
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
        let lane = self.lane(driver, peer, Purpose::Demand);
        lane.send(&frame);
        if let Some(question) = driver.admissions.question() {
            lane.send(&question);
        }
    }

    /// Sends a peer a frame that is answered later, or not at all.
    pub fn ask(&self, driver: &Arc<Driver>, peer: Identity, frame: &[u8]) {
        self.lane(driver, peer, Purpose::Demand).send(frame);
    }

    /// Sends a peer a frame that is not answered, if there is a connection.
    pub fn tell(&self, peer: NodeId, frame: &[u8]) {
        let lanes = [Purpose::Bulk, Purpose::Demand].map(|purpose| self.lanes().get(&(peer, purpose)).cloned());
        if let Some(lane) = lanes.into_iter().flatten().next() {
            lane.send(frame);
        }
    }

    /// Tells a peer that an answer is no longer wanted, if it was asked over a pooled lane.
    pub fn cancel(&self, peer: NodeId, request: RequestId) {
        for purpose in [Purpose::Demand, Purpose::Bulk] {
            let lane = self.lanes().get(&(peer, purpose)).cloned();
            if let Some(lane) = lane {
                lane.cancel(request);
            }
        }
    }

    /// A lane has ended: nothing of it stays.
    fn ended(&self, peer: NodeId, lane: &Arc<Lane>) {
        for purpose in [Purpose::Demand, Purpose::Bulk] {
            let mut lanes = self.lanes();
            // Another may have taken its place.
            if lanes.get(&(peer, purpose)).is_some_and(|known| Arc::ptr_eq(known, lane)) {
                lanes.remove(&(peer, purpose));
            }
        }
    }

    /// Closes the connections to a node that is gone.
    pub fn forget(&self, peer: NodeId) {
        for purpose in [Purpose::Demand, Purpose::Bulk] {
            if let Some(lane) = self.lanes().remove(&(peer, purpose)) {
                lane.close();
            }
        }
    }

    /// Closes the connections to peers that no longer belong to the field.
    pub fn close_strangers(&self, keys: &FieldKeys) {
        self.lanes().retain(|_, lane| {
            let stays = lane.belongs(keys);
            if !stays {
                lane.close();
            }
            stays
        });
    }

    /// Closes the connections to nodes that are not admitted any more.
    pub fn close_excluded(&self, admission: &Admission) {
        self.lanes().retain(|(node, _), lane| {
            let stays = admission.may_admit(*node);
            if !stays {
                lane.close();
            }
            stays
        });
    }

    /// Closes all connections.
    pub fn close(&self) {
        for (_, lane) in self.lanes().drain() {
            lane.close();
        }
    }

    fn lane(&self, driver: &Arc<Driver>, peer: Identity, purpose: Purpose) -> Arc<Lane> {
        let mut lanes = self.lanes();
        let lane = lanes.get(&(peer.node, purpose)).filter(|lane| lane.is_open() && lane.addr() == peer.addr);
        if let Some(lane) = lane {
            return Arc::clone(lane);
        }
        let lane = Lane::open(driver, peer, false);
        lanes.insert((peer.node, purpose), Arc::clone(&lane));
        lane
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<(NodeId, Purpose), Arc<Lane>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
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
        assert!(!driver.links.lanes().is_empty());
        let gone = async {
            while !driver.links.lanes().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), gone).await.expect("all of them end");
    }
}

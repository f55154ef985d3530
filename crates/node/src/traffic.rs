//! Counters of transferred bytes, in all and by peer. Relaxed atomics, for display and for the
//! measurement of speeds.

use crate::delays::DelayCounters;
use crate::status::{PeerTraffic, Traffic};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use vfield_core::identity::{Identity, NodeId, Zone};

/// Bytes transferred from and to one peer.
#[derive(Debug)]
pub struct PeerCounters {
    addr: SocketAddr,
    zone: Zone,
    origin: AtomicBool,
    received: AtomicU64,
    sent: AtomicU64,
}

impl PeerCounters {
    /// A chunk came.
    pub fn received(&self, bytes: u64, origin: bool) {
        self.origin.store(origin, Ordering::Relaxed);
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of chunks that came.
    pub fn came(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Bytes of a chunk went out.
    pub fn sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Most peers counted separately; of departed ones those with the least traffic are added up.
const PEERS_MAX: usize = 1024;

/// What compression gains in one direction.
#[derive(Debug, Default)]
pub struct CompressedCounters {
    carried: AtomicU64,
    plain: AtomicU64,
}

impl CompressedCounters {
    /// A chunk of `plain` bytes crossed a link as `carried` bytes.
    pub fn crossed(&self, carried: u64, plain: u64) {
        self.carried.fetch_add(carried, Ordering::Relaxed);
        self.plain.fetch_add(plain, Ordering::Relaxed);
    }
}

/// All counters of a node.
#[derive(Debug, Default)]
pub struct Counters {
    /// For how long reads waited.
    pub delays: DelayCounters,
    /// The compressed chunks among those that came.
    pub unpacked: CompressedCounters,
    /// The compressed chunks among those that were sent.
    pub packed: CompressedCounters,
    from_store: AtomicU64,
    received: AtomicU64,
    asked: AtomicU64,
    owing: AtomicU64,
    table: Mutex<Table>,
}

/// Whether a connection owes its peer an answer.
#[derive(Debug)]
pub struct Owing<'a> {
    all: &'a AtomicU64,
    owes: bool,
}

impl Owing<'_> {
    /// It does from now on, or does not.
    pub fn set(&mut self, owes: bool) {
        match (self.owes, owes) {
            (false, true) => _ = self.all.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = self.all.fetch_sub(1, Ordering::Relaxed),
            (false, false) | (true, true) => {}
        }
        self.owes = owes;
    }
}

impl Drop for Owing<'_> {
    fn drop(&mut self) {
        self.set(false);
    }
}

#[derive(Debug, Default)]
struct Table {
    peers: BTreeMap<NodeId, Arc<PeerCounters>>,
    /// Bytes transferred from and to peers that are no longer counted separately.
    others: Traffic,
}

impl Table {
    /// Adds up the peers without a connection that have the least traffic, half of all if there are
    /// as many.
    fn forget(&mut self) {
        let moved = |peer: &PeerCounters| peer.received.load(Ordering::Relaxed) + peer.sent.load(Ordering::Relaxed);
        let gone = self.peers.iter().filter(|(_, peer)| Arc::strong_count(peer) == 1);
        let mut gone: Vec<(u64, NodeId)> = gone.map(|(node, peer)| (moved(peer), *node)).collect();
        gone.sort_unstable();
        for (_, node) in gone.into_iter().take(PEERS_MAX / 2) {
            let Some(peer) = self.peers.remove(&node) else { continue };
            let from_origin = peer.origin.load(Ordering::Relaxed);
            let others = &mut self.others;
            let from = if from_origin { &mut others.from_origin_bytes } else { &mut others.from_peers_bytes };
            *from += peer.received.load(Ordering::Relaxed);
            others.to_peers_bytes += peer.sent.load(Ordering::Relaxed);
        }
    }
}

impl Counters {
    /// A chunk came, from any peer.
    pub fn received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of chunks that came, from all peers.
    pub fn came(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// A peer asks for a chunk, or a part of one.
    pub fn is_asked(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// How often peers have asked.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Of one more connection, whether it owes an answer.
    pub fn owing(&self) -> Owing<'_> {
        Owing { all: &self.owing, owes: false }
    }

    /// True while a connection owes its peer an answer.
    pub fn owes(&self) -> bool {
        self.owing.load(Ordering::Relaxed) > 0
    }

    /// Counts bytes that a local reader got without any request to a peer.
    pub fn from_store(&self, bytes: u64) {
        self.from_store.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The counters of a peer, kept for a while after it has gone.
    pub fn peer(&self, peer: &Identity) -> Arc<PeerCounters> {
        let new = || PeerCounters {
            addr: peer.addr,
            zone: peer.zone,
            origin: AtomicBool::new(false),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
        };
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if table.peers.len() >= PEERS_MAX && !table.peers.contains_key(&peer.node) {
            table.forget();
        }
        Arc::clone(table.peers.entry(peer.node).or_insert_with(|| Arc::new(new())))
    }

    /// The sums, and each peer's part, most received first.
    pub fn report(&self) -> (Traffic, Vec<PeerTraffic>) {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rows: Vec<PeerTraffic> = table
            .peers
            .iter()
            .map(|(node, peer)| PeerTraffic {
                id: node.to_string(),
                addr: peer.addr.to_string(),
                zone: peer.zone.to_string(),
                origin: peer.origin.load(Ordering::Relaxed),
                received_bytes: peer.received.load(Ordering::Relaxed),
                sent_bytes: peer.sent.load(Ordering::Relaxed),
            })
            .collect();
        rows.sort_unstable_by(|a, b| (b.received_bytes, &a.id).cmp(&(a.received_bytes, &b.id)));
        let received =
            |origin: bool| rows.iter().filter(|row| row.origin == origin).map(|row| row.received_bytes).sum::<u64>();
        let others = table.others;
        let traffic = Traffic {
            from_store_bytes: self.from_store.load(Ordering::Relaxed),
            from_peers_bytes: received(false) + others.from_peers_bytes,
            from_origin_bytes: received(true) + others.from_origin_bytes,
            to_peers_bytes: rows.iter().map(|row| row.sent_bytes).sum::<u64>() + others.to_peers_bytes,
            from_compressed_bytes: self.unpacked.carried.load(Ordering::Relaxed),
            from_compressed_plain_bytes: self.unpacked.plain.load(Ordering::Relaxed),
            to_compressed_bytes: self.packed.carried.load(Ordering::Relaxed),
            to_compressed_plain_bytes: self.packed.plain.load(Ordering::Relaxed),
        };
        (traffic, rows)
    }
}

//! The field's keys as this node has them now: none in an open field. They are replaced as a whole
//! at run time.
//!
//! It decides whether a node belongs to the field, and counts those that do not. Links and gossip
//! ask it.

use crate::log_limit::LogLimit;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;
use vfield_trust::{KeyId, KeyRing};

/// The keys in use, with the counts of rejected messages.
#[derive(Debug)]
pub struct FieldKeys {
    ring: watch::Sender<Option<KeyRing>>,
    /// Connections rejected, and datagrams dropped.
    turned_away: AtomicU64,
    dropped: AtomicU64,
    log_limit: LogLimit,
}

impl FieldKeys {
    /// The keys of a field; none for an open one.
    pub fn new(ring: Option<KeyRing>) -> Self {
        let (turned_away, dropped) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { ring: watch::Sender::new(ring), turned_away, dropped, log_limit: LogLimit::default() }
    }

    /// The keys in force.
    pub fn ring(&self) -> Option<KeyRing> {
        self.ring.borrow().clone()
    }

    /// Replaces the keys.
    pub fn replace(&self, ring: KeyRing) {
        self.ring.send_replace(Some(ring));
    }

    /// A receiver that changes with the keys.
    pub fn changes(&self) -> watch::Receiver<Option<KeyRing>> {
        self.ring.subscribe()
    }

    /// True if a connection that was made with this key, or with none, still belongs.
    pub fn admits(&self, key: Option<KeyId>) -> bool {
        match (&*self.ring.borrow(), key) {
            (None, None) => true,
            (Some(ring), Some(key)) => ring.find(key).is_some(),
            _ => false,
        }
    }

    /// Counts a rejected connection; true if it is to be logged.
    pub fn turned_away(&self, addr: SocketAddr) -> bool {
        self.turned_away.fetch_add(1, Ordering::Relaxed);
        self.log_limit.allows(addr.ip())
    }

    /// Counts a datagram that was not sealed with any key of the field, or came a second time.
    pub fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Connections that were rejected.
    pub fn turned_away_count(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }

    /// Number of dropped datagrams.
    pub fn dropped_count(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

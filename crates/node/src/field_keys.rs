//! The field's keys as this node has them now: none in an open field; replaced as a whole while it runs.
//!
//! Owns the answer to "does it belong?", and the count of those who did not. Links and gossip ask it.

use crate::told::Told;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;
use vfield_trust::{KeyId, KeyRing};

/// See the module.
#[derive(Debug)]
pub struct FieldKeys {
    ring: watch::Sender<Option<KeyRing>>,
    /// Connections turned away, and datagrams dropped.
    turned_away: AtomicU64,
    dropped: AtomicU64,
    told: Told,
}

impl FieldKeys {
    /// These; none for an open field.
    pub fn new(ring: Option<KeyRing>) -> Self {
        let (turned_away, dropped) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { ring: watch::Sender::new(ring), turned_away, dropped, told: Told::default() }
    }

    /// The keys in force.
    pub fn ring(&self) -> Option<KeyRing> {
        self.ring.borrow().clone()
    }

    /// Other keys from now on.
    pub fn replace(&self, ring: KeyRing) {
        self.ring.send_replace(Some(ring));
    }

    /// Changes with the keys.
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

    /// Counts a connection of somebody who was turned away; true if people should hear of it.
    pub fn turned_away(&self, addr: SocketAddr) -> bool {
        self.turned_away.fetch_add(1, Ordering::Relaxed);
        self.told.tell(addr.ip())
    }

    /// Counts a datagram that was not sealed with any key of the field, or came a second time.
    pub fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Connections that were turned away.
    pub fn turned_away_count(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }

    /// Datagrams that were dropped.
    pub fn dropped_count(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

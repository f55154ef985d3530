//! The field's keys as this node has them now: none in an open field; replaced as a whole while it runs.
//!
//! Owns the answer to "does it belong?", and the count of those who did not. Links and gossip ask it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use vfield_trust::{KeyId, KeyRing};

/// A stranger is told of once in so long: one that tries for ever must not fill a log.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// So many strangers are told apart; more within [`TELL_EVERY`] are only counted.
const STRANGERS_MAX: usize = 64;

/// See the module.
#[derive(Debug)]
pub struct FieldKeys {
    ring: watch::Sender<Option<KeyRing>>,
    /// Connections turned away, and datagrams dropped.
    turned_away: AtomicU64,
    dropped: AtomicU64,
    /// Whom people were told of, and when.
    told: Mutex<HashMap<IpAddr, Instant>>,
}

impl FieldKeys {
    /// These; none for an open field.
    pub fn new(ring: Option<KeyRing>) -> Self {
        let (turned_away, dropped) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { ring: watch::Sender::new(ring), turned_away, dropped, told: Mutex::default() }
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
        let (mut told, now) = (self.told.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        told.retain(|_, told| now.duration_since(*told) < TELL_EVERY);
        if told.len() >= STRANGERS_MAX || told.contains_key(&addr.ip()) {
            return false;
        }
        told.insert(addr.ip(), now);
        true
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

//! Whom people were told of lately: somebody who does the same for ever must not fill a log.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One address is told of once in so long.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// So many are told apart; of more within [`TELL_EVERY`] nobody is told.
const TOLD_MAX: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub struct Told(Mutex<HashMap<IpAddr, Instant>>);

impl Told {
    /// True if people should hear of this address now.
    pub fn tell(&self, ip: IpAddr) -> bool {
        let (mut told, now) = (self.0.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        told.retain(|_, told| now.duration_since(*told) < TELL_EVERY);
        if told.len() >= TOLD_MAX || told.contains_key(&ip) {
            return false;
        }
        told.insert(ip, now);
        true
    }
}

//! A limit on log lines: a repeated offence of one address must not fill a log.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time for which an address that was logged is not logged again.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// Most addresses logged within [`LOG_EVERY`]; further ones are not logged.
const ADDRS_MAX: usize = 64;

/// The addresses that were logged recently.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<HashMap<IpAddr, Instant>>);

impl LogLimit {
    /// True if a log line about this address may be written now.
    pub fn allows(&self, ip: IpAddr) -> bool {
        let (mut logged, now) = (self.0.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        logged.retain(|_, logged| now.duration_since(*logged) < LOG_EVERY);
        if logged.len() >= ADDRS_MAX || logged.contains_key(&ip) {
            return false;
        }
        logged.insert(ip, now);
        true
    }
}

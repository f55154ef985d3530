//! Log lines about clients that the access list refuses, which can come as often as they like.
//!
//! The server has one, for all of its clients: a line a minute, with the number of clients that had
//! none. It keeps no addresses.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Shortest time between two lines: enough to find a wrong rule, and a thousand lines a day at
/// worst.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// The refusals of one server.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<Logged>);

#[derive(Debug, Default)]
struct Logged {
    at: Option<Instant>,
    /// Refusals without a line after it.
    silent: u64,
}

impl Refusals {
    /// Logs the refusal of a client at `addr`, unless another was logged a moment ago.
    pub(super) fn log(&self, addr: IpAddr) {
        if let Some(silent) = self.note(Instant::now()) {
            let more = if silent > 0 { format!(" ({silent} more since the last such line)") } else { String::new() };
            tracing::warn!("refused the NBD client {}: no access rule allows it{more}", addr.to_canonical());
        }
    }

    /// The number of refusals without a line, if there is to be one now.
    fn note(&self, now: Instant) -> Option<u64> {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.at.is_some_and(|at| now.duration_since(at) < LOG_EVERY) {
            logged.silent += 1;
            return None;
        }
        logged.at = Some(now);
        Some(std::mem::take(&mut logged.silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_line_a_minute_and_none_is_uncounted() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        let at = |seconds| refusals.note(start + Duration::from_secs(seconds));
        assert_eq!([0, 1, 59, 60, 61, 121].map(at), [Some(0), None, None, Some(2), None, Some(1)]);
    }
}

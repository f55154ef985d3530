//! Links: how long a message is on its way. Each machine has an uplink and a downlink of its rate, first come first
//! served; small messages do not queue behind chunks.

use super::{DELAY_US, Event, Field, JITTER_US, Message, SMALL};
use std::time::Duration;

impl Field {
    pub(super) fn send(&mut self, from: usize, to: usize, message: Message, bytes: u64) {
        let jitter = self.dice() % JITTER_US;
        let takes = Duration::from_nanos(bytes * 1_000_000_000 / self.hosts[from].rate);
        let start = if bytes < SMALL { self.now } else { self.hosts[from].uplink_free.max(self.now) };
        if bytes >= SMALL {
            self.hosts[from].uplink_free = start + takes;
        }
        let first = start + Duration::from_micros(DELAY_US + jitter);
        self.after(first - self.now, Event::Cross { from, to, message, bytes, left: takes });
    }

    /// The first byte of a message has come to the other machine's link, the last will after `left`.
    pub(super) fn cross(&mut self, from: usize, to: usize, message: Message, bytes: u64, left: Duration) {
        let takes = Duration::from_nanos(bytes * 1_000_000_000 / self.hosts[to].rate);
        let start = if bytes < SMALL { self.now } else { self.hosts[to].downlink_free.max(self.now) };
        let end = (start + takes).max(self.now + left);
        if bytes >= SMALL {
            self.hosts[to].downlink_free = end;
        }
        let last = self.last_delivery.get(&(from, to)).copied().unwrap_or_default();
        let at = end.max(last);
        self.last_delivery.insert((from, to), at);
        self.after(at - self.now, Event::Deliver { from, to, message });
    }
}

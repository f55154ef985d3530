//! Faults that a test brings about: deaths, broken connections, machines that stall or lie.

use super::field::{DELAY_US, Event, Field, Message};
use super::host::Fault;
use std::time::Duration;
use vfield_core::fetch::ConnectionId;
use vfield_core::node::Input;

impl Field {
    /// The machine's power fails: others notice by its silence, or `at_once` by broken connections.
    pub fn kill(&mut self, host: usize, at_once: bool) {
        self.hosts[host].alive = false;
        self.hosts[host].flights.clear();
        if at_once {
            for other in 0..self.hosts.len() {
                self.break_link(other, host);
            }
        }
    }

    /// Both connections between two machines break.
    pub fn break_link(&mut self, a: usize, b: usize) {
        let reset = Duration::from_micros(DELAY_US);
        for (from, to) in [(a, b), (b, a)] {
            let was = self.hosts[from].linked.remove(&to);
            let gone = ConnectionId(to as u64);
            self.after(reset, Event::Notice(from, Input::AskerGone(gone)));
            if was {
                let node = self.hosts[to].identity.node;
                self.after(reset, Event::Notice(from, Input::Broken(node)));
            }
            self.lose_flights(from, to, reset);
        }
        // What was on the way is gone too, but for datagrams.
        self.queue.retain(|_, event| match event {
            Event::Deliver { from, to, message } => {
                !((*from, *to) == (a, b) || (*from, *to) == (b, a)) || matches!(message, Message::Datagram(_))
            }
            _ => true,
        });
        self.swallowed.retain(|(from, to, _)| !((*from, *to) == (a, b) || (*from, *to) == (b, a)));
    }

    /// Sets or heals a fault; a machine that comes out of a stall answers what it was asked meanwhile.
    pub fn set_fault(&mut self, host: usize, fault: Fault) {
        self.hosts[host].fault = fault;
        let (now_heard, still): (Vec<_>, Vec<_>) = std::mem::take(&mut self.swallowed)
            .into_iter()
            .partition(|(_, to, _)| *to == host && fault != Fault::Stalled);
        self.swallowed = still;
        for (from, to, message) in now_heard {
            self.receive(from, to, message);
        }
    }
}

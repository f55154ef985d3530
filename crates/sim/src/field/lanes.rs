//! Lanes: how machines connect, and the effects of broken connections.

use super::{BEAT, Event, Field};
use crate::machine::Fault;
use crate::network::Message;
use std::time::Duration;
use vfield_core::fetch::ConnectionId;
use vfield_core::identity::Identity;
use vfield_core::node::Input;

/// Timeout for connecting, as in the daemon.
pub(super) const CONNECT: Duration = Duration::from_millis(500);

/// The id of a lane in the shell of the asked machine.
pub(super) fn connection(owner: usize, epoch: u32) -> ConnectionId {
    ConnectionId(u64::from(epoch) << 32 | owner as u64)
}

/// The inverse of [`connection`].
pub(super) const fn owner_of(connection: ConnectionId) -> (usize, u32) {
    ((connection.0 & 0xFFFF_FFFF) as usize, (connection.0 >> 32) as u32)
}

impl Field {
    /// Connects if need be; `None` if the other is unreachable, which breaks the requests in flight
    /// to it.
    pub(super) fn reach(&mut self, machine: usize, peer: Identity) -> Option<usize> {
        let to = self.number(peer.node);
        let open = to.is_some_and(|to| self.machines[machine].lanes.get(&(to as u32)).is_some_and(|lane| lane.open));
        let Some(to) = to.filter(|to| open || self.lives_at(*to, peer.addr)) else {
            self.dial_nobody(machine, peer);
            return None;
        };
        let round_trip = self.links.delay * 2;
        if self.machines[to].alive {
            if !open && (self.is_walled_off(machine, to) || self.is_walled_off(to, machine)) {
                self.unreachable(machine, to, CONNECT);
                return None;
            }
            self.open(machine, to);
            return Some(to);
        }
        let there = self.places[self.machines[to].place as usize] as usize;
        if !open || there != to {
            // No process listens there, or another one does, which says its own identity.
            self.close(machine, to, round_trip);
            self.unreachable(machine, to, round_trip);
            if there != to && self.machines[there].alive && !self.is_walled_off(machine, there) {
                self.tell(round_trip, machine, Input::Met(*self.machines[there].node.myself()));
            }
        }
        None
    }

    fn unreachable(&mut self, machine: usize, to: usize, after: Duration) {
        let node = self.machines[to].identity.node;
        self.tell(after, machine, Input::Broken(node));
        self.lose_flights(machine, to, after);
    }

    /// Opens a lane, if it is not open.
    pub(super) fn open(&mut self, machine: usize, to: usize) {
        let lane = self.machines[machine].lanes.entry(to as u32).or_default();
        if lane.open {
            return;
        }
        lane.epoch += 1;
        (lane.open, lane.sent, lane.came) = (true, [0; 2], [0; 2]);
        self.machines[to].callers.insert(machine as u32);
        let (first, second) = (*self.machines[machine].node.myself(), *self.machines[to].node.myself());
        if self.machines[to].fault != Fault::Paused {
            self.tell(Duration::ZERO, machine, Input::Met(second));
        }
        self.tell(Duration::ZERO, to, Input::Met(first));
    }

    /// Closes the lane from `machine` to `to`: all on it is lost, and the other notices after a
    /// while. True if it was open.
    pub(super) fn close(&mut self, machine: usize, to: usize, after: Duration) -> bool {
        let Some(lane) = self.machines[machine].lanes.get_mut(&(to as u32)).filter(|lane| lane.open) else {
            return false;
        };
        lane.open = false;
        let gone = connection(machine, lane.epoch);
        let key = (machine as u32, to as u32);
        let early = self.early.range((key.0, key.1, 0, 0)..=(key.0, key.1, u8::MAX, u32::MAX)).map(|(at, _)| *at);
        for at in early.collect::<Vec<_>>() {
            if let Some(packet) = self.early.remove(&at) {
                self.packets.remove(packet);
            }
        }
        self.machines[to].callers.remove(&(machine as u32));
        if self.machines[to].alive {
            self.tell(after, to, Input::AskerGone(gone));
        }
        true
    }

    /// Both connections between two machines break.
    pub fn break_link(&mut self, a: usize, b: usize) {
        let reset = self.links.delay;
        for (from, to) in [(a, b), (b, a)] {
            if self.close(from, to, reset) {
                let node = self.machines[to].identity.node;
                self.tell(reset, from, Input::Broken(node));
            }
            self.lose_flights(from, to, reset);
        }
    }

    pub(super) fn lose_flights(&mut self, machine: usize, to: usize, after: Duration) {
        let flights = self.machines[machine].flights.iter().filter(|(_, flight)| flight.to as usize == to);
        for request in flights.map(|(request, _)| request).collect::<Vec<_>>() {
            self.after(after, Event::Lost(machine as u32, request));
        }
    }

    /// From now on `from` gives `to`, which asked it for something, signs of life until it has
    /// answered.
    pub(super) fn begin_to_beat(&mut self, from: usize, to: usize) {
        if let Some(lane) = self.machines[to].lanes.get_mut(&(from as u32))
            && !lane.beating
        {
            lane.beating = true;
            self.after(BEAT, Event::Beat { from: from as u32, to: to as u32 });
        }
    }

    pub(super) fn beat(&mut self, from: u32, to: u32) {
        let well = |machine: u32| self.machines[machine as usize].alive;
        let goes_on = well(from) && well(to);
        let stuck = matches!(self.machines[from as usize].fault, Fault::Stalled | Fault::Paused);
        let Some(lane) = self.machines[to as usize].lanes.get_mut(&from) else { return };
        if !(goes_on && lane.open && lane.owed > 0) {
            lane.beating = false;
            return;
        }
        if !stuck {
            self.send(from as usize, to as usize, Message::Patience);
        }
        self.after(BEAT, Event::Beat { from, to });
    }
}

//! Trouble: deaths, broken connections, walls, pauses, machines that stall or lie. Only the
//! mechanics of network and machines; [`crate::faults`] draws the victims.

use super::{Event, Field};
use crate::machine::Fault;
use crate::machine::lane::Way;
use crate::network::walls::Wall;
use std::time::Duration;

impl Field {
    /// The machine's power fails: others notice by its silence, or `at_once` by broken connections.
    pub fn kill(&mut self, machine: usize, at_once: bool) {
        self.note(machine, "dies", [u64::from(at_once), 0]);
        self.machines[machine].alive = false;
        self.machines[machine].flights.clear();
        self.frozen.remove(&(machine as u32));
        if at_once {
            let host = &self.machines[machine];
            let mut others: Vec<u32> = host.lanes.keys().chain(&host.callers).copied().collect();
            others.sort_unstable();
            others.dedup();
            for other in others {
                self.break_link(other as usize, machine);
            }
        }
    }

    /// Sets or heals a fault; a machine that comes out of a stall answers what it was asked
    /// meanwhile.
    pub fn set_fault(&mut self, machine: usize, fault: Fault) {
        self.machines[machine].had_fault |= fault != Fault::None;
        let was = std::mem::replace(&mut self.machines[machine].fault, fault);
        if was == Fault::Stalled && fault != Fault::Stalled {
            let swallowed = std::mem::take(&mut self.swallowed);
            let (heard, still): (Vec<_>, Vec<_>) =
                swallowed.into_iter().partition(|packet| packet.to as usize == machine);
            self.swallowed = still;
            for packet in heard {
                let (owner, other) = if packet.message.way() == Some(Way::Back) {
                    (packet.to, packet.from)
                } else {
                    (packet.from, packet.to)
                };
                let lane = self.machines[owner as usize].lanes.get(&other);
                if lane.is_some_and(|lane| lane.open && lane.epoch == packet.epoch) {
                    self.receive(packet);
                }
            }
        }
        if was == Fault::Paused && fault != Fault::Paused {
            for event in self.frozen.remove(&(machine as u32)).unwrap_or_default() {
                self.after(Duration::ZERO, event);
            }
            self.schedule_wake(machine);
        }
    }

    /// Nothing goes any more from some machines to others.
    pub fn build(&mut self, wall: Wall) {
        self.walls.build(wall);
    }

    /// The firewall of a machine drops datagrams from now on, or lets all through.
    pub fn set_firewall(&mut self, machine: usize, stands: bool) {
        self.walls.set_firewall(self.machines[machine].place, stands);
    }

    /// True if nothing goes from one machine to another.
    pub fn is_walled_off(&self, from: usize, to: usize) -> bool {
        self.walls.stop(self.machines[from].place, self.machines[to].place)
    }

    /// True if nothing keeps any machine from any other.
    pub fn has_no_walls(&self) -> bool {
        self.walls.is_empty()
    }

    /// A wall is gone: what waited for that comes through after a while, in the order in which it
    /// was sent.
    pub fn tear_down(&mut self, wall: &Wall) {
        self.walls.tear_down(wall);
        self.let_through();
    }

    /// Removes all walls.
    pub fn tear_all_down(&mut self) {
        self.walls.fall();
        self.let_through();
    }

    fn let_through(&mut self) {
        // A wall that is still there stops it again.
        for packet in std::mem::take(&mut self.at_walls) {
            self.after(AFTER_A_WALL, Event::Deliver(packet));
        }
    }

    /// A machine's own link becomes slower by a factor, both ways, or as it was with 1.
    pub fn slow(&mut self, machine: usize, factor: u64) {
        self.machines[machine].port.slow(factor, factor);
    }

    /// Sets a machine's clock ahead by this much more.
    pub fn jump(&mut self, machine: usize, by: Duration) {
        self.machines[machine].ahead += by;
        self.input(machine, vfield_core::node::Input::Wake);
    }
}

/// TCP's retransmission pauses have grown by then: this much is usual after a few seconds.
const AFTER_A_WALL: Duration = Duration::from_millis(400);

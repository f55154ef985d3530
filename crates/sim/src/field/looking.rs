//! Views of a field from outside: conditions, waiting for them, and descriptions of missed ones.

use super::{Field, LOOK_EVERY};
use std::fmt::Write as _;
use std::time::Duration;
use vfield_core::chunk::Chunk;
use vfield_core::inquiry::Purpose;
use vfield_core::node::Input;

impl Field {
    /// Runs the field until a condition holds, and returns how long that took; panics after
    /// `limit`.
    #[track_caller]
    pub fn until(&mut self, what: &str, limit: Duration, holds: impl FnMut(&Self) -> bool) -> Duration {
        match self.try_until(limit, holds) {
            Some(took) => took,
            None => panic!("not within {limit:?}: {what}\n{}", self.describe()),
        }
    }

    /// The same, `None` if it does not hold within `limit` or something is found wrong.
    pub fn try_until(&mut self, limit: Duration, mut holds: impl FnMut(&Self) -> bool) -> Option<Duration> {
        let start = self.now();
        while !holds(self) {
            if self.now() - start >= limit || self.violation.is_some() || self.is_full {
                return None;
            }
            self.run(LOOK_EVERY);
        }
        Some(self.now() - start)
    }

    /// Waits until all readers have read all they wanted.
    #[track_caller]
    pub fn until_read(&mut self, readers: &[usize], limit: Duration) -> Duration {
        let took = self.until("readers done", limit, |field| readers.iter().all(|at| field.readers[*at].is_done()));
        for &reader in readers {
            assert_eq!(self.readers[reader].failed, None, "reader {reader} failed");
        }
        took
    }

    /// True if all stores of `machines` are full.
    pub fn filled(&self, machines: &[usize]) -> bool {
        machines.iter().all(|machine| self.machines[*machine].node.is_filled())
    }

    /// True if each of `machines` believes that the stores announce all of its images.
    pub fn covered(&self, machines: &[usize]) -> bool {
        let images = |machine: &usize| self.machines[*machine].node.images();
        machines.iter().all(|machine| images(machine).iter().all(|view| view.coverage.multiplicity_min > 0))
    }

    /// Asks each of `machines` how well its images are covered, so that they verify what stores
    /// announce; true if all is verified.
    pub fn verified(&mut self, machines: &[usize]) -> bool {
        for &machine in machines {
            self.input(machine, Input::Inquire { times: 1, purpose: Purpose::Wait });
        }
        machines.iter().all(|machine| self.machines[*machine].node.is_covered(1))
    }

    /// The number of chunks of an image that no live store holds, in truth.
    pub fn bare(&self, image: usize) -> u64 {
        let original = &self.images[image];
        let shelves =
            || self.machines.iter().filter(|machine| machine.alive).filter_map(|machine| machine.shelf(image));
        let held = |chunk| shelves().any(|shelf| shelf.held.contains(chunk));
        (0..original.chunks()).map(Chunk).filter(|chunk| !original.is_zero(*chunk) && !held(*chunk)).count() as u64
    }

    /// The machine that was started last at a place.
    pub fn at_place(&self, place: u32) -> Option<usize> {
        self.places.get(place as usize).map(|machine| *machine as usize)
    }

    /// A machine that runs, is well and has joined, if there is one.
    pub fn somebody(&self) -> Option<usize> {
        let joined = |machine: usize| !self.arrivals.contains_key(&(machine as u32));
        (0..self.machines.len())
            .find(|&machine| self.machines[machine].is_well() && self.machines[machine].is_honest() && joined(machine))
    }

    /// Machines that run and have joined.
    pub fn there(&self) -> Vec<usize> {
        let joined = |machine: &usize| !self.arrivals.contains_key(&(*machine as u32));
        (0..self.machines.len()).filter(|machine| self.machines[*machine].alive).filter(joined).collect()
    }

    /// The honest ones of them.
    pub fn honest(&self) -> Vec<usize> {
        self.there().into_iter().filter(|machine| self.machines[*machine].is_honest()).collect()
    }

    /// The number of steps in the trace.
    pub const fn steps(&self) -> u64 {
        self.trace.steps()
    }

    /// A hash of all outputs so far, with their times.
    pub fn trace(&self) -> blake3::Hash {
        self.trace.hash()
    }

    /// The last steps in words.
    pub fn last_steps(&self) -> Vec<String> {
        self.trace.last().iter().map(ToString::to_string).collect()
    }

    /// Packets on their way, or in line.
    pub fn packets(&self) -> usize {
        self.packets.len()
    }

    /// Each machine's view, for the search for a fault.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (at, machine) in self.machines.iter().enumerate().filter(|(_, machine)| machine.alive) {
            let _ = writeln!(text, "machine {at} of zone {} ({} flights)", machine.zone, machine.flights.len());
            for view in machine.node.images() {
                let waiting = view.waiting.len();
                let _ = writeln!(
                    text,
                    "  {}: {} of {} stored, {} transient, filled {}, {:?}, {waiting} waiting {:?}",
                    view.name,
                    view.stored,
                    view.capacity,
                    view.transient,
                    view.filled,
                    view.coverage,
                    view.waiting.first()
                );
            }
        }
        for (at, reader) in self.readers.iter().enumerate().filter(|(_, reader)| !reader.is_done()) {
            let position = reader.position();
            let _ = writeln!(text, "reader {at} on machine {}: {} read, at {position:?}", reader.machine, reader.read);
        }
        text
    }
}

//! What is written down about some machines so that one can see why their readers waited.

use std::collections::BTreeMap;

/// What came to one machine since it was last looked at.
#[derive(Debug, Default, Clone)]
pub struct Notes {
    /// Bytes of chunks, by the machine that sent them.
    pub came: BTreeMap<usize, u64>,
    /// Refusals, likewise.
    pub refused: BTreeMap<usize, u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Explain {
    notes: BTreeMap<usize, Notes>,
}

impl Explain {
    /// From now on notes are taken about this machine.
    pub fn watch(&mut self, machine: usize) {
        self.notes.entry(machine).or_default();
    }

    /// A chunk came.
    pub fn came(&mut self, machine: usize, from: usize, bytes: u64) {
        if let Some(notes) = self.notes.get_mut(&machine) {
            *notes.came.entry(from).or_default() += bytes;
        }
    }

    /// A refusal came.
    pub fn refused(&mut self, machine: usize, from: usize) {
        if let Some(notes) = self.notes.get_mut(&machine) {
            *notes.refused.entry(from).or_default() += 1;
        }
    }

    /// Machines that notes are taken about.
    pub fn machines(&self) -> Vec<usize> {
        self.notes.keys().copied().collect()
    }

    /// All notes since the last call.
    pub fn take(&mut self, machine: usize) -> Notes {
        self.notes.get_mut(&machine).map(std::mem::take).unwrap_or_default()
    }
}

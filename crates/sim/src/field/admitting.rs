//! Admission lists: an operator gives one to a machine, and machines fetch it from each other.

use super::Field;
use std::sync::Arc as Shared;
use vfield_core::admission::Admission;
use vfield_core::node::Input;

impl Field {
    /// Gives a machine an admission list. A higher `version` is later.
    pub fn admit(&mut self, machine: usize, version: u64, admission: Shared<Admission>) {
        self.machines[machine].admission = Some((version, Shared::clone(&admission)));
        self.tell(std::time::Duration::ZERO, machine, Input::Admission(admission));
    }

    /// A machine offers its list to another, which fetches it if its own is older.
    pub(super) fn offer(&mut self, machine: usize, to: usize) {
        let version = |machine: usize| self.machines[machine].admission.as_ref().map(|(version, _)| *version);
        if version(to) < version(machine)
            && let Some((version, admission)) = self.machines[machine].admission.clone()
        {
            self.machines[to].admission = Some((version, Shared::clone(&admission)));
            // The offer, the question and the answer.
            self.tell(self.links.delay * 3, to, Input::Admission(admission));
        }
    }
}

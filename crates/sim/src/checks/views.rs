//! Once nothing is wrong any more all live machines know each other, and nobody else.

use crate::field::Field;
use std::collections::BTreeSet;
use vfield_core::identity::NodeId;

pub(super) fn check(field: &Field) -> Result<(), (usize, String)> {
    let there = field.there();
    let all: BTreeSet<NodeId> = there.iter().map(|machine| field.machines[*machine].identity.node).collect();
    for machine in there {
        let seen: BTreeSet<NodeId> =
            field.machines[machine].node.members().iter().map(|member| member.identity.node).collect();
        if let Some(missed) = all.difference(&seen).next() {
            return Err((machine, format!("does not know {missed}, which lives ({} of {})", seen.len(), all.len())));
        }
        if let Some(ghost) = seen.difference(&all).next() {
            return Err((machine, format!("believes in {ghost}, which is gone")));
        }
    }
    Ok(())
}

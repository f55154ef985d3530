//! Blame: a lying peer may be blamed, an innocent one never.

use crate::field::Field;
use crate::machine::{Fault, number_of};
use vfield_core::identity::NodeId;

pub(super) fn check(field: &Field, blamed: NodeId) -> Result<(), String> {
    let liar =
        field.machines.get(number_of(blamed)).is_some_and(|machine| machine.has_lied || machine.fault == Fault::Lying);
    if liar { Ok(()) } else { Err(format!("blames {blamed}, which never lied")) }
}

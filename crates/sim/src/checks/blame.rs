//! Blame: a peer that lied may be blamed, and so may a malicious one, or one that it made up. An
//! innocent one is never blamed.

use crate::field::Field;
use crate::machine::{Fault, number_of};
use crate::malicious::own::is_ghost;
use vfield_core::identity::NodeId;

pub(super) fn check(field: &Field, blamed: NodeId) -> Result<(), String> {
    let guilty = field
        .machines
        .get(number_of(blamed))
        .is_some_and(|machine| machine.has_lied || machine.fault == Fault::Lying || !machine.is_honest());
    if guilty || is_ghost(blamed) { Ok(()) } else { Err(format!("blames {blamed}, which never lied")) }
}

//! Rubbish: nothing is given up that another machine needs and nobody else has, and in the end
//! what nobody needs is gone.
//!
//! A member that fails in the moment in which another one counts on it is no fault of that one. So
//! losses count only in a field that has been well for a while, and without malicious members. What
//! a machine has of chunks that its store is not to hold is no copy that others count on, as in
//! [`super::reads`].

use crate::field::Field;
use std::time::Duration;
use vfield_core::chunk::Chunk;
use vfield_core::rubbish::{SETTLE, Stays};

/// Time in which a machine hears that another one has died, or needs an image again.
const HEARD_WITHIN: Duration = SETTLE;

/// Looks at a machine that is about to give an image up.
pub(super) fn check_loss(field: &Field, machine: usize, number: usize) -> Result<(), String> {
    let (now, image) = (field.now(), &field.images[number]);
    let is_calm = field.troubled.is_none_or(|at| now - at > HEARD_WITHIN);
    if !is_calm || field.malicious().next().is_some() {
        return Ok(());
    }
    let others = || (0..field.machines.len()).filter(|other| *other != machine && field.machines[*other].alive);
    let needs = |other: &usize| {
        let shelf = field.machines[*other].shelf(number).filter(|shelf| !shelf.origin);
        let needed = shelf.and_then(|shelf| shelf.needed_since);
        needed.is_some_and(|since| now - since > HEARD_WITHIN)
    };
    let Some(user) = others().find(needs) else { return Ok(()) };
    let has = |other: usize, chunk: Chunk| {
        field.machines[other].shelf(number).is_some_and(|shelf| shelf.origin || shelf.held.contains(chunk))
    };
    let stores = |chunk: &Chunk| field.machines[machine].node.stores(image.id, *chunk) && has(machine, *chunk);
    let mine = (0..image.chunks()).map(Chunk).filter(stores);
    let lost = mine.filter(|chunk| !others().any(|other| has(other, *chunk))).count();
    if lost == 0 {
        return Ok(());
    }
    Err(format!("gives up {lost} chunks of image {number}, which machine {user} needs and nobody else has"))
}

/// Looks for rubbish that should have gone.
pub(super) fn check(field: &Field) -> Result<(), (usize, String)> {
    for machine in field.honest() {
        let host = &field.machines[machine];
        if !host.is_well() {
            continue;
        }
        for (id, rubbish) in host.node.rubbish() {
            // Dead members may be cut off, and a last copy may be needed.
            if !matches!(rubbish.stays, Some(Stays::Minority | Stays::LastCopy(_))) {
                let number = field.images.iter().position(|image| image.id == id).unwrap_or_default();
                let what = format!("keeps image {number}, which nobody has needed for {:?}", rubbish.unneeded);
                return Err((machine, what));
            }
        }
    }
    Ok(())
}

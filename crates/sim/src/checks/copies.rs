//! An origin sends about one image, and again what has been lost meanwhile.
//!
//! What it sends while another machine of the asker's zone has it, and could be asked, it sends again. That happens:
//! what two ask for at the same time, what is held for a moment by somebody of whom nobody knows it, and what was under way
//! when a connection broke or a machine fell silent. Of each chunk that is about twice for all that may go wrong, and once for
//! each machine that is started again, and reads again what others have for a moment; an origin of whom everybody asks
//! everything sends it once for each machine. The worst of 4000 seeds was 1.2 images, for random reads by 23 machines with small
//! stores.

use crate::field::Field;
use vfield_core::chunk::Chunk;

/// More than the image, for the smallest ones: what a few hedges and resets make of eight chunks.
const SLACK: u64 = 16;

/// True if an asker could have the chunk from another machine of its zone.
pub(super) fn is_elsewhere(field: &Field, [origin, asker]: [usize; 2], image: usize, chunk: Chunk) -> bool {
    let zone = field.machines[asker].zone;
    let can_be_asked = |other: &usize| {
        let host = &field.machines[*other];
        host.zone == zone
            && host.is_well()
            && !host.has_lied
            && host.shelf(image).is_some_and(|shelf| shelf.held.contains(chunk))
            && !field.is_walled_off(asker, *other)
            && !field.is_walled_off(*other, asker)
    };
    (0..field.machines.len()).filter(|other| ![origin, asker].contains(other)).any(|other| can_be_asked(&other))
}

pub(super) fn check(field: &Field, machine: usize) -> Result<(), String> {
    let places = field.machines.iter().map(|machine| machine.place + 1).max().unwrap_or_default();
    let restarts = field.machines.len() as u64 - u64::from(places);
    for (image, original) in field.images.iter().enumerate() {
        let again = field.machines[machine].shelf(image).map_or(0, |shelf| shelf.sent_again);
        let most = original.chunks() * (2 + restarts) + SLACK;
        if again > most {
            return Err(format!("sends {again} chunks that others had, {most} allowed"));
        }
    }
    Ok(())
}

//! Copies: an origin sends about one image, and again only the chunks that were lost meanwhile.
//!
//! A chunk counts as sent again if another machine of the asker's zone has it and could be asked.
//! That happens with concurrent requests, with transient copies that no other node knows of, and
//! with chunks under way when a connection broke or a machine fell silent. Each chunk may be sent
//! about twice for all faults, and once for each restarted machine, which reads transient chunks of
//! others again. So may those whose relay or holder is a malicious member that does not deliver: of
//! one in N machines it has an N-th, which N askers then ask the origin for, until each has found
//! out. An origin that all machines ask for everything sends it once for each machine. The worst of
//! 4000 seeds was 1.2 images, for random reads by 23 machines with small stores.

use crate::field::Field;
use vfield_core::chunk::Chunk;

/// Chunks allowed beyond the image, for the smallest images: a few hedges and resets of eight
/// chunks.
const SLACK: u64 = 16;

/// True if an asker could have the chunk from another machine of its zone.
pub(super) fn is_elsewhere(field: &Field, [origin, asker]: [usize; 2], image: usize, chunk: Chunk) -> bool {
    let zone = field.machines[asker].zone;
    let can_be_asked = |other: &usize| {
        let host = &field.machines[*other];
        host.zone == zone
            && host.is_well()
            && host.is_honest()
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
    let idle =
        field.malicious().filter(|(_, malice)| malice.plan.attack.claims() || malice.plan.attack.hides()).count();
    for (image, original) in field.images.iter().enumerate() {
        let again = field.machines[machine].shelf(image).map_or(0, |shelf| shelf.sent_again);
        let most = original.chunks() * (2 + restarts + idle as u64) + SLACK;
        if again > most {
            return Err(format!("sends {again} chunks that others had, {most} allowed"));
        }
    }
    Ok(())
}

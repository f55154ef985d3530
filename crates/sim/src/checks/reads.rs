//! Reads: once all faults are mended, every read ends with its bytes, if a findable copy of them is
//! left.
//!
//! Such a copy is in the file of a live origin, or in the store of a live machine on its announced
//! arc. A transient copy, or one on an abandoned arc, may be found or not. A machine that has lied
//! does not count: others ban it for a minute and longer. Nor does a malicious one.

use crate::field::Field;
use crate::machine::number_of;
use std::collections::BTreeSet;
use vfield_core::chunk::Chunk;
use vfield_core::identity::NodeId;
use vfield_core::placement::Ring;

/// The machine and what its reader still waits for.
pub(super) fn check(field: &Field) -> Result<(), (usize, String)> {
    for reader in &field.readers {
        let machine = reader.machine;
        if !field.machines[machine].is_honest() {
            continue;
        }
        if let Some(error) = &reader.failed {
            return Err((machine, format!("fails a read without a reason: {error}")));
        }
        if !field.machines[machine].alive || reader.is_done() {
            continue;
        }
        let missing = reader
            .open
            .iter()
            .map(|block| Chunk(block.left.start))
            .find(|chunk| can_be_had(field, machine, reader.image, *chunk));
        if let Some(chunk) = missing {
            return Err((machine, format!("waits for {chunk}, of which there is a copy")));
        }
    }
    Ok(())
}

/// True if the chunk, and every page above it, is here or has a copy elsewhere.
fn can_be_had(field: &Field, machine: usize, image: usize, chunk: Chunk) -> bool {
    let geometry = &field.images[image].geometry;
    let zone = field.machines[machine].zone;
    let leads_out = has_gateway(field, machine);
    let reaches = |holder: usize| holder != machine && (leads_out || field.machines[holder].zone == zone);
    let mut above = Some(chunk);
    while let Some(chunk) = above {
        if !field.machines[machine].has(image, chunk) && !holders(field, image, chunk).into_iter().any(reaches) {
            return false;
        }
        above = geometry.parent(chunk).map(|(page, _)| page);
    }
    true
}

/// False if all gateways that a machine knows of its zone are malicious: chunks come in through
/// them only, so that zone may be cut off.
fn has_gateway(field: &Field, machine: usize) -> bool {
    let near = field.machines[machine].node.zones().near;
    let is_malicious = |gateway: &NodeId| {
        let host = field.machines.get(number_of(*gateway));
        host.is_none_or(|host| host.identity.node != *gateway || !host.is_honest())
    };
    near.is_empty() || !near.iter().all(is_malicious)
}

/// The machines that can surely be asked for a chunk.
pub(super) fn holders(field: &Field, image: usize, chunk: Chunk) -> BTreeSet<usize> {
    let ring = Ring::new(field.images[image].chunks());
    let holds = |machine: &usize| {
        let host = &field.machines[*machine];
        if !host.is_well() || host.has_lied || !host.is_honest() {
            return false;
        }
        let Some(shelf) = host.shelf(image) else { return false };
        if shelf.origin {
            return true;
        }
        let arc = host.node.arc(field.images[image].id);
        shelf.held.contains(chunk) && arc.is_some_and(|arc| arc.contains(ring.place(chunk), ring.size()))
    };
    (0..field.machines.len()).filter(holds).collect()
}

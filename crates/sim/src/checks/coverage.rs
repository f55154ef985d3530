//! Once nothing is wrong any more stores have what they are to hold; and those of each zone hold as much of the image together as
//! they have room for, unless it has holes. What cores believe of their zone's coverage is so.

use super::reads::holders;
use crate::field::Field;
use std::collections::BTreeMap;
use vfield_core::chunk::Chunk;

pub(super) fn check(field: &Field) -> Result<(), (usize, String)> {
    let image = &field.images[0];
    let there = field.there();
    // Of what nobody can be asked for no store can be filled.
    let mut chunks = (0..image.chunks()).map(Chunk).filter(|chunk| !image.is_zero(*chunk));
    if chunks.any(|chunk| holders(field, chunk).is_empty()) {
        return Ok(());
    }
    let mut zones: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for machine in there {
        zones.entry(field.machines[machine].zone).or_default().push(machine);
    }
    for machines in zones.values() {
        let bare = bare(field, machines);
        let mut room = 0;
        for &machine in machines {
            let view = field.machines[machine].node.images().into_iter().find(|view| view.id == image.id);
            let Some(view) = view.filter(|view| !view.origin) else { continue };
            room += view.capacity;
            if !view.filled {
                return Err((machine, format!("does not fill its store: {} of {}", view.stored, view.capacity)));
            }
            if let (true, Some(chunk)) = (view.coverage.multiplicity_min > 0, bare.first()) {
                return Err((machine, format!("believes that all is covered, {chunk} is not")));
            }
        }
        // Arcs that lie over each other move apart until nothing is bare, so what is bare there was no room for.
        let (chunks, missing) = (image.chunks(), bare.len() as u64);
        if let Some(chunk) = bare.first()
            && !image.is_sparse()
            && missing > chunks.saturating_sub(room)
        {
            let what =
                format!("and its zone do not hold {missing} of {chunks}, {chunk} among them, with room for {room}");
            return Err((machines[0], what));
        }
    }
    Ok(())
}

/// What none of these machines holds.
fn bare(field: &Field, machines: &[usize]) -> Vec<Chunk> {
    let image = &field.images[0];
    let shelves: Vec<_> = machines.iter().filter_map(|machine| field.machines[*machine].shelf(0)).collect();
    let held = |chunk: &Chunk| image.is_zero(*chunk) || shelves.iter().any(|shelf| shelf.held.contains(*chunk));
    (0..image.chunks()).map(Chunk).filter(|chunk| !held(chunk)).collect()
}

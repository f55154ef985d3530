//! Coverage: once all faults are mended, stores are full. The stores of each zone together hold as
//! much of the image as they have room for, unless it has holes. A member that claims what it lacks
//! keeps the others from it.

use super::covered::bare;
use super::reads::holders;
use crate::field::Field;
use std::collections::BTreeMap;
use vfield_core::chunk::Chunk;

pub(super) fn check(field: &Field) -> Result<(), (usize, String)> {
    (0..field.images.len()).try_for_each(|image| check_image(field, image))
}

fn check_image(field: &Field, number: usize) -> Result<(), (usize, String)> {
    let image = &field.images[number];
    let there = field.there();
    // A malicious machine knows its trade with the first image only.
    let claims = field.malicious().any(|(machine, malice)| {
        let takes_part = field.machines[machine].shelf(number).is_some();
        malice.plan.attack.claims() || number > 0 && takes_part
    });
    // Chunks that no peer can be asked for cannot be in a store.
    let mut chunks = (0..image.chunks()).map(Chunk).filter(|chunk| !image.is_zero(*chunk));
    if chunks.any(|chunk| holders(field, number, chunk).is_empty()) {
        return Ok(());
    }
    let mut zones: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for machine in there {
        zones.entry(field.machines[machine].zone).or_default().push(machine);
    }
    // Stores of rubbish are on their way out.
    let is_rubbish = |machine: &usize| field.machines[*machine].node.rubbish().iter().any(|(id, _)| *id == image.id);
    for machines in zones.values().filter(|machines| !machines.iter().any(is_rubbish)) {
        let serves = |machine: usize| {
            let malice = field.machines[machine].malice.as_ref();
            malice.is_none_or(|malice| !malice.plan.attack.claims() && !malice.plan.attack.hides())
        };
        let bare = bare(field, number, machines, serves);
        let mut room = 0;
        for &machine in machines.iter().filter(|machine| field.machines[**machine].is_honest()) {
            let view = field.machines[machine].node.images().into_iter().find(|view| view.id == image.id);
            let Some(view) = view.filter(|view| !view.origin) else { continue };
            room += view.capacity;
            if !view.filled {
                return Err((machine, format!("does not fill its store: {} of {}", view.stored, view.capacity)));
            }
        }
        // Overlapping arcs move apart until nothing is bare, so a bare place had no room.
        let (chunks, missing) = (image.chunks(), bare.len() as u64);
        if let Some(chunk) = bare.first()
            && !image.is_sparse()
            && !claims
            && missing > chunks.saturating_sub(room)
        {
            let what =
                format!("and its zone do not hold {missing} of {chunks}, {chunk} among them, with room for {room}");
            return Err((machines[0], what));
        }
    }
    Ok(())
}

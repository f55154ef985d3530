//! Once nothing is wrong any more stores have what they are to hold; if all of the image can be had, and they are large
//! enough, together they cover it. And what cores believe of that is so.

use crate::field::Field;
use vfield_core::chunk::Chunk;

pub(super) fn check(field: &Field) -> Result<(), (usize, String)> {
    let image = &field.images[0];
    let there = field.there();
    let origin = there.iter().any(|machine| field.machines[*machine].is_origin(0));
    let liar = there.iter().any(|machine| field.machines[*machine].has_lied);
    let bare = field.bare(0);
    // What a liar alone has is not to be had for long; what nobody has, never.
    let whole = origin || (bare == 0 && !liar);
    for &machine in &there {
        let view = field.machines[machine].node.images().into_iter().find(|view| view.id == image.id);
        let Some(view) = view else { continue };
        if whole && !view.filled {
            return Err((machine, format!("does not fill its store: {} of {}", view.stored, view.capacity)));
        }
        let covered = view.coverage.multiplicity_min > 0;
        if whole && covered && bare > 0 {
            return Err((machine, format!("believes that all is covered, {bare} chunks are not")));
        }
    }
    if whole && !image.is_sparse() && bare > 0 {
        let capacity: u64 = there.iter().filter_map(|machine| capacity(field, *machine)).sum();
        let gone = (0..image.chunks()).map(Chunk).find(|chunk| {
            !there
                .iter()
                .any(|machine| field.machines[*machine].shelf(0).is_some_and(|shelf| shelf.held.contains(*chunk)))
        });
        // A third more than the image: arcs of sizes that do not fit each other leave gaps that need a few moves.
        if capacity * 3 >= image.chunks() * 4 {
            let what =
                format!("and all others hold {bare} chunks too few, {gone:?} among them, with room for {capacity}");
            return Err((there[0], what));
        }
    }
    Ok(())
}

fn capacity(field: &Field, machine: usize) -> Option<u64> {
    let host = &field.machines[machine];
    host.node.images().first().filter(|view| !view.origin).map(|view| view.capacity)
}

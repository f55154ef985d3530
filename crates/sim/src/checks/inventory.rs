//! Inventory: capacity is a hard bound, the transient cache has its own, and shell and core agree
//! about the present chunks.

use crate::field::Field;

pub(super) fn check(field: &Field, machine: usize) -> Result<(), String> {
    let host = &field.machines[machine];
    for view in host.node.images() {
        let image = field.images.iter().position(|image| image.id == view.id).expect("a known image");
        let must = |holds: bool, what: &dyn Fn() -> String| if holds { Ok(()) } else { Err(what()) };
        must(view.stored <= view.capacity, &|| format!("stores {} chunks, capacity {}", view.stored, view.capacity))?;
        let held = host.shelf(image).map_or(0, |shelf| shelf.held.len());
        let known = view.stored + view.transient;
        must(held == known, &|| format!("has {held} chunks, its core knows of {known}"))?;
        let chunk_bytes = field.images[image].geometry.chunk_bytes();
        let transient_max = field.config.transient_chunks(chunk_bytes);
        must(view.transient <= transient_max, &|| format!("{} transient, {transient_max} allowed", view.transient))?;
        must((0.0..=1.0).contains(&view.coverage.share), &|| format!("coverage of {}", view.coverage.share))?;
    }
    Ok(())
}

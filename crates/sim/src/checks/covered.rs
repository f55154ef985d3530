//! Covered: if a node says that an image is covered, the honest stores of its zone hold all of it.
//! Then every origin may go. Members may claim what they lack. One that delivers some chunks and
//! then no others may pass for a holder, so zones with such a member are left out.

use crate::field::Field;
use crate::malicious::Malice;
use vfield_core::chunk::Chunk;
use vfield_core::node::ImageView;

/// The figure that `--wait covered` goes by.
pub(super) fn check(field: &Field) -> Result<(), (usize, String)> {
    check_by(field, |view| view.coverage.multiplicity_min > 0 && view.verified.multiplicity_min > 0)
}

/// What stores announce, which need not be true.
///
/// # Errors
///
/// The machine that is wrong, and about what.
pub fn check_claims(field: &Field) -> Result<(), (usize, String)> {
    check_by(field, |view| view.coverage.multiplicity_min > 0)
}

/// Compares what each honest machine says with what the stores hold, whoever claims what.
fn check_by(field: &Field, says_covered: impl Fn(&ImageView) -> bool) -> Result<(), (usize, String)> {
    (0..field.images.len()).try_for_each(|image| check_image(field, image, &says_covered))
}

fn check_image(field: &Field, number: usize, says_covered: impl Fn(&ImageView) -> bool) -> Result<(), (usize, String)> {
    let image = &field.images[number];
    for machine in field.honest() {
        let host = &field.machines[machine];
        let views = host.node.images();
        if !views.iter().any(|view| view.id == image.id && says_covered(view)) {
            continue;
        }
        let zone: Vec<usize> =
            field.there().into_iter().filter(|other| field.machines[*other].zone == host.zone).collect();
        let malice = |machine: &usize| field.machines[*machine].malice.as_deref();
        if zone.iter().filter_map(malice).any(Malice::deceives_checks) {
            continue;
        }
        let serves = |machine: usize| field.machines[machine].malice.as_ref().is_none_or(|malice| malice.serves());
        if let Some(chunk) = bare(field, number, &zone, serves).first() {
            return Err((machine, format!("believes that all is covered, {chunk} is not")));
        }
    }
    Ok(())
}

/// The chunks that none of these machines holds, of those that count.
pub(super) fn bare(field: &Field, number: usize, machines: &[usize], counts: impl Fn(usize) -> bool) -> Vec<Chunk> {
    let image = &field.images[number];
    let counting = machines.iter().filter(|machine| counts(**machine));
    let shelves: Vec<_> = counting.filter_map(|machine| field.machines[*machine].shelf(number)).collect();
    let held = |chunk: &Chunk| image.is_zero(*chunk) || shelves.iter().any(|shelf| shelf.held.contains(*chunk));
    (0..image.chunks()).map(Chunk).filter(|chunk| !held(chunk)).collect()
}

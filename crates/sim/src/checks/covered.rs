//! Covered: if a node says that an image is covered, the honest stores of its zone hold all of it.
//! Then every origin may go.
//!
//! Today's figure goes by what stores say of themselves, so a member that claims what it lacks
//! makes it wrong. With such a member in the field this checker looks only at a figure of verified
//! holders, which cores do not have yet: see [`VERIFIED`].

use crate::field::Field;
use vfield_core::chunk::Chunk;
use vfield_core::node::ImageView;

/// True once cores verify holders. Then [`says_covered`] has to read that figure.
pub const VERIFIED: bool = false;

/// What a node says of an image's coverage: the figure that `--wait covered` goes by.
const fn says_covered(view: &ImageView) -> bool {
    view.coverage.multiplicity_min > 0
}

pub(super) fn check(field: &Field) -> Result<(), (usize, String)> {
    let claims = field.malicious().any(|(_, malice)| malice.plan.attack.claims());
    if claims && !VERIFIED { Ok(()) } else { check_words(field) }
}

/// Compares what each honest machine says with what the stores hold, whoever claims what.
///
/// # Errors
///
/// The machine that is wrong, and about what.
pub fn check_words(field: &Field) -> Result<(), (usize, String)> {
    let image = &field.images[0];
    for machine in field.honest() {
        let host = &field.machines[machine];
        let views = host.node.images();
        if !views.iter().any(|view| view.id == image.id && says_covered(view)) {
            continue;
        }
        let zone: Vec<usize> =
            field.there().into_iter().filter(|other| field.machines[*other].zone == host.zone).collect();
        if let Some(chunk) = bare(field, &zone).first() {
            return Err((machine, format!("believes that all is covered, {chunk} is not")));
        }
    }
    Ok(())
}

/// The chunks that none of these machines holds. A malicious one holds what it has if it serves as
/// others do and claims no more.
pub(super) fn bare(field: &Field, machines: &[usize]) -> Vec<Chunk> {
    let image = &field.images[0];
    let tells = |machine: &&usize| {
        let malice = field.machines[**machine].malice.as_ref();
        malice.is_none_or(|malice| !malice.plan.attack.claims() && !malice.plan.attack.hides())
    };
    let shelves: Vec<_> =
        machines.iter().filter(tells).filter_map(|machine| field.machines[*machine].shelf(0)).collect();
    let held = |chunk: &Chunk| image.is_zero(*chunk) || shelves.iter().any(|shelf| shelf.held.contains(*chunk));
    (0..image.chunks()).map(Chunk).filter(|chunk| !held(chunk)).collect()
}

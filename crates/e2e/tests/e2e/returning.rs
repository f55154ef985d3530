//! Origins that go and come back: those that stayed find them again, though nobody tells the origin
//! where they are.

use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::field::{Field, NEWS, Plan, live};
use vfield_lab::Daemon;
use vfield_lab::client;
use vfield_lab::need::{Need, have};

/// A polite end hands over for at most ten seconds.
const LEAVES: Duration = Duration::from_secs(20);

/// The field's origin, started again as it was: it names no member.
fn served_again(field: &Field) -> Result<Daemon, vfield_lab::LabError> {
    field.vfield.serve(field.lab.host(0), &[&field.image]).name("origin").ready()
}

/// Waits until a node, and the origin, see so many members.
fn see_each_other(field: &Field, origin: &Daemon, count: usize) -> Outcome {
    field.members(count, &[])?;
    origin.wait_status("the origin sees all", NEWS, |status| live(status).len() == count)?;
    Ok(())
}

#[test]
fn an_origin_that_left_is_found_again_by_the_only_node_that_stayed() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let mut field = Field::start(Plan { stores: &["0"], ..Plan::default() })?;
    field.members(2, &[])?;
    // What nobody takes is lost with it: that is what its exit code says.
    field.origin.process_mut().terminate();
    field.origin.process_mut().wait(LEAVES)?;
    field.members(1, &[])?;
    let origin = served_again(&field)?;
    see_each_other(&field, &origin, 2)?;
    client::compare_all(field.host(0), &field.nodes[0], &field.image)?;
    Ok(())
}

/// Two that stay have each other: neither is alone, and nothing has to be missing.
#[test]
fn an_origin_that_left_is_found_again_by_nodes_that_have_each_other() -> Outcome {
    let mut field = Field::start(Plan { stores: &["all", "all"], ..Plan::default() })?;
    field.covered()?;
    field.origin.leave(LEAVES)?;
    field.members(2, &[])?;
    let origin = served_again(&field)?;
    see_each_other(&field, &origin, 3)
}

//! Data that goes with a node: reported before, refused where it would be the last copy, and spread
//! so that little goes with any one.

use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::field::{Field, NEWS, Plan};
use vfield_lab::Lab;
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;

/// An origin whose file is in no other store: told to leave it stays, and readers lose nothing.
#[test]
fn the_last_copies_do_not_leave_unless_forced() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let mut field = Field::on(Lab::loopback(2)?, Plan { stores: &["30%"], ..Plan::default() })?;
    field.filled()?;
    let heard = |status: &serde_json::Value| status["images"][0]["coverage"].as_f64() >= Some(0.29);
    field.origin.wait_status("it knows what the other holds", NEWS, heard)?;
    let rehearsed = run(field.origin.ask("leave").arg("--dry-run")).expect_err("most of it is nowhere else");
    assert!(rehearsed.to_string().contains("no other node holds 7"), "{rehearsed}");
    let refused = run(field.origin.ask("leave").args(["--timeout", "1s"])).expect_err("most of it is nowhere else");
    assert!(refused.to_string().contains("the node stays: 7"), "{refused}");
    // It counts as a member that stays, and serves as before.
    field.members(2, &[])?;
    field.compare(&[])?;
    run(field.origin.ask("leave").args(["--timeout", "1s", "--force"])).expect_err("it says what was lost");
    field.origin.process_mut().wait(Duration::from_secs(20))?;
    field.members(1, &[])?;
    Ok(())
}

/// Stores of 165 % hold a third of the image once, but not most of that in one place; each asker
/// is told where.
#[test]
fn one_copy_is_not_called_two() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let plan = Plan { stores: &["40%", "70%", "55%"], spare_hosts: 1, ..Plan::default() };
    let mut field = Field::on(Lab::loopback(5)?, plan)?;
    field.covered()?;
    let risk = field.nodes[0].image()?["at_risk"].take();
    let share = risk["share"].as_f64().expect("a third is held once");
    assert!(share > 0.1 && share < 0.25, "{risk:#}");
    let text = run(&mut field.nodes[0].ask("status"))?;
    assert!(text.contains(&format!("if {} dies, ", risk["addr"].as_str().expect("an address"))), "{text}");
    let twice = run(field.nodes[0].ask("status").args(["--wait", "covered=2", "--timeout", "1s"]));
    assert!(twice.expect_err("a third is held once").to_string().contains("not covered=2 after"));
    let through = field.origin.addr();
    let fourth = field.join(3, through, "all").ready()?;
    field.nodes.push(fourth);
    field.nodes[0].wait("covered=2", NEWS)?;
    field.origin.kill();
    field.nodes[1].kill();
    field.compare(&[1])?;
    Ok(())
}

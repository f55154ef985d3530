//! The fault suite in short: a few seconds of each fault in a small field. `scripts/faults` has the
//! long version.

use std::io::Write as _;
use std::time::Duration;
use vfield_e2e::{Outcome, program};
use vfield_lab::bytes::MIB;
use vfield_lab::need::{Need, have};
use vfield_measure::fault::{Fault, Plan, run};

/// Nobody reads a wrong byte or gets an error, nobody hangs, and everything is given back.
fn is_survived(fault: Fault) -> Outcome {
    if !have(&[&[Need::Root], fault.needs()].concat()) {
        return Ok(());
    }
    if let Some(what) = fault.lacks() {
        // Past the test harness's capture of output; nobody has to have it.
        let _ = writeln!(std::io::stderr(), "left out {fault}: this machine has no {what}");
        return Ok(());
    }
    let plan = Plan {
        nodes: 4,
        mbit: 200,
        // More than a store and the chunks that are kept for a while: reads come from
        // others.
        size_bytes: 64 * MIB,
        store: "40%".to_owned(),
        reader_bytes_per_s: Some(8 * MIB),
        lasts: Duration::from_secs(4),
        seed: 1,
        vfield: program::vfield().path().to_owned(),
    };
    let finding = run(fault, &plan)?;
    assert!(finding.is_clean(), "{finding:#?}");
    Ok(())
}

#[test]
fn kills() -> Outcome {
    is_survived(Fault::Kills)
}

#[test]
fn a_frozen_node() -> Outcome {
    is_survived(Fault::Freeze)
}

#[test]
fn a_node_that_hears_nothing() -> Outcome {
    is_survived(Fault::OneWay)
}

#[test]
fn a_full_disk_under_the_origin() -> Outcome {
    is_survived(Fault::DiskFull)
}

#[test]
fn a_disk_with_errors_under_the_origin() -> Outcome {
    is_survived(Fault::DiskErrors)
}

#[test]
fn a_file_cut_short_under_the_origin() -> Outcome {
    is_survived(Fault::Truncated)
}

#[test]
fn no_more_descriptors() -> Outcome {
    is_survived(Fault::Descriptors)
}

#[test]
fn no_more_memory_than_is_promised() -> Outcome {
    is_survived(Fault::Memory)
}

#[test]
fn too_little_memory() -> Outcome {
    is_survived(Fault::OutOfMemory)
}

#[test]
fn a_clock_that_goes_back() -> Outcome {
    is_survived(Fault::Clock)
}

#[test]
fn nodes_that_come_and_go() -> Outcome {
    is_survived(Fault::Churn)
}

#[test]
fn nodes_that_are_replaced() -> Outcome {
    is_survived(Fault::Upgrade)
}

//! Nodes that die, freeze or are cut off while others read.

use std::time::{Duration, Instant};
use vfield_e2e::Outcome;
use vfield_e2e::field::{Field, NEWS, Plan};
use vfield_lab::bytes::MIB;
use vfield_lab::need::{Need, have};
use vfield_lab::{Lab, Link, client, wait_until};

#[test]
fn the_origin_may_die_once_the_stores_cover_the_image() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let stores = &["40%", "35%", "30%", "35%"];
    let mut field = Field::start(Plan { stores, mounted: true, spare_hosts: 1, ..Plan::default() })?;
    field.covered()?;
    field.origin.kill();
    field.compare(&[])?;
    let late = field.join(4, field.nodes[1].addr(), "30%").ready()?;
    client::compare_all(field.host(4), &late, &field.image)?;
    Ok(())
}

/// A field whose reads take some seconds, so that something can happen in their midst.
fn slow_field() -> Result<Field, vfield_lab::LabError> {
    let lab = Lab::namespaces(5, Link::mbit(150))?;
    let stores = &["45%", "45%", "45%", "45%"];
    let field = Field::on(lab, Plan { image_bytes: 32 * MIB + 5, stores, ..Plan::default() })?;
    field.covered()?;
    Ok(field)
}

/// Waits until a node has delivered something that it does not hold itself.
fn reading(field: &Field, node: usize) -> Outcome {
    let got = |status: &serde_json::Value| {
        let bytes = |key: &str| status["traffic"][key].as_u64().unwrap_or_default();
        bytes("from_peers_bytes") + bytes("from_origin_bytes")
    };
    let before = got(&field.nodes[node].status()?);
    let read = |status: &serde_json::Value| got(status) > before + MIB;
    field.nodes[node].wait_status("a read is under way", Duration::from_secs(10), read)?;
    Ok(())
}

#[test]
fn any_node_may_die_while_all_read() -> Outcome {
    if !have(&[Need::Root, Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let field = slow_field()?;
    let victim = field.nodes[2].process().pid();
    std::thread::scope(|scope| {
        let readers = scope.spawn(|| field.compare(&[2]));
        reading(&field, 0)?;
        vfield_lab::process::kill(victim);
        Ok::<_, vfield_e2e::Failed>(readers.join().expect("readers do not panic")?)
    })
}

#[test]
fn a_frozen_node_does_not_stop_the_readers() -> Outcome {
    if !have(&[Need::Root, Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let mut field = slow_field()?;
    // It accepts connections, and never delivers.
    field.nodes[1].process_mut().freeze();
    let start = Instant::now();
    field.compare(&[1])?;
    assert!(start.elapsed() < Duration::from_secs(20), "reads took {:?} with one node frozen", start.elapsed());
    Ok(())
}

#[test]
fn a_node_without_its_link_does_not_stop_the_readers() -> Outcome {
    if !have(&[Need::Root, Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let field = slow_field()?;
    std::thread::scope(|scope| {
        let readers = scope.spawn(|| field.compare(&[3]));
        reading(&field, 0)?;
        field.lab.cut(field.host(3))?;
        Ok::<_, vfield_e2e::Failed>(readers.join().expect("readers do not panic")?)
    })?;
    field.lab.restore(field.host(3))?;
    field.members(5, &[])?;
    field.compare(&[])?;
    Ok(())
}

#[test]
fn the_field_repairs_itself_when_a_holder_dies() -> Outcome {
    let mut field = Field::start(Plan { stores: &["60%", "60%", "60%"], ..Plan::default() })?;
    field.covered()?;
    field.nodes[0].kill();
    for node in [1, 2] {
        // A suspect does not count as a holder: coverage speaks of the survivors as soon as a link
        // breaks.
        let uncovered = || field.nodes[node].image().is_ok_and(|image| image["coverage"] != 1.0);
        let moved = || {
            field.nodes[node]
                .status()
                .is_ok_and(|status| status["nodes"].as_array().is_some_and(|nodes| nodes.len() == 3))
        };
        wait_until("the dead one is not counted on", NEWS, || uncovered() || moved())?;
    }
    // Two stores of 60 % still cover the image, if they lie well; with the origin's help they move
    // until they do.
    for node in [1, 2] {
        let covered = || field.nodes[node].image().is_ok_and(|image| image["coverage"] == 1.0);
        wait_until("the survivors cover the image", Duration::from_secs(30), covered)?;
    }
    field.origin.kill();
    if have(&[Need::Tool("nbdcopy")]) {
        field.compare(&[0])?;
    }
    Ok(())
}

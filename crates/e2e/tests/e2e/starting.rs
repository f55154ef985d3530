//! Machines that are switched on in any order: who joins waits for the origin, and says so.

use std::net::SocketAddr;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::field::{Field, NEWS, Plan};
use vfield_e2e::program::vfield;
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::need::{Need, have};
use vfield_lab::{Lab, client, wait_until};

#[test]
fn who_is_started_before_the_origin_waits_for_it() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::best(2)?, vfield());
    let image = random_file(&lab.dir().join("disk.img"), 9 * MIB, 1)?;
    let mut node = vfield.join(lab.host(1), lab.host(0).addr()).store("0").spawn()?;
    let door = lab.host(0).addr();
    node.says(&format!("waiting for {door}: connection refused; trying again"), NEWS)?;
    let status = node.ask("status").output()?;
    assert!(String::from_utf8_lossy(&status.stderr).contains(&format!("waiting for {door}")), "{status:?}");
    let _origin = vfield.serve(lab.host(0), &[&image]).name("origin").ready()?;
    node.wait_ready(NEWS)?;
    client::compare_all(lab.host(1), &node, &image)?;
    Ok(())
}

#[test]
fn waiting_for_an_origin_has_an_end_if_one_is_set() -> Outcome {
    let (lab, vfield) = (Lab::best(2)?, vfield());
    let mut node = vfield.join(lab.host(1), lab.host(0).addr()).args(&["--retry", "1s"]).spawn()?;
    let status = node.process_mut().wait(NEWS)?;
    assert_eq!(status.code(), Some(1), "{}", node.process().log());
    assert!(node.process().log().contains("--retry forever keeps trying"), "{}", node.process().log());
    Ok(())
}

/// What an origin is to serve is itself a file of a field whose origin is cut off: it hashes for as
/// long as the test wants.
#[test]
fn an_origin_that_hashes_says_so_to_whoever_joins() -> Outcome {
    if !have(&[Need::Root, Need::Fuse, Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let field = Field::start(Plan { stores: &["0"], mounted: true, spare_hosts: 1, ..Plan::default() })?;
    let file = field.nodes[0].mount().expect("it is mounted").join("disk.img");
    field.lab.cut(field.lab.host(0))?;
    let slow = SocketAddr::new(field.host(0).addr().ip(), 4441);
    let serve = field.vfield.serve(field.host(0), &[&file]).name("slow").listen(slow);
    let mut origin = serve.args(&["--name", "slow.img"]).spawn()?;
    origin.says(&format!("listening on {slow}"), NEWS)?;
    let mut node = field.vfield.join(field.host(1), slow).store("0").args(&["--retry", "1s"]).spawn()?;
    node.says(&format!("waiting for {slow}: not ready yet: hashing, 0 %; trying again"), NEWS)?;
    // A starting member is waited for, however long that takes.
    let twice = |log: String| log.contains("connection refused") || log.contains("could be joined");
    let patience = wait_until("it gives up", Duration::from_secs(4), || twice(node.process().log()));
    assert!(patience.is_err(), "{}", node.process().log());
    field.lab.restore(field.lab.host(0))?;
    node.wait_ready(NEWS)?;
    client::compare_nbd(field.host(1), &node.uri("slow.img"), &field.image)?;
    Ok(())
}

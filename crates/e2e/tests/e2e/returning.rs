//! Origins that go and come back: those that stayed find them again, though nobody tells the origin
//! where they are.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::field::{Field, NEWS, Plan, live};
use vfield_e2e::program::vfield;
use vfield_lab::bytes::random_file;
use vfield_lab::need::{Need, have};
use vfield_lab::{Daemon, Host, Lab, LabError, Vfield, client};

/// A polite end hands over for at most ten seconds.
const LEAVES: Duration = Duration::from_secs(20);

/// The field's origin, started again as it was: it names no member.
fn served_again(field: &Field) -> Result<Daemon, LabError> {
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

/// The program as it runs where `hosts` is the file of host names.
fn where_names_are(hosts: &Path, dir: &Path) -> std::io::Result<Vfield> {
    let (path, program) = (dir.join("vfield"), vfield());
    let (hosts, program) = (hosts.display(), program.path().display());
    let lines = format!(
        "#!/bin/sh\nexec unshare --mount sh -c 'mount --bind {hosts} /etc/hosts && exec {program} \"$@\"' sh \"$@\"\n"
    );
    fs::write(&path, lines)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(Vfield::at(&path))
}

/// The name stays, and the address changes: before a node is in the field, and when its origin is
/// another machine.
#[test]
fn a_name_that_moves_is_followed() -> Outcome {
    if !have(&[Need::Root, Need::Tool("unshare"), Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::best(3)?, vfield());
    let image = random_file(&lab.dir().join("disk.img"), 1 << 20, 1)?;
    let hosts = lab.dir().join("hosts");
    // The same file: another in its place would be hidden by the mount.
    let name = |host: &Host| fs::write(&hosts, format!("{} lab-1\n", host.addr().ip()));
    let door = format!("lab-1:{}", lab.host(0).addr().port());

    name(lab.host(1))?;
    let mut node = where_names_are(&hosts, lab.dir())?.join(lab.host(2), &door).store("0").spawn()?;
    node.says(&format!("waiting for {}: connection refused", lab.host(1).addr()), NEWS)?;
    let mut origin = vfield.serve(lab.host(0), &[&image]).ready()?;
    name(lab.host(0))?;
    node.says(&format!("lab-1 has the address {} now", lab.host(0).addr().ip()), NEWS)?;
    node.wait_ready(NEWS)?;

    origin.kill();
    node.wait_status("the origin is gone", NEWS, |status| live(status).len() == 1)?;
    let origin = vfield.serve(lab.host(1), &[&image]).ready()?;
    name(lab.host(1))?;
    origin.wait_status("the origin is found", NEWS, |status| live(status).len() == 2)?;
    client::compare_all(lab.host(2), &node, &image)?;
    Ok(())
}

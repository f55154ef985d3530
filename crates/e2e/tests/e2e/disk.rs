//! Stores on a disk: they outlive everything but the disk, and no wrong byte leaves them.

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use serde_json::Value;
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::field::{Field, Plan};
use vfield_e2e::program::vfield;
use vfield_lab::bytes::MIB;
use vfield_lab::cgroup::{self, Cgroup};
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Daemon, Lab, LabError, Vfield, client, wait_until};

/// A daemon that is started again verifies some MiB.
const AGAIN: Duration = Duration::from_secs(30);
const IMAGE: u64 = 24 * MIB + 777;
/// Default size of a chunk.
const CHUNK: u64 = 64 << 10;

fn image(status: &Value) -> &Value {
    &status["images"][0]
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

fn received(daemon: &Daemon) -> Result<u64, LabError> {
    let traffic = &daemon.status()?["traffic"];
    Ok(number(&traffic["from_peers_bytes"]) + number(&traffic["from_origin_bytes"]))
}

/// A node with all of the image on a disk.
fn join(field: &Field, host: usize, through: &Daemon, disk: &Path) -> Result<Daemon, LabError> {
    let disk = disk.display().to_string();
    field.join(host, through.addr(), "all").args(&["--disk", &disk]).ready()
}

/// The file of the only store in a directory.
fn file(disk: &Path) -> Result<(PathBuf, File), LabError> {
    let entries = std::fs::read_dir(disk).map_err(LabError::at(disk))?;
    let path =
        entries.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|end| end == "store"));
    let path = path.expect("there is a store");
    let file = File::options().read(true).write(true).open(&path).map_err(LabError::at(&path))?;
    Ok((path, file))
}

#[test]
fn a_machine_that_reboots_has_its_store_again() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let mut field = Field::start(Plan { image_bytes: IMAGE, spare_hosts: 2, ..Plan::default() })?;
    let disk = field.lab.dir().join("disk");
    let mut node = join(&field, 0, &field.origin, &disk)?;
    node.wait("filled", AGAIN)?;
    let status = node.status()?;
    assert_eq!((image(&status)["on_disk"].as_bool(), number(&status["memory"]["store_bytes"])), (Some(true), 0));
    // Another daemon has no place there.
    let mut other = field.join(1, field.origin.addr(), "all").args(&["--disk", &disk.display().to_string()]).spawn()?;
    wait_until("it is refused", AGAIN, || other.process_mut().ended().is_some())?;
    let log = other.process().log();
    assert!(log.contains("another process has its stores there") && log.contains("--disk"), "{log}");

    // Nothing but the disk is left, and nobody could send the image.
    field.origin.kill();
    node.kill();
    let node = join(&field, 0, &field.origin, &disk)?;
    client::compare_all(field.host(0), &node, &field.image)?;
    node.wait_status("it has its store", AGAIN, |status| {
        number(&image(status)["taken_over_bytes"]) > IMAGE && image(status)["filled"] == true
    })?;
    assert_eq!(received(&node)?, 0);
    let late = field.join(1, node.addr(), "all").ready()?;
    late.wait("filled", AGAIN)?;
    client::compare_all(field.host(1), &late, &field.image)?;

    // Pages that flip while it serves: each is found, told of, and fetched again.
    let (_, store) = file(&disk)?;
    for chunk in [3, 100, 101] {
        store.write_all_at(b"flip", chunk * CHUNK + 4099)?;
    }
    client::compare_all(field.host(0), &node, &field.image)?;
    node.wait_status("the chunks are back", AGAIN, |status| {
        number(&image(status)["spoiled_chunks"]) == 3 && image(status)["filled"] == true
    })?;
    // Beside them come a few with which it sees that the other node has what it says.
    assert!((3 * CHUNK..IMAGE / 4).contains(&received(&node)?), "{}", received(&node)?);
    let warnings = node.status()?["warnings"].to_string();
    assert!(warnings.contains("gave back other bytes, which are fetched again"), "{warnings}");
    client::compare_all(field.host(0), &node, &field.image)?;
    Ok(())
}

#[test]
fn an_upgrade_hands_over_a_store_on_a_disk() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let mut field = Field::start(Plan { image_bytes: IMAGE, spare_hosts: 1, ..Plan::default() })?;
    let disk = field.lab.dir().join("disk").display().to_string();
    let start = field.join(0, field.origin.addr(), "all").args(&["--disk", &disk, "--guard"]);
    let mut node = start.ready()?;
    node.wait("filled", AGAIN)?;
    field.origin.kill();
    let before = number(&node.status()?["pid"]);
    run(&mut node.ask("upgrade"))?;
    assert_ne!(number(&node.status()?["pid"]), before);
    client::compare_all(field.host(0), &node, &field.image)?;
    node.wait_status("it has its store", AGAIN, |status| number(&image(status)["taken_over_bytes"]) > IMAGE)?;
    node.leave(AGAIN)?;
    Ok(())
}

#[test]
fn a_spent_budget_holds_up_the_store_and_no_read() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    /// A day's bytes, and what a fill may have under way beyond them.
    const MOST: u64 = 8 * MIB + 5 * MIB;
    let field = Field::start(Plan { image_bytes: IMAGE, spare_hosts: 1, ..Plan::default() })?;
    let disk = field.lab.dir().join("disk").display().to_string();
    let words = ["--disk", &disk, "--disk-writes", "8M"];
    let node = field.join(0, field.origin.addr(), "all").args(&words).ready()?;
    node.wait_status("it says so", AGAIN, |status| status["warnings"].to_string().contains("--disk-writes"))?;
    client::compare_all(field.host(0), &node, &field.image)?;
    client::compare_all(field.host(0), &node, &field.image)?;
    let status = node.status()?;
    let held = number(&image(&status)["held_bytes"]);
    assert!((8 * MIB..MOST).contains(&held) && image(&status)["filled"] == false, "{held} bytes are held");
    Ok(())
}

/// A program whose processes are in a group with this much memory from the start on, and the group,
/// which goes with its value.
pub fn grouped(lab: &Lab, memory_bytes: u64) -> Result<(Vfield, Cgroup), LabError> {
    let tag = lab.dir().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let group = Cgroup::new(&tag, memory_bytes)?;
    let path = lab.dir().join("grouped");
    let (entrance, program) = (group.entrance(), vfield());
    let text = format!("#!/bin/sh\necho $$ >{}\nexec {} \"$@\"\n", entrance.display(), program.path().display());
    std::fs::write(&path, text).map_err(LabError::at(&path))?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).map_err(LabError::at(&path))?;
    Ok((Vfield::at(&path), group))
}

#[test]
fn a_store_that_is_larger_than_its_groups_memory_lies_on_a_disk() -> Outcome {
    const IMAGE: u64 = 160 * MIB;
    if !have(&[Need::Root, Need::Tool("nbdcopy")]) || !cgroup::are_there() {
        return Ok(());
    }
    let field = Field::start(Plan { image_bytes: IMAGE, spare_hosts: 1, ..Plan::default() })?;
    let (program, _group) = grouped(&field.lab, 112 * MIB)?;
    let join = |words: &[&str]| program.join(field.host(0), field.origin.addr()).store("all").args(words).spawn();
    let mut refused = join(&[])?;
    wait_until("it is refused", AGAIN, || refused.process_mut().ended().is_some())?;
    let log = refused.process().log();
    assert!(log.contains("is more than this daemon's memory of 112.0 MiB") && log.contains("--disk"), "{log}");
    drop(refused);
    // The kernel gives the pages of the file back before anything else. A lab's directory may lie
    // in memory, and its pages would not go.
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let mut node = join(&["--disk", &disk.path().display().to_string()])?;
    node.wait("filled", AGAIN)?;
    client::compare_all(field.host(0), &node, &field.image)?;
    client::compare_all(field.host(0), &node, &field.image)?;
    assert!(number(&node.status()?["memory"]["process_bytes"]) < 112 * MIB);
    node.kill();
    drop(node);
    Ok(())
}

/// A small file system in memory; gone with its value.
struct Small(PathBuf);

impl Small {
    fn new(path: PathBuf) -> Result<Self, LabError> {
        std::fs::create_dir(&path).map_err(LabError::at(&path))?;
        let mounted = mount("none", &path, "tmpfs", MountFlags::empty(), Some(c"size=10m"));
        mounted.map_err(|error| LabError::at(&path)(error.into()))?;
        Ok(Self(path))
    }

    /// Somebody has cleared it up.
    fn grow(&self) -> Result<(), LabError> {
        let grown = mount_remount(&self.0, MountFlags::empty(), c"size=100m");
        grown.map_err(|error| LabError::at(&self.0)(error.into()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // A daemon that has files there ends with its field.
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_disk_that_is_cleared_up_and_a_torn_label_cost_no_read() -> Outcome {
    if !have(&[Need::Root, Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let field = Field::start(Plan { image_bytes: IMAGE, spare_hosts: 1, ..Plan::default() })?;
    let small = Small::new(field.lab.dir().join("small"))?;
    let sized = PathBuf::from(format!("{}:1G", small.0.display()));
    let mut node = join(&field, 0, &field.origin, &sized)?;
    client::compare_all(field.host(0), &node, &field.image)?;
    node.wait_status("the disk is full", AGAIN, |status| {
        let held = number(&image(status)["held_bytes"]);
        // Chunks that came while the disk refused the first one may count for a while.
        image(status)["filled"] == true && held > MIB && held < IMAGE
    })?;
    client::compare_all(field.host(0), &node, &field.image)?;
    let warnings = node.status()?["warnings"].to_string();
    assert_eq!(warnings.matches("takes no more chunks (No space left on device").count(), 1, "{warnings}");

    small.grow()?;
    node.wait_status("the store has grown", AGAIN, |status| {
        image(status)["filled"] == true && number(&image(status)["held_bytes"]) >= IMAGE
    })?;
    client::compare_all(field.host(0), &node, &field.image)?;

    // The label is torn: the store is none, and another one takes its place.
    node.kill();
    let (_, store) = file(&small.0)?;
    let length = store.metadata()?.len();
    store.write_all_at(&[0; 300], length - 300)?;
    drop(store);
    let node = join(&field, 0, &field.origin, &sized)?;
    client::compare_all(field.host(0), &node, &field.image)?;
    let status = node.status()?;
    let warnings = status["warnings"].to_string();
    assert!(warnings.contains("is not used: it has no label"), "{warnings}");
    assert_eq!(number(&image(&status)["taken_over_bytes"]), 0);
    Ok(())
}

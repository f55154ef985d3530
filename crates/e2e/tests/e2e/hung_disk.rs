//! A disk that stands still, as that of a file server that is gone: under an origin's file, under a
//! member's store, under its overlay, and under the files that it keeps for its next start.
//!
//! An origin's other images are read, it says why this one is not, and reads go on with the disk.
//! A member reads from others meanwhile, and has its store again with the disk. So does a node that
//! surveys its store. A start or a reload that waits for the disk says so.
//! The disk is a mount of another field. Its daemon is stopped: then reads of files on it wait in
//! the kernel. Writes wait for a file system that is frozen.

use rustix::process::Signal;
use serde_json::Value;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::field::NEWS;
use vfield_e2e::program::vfield;
use vfield_e2e::tree::{self, Tree};
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::daemon::Start;
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Daemon, Lab, LabError, Vfield, client, daemon, process, wait_until};

/// A disk stands still if no read has ended for five seconds.
const STILL: Duration = Duration::from_secs(20);

fn source<'a>(status: &'a Value, image: &str) -> &'a str {
    let images = status["images"].as_array();
    let image = images.into_iter().flatten().find(|one| one["name"] == image);
    image.and_then(|image| image["source"]["state"].as_str()).unwrap_or_default()
}

/// A survey of so much takes longer than a daemon takes to become ready and to say what it holds. A
/// quarter of it was surveyed in less on fast processors, ten times in a row.
const SURVEYED_BYTES: u64 = 96 * MIB;
/// On a busy machine it may be over in the moment before the disk is stopped.
const TRIES: u32 = 10;
const FROZEN_NEEDS: [Need; 4] = [Need::Root, Need::Tool("mkfs.ext4"), Need::Tool("fsfreeze"), Need::Tool("nbdcopy")];
const NEEDS: [Need; 4] = [Need::Root, Need::Fuse, Need::Tool("mkfs.ext4"), Need::Tool("nbdcopy")];

/// A file system for stores. Its disk is a mount of another field, on the hosts 0 and 1.
struct Disk {
    _origin: Daemon,
    mount: Daemon,
    file: PathBuf,
    tree: Tree,
}

impl Disk {
    /// With room for a store of this size.
    fn of(lab: &Lab, vfield: &Vfield, store_bytes: u64) -> Result<Self, LabError> {
        let file = lab.dir().join("below.img");
        let size = format!("{}M", 36 + 2 * store_bytes.div_ceil(MIB));
        tree::format(&file, &size)?;
        let origin = vfield.serve(lab.host(0), &[&file]).name("below").ready()?;
        let writable = ["--overlay", "ram", "--overlay-size", &size];
        let mount = vfield.join(lab.host(1), origin.addr()).store("0").mounted(true).args(&writable).ready()?;
        let file = mount.mount().expect("it is mounted").join("below.img");
        let tree = Tree::of(lab.host(1), &file)?;
        Ok(Self { _origin: origin, mount, file, tree })
    }

    fn stores(&self) -> PathBuf {
        self.tree.dir().join("stores")
    }

    /// Has a node of one thread put its store there.
    fn under<'a>(&self, node: Start<'a>) -> Start<'a> {
        let stores = self.stores();
        node.store("all").args(&["--disk", stores.to_str().expect("a plain path"), "--threads", "1"])
    }

    /// Writes everything to the disk, and leaves nothing of the stores in memory.
    fn forget(&self) -> Outcome {
        let stores: io::Result<Vec<_>> = std::fs::read_dir(self.stores())?.map(|entry| Ok(entry?.path())).collect();
        self.forget_files(&stores?)
    }

    /// Writes everything to the disk, and leaves nothing of these files in memory.
    fn forget_files(&self, files: &[PathBuf]) -> Outcome {
        run(Command::new("sync").arg("--file-system").arg(self.tree.dir()))?;
        for file in files {
            client::forget(file)?;
        }
        Ok(client::forget(&self.file)?)
    }
}

/// An origin on host 2, and a node on host 3 with all of its image in a store on such a disk.
struct Filled {
    image: PathBuf,
    disk: Disk,
    origin: Daemon,
    node: Daemon,
}

impl Filled {
    fn room(lab: &Lab, length_bytes: u64) -> Result<Self, LabError> {
        let vfield = vfield();
        let image = random_file(&lab.dir().join("room.img"), length_bytes, 1)?;
        let disk = Disk::of(lab, &vfield, length_bytes)?;
        let origin = vfield.serve(lab.host(2), &[&image]).name("origin").ready()?;
        let node = disk.under(vfield.join(lab.host(3), origin.addr())).ready()?;
        node.wait("filled", daemon::FILL_LIMIT)?;
        Ok(Self { image, disk, origin, node })
    }
}

/// Bytes that came to a node from the origin.
fn came(status: &Value) -> u64 {
    status["traffic"]["from_origin_bytes"].as_u64().unwrap_or_default()
}

#[test]
fn a_disk_that_stands_still_holds_up_its_own_image_only() -> Outcome {
    if !have(&[Need::Root, Need::Fuse, Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(4)?, vfield());
    let hung = random_file(&lab.dir().join("hung.img"), 4 * MIB, 1)?;
    let well = random_file(&lab.dir().join("well.img"), 4 * MIB, 2)?;
    let below = vfield.serve(lab.host(0), &[&hung]).name("below").ready()?;
    let mut disk = vfield.join(lab.host(1), below.addr()).store("0").mounted(true).ready()?;
    let file = disk.mount().expect("it is mounted").join("hung.img");
    // As on the smallest machine: one thread for everybody.
    let mut origin = vfield.serve(lab.host(2), &[&file, &well]).args(&["--threads", "1"]).name("origin").ready()?;
    let both = ["--image", "hung.img", "--image", "well.img"];
    let node = vfield.join(lab.host(3), origin.addr()).store("0").args(&both).ready()?;
    client::forget(&file)?;
    disk.process_mut().freeze();
    std::thread::scope(|scope| {
        let at = [(2, origin.uri("hung.img")), (3, node.uri("hung.img"))];
        let waiting = at.map(|(host, uri)| {
            let (lab, hung) = (&lab, &hung);
            scope.spawn(move || client::compare_nbd(lab.host(host), &uri, hung))
        });
        let still = origin.wait_status("it stands still", STILL, |status| source(status, "hung.img") == "unreachable");
        let said = still.and_then(|()| origin.says("hung.img does not deliver: no read has ended for", NEWS));
        let [of_origin, of_node] = [(2, &origin), (3, &node)]
            .map(|(host, daemon)| client::compare_nbd(lab.host(host), &daemon.uri("well.img"), &well));
        assert!(!waiting.iter().any(|reader| reader.is_finished()), "they did not wait");
        disk.process_mut().thaw();
        let read = waiting.map(|reader| reader.join().expect("a reader does not panic"));
        read.into_iter().fold(said.and(of_origin).and(of_node), Result::and)
    })?;
    origin.wait_status("it delivers", NEWS, |status| source(status, "hung.img") == "checked")?;
    Ok(())
}

#[test]
fn a_store_on_a_disk_that_stands_still_holds_up_no_read() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let lab = Lab::loopback(4)?;
    let Filled { image, mut disk, mut origin, mut node } = Filled::room(&lab, 6 * MIB)?;
    let before = came(&node.status()?);
    disk.forget()?;
    disk.mount.process_mut().freeze();
    let read = client::compare_nbd(lab.host(3), &node.uri(""), &image);
    let said = node.says("does not deliver in time; other nodes are asked meanwhile", NEWS);
    let meanwhile = node.status();
    disk.mount.process_mut().thaw();
    read?;
    said?;
    assert!(came(&meanwhile?) > before, "it read from its disk");

    // The store is whole again: nobody else has the image now.
    node.wait_status("the disk delivers", STILL, |status| status["images"][0]["withheld_chunks"] == 0)?;
    origin.kill();
    disk.forget()?;
    client::compare_nbd(lab.host(3), &node.uri(""), &image)?;
    drop(node);
    Ok(disk.tree.unmount()?)
}

#[test]
fn a_survey_whose_disk_stands_still_holds_up_no_read() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let lab = Lab::loopback(4)?;
    let Filled { image, mut disk, mut origin, mut node } = Filled::room(&lab, SURVEYED_BYTES)?;
    let caught = (0..TRIES).any(|_| {
        node.kill();
        disk.forget().expect("the disk forgets");
        node = disk.under(vfield().join(lab.host(3), origin.addr())).ready().expect("it starts");
        disk.mount.process_mut().freeze();
        let held = node.status().expect("a status")["images"][0]["held_bytes"].as_u64();
        let is_caught = held.is_some_and(|held| held < SURVEYED_BYTES / 2);
        if !is_caught {
            disk.mount.process_mut().thaw();
        }
        is_caught
    });
    assert!(caught, "each survey had ended");
    let read = client::compare_nbd(lab.host(3), &node.uri(""), &image);
    let meanwhile = node.status();
    disk.mount.process_mut().thaw();
    read?;
    assert!(came(&meanwhile?) > 0, "it read from its disk");
    // A store that was closed meanwhile is opened again some time after.
    node.wait_status("all of it is here", daemon::FILL_LIMIT, |status| {
        status["images"][0]["held_bytes"].as_u64() >= Some(SURVEYED_BYTES)
    })?;
    assert_eq!(node.status()?["images"][0]["spoiled_chunks"], 0);
    origin.kill();
    client::compare_nbd(lab.host(3), &node.uri(""), &image)?;
    drop(node);
    Ok(disk.tree.unmount()?)
}

#[test]
fn a_start_that_waits_for_a_disk_says_so() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let lab = Lab::loopback(4)?;
    let Filled { image, mut disk, origin, mut node } = Filled::room(&lab, 6 * MIB)?;
    node.kill();
    disk.forget()?;
    disk.mount.process_mut().freeze();
    let mut node = disk.under(vfield().join(lab.host(3), origin.addr())).spawn()?;
    let said = node.says("has not answered for 5 s; the start waits for it", STILL);
    disk.mount.process_mut().thaw();
    said?;
    node.wait_ready(STILL)?;
    client::compare_nbd(lab.host(3), &node.uri(""), &image)?;
    drop(node);
    Ok(disk.tree.unmount()?)
}

/// A file system whose disk is a file.
fn tree_of(lab: &Lab, host: usize, length: &str) -> Result<Tree, LabError> {
    let disk = lab.dir().join("disk.img");
    tree::format(&disk, length)?;
    Tree::of(lab.host(host), &disk)
}

/// True if a thread of a process waits for the kernel, and does not wake for a signal.
fn is_stuck(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let state = |text: String| text.rsplit(") ").next().is_some_and(|state| state.starts_with('D'));
    threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok()).any(state)
}

#[test]
fn a_reload_whose_disk_stands_still_holds_up_nothing() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(3)?, vfield());
    let image = random_file(&lab.dir().join("room.img"), 6 * MIB, 1)?;
    let mut disk = Disk::of(&lab, &vfield, MIB)?;
    let keys = disk.tree.dir().join("field.keys");
    run(Command::new(vfield.path()).args(["key", "new"]).arg(&keys))?;
    let with_keys = ["--field-key", keys.to_str().expect("a plain path"), "--threads", "1"];
    let mut origin = vfield.serve(lab.host(2), &[&image]).args(&with_keys).name("origin").ready()?;
    disk.forget_files(&[keys])?;
    disk.mount.process_mut().freeze();
    let mut asked = origin.ask_to(&["key", "reload"]);
    let reloaded = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| run(&mut asked));
        process::signal(origin.process().pid(), Signal::HUP);
        let said = origin.says("not reloaded yet: no answer for 5 s from the disk of the field keys", STILL);
        let read = client::compare_nbd(lab.host(2), &origin.uri(""), &image);
        let waits = !waiting.is_finished();
        disk.mount.process_mut().thaw();
        let reloaded = waiting.join().expect("a client does not panic");
        said.and(read)?;
        assert!(waits, "the keys were read without the disk");
        reloaded
    })?;
    origin.says(&format!("reloaded: field keys {}", reloaded.trim()), STILL)?;
    drop(origin);
    Ok(disk.tree.unmount()?)
}

/// A machine without a store can have nothing on its disk that others need.
#[test]
fn a_disk_of_lasting_state_that_takes_no_write_holds_up_nothing() -> Outcome {
    if !have(&FROZEN_NEEDS) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(3)?, vfield());
    let image = random_file(&lab.dir().join("room.img"), 6 * MIB, 1)?;
    let tree = tree_of(&lab, 1, "32M")?;
    let origin = vfield.serve(lab.host(0), &[&image]).name("origin").ready()?;
    let members = tree.dir().join("members");
    let remembers = ["--members", members.to_str().expect("a plain path"), "--threads", "1"];
    let node = vfield.join(lab.host(1), origin.addr()).store("0").args(&remembers).ready()?;
    wait_until("the origin is remembered", NEWS, || members.exists())?;
    let frozen = tree.freeze()?;
    let other = vfield.join(lab.host(2), origin.addr()).name("other").store("0").ready()?;
    let stuck = wait_until("the other one is to be remembered", NEWS, || is_stuck(node.process().pid()));
    let read = client::compare_nbd(lab.host(1), &node.uri(""), &image);
    let status = node.status();
    drop(frozen);
    stuck?;
    read?;
    assert_eq!(status?["nodes"].as_array().map(Vec::len), Some(3));
    let addr = other.addr().to_string();
    let is_remembered = || std::fs::read_to_string(&members).is_ok_and(|lines| lines.contains(&addr));
    wait_until("the other one is remembered", NEWS, is_remembered)?;
    drop(node);
    Ok(tree.unmount()?)
}

#[test]
fn an_overlay_whose_disk_takes_no_write_holds_up_its_own_writes_only() -> Outcome {
    if !have(&FROZEN_NEEDS) || !have(&[Need::Tool("nbdsh")]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(3)?, vfield());
    let image = random_file(&lab.dir().join("room.img"), 6 * MIB, 1)?;
    let tree = tree_of(&lab, 1, "32M")?;
    let mut origin = vfield.serve(lab.host(0), &[&image]).name("origin").ready()?;
    let changes = tree.dir().join("changes");
    let overlay = ["--overlay", changes.to_str().expect("a plain path"), "--threads", "1"];
    let node = vfield.join(lab.host(1), origin.addr()).store("all").args(&overlay).ready()?;
    node.wait("filled", daemon::FILL_LIMIT)?;
    origin.kill();
    let frozen = tree.freeze()?;
    std::thread::scope(|scope| {
        let write = || client::nbdsh(lab.host(1), STILL, &node.uri(""), "h.pwrite(b'x' * 4096, 0)");
        let writing = scope.spawn(write);
        let stuck = wait_until("a write waits", NEWS, || is_stuck(node.process().pid()));
        let reader = vfield.join(lab.host(2), node.addr()).name("reader").store("0").ready();
        let read = reader.and_then(|reader| client::compare_nbd(lab.host(2), &reader.uri(""), &image));
        let status = node.status();
        drop(frozen);
        let written = writing.join().expect("a writer does not panic");
        stuck.and(read).and(status.map(drop)).and(written.map(drop))
    })?;
    client::nbdsh(lab.host(1), STILL, &node.uri(""), "assert h.pread(4, 0) == b'xxxx'")?;
    drop(node);
    Ok(tree.unmount()?)
}

/// At its end a daemon puts all changes on the disk. It says what it waits for, whoever ordered the
/// end also hears of it, and another signal ends it without them.
#[test]
fn an_end_that_waits_for_a_disk_says_so_and_can_be_had_without_it() -> Outcome {
    if !have(&FROZEN_NEEDS) || !have(&[Need::Tool("nbdsh")]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(2)?, vfield());
    let image = random_file(&lab.dir().join("room.img"), MIB, 1)?;
    let tree = tree_of(&lab, 1, "32M")?;
    let origin = vfield.serve(lab.host(0), &[&image]).name("origin").ready()?;
    for is_ordered in [false, true] {
        let changes = tree.dir().join(format!("changes-{is_ordered}"));
        let overlay = ["--overlay", changes.to_str().expect("a plain path")];
        let mut node = vfield.join(lab.host(1), origin.addr()).store("0").args(&overlay).ready()?;
        let (frozen, uri) = (tree.freeze()?, node.uri(""));
        let heard = lab.dir().join("heard");
        let mut leave = node.ask_to(&["leave", "--timeout", "0s"]);
        leave.stderr(std::fs::File::create(&heard)?);
        let is_told =
            || std::fs::read_to_string(&heard).is_ok_and(|text| text.contains("has not ended yet: see its log"));
        let said = std::thread::scope(|scope| {
            // It ends with the daemon.
            scope.spawn(|| client::nbdsh(lab.host(1), STILL, &uri, "h.pwrite(b'x' * 4096, 0)"));
            let said = wait_until("a write waits", NEWS, || is_stuck(node.process().pid())).and_then(|_| {
                if is_ordered {
                    scope.spawn(move || leave.status());
                } else {
                    node.process_mut().terminate();
                }
                node.says("waiting until what clients wrote is on the disk", STILL)?;
                if is_ordered {
                    wait_until("the client says so", STILL, is_told)?;
                }
                node.process_mut().terminate();
                node.says("ended at once: what clients wrote last may be lost", STILL)
            });
            drop(frozen);
            said
        });
        said?;
        assert!(!node.process_mut().wait(STILL)?.success());
    }
    Ok(tree.unmount()?)
}

#[test]
fn a_store_whose_disk_takes_no_write_holds_up_no_read() -> Outcome {
    if !have(&FROZEN_NEEDS) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(2)?, vfield());
    // Several times as much as may wait for the disk.
    let image = random_file(&lab.dir().join("room.img"), 40 * MIB, 1)?;
    let tree = tree_of(&lab, 1, "96M")?;
    let origin = vfield.serve(lab.host(0), &[&image]).args(&["--limit-up", "1MB"]).name("origin").ready()?;
    let stores = tree.dir().join("stores");
    let on_disk = ["--disk", stores.to_str().expect("a plain path"), "--threads", "1"];
    let mut node = vfield.join(lab.host(1), origin.addr()).store("all").args(&on_disk).ready()?;
    node.wait_status("chunks come", daemon::FILL_LIMIT, |status| {
        status["images"][0]["held_bytes"].as_u64() > Some(MIB)
    })?;
    let frozen = tree.freeze()?;
    run(&mut origin.ask_to(&["limit", "--up", "none"]))?;
    let read = client::compare_nbd(lab.host(1), &node.uri(""), &image);
    let said = node.says("takes no more chunks (no write has ended for some seconds)", STILL);
    drop(frozen);
    read?;
    said?;
    // It looks for room again some time after.
    node.wait("filled", daemon::FILL_LIMIT)?;
    drop(node);
    Ok(tree.unmount()?)
}

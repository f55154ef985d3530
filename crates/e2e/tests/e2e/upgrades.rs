//! Another program in the place of a daemon, and a daemon that is killed under its guard. Readers
//! of all kinds go on. A program that cannot take over changes nothing.

use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vfield_e2e::field::{Field, Plan};
use vfield_e2e::program::example;
use vfield_e2e::watch::Watch;
use vfield_e2e::{Failed, Outcome};
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::need::{Need, have};
use vfield_lab::process::{kill, run, signal};
use vfield_lab::{Daemon, LabError, Vfield, client, wait_until};

/// A daemon that is killed is started again at once.
const AGAIN: Duration = Duration::from_secs(30);
const IMAGE: u64 = 24 * MIB + 777;
const ROUNDS: usize = 10;
/// FUSE asks again since Linux 6.9.
const NEEDS: [Need; 5] = [Need::Root, Need::Fuse, Need::Tool("nbdcopy"), Need::Tool("nbdsh"), Need::Linux(6, 9)];

pub(crate) fn pid(daemon: &Daemon) -> Result<u64, LabError> {
    Ok(daemon.status()?["pid"].as_u64().expect("a daemon has a process"))
}

/// Kills the daemon below its guard, and waits for the next one.
pub(crate) fn crash(daemon: &Daemon, limit: Duration) -> Result<(), LabError> {
    let before = pid(daemon)?;
    kill(u32::try_from(before).expect("a process"));
    wait_until("another daemon serves", limit, || pid(daemon).is_ok_and(|pid| pid != before)).map(drop)
}

/// Copies a program that is started at once. No thread of the tests may have it open for writing: a
/// child that another thread starts at that moment would inherit that, and the program be busy.
fn copy_program(from: &Path, to: &Path) -> Result<(), LabError> {
    run(Command::new("cp").arg(from).arg(to)).map(drop)
}

/// A field with one node under a guard, started from a program that can be replaced.
fn guarded(stores: &[&str]) -> Result<(Field, Daemon, PathBuf), Failed> {
    let field = Field::start(Plan { image_bytes: IMAGE, stores, spare_hosts: 1, ..Plan::default() })?;
    let own = field.lab.dir().join("vfield-own");
    copy_program(field.vfield.path(), &own)?;
    let last = field.nodes.len();
    let through = field.nodes.last().unwrap_or(&field.origin).addr();
    let vfield = Vfield::at(&own);
    let start = vfield.join(field.host(last), through).store("all").args(&["--join-boost", "9", "--guard"]);
    let node = start.mounted(true).ready()?;
    node.wait("filled", AGAIN)?;
    Ok((field, node, own))
}

/// The mounted image.
fn mounted(node: &Daemon) -> PathBuf {
    node.mount().expect("it is mounted").join("disk.img")
}

/// Readers of a node over NBD and through FUSE.
fn readers(field: &Field, node: &Daemon) -> Result<[Watch; 2], LabError> {
    let host = field.host(field.nodes.len());
    Ok([Watch::nbd(host, node, &field.image)?, Watch::named("fuse", host, node, &mounted(node), &[], &field.image)?])
}

/// Ends readers that still read, if they saw nothing but the image's bytes.
fn judge(readers: impl IntoIterator<Item = Watch>, node: &Daemon) -> Result<(), LabError> {
    let log = node.process().log();
    readers.into_iter().try_for_each(|reader| {
        reader.goes_on()?;
        reader.judge(&log, 0);
        Ok(())
    })
}

fn go_on(readers: &[Watch]) -> Result<(), LabError> {
    readers.iter().try_for_each(Watch::goes_on)
}

#[test]
fn ten_upgrades_refuse_no_read() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let (field, mut node, _own) = guarded(&[])?;
    let guard = node.process().pid();
    let readers = readers(&field, &node)?;
    let file = std::fs::File::open(mounted(&node))?;
    for round in 0..ROUNDS {
        go_on(&readers)?;
        let before = pid(&node)?;
        let said = run(&mut node.ask("upgrade"))?;
        let after = pid(&node)?;
        assert_ne!(before, after, "round {round}: {said}");
        assert!(said.contains(&format!("process {before} -> ")) && said.contains("a pause of "), "{said}");
        // A new client of each kind.
        client::compare_all(field.host(0), &node, &field.image)?;
    }
    // It was opened before the first upgrade.
    assert_eq!(file.metadata()?.len(), IMAGE.next_multiple_of(512));
    drop(file);
    assert_eq!(node.process().pid(), guard, "who started the daemon sees one process");
    judge(readers, &node)?;
    // What the first daemon was left with is what the last one has.
    let status = node.status()?;
    assert!(status["images"][0]["taken_over_bytes"].as_u64() > Some(IMAGE / 2), "{status:#}");
    node.leave(AGAIN)?;
    Ok(())
}

#[test]
fn an_origin_upgrades_without_a_pause_for_its_hashes() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let field = Field::start(Plan { image_bytes: IMAGE, spare_hosts: 1, ..Plan::default() })?;
    let image = field.lab.dir().join("second.img");
    std::fs::copy(&field.image, &image)?;
    let start = field.vfield.serve(field.host(0), &[&image]).name("second").args(&["--guard"]).mounted(true);
    let mut node = start.ready()?;
    let reader = Watch::nbd(field.host(0), &node, &image)?;
    for _ in 0..3 {
        reader.goes_on()?;
        run(&mut node.ask("upgrade"))?;
    }
    judge([reader], &node)?;
    node.leave(AGAIN)?;
    Ok(())
}

#[test]
fn a_program_that_cannot_take_over_changes_nothing() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let (field, mut node, own) = guarded(&[])?;
    let readers = readers(&field, &node)?;
    go_on(&readers)?;
    let before = pid(&node)?;
    let refusal = |program: Option<&Path>| {
        let mut command = node.ask("upgrade");
        command.args(program.iter().flat_map(|path| [Path::new("--program"), path]));
        let refused = run(&mut command).expect_err("no such program takes over").to_string();
        assert_eq!(pid(&node).ok(), Some(before), "{refused}");
        refused
    };
    // A program of the wrong kind, a text, and a file without the right to be executed.
    let other = refusal(Some(Path::new("/bin/true")));
    assert!(other.contains("was not taken: it has ended: exit status: 0"), "{other}");
    let broken = field.lab.dir().join("broken");
    std::fs::write(&broken, "no program")?;
    std::fs::set_permissions(&broken, std::fs::Permissions::from_mode(0o755))?;
    let refused = refusal(Some(&broken));
    assert!(refused.contains("it does not start"), "{refused}");
    std::fs::set_permissions(&broken, std::fs::Permissions::from_mode(0o644))?;
    let refused = refusal(Some(&broken));
    assert!(refused.contains("ermission denied"), "{refused}");
    // The text lies where the daemon's own program came from.
    std::fs::rename(&own, own.with_extension("away"))?;
    copy_program(&broken, &own)?;
    let refused = run(Command::new(field.vfield.path()).args(["upgrade", "--control"]).arg(node.control()));
    let refused = refused.expect_err("it cannot be executed").to_string();
    assert!(refused.contains("ermission denied"), "{refused}");
    std::fs::rename(own.with_extension("away"), &own)?;
    assert_eq!(pid(&node)?, before);

    judge(readers, &node)?;
    node.leave(AGAIN)?;
    Ok(())
}

#[test]
fn the_program_before_comes_back_if_the_next_one_ends() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let (field, mut node, _own) = guarded(&[])?;
    let readers = readers(&field, &node)?;
    go_on(&readers)?;
    let refused = run(node.ask("upgrade").arg("--program").arg(example("quitter"))).expect_err("it ends").to_string();
    assert!(refused.contains("not upgraded: the new program has ended"), "{refused}");
    judge(readers, &node)?;
    // And the next attempt is one like any other.
    run(&mut node.ask("upgrade"))?;
    client::compare_all(field.host(0), &node, &field.image)?;
    node.leave(AGAIN)?;
    Ok(())
}

#[test]
fn a_mount_outlives_a_killed_daemon() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let (field, mut node, _own) = guarded(&[])?;
    let host = field.host(0);
    let reader = Watch::named("fuse", host, &node, &mounted(&node), &[], &field.image)?;
    for _ in 0..3 {
        reader.goes_on()?;
        crash(&node, AGAIN)?;
    }
    judge([reader], &node)?;
    client::compare_all(host, &node, &field.image)?;
    node.leave(AGAIN)?;
    assert!(std::fs::read_dir(node.mount().expect("it was mounted"))?.next().is_none(), "nothing is mounted");
    Ok(())
}

/// What people have told a daemon: names and room of its images, limits, and whether it is drained.
fn ordered(node: &Daemon) -> Result<Value, LabError> {
    let status = node.status()?;
    let of = |image: &Value| json!([image["name"], image["id"], image["capacity_bytes"]]);
    let mut images: Vec<Value> = status["images"].as_array().expect("images").iter().map(of).collect();
    images.sort_unstable_by_key(Value::to_string);
    let limits = &status["limits"];
    let of_images = limits["images"].as_array().expect("limits").iter();
    let of_images = of_images.map(|of| json!([of["image"], of["up"]["setting"], of["down"]["setting"]]));
    let of_images: Vec<Value> = of_images.collect();
    Ok(json!({
        "images": images,
        "limits": [limits["up"]["setting"], limits["down"]["setting"], of_images],
        "drained": status["draining"],
    }))
}

/// Settings say how a daemon starts. What people told it since then holds for the next program, and
/// for the next process after a crash.
#[test]
fn orders_hold_for_the_next_program_and_after_a_crash() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    // It has joined without naming an image, since there was only one.
    let (field, mut node, _own) = guarded(&[])?;
    let order = |daemon: &Daemon, words: &[&str]| run(&mut daemon.ask_to(words));
    let names = ["layer-0.img", "layer-1.img", "layer-2.img"];
    let files = names.iter().zip(20..).map(|(name, seed)| random_file(&field.lab.dir().join(name), MIB, seed));
    let files: Vec<PathBuf> = files.collect::<Result<_, _>>()?;
    for (name, file) in names.iter().zip(&files) {
        order(&field.origin, &["add", file.to_str().expect("a path")])?;
        order(&node, &["add", name, "--store", "50%"])?;
    }
    order(&node, &["drop", names[2]])?;
    order(&node, &["drop", "disk.img"])?;
    order(&node, &["limit", "--up", "500M,08:00-18:00=400M"])?;
    order(&node, &["limit", "--image", names[0], "--down", "300M"])?;
    let before = ordered(&node)?;
    assert_eq!(before["images"].as_array().map(Vec::len), Some(2), "{before:#}");
    assert_eq!(before["limits"][2], json!([[names[0], "none", "300M"]]), "{before:#}");

    // The first image is the one that a client gets who names none.
    let mounted = node.mount().expect("it is mounted").join(names[1]);
    let fuse = Watch::named("fuse", field.host(0), &node, &mounted, &[], &files[1])?;
    let readers = [Watch::nbd(field.host(0), &node, &files[0])?, fuse];
    go_on(&readers)?;
    order(&node, &["upgrade"])?;
    assert_eq!(ordered(&node)?, before);
    judge(readers, &node)?;

    // A program that was handed its orders hands them on.
    order(&node, &["drain"])?;
    let before = ordered(&node)?;
    assert_eq!(before["drained"], true);
    for _ in 0..2 {
        crash(&node, AGAIN)?;
        assert_eq!(ordered(&node)?, before);
    }
    // A crash has cut clients off. They come back though the node is drained.
    for (name, file) in names.iter().zip(&files).take(2) {
        client::compare_nbd(field.host(0), &node.uri(name), file)?;
    }
    order(&node, &["upgrade"])?;
    let turned_away = run(field.host(0).command("nbdinfo").arg(node.uri(names[0])));
    assert!(turned_away.is_err() && ordered(&node)? == before, "a drained node takes no new clients");
    order(&node, &["drain", "--undo"])?;
    client::compare_nbd(field.host(0), &node.uri(names[0]), &files[0])?;
    node.leave(AGAIN)?;
    Ok(())
}

/// The next version of an image is a file that is added, and the version before is dropped. An
/// upgrade or a crash changes nothing about that, as long as nobody has written to the file.
#[test]
fn an_added_file_is_left_to_the_next_process() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let field = Field::start(Plan { image_bytes: IMAGE, spare_hosts: 1, ..Plan::default() })?;
    let file = |name: &str, seed| random_file(&field.lab.dir().join(name), IMAGE, seed);
    let (first, next, other) = (file("first.img", 20)?, file("next.img", 21)?, file("other.img", 22)?);
    let start = field.vfield.serve(field.host(0), &[&first]).name("second").args(&["--guard"]).mounted(true);
    let mut node = start.ready()?;
    let guard = node.process().pid();
    // The guard hears of it a moment later.
    let is_left = |file: &Path, left: bool| {
        let has = || {
            let mut open = std::fs::read_dir(format!("/proc/{guard}/fd")).into_iter().flatten().flatten();
            open.any(|open| std::fs::read_link(open.path()).is_ok_and(|open| open == file))
        };
        wait_until(&format!("the guard has {}: {left}", file.display()), AGAIN, || has() == left)
    };
    let order = |words: &[&str]| run(&mut node.ask_to(words));
    let add = |file: &Path| run(node.ask_to(&["add"]).arg(file));
    for file in [&next, &other] {
        add(file)?;
        is_left(file, true)?;
    }
    order(&["drop", "--force", "first.img"])?;
    order(&["drop", "--force", "other.img"])?;
    // Else its lease would keep writers out.
    is_left(&other, false)?;
    let id = node.status()?["images"][0]["id"].clone();
    let reader =
        Watch::named("fuse", field.host(0), &node, &node.mount().expect("a mount").join("next.img"), &[], &next)?;
    for is_killed in [false, true, false] {
        reader.goes_on()?;
        if is_killed {
            crash(&node, AGAIN)?;
        } else {
            order(&["upgrade"])?;
        }
        let status = node.status()?;
        assert_eq!(status["images"].as_array().map(Vec::len), Some(1), "{status:#}");
        assert_eq!(status["images"][0]["id"], id, "{status:#}");
        client::compare_nbd(field.host(0), &node.uri("next.img"), &next)?;
        // Compared with its hashes, and writers are kept out.
        node.wait_status("the file is intact", AGAIN, |status| status["images"][0]["source"]["state"] == "intact")?;
    }
    judge([reader], &node)?;

    // A writer that comes while no daemon is there waits for the next one, and no longer. What it
    // has written to is another file, so the settings hold again.
    signal(guard, Signal::STOP);
    kill(pid(&node)? as u32);
    let (path, inode) = (next.clone(), std::fs::metadata(&next)?.ino());
    let writer = std::thread::spawn(move || std::fs::OpenOptions::new().append(true).open(path)?.write_all(b"more"));
    let waits = |line: &str| line.contains("BREAKING") && line.contains(&format!(":{inode} "));
    let is_waiting = || std::fs::read_to_string("/proc/locks").is_ok_and(|locks| locks.lines().any(&waits));
    wait_until("the writer waits", AGAIN, is_waiting)?;
    signal(guard, Signal::CONT);
    wait_until("the writer is let in", AGAIN, || writer.is_finished())?;
    writer.join().expect("no panic")?;
    let refused = order(&["upgrade"]).expect_err("it is refused").to_string();
    assert!(
        refused.contains("next.img was added as a file that cannot be handed over: it was written to"),
        "{refused}"
    );
    crash(&node, AGAIN)?;
    let status = node.status()?;
    assert_eq!(status["images"].as_array().map(Vec::len), Some(1), "{status:#}");
    assert_eq!(status["images"][0]["name"], "first.img", "{status:#}");
    let log = node.process().log();
    assert!(log.contains("next.img is not served any more"), "{log}");
    is_left(&next, false)?;
    client::compare_nbd(field.host(0), &node.uri("first.img"), &first)?;
    node.leave(AGAIN)?;
    Ok(())
}

#[test]
fn guard_and_daemon_are_one_to_whoever_signals() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let (field, mut node, own) = guarded(&["40%"])?;
    let daemon = pid(&node)? as u32;
    let gone = || !Path::new(&format!("/proc/{daemon}")).exists();
    node.process_mut().terminate();
    assert!(node.process_mut().wait(AGAIN)?.success(), "{}", node.process().log_tail());
    assert!(gone() && node.process().log().contains("this node has left the field"));

    // Killed, it takes its daemon with it.
    let vfield = Vfield::at(&own);
    let start = vfield.join(field.host(1), field.origin.addr()).store("0").args(&["--guard"]);
    let mut node = start.ready()?;
    let daemon = pid(&node)? as u32;
    signal(node.process().pid(), Signal::KILL);
    wait_until("the daemon has ended", AGAIN, || !Path::new(&format!("/proc/{daemon}")).exists())?;
    node.process_mut().wait(AGAIN)?;
    Ok(())
}

#[test]
fn what_cannot_be_handed_over_is_refused() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let field = Field::start(Plan { image_bytes: IMAGE, stores: &["0"], spare_hosts: 1, ..Plan::default() })?;
    let refused = |node: &Daemon| run(&mut node.ask("upgrade")).expect_err("it is refused").to_string();
    let none = refused(&field.nodes[0]);
    assert!(none.contains("this daemon has no guard"), "{none}");
    let start = field.join(1, field.origin.addr(), "0").args(&["--guard", "--overlay", "ram", "--overlay-size", "1M"]);
    let mut node = start.ready()?;
    let overlay = refused(&node);
    assert!(overlay.contains("changes in an overlay cannot be handed over"), "{overlay}");
    let status: Value = node.status()?;
    assert!(status["images"].is_array());
    node.leave(AGAIN)?;
    Ok(())
}

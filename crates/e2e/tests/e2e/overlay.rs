//! Private changes: real file systems on them, daemons that are killed, saves that come back and
//! those that must not.

use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::field::{Field, NEWS, Plan};
use vfield_e2e::program::vfield;
use vfield_e2e::tree::{self, Tree};
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Daemon, Host, Lab, LabError, client, wait_until};

/// A command of a test takes a second or two.
const LIMIT: Duration = Duration::from_secs(60);

/// `vfield overlay WORDS` of a daemon; what it printed.
fn overlay(node: &Daemon, words: &[&str]) -> Result<String, LabError> {
    run(node.ask("overlay").args(words))
}

/// What `vfield overlay` complains of.
fn refused(node: &Daemon, words: &[&str]) -> String {
    match overlay(node, words) {
        Ok(said) => panic!("overlay {words:?} was done: {said}"),
        Err(error) => error.to_string(),
    }
}

fn held(node: &Daemon) -> Result<u64, LabError> {
    let status: Value = serde_json::from_str(&overlay(node, &["status", "--json"])?).unwrap_or_default();
    Ok(status[0]["held_bytes"].as_u64().unwrap_or_else(|| panic!("{status:#}")))
}

fn nbdsh(host: &Host, node: &Daemon, script: &str) -> Result<String, LabError> {
    client::nbdsh(host, LIMIT, &node.uri(""), script)
}

#[test]
fn a_file_system_is_saved_restored_and_reset() -> Outcome {
    if !have(&[Need::Root, Need::Fuse, Need::Tool("mkfs.ext4"), Need::Tool("b3sum")]) {
        return Ok(());
    }
    let lab = Lab::best(2)?;
    let (vfield, image) = (vfield(), lab.dir().join("root.img"));
    run(Command::new("truncate").args(["-s", "48M"]).arg(&image))?;
    let files = lab.dir().join("files");
    std::fs::create_dir(&files)?;
    random_file(&files.join("base"), 9 * MIB, 1)?;
    run(Command::new("mkfs.ext4").args(["-q", "-F", "-d"]).arg(&files).arg(&image))?;
    let origin = vfield.serve(lab.host(0), &[&image]).name("origin").ready()?;
    let (host, before) = (lab.host(1), client::checksum_file(lab.host(0), &image)?);
    let join = |words: &[&str]| {
        let start = vfield.join(host, origin.addr()).store("30%").mounted(true);
        start.args(&["--overlay", "ram", "--overlay-size", "64M"]).args(words).ready()
    };
    let saved = lab.dir().join("changes.vfo");
    let words = saved.to_str().expect("a plain path");

    let mut node = join(&[])?;
    let file = |node: &Daemon| node.mount().expect("it is mounted").join("root.img");
    let tree = Tree::of(host, &file(&node))?;
    client::compare_file(host, &tree.dir().join("base"), &files.join("base"))?;
    let written = random_file(&tree.dir().join("written"), 5 * MIB, 2)?;
    let sum = client::checksum_file(host, &written)?;
    std::fs::remove_file(tree.dir().join("base"))?;
    tree.unmount()?;
    assert!(held(&node)? >= 5 * MIB);
    assert!(overlay(&node, &["save", words])?.contains("saved"));
    assert!(node.leave(LIMIT)?.success(), "{}", node.process().log_tail());

    // Only the saved changes were kept.
    let mut node = join(&[])?;
    assert_eq!(held(&node)?, 0);
    client::compare_nbd(host, &node.uri(""), &image)?;
    assert!(node.leave(LIMIT)?.success());

    let node = join(&["--overlay-from", words])?;
    let tree = Tree::of(host, &file(&node))?;
    assert_eq!(client::checksum_file(host, &tree.dir().join("written"))?, sum);
    assert!(!tree.dir().join("base").exists());
    tree.unmount()?;
    overlay(&node, &["reset"])?;
    assert_eq!(held(&node)?, 0);
    let tree = Tree::of(host, &file(&node))?;
    assert!(!tree.dir().join("written").exists());
    client::compare_file(host, &tree.dir().join("base"), &files.join("base"))?;
    tree.unmount()?;
    // Nobody else has seen any of it.
    assert_eq!(client::checksum_file(lab.host(0), &image)?, before);
    client::compare_nbd(lab.host(0), &origin.uri(""), &image)?;
    Ok(())
}

#[test]
fn a_reset_under_a_file_system_says_so() -> Outcome {
    let tools = [Need::Root, Need::Fuse, Need::Tool("mkfs.ext4"), Need::Tool("nbdsh"), Need::Tool("unshare")];
    if !have(&tools) {
        return Ok(());
    }
    let lab = Lab::best(1)?;
    let (vfield, host, image) = (vfield(), lab.host(0), lab.dir().join("root.img"));
    tree::format(&image, "16M")?;
    let node = vfield.serve(host, &[&image]).mounted(true).args(&["--overlay", "ram"]).ready()?;
    let tree = Tree::of(host, &node.mount().expect("it is mounted").join("root.img"))?;
    let in_use = || {
        let said = refused(&node, &["reset"]);
        assert!(said.contains("root.img is in use") && said.contains("unmount") && said.contains("--force"), "{said}");
    };
    in_use();
    // Another mount namespace has it, too: `umount` returns, and the file system lives on.
    let mut copy = host.spawn(
        "copy",
        host.command("unshare")
            .args(["--mount", "sh", "-c", "echo ready; read never"])
            .stdin(std::process::Stdio::piped()),
    )?;
    wait_until("a copy of all mounts", LIMIT, || copy.log().contains("ready"))?;
    run(Command::new("umount").arg(tree.dir()))?;
    in_use();
    copy.kill();
    overlay(&node, &["reset"])?;
    assert_eq!(held(&node)?, 0);

    nbdsh(host, &node, "h.pwrite(b'x' * 4096, 0)")?;
    let ask = node.ask("overlay");
    let words: Vec<_> =
        std::iter::once(ask.get_program()).chain(ask.get_args()).map(|word| format!("{word:?}")).collect();
    let script = format!(
        "import subprocess\nreset = [{}, 'reset']\n\
         assert subprocess.run(reset).returncode == 1\n\
         subprocess.run(reset + ['--force'], check=True)\n\
         assert h.pread(4096, 0) != b'x' * 4096",
        words.join(", ")
    );
    nbdsh(host, &node, &script)?;
    assert!(overlay(&node, &[])?.starts_with("root.img: 0 B of "), "`vfield overlay` alone is its status");
    Ok(())
}

/// An overlay that is too small for what a file system of blocks of `block` bytes is to take:
/// all acknowledged changes are there, in a larger overlay with its changes.
fn nothing_acknowledged_is_lost(block: &str) -> Outcome {
    if !have(&[Need::Root, Need::Fuse, Need::Tool("mkfs.ext4")]) {
        return Ok(());
    }
    let lab = Lab::best(1)?;
    let (vfield, host, image) = (vfield(), lab.host(0), lab.dir().join("root.img"));
    run(Command::new("truncate").args(["-s", "64M"]).arg(&image))?;
    run(Command::new("mkfs.ext4").args(["-q", "-F", "-b", block]).arg(&image))?;
    let serve = |size: &str, name: &str| {
        let start = vfield.serve(host, &[&image]).mounted(true).name(name);
        start.args(&["--overlay", "ram", "--overlay-size", size])
    };
    let file = |node: &Daemon| node.mount().expect("it is mounted").join("root.img");

    let mut node = serve("20M", "small").ready()?;
    let tree = Tree::of(host, &file(&node))?;
    let done = tree.fill(host)?;
    assert!((1..=5).contains(&done), "{done} files of 4 MB were acknowledged, in 20 MiB");
    let status = node.status()?;
    assert!(status["overlays"][0]["refused_bytes"].as_u64() > Some(0), "{:#}", status["overlays"]);
    let shown = run(&mut node.ask("status"))?;
    assert!(shown.contains("writes were refused") && shown.contains("--overlay-size"), "{shown}");
    tree.unmount()?;
    let saved = lab.dir().join("changes.vfo");
    let words = saved.to_str().expect("a plain path");
    overlay(&node, &["save", words])?;
    assert!(node.leave(LIMIT)?.success());
    let log = node.process().log();
    let told = log.lines().filter(|line| line.contains("the overlay is full")).count();
    assert_eq!(told, 1, "said once:\n{log}");

    let node = serve("128M", "large").args(&["--overlay-from", words]).ready()?;
    let tree = Tree::of(host, &file(&node))?;
    tree.has_filled(done);
    tree.unmount()?;
    Ok(())
}

#[test]
fn a_full_overlay_loses_nothing_acknowledged_in_blocks_of_1_kib() -> Outcome {
    nothing_acknowledged_is_lost("1024")
}

#[test]
fn a_full_overlay_loses_nothing_acknowledged_in_blocks_of_2_kib() -> Outcome {
    nothing_acknowledged_is_lost("2048")
}

#[test]
fn a_full_overlay_loses_nothing_acknowledged_in_blocks_of_4_kib() -> Outcome {
    nothing_acknowledged_is_lost("4096")
}

#[test]
fn what_was_flushed_is_there_after_a_kill() -> Outcome {
    if !have(&[Need::Tool("nbdsh"), Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let field = Field::start(Plan { spare_hosts: 1, ..Plan::default() })?;
    let (host, dir) = (field.host(0), field.lab.dir().join("changes"));
    let dir = dir.to_str().expect("a plain path");
    let join = |name: &str| field.join(0, field.origin.addr(), "30%").name(name).args(&["--overlay", dir]);
    let mut node = join("first").ready()?;
    // A granule of its own for each number, in an order that jumps about; said when it is flushed.
    let script = "import itertools\n\
                  for turn in itertools.count():\n    \
                  h.pwrite(turn.to_bytes(4, 'big') * 1024, turn * 1327 % 6000 * 4096)\n    \
                  h.flush()\n    print(turn, flush=True)";
    let connect = format!("h.connect_uri({:?})", node.uri(""));
    let mut words = host.client(LIMIT, "/usr/bin/python3");
    let mut writer = host.spawn("writer", words.args(["-m", "nbd", "-c", &connect, "-c", script]))?;
    wait_until("a hundred flushes", LIMIT, || writer.log().lines().count() > 100)?;
    node.kill();
    writer.wait(LIMIT)?;
    let said = writer.log();
    let last = said.lines().filter_map(|line| line.parse::<u64>().ok()).next_back().expect("it has said numbers");
    drop(node);

    let mut node = join("second").ready()?;
    nbdsh(
        host,
        &node,
        &format!(
            "for turn in range({last} + 1):\n    \
             found = h.pread(4096, turn * 1327 % 6000 * 4096)\n    \
             assert found == turn.to_bytes(4, 'big') * 1024, turn"
        ),
    )?;
    assert!(held(&node)? >= (last + 1).min(6000) * 4096);

    // While it lives the directory is its own.
    let listen = std::net::SocketAddr::new(host.addr().ip(), host.addr().port() + 1);
    let mut other = join("third").listen(listen).spawn()?;
    assert!(!other.process_mut().wait(NEWS)?.success());
    let log = other.process().log();
    assert!(log.contains(&format!("another daemon keeps its changes in {dir}")), "{log}");

    // Nor is it overwritten; and nobody is told to ask a daemon that there is none of.
    let saved = field.lab.dir().join("saved.vfo");
    let saved = saved.to_str().expect("a plain path");
    overlay(&node, &["save", saved])?;
    assert!(node.leave(LIMIT)?.success());
    let mut other = join("over").args(&["--overlay-from", saved]).spawn()?;
    assert!(!other.process_mut().wait(NEWS)?.success());
    let log = other.process().log();
    assert!(log.contains("there are changes already") && log.contains(&format!("remove {dir}/")), "{log}");
    assert!(!log.contains("vfield overlay reset"), "{log}");
    let mut node = join("again").ready()?;

    // After a polite end everything is there, flushed or not; and another image does not get it.
    nbdsh(host, &node, "h.pwrite(b'x' * 4096, 7 * 4096)")?;
    assert!(node.leave(LIMIT)?.success());
    let node = join("fourth").ready()?;
    nbdsh(host, &node, "assert h.pread(4096, 7 * 4096) == b'x' * 4096")?;
    drop(node);
    std::fs::create_dir(field.lab.dir().join("other"))?;
    let image = random_file(&field.lab.dir().join("other/disk.img"), MIB, 9)?;
    let mut serve = field.vfield.serve(host, &[&image]).name("fifth").args(&["--overlay", dir]).spawn()?;
    assert!(!serve.process_mut().wait(NEWS)?.success());
    let log = serve.process().log();
    assert!(log.contains("disk.img.index holds changes to image"), "{log}");
    Ok(())
}

#[test]
fn what_cannot_be_restored_or_saved_is_said_in_a_line() -> Outcome {
    if !have(&[Need::Tool("nbdsh")]) {
        return Ok(());
    }
    let lab = Lab::best(1)?;
    let (vfield, host) = (vfield(), lab.host(0));
    let red = random_file(&lab.dir().join("red.img"), 3 * MIB, 1)?;
    let blue = random_file(&lab.dir().join("blue.img"), 2 * MIB + 5, 2)?;
    let serve = |words: &[&str]| vfield.serve(host, &[&red, &blue]).args(&["--overlay", "ram"]).args(words);
    let mut node = serve(&["--overlay-size", "1M"]).ready()?;
    let path = |name: &str| lab.dir().join(name).to_str().expect("a plain path").to_owned();
    let saved = path("red.vfo");
    assert!(refused(&node, &["save", &saved]).contains("several overlays"));
    assert!(refused(&node, &["reset", "--image", "green"]).contains("this daemon has no image \"green\""));
    client::nbdsh(
        host,
        LIMIT,
        &node.uri("red.img"),
        "import errno\n\
         h.pwrite(b'r' * (1 << 20), 0)\n\
         try:\n    h.pwrite(b'r' * 4096, 2 << 20)\n\
         except nbd.Error as error:\n    assert error.errnum == errno.ENOSPC, error\n\
         else:\n    raise AssertionError('it was full')\n\
         h.pwrite(b's' * 4096, 4096)\n\
         h.trim(1 << 20, 0)\n\
         h.pwrite(b'r' * 70000, 1 << 20)",
    )?;
    overlay(&node, &["save", "--image", "red.img", &saved])?;
    let old = std::fs::read(&saved)?;
    for (file, why) in [
        (path("red.img"), "exists and is no saved overlay"),
        (path("missing/x"), "no such file or directory"),
        ("/dev/null".to_owned(), "exists and is no saved overlay"),
    ] {
        assert!(refused(&node, &["save", "--image", "red.img", &file]).contains(why), "{file}");
    }
    let status = node.status()?;
    assert_eq!((&status["overlays"][0]["image"], &status["overlays"][1]["held_bytes"]), (&"red.img".into(), &0.into()));
    assert!(run(&mut node.ask("status"))?.contains("written    "), "people see it as well");
    assert!(node.leave(LIMIT)?.success());
    assert!(node.process().log().contains("of changes to red.img end with this daemon"), "{}", node.process().log());

    // Each of these is refused before or while it starts, with one line and a hint, and touches
    // nothing.
    let said = |name: &str, bytes: &[u8], words: &[&str]| -> Result<String, LabError> {
        std::fs::write(&saved, bytes).expect("room for a small file");
        let mut daemon = serve(words).args(&["--overlay-from", &saved]).name(name).spawn()?;
        assert!(!daemon.process_mut().wait(NEWS)?.success());
        Ok(daemon.process().log())
    };
    let mut newer = old.clone();
    newer[8] = 9;
    let mut corrupt = old.clone();
    corrupt[old.len() / 2] ^= 1;
    let mut other = old.clone();
    other[20] ^= 1;
    for (name, bytes, words, why) in [
        ("truncated", &old[..old.len() - 1], &[][..], "red.vfo is truncated"),
        ("newer", &newer, &[], "format 9, newer than this program knows"),
        ("corrupt", &corrupt, &[], "red.vfo is corrupt: its checksum is wrong"),
        ("other", &other, &[], "which this node does not have"),
        ("large", &old, &["--overlay-size", "16K"], "of changes, more than 16.0 KiB"),
    ] {
        let log = said(name, bytes, words)?;
        assert!(log.contains(why) && log.contains("\nhint: ") && !log.contains("panicked"), "{name}: {log}");
    }
    std::fs::write(&saved, &old)?;
    let node = serve(&["--overlay-from", &saved]).name("restored").ready()?;
    client::nbdsh(host, LIMIT, &node.uri("red.img"), "assert h.pread(70000, 1 << 20) == b'r' * 70000")?;
    client::compare_nbd(host, &node.uri("blue.img"), &blue)?;
    Ok(())
}

#[test]
fn a_save_is_all_there_or_the_old_one() -> Outcome {
    if !have(&[Need::Tool("nbdsh")]) {
        return Ok(());
    }
    let mut field =
        Field::start(Plan { image_bytes: 64 * MIB, stores: &["0"], join: &["--overlay", "ram"], ..Plan::default() })?;
    let saved = field.lab.dir().join("changes.vfo");
    let words = saved.to_str().expect("a plain path").to_owned();
    let host = field.host(0);
    nbdsh(host, &field.nodes[0], "h.pwrite(b'1' * 4096, 0)")?;
    overlay(&field.nodes[0], &["save", &words])?;
    let old = std::fs::read(&saved)?;
    nbdsh(host, &field.nodes[0], "for place in range(0, 64 << 20, 1 << 20):\n    h.pwrite(b'2' * (1 << 20), place)")?;
    let mut save = field.nodes[0].ask("overlay").args(["save", &words]).spawn()?;
    // In the middle of it: a new file is growing beside the old one.
    let growing = || {
        let files = std::fs::read_dir(field.lab.dir()).into_iter().flatten().flatten();
        let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
        names.into_iter().any(|name| name.starts_with(".changes.vfo."))
    };
    wait_until("a save that has begun, or ended", LIMIT, || growing() || matches!(save.try_wait(), Ok(Some(_))))?;
    field.nodes[0].kill();
    save.wait()?;
    let new = std::fs::read(&saved)?;
    assert!(new == old || new.len() as u64 > 64 * MIB, "{} bytes of one of {}", new.len(), old.len());
    let through = field.origin.addr();
    let again = field.join(0, through, "0").args(&["--overlay", "ram", "--overlay-from", &words]).ready()?;
    nbdsh(field.host(0), &again, "assert h.pread(4096, 0) in (b'1' * 4096, b'2' * 4096)")?;
    Ok(())
}

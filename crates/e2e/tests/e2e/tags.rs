//! Images over time: a room follows a tag forward and back, under readers, and is not led astray.

use crate::signatures::new_key;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use vfield_e2e::program::vfield;
use vfield_e2e::{Failed, Outcome};
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::client::{compare_file, compare_nbd};
use vfield_lab::need::{Need, fuse_works, have, is_root};
use vfield_lab::process::run;
use vfield_lab::{Daemon, Lab, LabError, wait_until};

/// Stores of a few MB fill at once; a busy machine takes longer.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A field of an origin and a follower, and the operator's keys.
pub(crate) struct Room {
    pub lab: Lab,
    public: PathBuf,
    secret: PathBuf,
    pub origin: Daemon,
}

impl Room {
    /// The origin serves `images`, made by `make` from their names.
    pub fn of(hosts: usize, images: &[&str], make: impl Fn(&Path, u64) -> Result<(), Failed>) -> Result<Self, Failed> {
        Self::in_lab(Lab::loopback(hosts)?, images, make)
    }

    /// The same on the hosts of a lab; the first is the origin's.
    pub fn in_lab(lab: Lab, images: &[&str], make: impl Fn(&Path, u64) -> Result<(), Failed>) -> Result<Self, Failed> {
        let vfield = vfield();
        let [public, secret] = new_key(&lab, "operator")?;
        let paths: Vec<PathBuf> = images.iter().map(|name| lab.dir().join(name)).collect();
        (1..).zip(&paths).try_for_each(|(seed, path)| make(path, seed))?;
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let origin = vfield.serve(lab.host(0), &paths).ready()?;
        Ok(Self { lab, public, secret, origin })
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.lab.dir().join(name)
    }

    /// `vfield tag` or `vfield publish` of the operator, at the origin.
    pub fn operator(&self, words: &[&str]) -> Result<String, LabError> {
        self.with_key(&self.secret, words)
    }

    fn with_key(&self, secret: &Path, words: &[&str]) -> Result<String, LabError> {
        run(self.origin.ask_to(words).arg("--secret-key").arg(secret))
    }

    pub fn publish(&self, image: &str) -> Result<String, LabError> {
        let file = self.file(image).display().to_string();
        self.operator(&["publish", &file, "--tag", "prod"])
    }

    /// A node that follows the tag, with a store of this size.
    pub fn follower(&self, host: usize, store: &str) -> Result<Daemon, LabError> {
        self.follower_with(host, store, &[])
    }

    pub fn follower_with(&self, host: usize, store: &str, more: &[&str]) -> Result<Daemon, LabError> {
        let trust = self.public.display().to_string();
        let words = ["--follow", "prod", "--trust", &trust, "--join-boost", "9", "--retry", "forever"];
        vfield()
            .join(self.lab.host(host), self.origin.addr())
            .args(&words)
            .args(more)
            .store(store)
            .mounted(true)
            .spawn()
    }
}

pub(crate) fn image(path: &Path, seed: u64) -> Result<(), Failed> {
    random_file(path, 3 * MIB + 512 * seed, seed)?;
    Ok(())
}

/// Waits until the follower is ready with a serial.
pub(crate) fn ready(node: &Daemon, serial: u64) -> Result<(), LabError> {
    node.wait_status(&format!("serial {serial} is ready"), SOON, |status| {
        let following = &status["following"][0];
        following["serial"] == serial && following["state"] == "ready"
    })
}

/// The words of a refusal.
fn refusal(outcome: Result<String, LabError>) -> String {
    outcome.map_or_else(|error| error.to_string(), |said| panic!("it was accepted: {said}"))
}

#[test]
fn a_room_follows_a_tag_forward_and_back() -> Outcome {
    if !have(&[Need::Tool("minisign"), Need::Tool("nbdcopy")]) || !fuse_works() {
        return Ok(());
    }
    let room = Room::of(3, &["v1.img", "v2.img"], image)?;
    let (v1, v2) = (room.file("v1.img"), room.file("v2.img"));
    assert!(room.publish("v1.img")?.starts_with("tag prod: serial 1 names the image "));
    let mut node = room.follower(1, "all")?;
    node.wait_ready(SOON)?;
    ready(&node, 1)?;
    let link = node.mount().expect("it is mounted").join("prod");
    assert!(std::fs::read_link(&link).is_ok_and(|to| to.to_string_lossy().starts_with("prod-")), "{link:?}");
    compare_file(room.lab.host(1), &link, &v1)?;
    compare_nbd(room.lab.host(1), &node.uri("prod"), &v1)?;

    // An open file stays what it is; a newcomer finds the new version.
    let old = File::open(&link)?;
    let said = room.publish("v2.img")?;
    assert!(said.starts_with("tag prod: serial 2 names the image "), "{said}");
    assert!(said.ends_with("shared with serial 1: 0 of 49 chunks with data, 0 %: see vfield pack"), "{said}");
    ready(&node, 2)?;
    compare_file(room.lab.host(1), &link, &v2)?;
    for name in ["prod", ""] {
        compare_nbd(room.lab.host(1), &node.uri(name), &v2)?;
    }
    let mut bytes = vec![0; MIB as usize];
    old.read_exact_at(&mut bytes, MIB)?;
    let expected = std::fs::read(&v1)?;
    assert_eq!(bytes, expected[MIB as usize..2 * MIB as usize], "an open file has become another version");

    // Another node comes, and finds the version of now.
    let mut other = room.follower(2, "all")?;
    other.wait_ready(SOON)?;
    ready(&other, 2)?;
    compare_file(room.lab.host(2), &other.mount().expect("it is mounted").join("prod"), &v2)?;

    // Back by a higher serial. The old version is still there, so no byte moves.
    let received =
        |node: &Daemon| Ok::<u64, LabError>(node.status()?["traffic"]["from_peers_bytes"].as_u64().unwrap_or(0));
    let before = received(&node)?;
    let said = room.operator(&["tag", "rollback", "prod"])?;
    assert!(said.starts_with("tag prod: serial 3 names the image "), "{said}");
    assert!(said.ends_with("that is the version of serial 1; to undo it: vfield tag rollback prod --to 2"), "{said}");
    ready(&node, 3)?;
    compare_file(room.lab.host(1), &link, &v1)?;
    assert_eq!(received(&node)?, before, "going back moved bytes");
    let said = run(&mut node.ask_to(&["tag", "ls"]))?;
    assert!(said.contains("prod") && said.contains("ready"), "{said}");
    Ok(())
}

/// A rule of a tag admits clients to the version that the tag names when they connect.
#[test]
fn a_rule_of_a_tag_moves_with_it() -> Outcome {
    if !have(&[Need::Tool("minisign"), Need::Tool("nbdcopy")]) || !fuse_works() {
        return Ok(());
    }
    let room = Room::of(2, &["v1.img", "v2.img"], image)?;
    room.publish("v1.img")?;
    let tcp = format!("tcp:{}:0", room.lab.host(1).addr().ip());
    let mut node = room.follower_with(1, "all", &["--nbd", &tcp, "--nbd-allow", "prod=127.0.0.0/8"])?;
    node.wait_ready(SOON)?;
    ready(&node, 1)?;
    let status = node.status()?;
    let addresses = status["exports"].as_array().into_iter().flatten().filter_map(|export| export["address"].as_str());
    let uri = addresses.into_iter().find(|address| address.starts_with("nbd://")).expect("a URI").to_owned();
    let uri = |name: &str| format!("{}/{name}", uri.trim_end_matches('/'));
    compare_nbd(room.lab.host(1), &uri("prod"), &room.file("v1.img"))?;
    let link = std::fs::read_link(node.mount().expect("it is mounted").join("prod"))?;
    room.publish("v2.img")?;
    ready(&node, 2)?;
    compare_nbd(room.lab.host(1), &uri("prod"), &room.file("v2.img"))?;
    let before = uri(&link.to_string_lossy());
    assert!(compare_nbd(room.lab.host(1), &before, &room.file("v1.img")).is_err(), "no rule names it any more");
    let log = node.process_mut().log();
    assert!(!log.contains("is closed to TCP clients"), "{log}");
    Ok(())
}

/// Each bad tag has one clear line, and nothing is switched.
#[test]
fn a_room_is_not_led_astray() -> Outcome {
    if !have(&[Need::Tool("minisign")]) || !fuse_works() {
        return Ok(());
    }
    let mut room = Room::of(2, &["v1.img", "v2.img"], image)?;
    let [_, foreign] = new_key(&room.lab, "foreign")?;
    room.publish("v1.img")?;
    room.operator(&["tag", "set", "prod", "v1.img", "--serial", "7"])?;
    let mut node = room.follower(1, "all")?;
    node.wait_ready(SOON)?;
    ready(&node, 7)?;
    let link = node.mount().expect("it is mounted").join("prod");

    let said = refusal(room.operator(&["tag", "set", "prod", "v2.img", "--serial", "6"]));
    assert!(said.contains("tag prod serial 6: serial 7 is known, and serials only grow"), "{said}");
    let said = refusal(room.operator(&["tag", "set", "prod", "v2.img", "--serial", "9007199254740992"]));
    assert!(said.contains("the serial of a tag is a number from 1 to 9007199254740991"), "{said}");
    // The last serial of all is taken up, and nothing comes after it.
    room.operator(&["tag", "set", "the-last", "v1.img", "--serial", "9007199254740991"])?;
    let said = refusal(room.operator(&["tag", "set", "the-last", "v2.img"]));
    assert!(said.contains("tag the-last serial 9007199254740991: no later serial is possible"), "{said}");
    node.wait_status("it knows the last serial", SOON, |status| {
        let tags = status["tags"].as_array();
        tags.is_some_and(|tags| tags.iter().any(|tag| tag["serial"] == 9_007_199_254_740_991_u64))
    })?;
    // A tag of another signer spreads, since the origin trusts nobody; a follower ignores it.
    room.with_key(&foreign, &["tag", "set", "prod", "v2.img", "--serial", "99"])?;
    node.says("its signer", SOON)?;
    node.says("is not trusted here; it is ignored", SOON)?;
    ready(&node, 7)?;
    // An image that nobody has: the follower says so, and goes on with what it has.
    let nobody = "ab".repeat(32);
    room.operator(&["tag", "set", "prod", &nobody])?;
    node.says("tag prod: no member has the image of serial 8, id abababababab; what is here goes on", SOON)?;
    compare_file(room.lab.host(1), &link, &room.file("v1.img"))?;
    let status = node.status()?;
    assert_eq!((&status["following"][0]["serial"], &status["following"][0]["state"]), (&7.into(), &"waiting".into()));
    // It is mended by the next serial.
    room.operator(&["tag", "set", "prod", "v2.img"])?;
    ready(&node, 9)?;
    compare_file(room.lab.host(1), &link, &room.file("v2.img"))?;
    // It is removed, and the node goes on.
    room.operator(&["tag", "rm", "prod"])?;
    node.says("tag prod: the tag was removed with serial 10; what is here goes on", SOON)?;
    compare_file(room.lab.host(1), &link, &room.file("v2.img"))?;

    // Another field replays an early tag; the node has seen a later one before its restart.
    node.leave(SOON)?;
    room.origin.kill();
    let files = [room.file("v1.img"), room.file("v2.img")];
    let program = vfield();
    let again = program.serve(room.lab.host(0), &[&files[0], &files[1]]).name("again").state(&room.file("again"));
    room.origin = again.ready()?;
    room.publish("v1.img")?;
    let mut node = room.follower(1, "all")?;
    node.says("serial 10", SOON)?;
    room.origin.wait_status("the later tag has come back", SOON, |status| status["tags"][0]["serial"] == 10)?;
    node.process_mut().kill();
    Ok(())
}

/// A follower without a trusted key has to say so, and then follows one signer only.
#[test]
fn who_trusts_nobody_says_so_and_follows_one_signer() -> Outcome {
    if !have(&[Need::Tool("minisign")]) || !fuse_works() {
        return Ok(());
    }
    let room = Room::of(2, &["v1.img", "v2.img"], image)?;
    let [_, foreign] = new_key(&room.lab, "foreign")?;
    let program = vfield();
    let start = |words: &[&str]| {
        let join = program.join(room.lab.host(1), room.origin.addr()).args(&["--follow", "prod"]);
        join.args(words).store("all").mounted(true).spawn()
    };
    let mut refused = start(&[])?;
    assert!(!refused.process_mut().wait(SOON)?.success());
    assert!(refused.process().log().contains("--follow needs --trust"), "{}", refused.process().log());
    room.publish("v1.img")?;
    let mut node = start(&["--open"])?;
    node.wait_ready(SOON)?;
    ready(&node, 1)?;
    room.with_key(&foreign, &["tag", "set", "prod", "v2.img", "--serial", "50"])?;
    node.wait_status("it knows both", SOON, |status| status["tags"].as_array().is_some_and(|tags| tags.len() == 2))?;
    ready(&node, 1)?;
    room.publish("v2.img")?;
    ready(&node, 2)?;
    Ok(())
}

/// The secret key is on a machine that the field does not reach, with the stock tool.
#[test]
fn a_tag_is_signed_on_another_machine() -> Outcome {
    if !have(&[Need::Tool("minisign")]) {
        return Ok(());
    }
    let room = Room::of(1, &["v1.img", "v2.img"], image)?;
    let (text, public) = (room.file("prod.tag"), room.public.display().to_string());
    let file = text.display().to_string();
    let ask = |words: &[&str]| run(&mut room.origin.ask_to(words));
    let unsigned = |words: &[&str]| ask(&[words, &["--unsigned", &file, "--signer", &public]].concat());
    let send = || ask(&["tag", "send", &file, "--signer", &public]);
    let v1 = room.file("v1.img").display().to_string();
    let said = unsigned(&["publish", &v1, "--tag", "prod"])?;
    assert!(said.contains("tag prod: serial 1 names the image ") && said.contains("nobody knows it yet"), "{said}");
    assert!(room.origin.status()?["tags"].as_array().is_none_or(Vec::is_empty), "somebody was told");
    assert!(refusal(send()).contains("prod.tag.minisig: no such file or directory"));
    let sign = || run(Command::new("minisign").arg("-Sm").arg(&text).arg("-s").arg(&room.secret));
    sign()?;
    assert!(send()?.starts_with("tag prod: serial 1 names the image "));

    unsigned(&["tag", "set", "prod", "v2.img"])?;
    assert!(refusal(send()).contains("its signature is wrong"), "the signature is that of another text");
    sign()?;
    send()?;
    unsigned(&["tag", "rollback", "prod"])?;
    sign()?;
    send()?;
    assert_eq!(room.origin.status()?["tags"][0]["serial"], 3);
    assert!(refusal(send()).contains("serial 3"), "it is sent once");
    std::fs::write(&text, "no tag\n")?;
    assert!(refusal(send()).contains("prod.tag: not the text of a tag"));
    Ok(())
}

/// A tag that is followed before anybody has made it, and an image that comes later.
#[test]
fn a_follower_waits_for_its_tag() -> Outcome {
    if !have(&[Need::Tool("minisign")]) || !fuse_works() {
        return Ok(());
    }
    let room = Room::of(3, &["v1.img"], image)?;
    let mut node = room.follower(1, "all")?;
    node.says("tag prod: no member knows the tag; what is here goes on", SOON)?;
    room.publish("v1.img")?;
    node.wait_ready(SOON)?;
    ready(&node, 1)?;
    // A name that was mistyped.
    let words = ["--follow", "prdo", "--open"];
    let mut mistaken = vfield().join(room.lab.host(2), room.origin.addr()).args(&words).store("0").spawn()?;
    let why = "no member knows the tag; members know prod";
    mistaken.says(&format!("tag prdo: {why}; what is here goes on"), SOON)?;
    let status = mistaken.ask_to(&["status"]).output()?;
    let said = String::from_utf8_lossy(&status.stderr);
    assert!(said.contains(&format!("the daemon is still starting: waiting for tag prdo: {why}")), "{said}");
    Ok(())
}

/// A tag that cannot be kept for a restart is followed all the same. It is kept once there is room.
#[test]
fn a_full_disk_takes_no_tag_away() -> Outcome {
    if !have(&[Need::Tool("minisign")]) || !is_root() {
        return Ok(());
    }
    let mut room = Room::of(1, &["v1.img", "v2.img"], image)?;
    let disk = room.file("disk");
    std::fs::create_dir(&disk)?;
    run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "disk"]).arg(&disk))?;
    let unmount = Unmount(disk.clone());
    room.origin.kill();
    let (program, files) = (vfield(), [room.file("v1.img"), room.file("v2.img")]);
    room.origin = program.serve(room.lab.host(0), &[&files[0], &files[1]]).name("again").state(&disk).ready()?;
    // The serial of the one tag in the daemon's place for lasting state.
    let kept = || {
        let files = std::fs::read_dir(disk.join("state")).into_iter().flatten().flatten();
        let is_tag = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json");
        let file =
            files.map(|file| file.path()).find(|path| is_tag(path) && path.to_string_lossy().contains("tag-"))?;
        let signed: serde_json::Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
        Some(signed["text"].as_str()?.lines().nth(2)?.to_owned())
    };
    room.publish("v1.img")?;
    wait_until("the first tag is kept", SOON, || kept().as_deref() == Some("serial 1"))?;
    let ballast = disk.join("ballast");
    std::fs::write(&ballast, vec![1; 1 << 20]).expect_err("the disk is full");
    assert!(room.publish("v2.img")?.starts_with("tag prod: serial 2 names the image "));
    let expected = format!("tag prod cannot be kept in {}: no space left on device", disk.join("state").display());
    room.origin.says(&expected, SOON)?;
    assert_eq!((&room.origin.status()?["tags"][0]["serial"], kept().as_deref()), (&2.into(), Some("serial 1")));
    std::fs::remove_file(ballast)?;
    wait_until("the second tag is kept", SOON, || kept().as_deref() == Some("serial 2"))?;
    assert_eq!(room.origin.process().log().matches("cannot be kept").count(), 1, "it is told once");
    room.origin.kill();
    drop(unmount);
    Ok(())
}

/// Makes a directory whose files say which version they are, and packs it.
fn packed(path: &Path, seed: u64) -> Result<(), Failed> {
    let source = path.with_extension("source");
    std::fs::create_dir_all(&source)?;
    for number in 0..8_u64 {
        let line = format!("version {seed} file {number}\n");
        std::fs::write(source.join(number.to_string()), line.repeat(20_000))?;
    }
    let mut pack = Command::new(vfield().path());
    run(pack.arg("pack").arg(&source).arg("-o").arg(path))?;
    Ok(())
}

/// Reads whole files again and again; each has to be of one version, from its first byte to its
/// last.
fn read_on(dir: &Path, stop: &AtomicBool, reads: &AtomicU64) -> Result<(), String> {
    for number in (0..8).cycle() {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let file = File::open(dir.join(number.to_string())).map_err(|error| format!("open: {error}"))?;
        let (mut first, mut bytes, mut at) = (None, vec![0; 1 << 16], 0);
        loop {
            let read = file.read_at(&mut bytes, at).map_err(|error| format!("read: {error}"))?;
            if read == 0 {
                break;
            }
            at += read as u64;
            let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
            let lines: Vec<&str> = text.lines().filter(|line| line.ends_with(&format!("file {number}"))).collect();
            for line in lines.iter().filter(|line| line.starts_with("version ")) {
                let version = first.get_or_insert_with(|| (*line).to_owned());
                if version != line {
                    return Err(format!("{version:?} and {line:?} in one open file"));
                }
            }
        }
        if at == 0 {
            return Err("an empty file".to_owned());
        }
        reads.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// A mount that follows moves forward and back under readers: no error, and no open file that
/// becomes another version.
#[test]
fn a_mount_follows_under_its_readers() -> Outcome {
    let needs = [Need::Root, Need::Tool("minisign"), Need::Tool("mkfs.erofs")];
    if !have(&needs) || !fuse_works() {
        return Ok(());
    }
    let room = Room::of(2, &["1.erofs", "2.erofs"], packed)?;
    room.publish("1.erofs")?;
    let mut node = room.follower(1, "all")?;
    node.wait_ready(SOON)?;
    ready(&node, 1)?;
    let dir = room.lab.dir().join("data");
    std::fs::create_dir(&dir)?;
    let unmount = Unmount(dir.clone());
    let mut command = Command::new(vfield().path());
    command.args(["mount", "--follow", "prod"]).arg(&dir).arg("--control").arg(node.control());
    let mut mount = room.lab.host(1).spawn("mount", &mut command)?;
    let version = |dir: &Path| {
        let text = std::fs::read_to_string(dir.join("3")).unwrap_or_default();
        text.lines().next().unwrap_or_default().to_owned()
    };
    wait_until("the first version is mounted", SOON, || version(&dir) == "version 1 file 3")?;

    let old = File::open(dir.join("3"))?;
    let (stop, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (dir, stop, reads) = (dir.clone(), Arc::clone(&stop), Arc::clone(&reads));
            std::thread::spawn(move || read_on(&dir, &stop, &reads))
        })
        .collect();
    for turn in 0..10_u64 {
        let wanted = 2 - turn % 2;
        match turn {
            0 => room.publish("2.erofs")?,
            _ => room.operator(&["tag", "rollback", "prod"])?,
        };
        let line = format!("version {wanted} file 3");
        wait_until(&format!("turn {turn}: {line}"), SOON, || version(&dir) == line)?;
        mount.check()?;
        let before = reads.load(Ordering::Relaxed);
        wait_until("the readers go on", SOON, || reads.load(Ordering::Relaxed) > before + 8)?;
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.join().expect("it does not panic").unwrap_or_else(|why| panic!("{why}"));
    }
    let mut bytes = vec![0; 16];
    old.read_exact_at(&mut bytes, 17 * 15_000)?;
    assert_eq!(&bytes, b"version 1 file 3", "an open file has become another version");
    println!("{} whole files were read meanwhile", reads.load(Ordering::Relaxed));
    // Beneath, and not over: one mount is left.
    let table = std::fs::read_to_string("/proc/self/mountinfo")?;
    let at_dir = table.lines().filter(|line| line.split(' ').nth(4) == dir.to_str()).count();
    assert!(at_dir == 1 || mount.log().contains("this kernel puts no mount beneath"), "{at_dir} mounts:\n{table}");
    // The mount outlives the command, which can be started again.
    mount.kill();
    assert_eq!(version(&dir), "version 1 file 3");
    let mut again = room.lab.host(1).spawn("mount-again", &mut command)?;
    room.operator(&["tag", "set", "prod", "2.erofs"])?;
    wait_until("it goes on after a restart", SOON, || version(&dir) == "version 2 file 3")?;
    again.check()?;
    again.kill();
    drop((old, unmount));
    Ok(())
}

/// Unmounts all that is mounted at a directory, whatever happens.
struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        while Command::new("umount").arg("-l").arg(&self.0).output().is_ok_and(|done| done.status.success()) {}
    }
}

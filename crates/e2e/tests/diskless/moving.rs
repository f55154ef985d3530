//! Roots that follow a tag: forward and back by soft-reboot, and back by itself after boots that
//! failed.

use crate::NEEDS;
use crate::room::{COMMAND, CONSOLE, IP, Room, UP};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use vfield_e2e::watch::Watch;
use vfield_e2e::{Failed, Outcome};
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::diskless::{Diskless, Images, Parts};
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Daemon, LabError, wait_until};

/// What the machine's root says that it is.
const VERSION: &str = "/etc/version-of-the-test";
/// Larger than what a node keeps of what passes through it: each read goes to a holder.
const DATA: u64 = 48 * MIB;
/// The ids of guard and daemon: nothing else has their name.
const DAEMON: &str = "for process in /proc/[0-9]*; do
        [ \"$(tr '\\0' '\\n' <$process/cmdline | head -n 1)\" = @vfield ] && echo ${process#/proc/}
    done 2>/dev/null; true";
/// Kills the daemon, whose guard starts it again.
const KILL_DAEMON: &str =
    "kill -KILL $(vfield status --json | sed -n 's/^  \"pid\": \\([0-9]*\\).*/\\1/p') && sleep 1 &&
    vfield status --wait ready --timeout 100s";

/// An operator who signs images and tags, and the daemon that serves them.
struct Operator {
    public: PathBuf,
    secret: PathBuf,
}

impl Operator {
    fn new(room: &Room) -> Result<Self, LabError> {
        let [public, secret] = ["operator.pub", "operator.key"].map(|name| room.lab.dir().join(name));
        run(Command::new("minisign").arg("-GWf").arg("-p").arg(&public).arg("-s").arg(&secret))?;
        Ok(Self { public, secret })
    }

    fn key(&self) -> Result<String, Failed> {
        let text = std::fs::read_to_string(&self.public)?;
        Ok(text.lines().last().unwrap_or_default().to_owned())
    }

    fn sign(&self, room: &Room, file: &Path) -> Result<(), LabError> {
        run(Command::new(room.vfield.path()).arg("sign").arg(file).arg("--secret-key").arg(&self.secret)).map(drop)
    }

    fn tells(&self, daemon: &Daemon, words: &[&str]) -> Result<String, LabError> {
        run(daemon.ask_to(words).arg("--secret-key").arg(&self.secret))
    }

    fn publishes(&self, daemon: &Daemon, file: &Path) -> Result<String, LabError> {
        let file = file.display().to_string();
        self.tells(daemon, &["publish", &file, "--tag", "prod"])
    }
}

/// Two versions of a root, the second one packed like the first; with the unit that follows.
fn versions(room: &Room) -> Result<[PathBuf; 2], Failed> {
    let dir = room.lab.dir();
    let (tree, files) = (dir.join("tree"), [dir.join("root-1.erofs"), dir.join("root-2.erofs")]);
    let unpack = ["-quiet", "-no-progress", "-dest"];
    run(Command::new("unsquashfs").args(unpack).arg(&tree).arg(room.images.path("root.squashfs")))?;
    let wants = tree.join("etc/systemd/system/multi-user.target.wants");
    std::fs::create_dir_all(&wants)?;
    let unit = "/usr/lib/systemd/system/vfieldroot.service";
    std::os::unix::fs::symlink(unit, wants.join("vfieldroot.service"))?;
    for (number, file) in (1..).zip(&files) {
        std::fs::write(tree.join(VERSION.trim_start_matches('/')), format!("{number}\n"))?;
        let mut pack = Command::new(room.vfield.path());
        pack.arg("pack").arg(&tree).arg("-o").arg(file);
        if number > 1 {
            pack.arg("--like").arg(&files[0]);
        }
        run(&mut pack)?;
    }
    // A tree of hundreds of megabytes is not to stay in memory.
    run(Command::new("rm").arg("-rf").arg(&tree))?;
    Ok(files)
}

/// How often a machine's shell has been started. A question to one that ends leaves half of a line
/// to the next one.
fn shells(room: &Room, name: &str) -> usize {
    room.console(name).matches("Started \u{1b}[0;1;39mtest-shell.service").count()
}

/// Waits until the machine's root is a version, with a shell more than `before`.
fn becomes(room: &Room, name: &str, machine: &mut Diskless, version: u32, before: usize) -> Result<(), LabError> {
    let what = format!("the root becomes version {version}");
    wait_until(&what, UP, || shells(room, name) > before)?;
    machine.up(UP)?;
    let is = format!("[ \"$(cat {VERSION})\" = {version} ] && systemctl is-active --quiet multi-user.target");
    machine.run(&is, COMMAND).map(drop)
}

#[test]
fn a_root_moves_by_soft_reboot() -> Outcome {
    root_moves("soft", "initrd")
}

#[test]
fn a_root_moves_by_soft_reboot_after_dracuts_initramfs() -> Outcome {
    root_moves("soft-dracut", "initrd.dracut")
}

/// A machine of this name moves forward and back under readers.
fn root_moves(name: &str, initrd: &str) -> Outcome {
    if !have(&NEEDS) || !have(&[Need::Tool("minisign"), Need::Tool("unsquashfs")]) {
        return Ok(());
    }
    let Some(images) = Images::find().and_then(|images| images.of_soft_reboot()) else {
        assert!(std::env::var_os("CI").is_none(), "scripts/diskless soft makes what this test boots");
        return Ok(());
    };
    let room = Room::of(images, 3)?;
    let operator = Operator::new(&room)?;
    let [v1, v2] = versions(&room)?;
    let data = random_file(&room.lab.dir().join("data"), DATA, 7)?;
    // The tag vouches for the roots.
    operator.sign(&room, &data)?;
    let mut origin = room.vfield.serve(room.lab.host(0), &[&v1, &data]).spawn()?;
    origin.wait_ready(UP)?;
    operator.publishes(&origin, &v1)?;
    let status = origin.status()?;
    let id = status["tags"][0]["image"].as_str().unwrap_or_default().to_owned();
    let words = format!(
        "{CONSOLE} {IP} root=vfield:prod={id}@{} vfield.store=all \
         vfield.also=data vfield.follow=prod vfield.trust={}",
        origin.addr(),
        operator.key()?
    );
    let initrd = Some(room.images.path(initrd));
    let mut machine = room.boot(1, name, &Parts { command_line: Some(words), initrd, ..Parts::default() })?;
    machine.run(&format!("[ \"$(cat {VERSION})\" = 1 ]"), COMMAND)?;
    machine.run("vfield status --wait filled --timeout 200s", COMMAND)?;
    let daemon = machine.run(DAEMON, COMMAND)?;
    assert_eq!(daemon.lines().count(), 2, "guard and daemon: {daemon}");

    // From here on only the machine has the data, and a node without a store reads it all the time.
    run(&mut origin.ask_to(&["drop", "data", "--force"]))?;
    let through: SocketAddr = "198.18.0.77:4440".parse().expect("an address");
    // Not so much that an emulated machine has time for nothing else.
    let words = ["--image", "data", "--limit-down", "4M"];
    let reader = room.vfield.join(room.lab.host(2), through).args(&words).store("0");
    let reader = reader.ready()?;
    let watch = Watch::nbd(room.lab.host(2), &reader, &data)?;
    watch.goes_on()?;

    // The tag moves, and nobody does anything on the machine.
    let before = shells(&room, name);
    operator.publishes(&origin, &v2)?;
    becomes(&room, name, &mut machine, 2, before)?;
    assert_eq!(machine.run(DAEMON, COMMAND)?, daemon, "guard and daemon are the same");
    let device = machine.run("findmnt --noheadings --output SOURCE --first-only /", COMMAND)?;
    assert_eq!(device, format!("vfield:{}", machine.run("vfield status --device prod", COMMAND)?));
    watch.goes_on()?;

    // A daemon that dies takes up all that the root may stand on, whatever its command line says.
    machine.run(KILL_DAEMON, COMMAND)?;
    machine
        .run("echo 3 >/proc/sys/vm/drop_caches; cat /usr/bin/* /usr/lib/systemd/* >/dev/null 2>&1; true", COMMAND)?;

    // Back, for which no byte has to be fetched; and then the other version is given back.
    let received = |machine: &mut Diskless| -> Result<u64, Failed> {
        let status: Value = serde_json::from_str(&machine.run("vfield status --json", COMMAND)?)?;
        let bytes = |key: &str| status["traffic"][key].as_u64().unwrap_or_default();
        Ok(bytes("from_peers_bytes") + bytes("from_origin_bytes"))
    };
    let fetched = received(&mut machine)?;
    let before = shells(&room, name);
    operator.tells(&origin, &["tag", "rollback", "prod"])?;
    becomes(&room, name, &mut machine, 1, before)?;
    assert_eq!(received(&mut machine)?, fetched, "going back moved bytes");
    operator.tells(&origin, &["tag", "set", "prod", &id, "--keep", "1"])?;
    let gone = "vfield gc; [ \"$(vfield status | grep -c 'export ublk:')\" = 2 ]";
    wait_until("the other version is given back", UP, || {
        machine.ask(gone, COMMAND).is_ok_and(|said| said.status == 0)
    })?;
    machine.run("! dmesg | grep -i -E 'i/o error|erofs.*error'", COMMAND)?;

    watch.goes_on()?;
    eprintln!("longest read at the machine's peer: {:.1} s", watch.longest().as_secs_f64());
    watch.judge(&reader.process().log(), 0);
    machine.power_off(UP)?;
    Ok(())
}

/// A root whose first process ends: the kernel panics.
fn broken(room: &Room) -> Result<PathBuf, Failed> {
    let (tree, image) = (room.lab.dir().join("broken"), room.lab.dir().join("root-2.squashfs"));
    for dir in ["bin", "sbin", "dev", "proc", "sys", "run", "tmp"] {
        std::fs::create_dir_all(tree.join(dir))?;
    }
    let script = "cp \"$(command -v busybox)\" \"$1/bin/busybox\" && ln -s busybox \"$1/bin/sh\" &&
        printf '#!/bin/sh\\necho this version does not work >/dev/console\\nexit 1\\n' >\"$1/sbin/init\" &&
        chmod +x \"$1/sbin/init\" && mksquashfs \"$1\" \"$2\" -quiet -no-progress";
    run(Command::new("sh").args(["-ec", script, "sh"]).arg(&tree).arg(&image))?;
    Ok(image)
}

#[test]
fn a_machine_whose_version_fails_three_times_goes_back() -> Outcome {
    if !have(&NEEDS) || !have(&[Need::Tool("minisign"), Need::Tool("busybox")]) {
        return Ok(());
    }
    let mut room = Room::new(2, "root.squashfs")?;
    let operator = Operator::new(&room)?;
    let v1 = room.images.path("root.squashfs");
    operator.publishes(room.origin(), &v1)?;
    room.netboot_from_origin("prod", "initrd", "vfield.store=64M")?;
    let boots = |room: &Room| -> Result<String, LabError> {
        let ask = "exec 3<>/dev/tcp/198.18.0.1/4480; printf 'GET /boots HTTP/1.1\\r\\nhost: x\\r\\nconnection: close\\r\\n\\r\\n' >&3; cat <&3";
        run(room.lab.host(0).command("bash").args(["-c", ask]))
    };
    let machine = room.boot(1, "works", &Parts::default())?;
    // It says so after half a minute.
    wait_until("the machine says that it runs", UP, || boots(&room).is_ok_and(|said| said.contains("serial 1: runs")))?;
    machine.power_off(UP)?;

    operator.publishes(room.origin(), &broken(&room)?)?;
    for boot in 1..=3 {
        let name = format!("fails-{boot}");
        let machine = Diskless::start(&room.images, room.lab.host(1), &name, &Parts::default())?;
        machine.ends(UP)?;
        let console = room.console(&name);
        assert!(console.contains("this version does not work"), "boot {boot}: {console}");
        let said = boots(&room)?;
        assert!(said.contains(&format!("serial 2: {boot} of 3 boots without a success")), "{said}");
    }

    // Nobody has done anything: the next boot is one of the version before, and stays one.
    let mut machine = room.boot(1, "back", &Parts::default())?;
    machine.run("grep -q ' vfield.failed=2 ' /proc/cmdline && test -e /usr/bin/vfield", COMMAND)?;
    assert!(room.netboot_log().contains("it gets serial 1"), "{}", room.netboot_log());
    let runs = "serial 1: runs, failed: 2";
    wait_until("the machine says that it runs", UP, || boots(&room).is_ok_and(|said| said.contains(runs)))?;
    machine.power_off(UP)?;
    Ok(())
}

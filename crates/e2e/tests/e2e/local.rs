//! Attacks by other users of the machine: on orders, on sockets, and on a daemon's memory.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use vfield_e2e::field::NEWS;
use vfield_e2e::impostor::Impostor;
use vfield_e2e::program::vfield;
use vfield_e2e::{Failed, Outcome};
use vfield_lab::Lab;
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::lab::Host;
use vfield_lab::need::{Need, have};
use vfield_lab::process::{Process, run};
use vfield_lab::wait::wait_until;

/// Users of a number, so that none has to be made: a service's account, and somebody else.
const SERVICE: u32 = 64_123;
const SOMEBODY: u32 = 64_124;
/// What commands take that only ask.
const SOON: Duration = Duration::from_secs(20);
/// Where root's daemons are controlled.
const CONTROL: &str = "/run/vfield/control.sock";
/// A shell's line that has a `/run` of its own before it starts what follows.
const OWN_RUN: &str = "mount -t tmpfs -o mode=755 run /run && exec \"$@\"";

/// A directory with an owner and a mode.
fn directory(path: &Path, uid: u32, mode: u32) -> Result<(), Failed> {
    std::fs::create_dir(path)?;
    chown(path, Some(uid), Some(uid))?;
    Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?)
}

/// The words of `setpriv` that make somebody another user, with nothing of root's.
fn becoming(uid: u32) -> [String; 3] {
    [format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".to_owned()]
}

/// A command as another user.
fn as_user(host: &Host, uid: u32, program: &Path) -> Command {
    let mut command = host.client(SOON, "setpriv");
    command.args(becoming(uid)).arg(program);
    command
}

#[test]
fn orders_are_not_told_to_an_impostor() -> Outcome {
    if !have(&[Need::Root]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(1)?, vfield());
    let host = lab.host(0);
    // As /tmp is: everybody can make something there first.
    let shared = host.dir().join("tmp");
    directory(&shared, 0, 0o1777)?;
    let usual = shared.join(format!("vfield-{SOMEBODY}"));
    let link = shared.join("link");
    let (open, own) = (host.dir().join("open"), host.dir().join("own"));
    directory(&usual, SERVICE, 0o755)?;
    directory(&open, SERVICE, 0o775)?;
    directory(&own, SERVICE, 0o755)?;
    std::os::unix::fs::symlink(&own, &link)?;
    std::os::unix::fs::lchown(&link, Some(SERVICE), Some(SERVICE))?;

    // A command, the directory that it names, and the one to which that leads.
    let program = vfield.path();
    let socket = |dir: &Path| dir.join("control.sock");
    let lured = [
        (as_user(host, SOMEBODY, program), None, &usual),
        (host.client(SOON, &program.display().to_string()), Some(&usual), &usual),
        (host.client(SOON, &program.display().to_string()), Some(&open), &open),
        (host.client(SOON, &program.display().to_string()), Some(&link), &own),
    ];
    for (mut ask, through, dir) in lured {
        let impostor = Impostor::at(&socket(dir), SERVICE)?;
        std::fs::set_permissions(socket(dir), std::fs::Permissions::from_mode(0o777))?;
        ask.env("TMPDIR", &shared).env_remove("XDG_RUNTIME_DIR").arg("leave");
        if let Some(through) = through {
            ask.arg("--control").arg(socket(through));
        }
        let said = run(&mut ask).expect_err("an impostor was taken for a daemon").to_string();
        assert!(said.contains(&format!("user {SERVICE} answers there")), "{said}");
        assert_eq!(impostor.heard()?, "", "{said}");
        std::fs::remove_file(socket(dir))?;
    }
    // Root may ask a user's own daemon, where nobody but that user could have put it.
    let daemon = Impostor::at(&socket(&own), SERVICE)?;
    let mut ask = host.client(SOON, &program.display().to_string());
    run(ask.arg("leave").arg("--control").arg(socket(&own))).expect_err("it says nothing");
    let heard = daemon.heard()?;
    assert!(heard.contains("leave"), "{heard}");
    Ok(())
}

/// Something done where a process sees its files.
fn beside(process: &Process, uid: u32, words: &[&str]) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--mount=/proc/{}/ns/mnt", process.pid())).args(["timeout", "20", "setpriv"]);
    command.args(becoming(uid)).args(words);
    command
}

#[test]
fn the_account_of_a_daemon_cannot_exchange_its_socket() -> Outcome {
    if !have(&[Need::Root]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(1)?, vfield());
    let host = lab.host(0);
    let program = vfield.path().to_str().expect("a path of text");
    let image = random_file(&lab.dir().join("disk.img"), MIB, 1)?;
    let image = image.to_str().expect("a path of text");
    let listen = host.addr().to_string();
    let mut start = host.command("unshare");
    start.args(["--mount", "sh", "-c", OWN_RUN, "sh"]);
    // A second one in the same place follows the first.
    let twice = format!("{program} \"$@\"; exec {program} \"$@\"");
    start.args(["sh", "-c", &twice, "sh", "serve", image, "--listen", &listen, "--user", "64123"]);
    start.args(["--nbd", "unix:/run/vfield/nbd.sock"]);
    let mut daemon = host.spawn("daemon", &mut start)?;
    let run_dir = format!("/proc/{}/root/run/vfield", daemon.pid());
    let running =
        |daemon: &Process| run(&mut beside(daemon, SERVICE, &[program, "status", "--control", CONTROL])).is_ok();
    for start in ["first", "second"] {
        wait_until(&format!("the {start} daemon is asked by its account"), NEWS, || running(&daemon))?;
        let dir = Path::new(&run_dir).metadata()?;
        assert_eq!((dir.uid(), dir.gid(), dir.mode() & 0o7777), (0, SERVICE, 0o710), "{start}");
        for name in ["control.sock", "nbd.sock"] {
            let (path, away) = (format!("/run/vfield/{name}"), format!("/run/vfield/{name}.away"));
            for attack in [vec!["rm", "-f", &path], vec!["mv", &path, &away], vec!["ln", "-sf", "/etc/shadow", &path]] {
                run(&mut beside(&daemon, SERVICE, &attack)).expect_err("root's directory was changed");
            }
        }
        run(&mut beside(&daemon, SERVICE, &[program, "leave", "--control", CONTROL]))?;
        assert!(!daemon.log().contains("could not be removed"), "{}", daemon.log());
    }
    assert!(daemon.wait(NEWS)?.success());
    Ok(())
}

#[test]
fn nobody_sees_the_memory_of_a_daemon() -> Outcome {
    if !have(&[Need::Root]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(1)?, vfield());
    let host = lab.host(0);
    let own = host.dir().join("own");
    directory(&own, SERVICE, 0o700)?;
    let (image, key, control) = (own.join("disk.img"), own.join("field.key"), own.join("control.sock"));
    random_file(&image, MIB, 1)?;
    chown(&image, Some(SERVICE), Some(SERVICE))?;
    run(as_user(host, SERVICE, vfield.path()).args(["key", "new"]).arg(&key))?;
    let mut start = host.command("setpriv");
    start.args(becoming(SERVICE)).arg(vfield.path()).arg("serve").arg(&image);
    start.arg("--listen").arg(host.addr().to_string()).arg("--control").arg(&control).arg("--field-key").arg(&key);
    let daemon = host.spawn("daemon", &mut start)?;
    let status = || run(as_user(host, SERVICE, vfield.path()).args(["status", "--control"]).arg(&control)).is_ok();
    wait_until("the daemon answers its user", NEWS, status)?;
    let of = |name: &str| format!("/proc/{}/{name}", daemon.pid());
    for hidden in ["environ", "maps", "mem", "fd/0"] {
        let said = run(as_user(host, SERVICE, Path::new("head")).args(["-c", "1"]).arg(of(hidden)));
        let said = said.expect_err("a process of the same user looked into a daemon").to_string();
        assert!(said.contains("ermission denied"), "{hidden}: {said}");
    }
    let limits = std::fs::read_to_string(of("limits"))?;
    let dump = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap_or_default();
    assert_eq!(dump.split_whitespace().filter(|word| *word == "0").count(), 2, "{limits}");
    Ok(())
}

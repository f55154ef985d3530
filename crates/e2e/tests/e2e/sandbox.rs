//! What daemons have given up once they run, as the kernel sees each of their threads.

use serde_json::Value;
use std::ffi::OsStr;
use std::fs::Permissions;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::field::NEWS;
use vfield_e2e::program::vfield;
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::need::{Need, have, is_root};
use vfield_lab::process::run;
use vfield_lab::wait::wait_until;
use vfield_lab::{Daemon, Lab, Vfield, client};

/// One line of each thread's `/proc/PID/task/TID/status`.
fn of_threads(daemon: &Daemon, key: &str) -> std::io::Result<Vec<String>> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.process().pid()))?;
    let value = |path: &Path| -> std::io::Result<String> {
        let status = std::fs::read_to_string(path.join("status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        Ok(line.trim_start_matches(':').trim().to_owned())
    };
    tasks.map(|task| value(&task?.path())).collect()
}

fn given_up(daemon: &Daemon) -> Result<Vec<String>, vfield_e2e::Failed> {
    let status = daemon.status()?;
    let parts = status["sandbox"].as_array().into_iter().flatten();
    Ok(parts.filter_map(Value::as_str).map(str::to_owned).collect())
}

/// An origin and a node that holds all of its image and has been read.
fn origin_and_node(
    lab: &Lab,
    image: &Path,
    words: &[impl AsRef<OsStr>],
) -> Result<(Daemon, Daemon), vfield_e2e::Failed> {
    let vfield = vfield();
    let origin = vfield.serve(lab.host(0), &[image]).args(words).name("origin").ready()?;
    let node = vfield.join(lab.host(1), origin.addr()).store("all").args(words).ready()?;
    node.wait("covered", NEWS)?;
    client::compare_nbd(lab.host(1), &node.uri(""), image)?;
    Ok((origin, node))
}

#[test]
fn every_thread_has_given_up_what_it_does_not_need() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let lab = Lab::best(3)?;
    let image = random_file(&lab.dir().join("disk.img"), 6 * MIB + 5, 1)?;
    let confined = ["--sandbox", "require", "--threads", "3"];
    let (origin, mut node) = origin_and_node(&lab, &image, &confined)?;
    for daemon in [&origin, &node] {
        let count = of_threads(daemon, "Name")?.len();
        assert!(count > 3, "{count} threads");
        // 2: a filter.
        assert_eq!(of_threads(daemon, "Seccomp")?, vec!["2"; count]);
        assert_eq!(of_threads(daemon, "NoNewPrivs")?, vec!["1"; count]);
        // dac_override, dac_read_search, lease (capabilities(7)): bits 1, 2 and 28.
        let kept = if is_root() { "0000000010000006" } else { "0000000000000000" };
        for set in ["CapEff", "CapPrm"] {
            assert_eq!(of_threads(daemon, set)?, vec![kept; count], "{set}");
        }
        let parts = given_up(daemon)?;
        assert!(parts.len() == 3 && parts.iter().all(|part| !part.starts_with("not ")), "{parts:?}");
    }
    // The polite end works in there, and leaves nothing behind.
    assert!(node.leave(Duration::from_secs(20))?.success());
    assert!(!node.nbd().exists());
    Ok(())
}

/// What the kernel refused to a process once it was confined, as strace(1) writes it.
fn refused(trace: &str) -> Vec<&str> {
    let confined = trace.lines().skip_while(|line| !line.contains("landlock_restrict_self")).skip(1);
    let refusals = ["= -1 ENOSYS", "= -1 EPERM", "= -1 EACCES"];
    // Of this call a filter cannot see what it is for; the C library makes the older one then.
    let known = |line: &&str| !line.contains("clone3");
    confined.filter(known).filter(|line| refusals.iter().any(|refusal| line.contains(refusal))).collect()
}

#[test]
fn nothing_that_a_daemon_does_is_refused_to_it() -> Outcome {
    if !have(&[Need::Root, Need::Tool("strace"), Need::Tool("nbdcopy"), Need::Tool("nbdsh")]) {
        return Ok(());
    }
    let (lab, program) = (Lab::best(2)?, vfield());
    let (traces, traced) = (lab.dir().join("traces"), lab.dir().join("traced"));
    std::fs::create_dir(&traces)?;
    // The process stays the daemon's: strace is a grandchild of it.
    let strace = format!("exec strace -f -D -q -e signal=none -o {}/$1", traces.display());
    let program_path = program.path().display();
    let script = format!(
        "#!/bin/sh\ncase $1 in serve | join) {strace} {program_path} \"$@\" ;; esac\nexec {program_path} \"$@\"\n"
    );
    std::fs::write(&traced, script)?;
    std::fs::set_permissions(&traced, Permissions::from_mode(0o755))?;
    let key = lab.dir().join("field.key");
    run(Command::new(program.path()).args(["key", "new"]).arg(&key))?;
    let image = random_file(&lab.dir().join("disk.img"), 6 * MIB + 5, 1)?;
    let key = key.to_str().expect("a path of text");
    let words = ["--sandbox", "require", "--field-key", key, "--threads", "3"];
    let vfield = Vfield::at(&traced);
    let mut origin = vfield.serve(lab.host(0), &[&image]).args(&words).name("origin").ready()?;
    let node = vfield.join(lab.host(1), origin.addr()).store("all").args(&words);
    let mut node = node.args(&["--overlay", "ram"]).ready()?;
    node.wait("covered", NEWS)?;
    client::compare_nbd(lab.host(1), &node.uri(""), &image)?;
    client::nbdsh(lab.host(1), Duration::from_secs(30), &node.uri(""), "h.pwrite(b'new' * 1000, 5)")?;
    run(node.ask_to(&["overlay"]).arg("save").arg(lab.dir().join("changes.vfo")))?;
    run(&mut node.ask_to(&["key", "reload"]))?;
    let another = random_file(&lab.dir().join("another.img"), MIB, 2)?;
    run(origin.ask("add").arg(another))?;
    assert!(node.leave(Duration::from_secs(20))?.success() && origin.leave(Duration::from_secs(20))?.success());
    for of in ["serve", "join"] {
        let trace = || std::fs::read_to_string(traces.join(of)).unwrap_or_default();
        wait_until("a trace has its last line", NEWS, || trace().contains("+++ exited with 0 +++"))?;
        assert!(trace().contains("SECCOMP_SET_MODE_FILTER"), "{of} is confined");
        assert_eq!(refused(&trace()), [""; 0], "{of}");
    }
    Ok(())
}

#[test]
fn changes_can_be_saved_from_within() -> Outcome {
    if !have(&[Need::Tool("nbdsh")]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::best(1)?, vfield());
    let image = random_file(&lab.dir().join("disk.img"), MIB, 1)?;
    let words = ["--sandbox", "require", "--overlay", "ram"];
    let origin = vfield.serve(lab.host(0), &[&image]).args(&words).name("origin").ready()?;
    client::nbdsh(lab.host(0), Duration::from_secs(30), &origin.uri(""), "h.pwrite(b'new' * 1000, 5)")?;
    let saved = lab.dir().join("changes.vfo");
    run(origin.ask_to(&["overlay"]).arg("save").arg(&saved))?;
    assert!(saved.metadata()?.len() > 3000);
    Ok(())
}

#[test]
fn a_daemon_of_roots_becomes_another_user_when_it_is_set_up() -> Outcome {
    if !have(&[Need::Root, Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::best(2)?, vfield());
    // A user of a number, so that none has to be made. The key and the image are root's.
    let own = |path: &Path| std::os::unix::fs::chown(path, Some(64_123), Some(64_123));
    let key = lab.dir().join("field.key");
    run(Command::new(vfield.path()).args(["key", "new"]).arg(&key))?;
    let image = random_file(&lab.dir().join("disk.img"), 6 * MIB + 5, 1)?;
    std::fs::set_permissions(&image, Permissions::from_mode(0o600))?;
    let words = [Path::new("--user"), Path::new("64123"), Path::new("--threads"), Path::new("3")];
    let words = [&words[..], &[Path::new("--field-key"), &key, Path::new("--overlay"), Path::new("ram")]].concat();
    let (origin, mut node) = origin_and_node(&lab, &image, &words)?;
    for daemon in [&origin, &node] {
        let count = of_threads(daemon, "Name")?.len();
        for ids in ["Uid", "Gid"] {
            assert_eq!(of_threads(daemon, ids)?, vec![["64123"; 4].join("\t"); count], "{ids}");
        }
        assert_eq!(of_threads(daemon, "Groups")?, vec![""; count]);
        for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            assert_eq!(of_threads(daemon, set)?, vec!["0000000000000000"; count], "{set}");
        }
        let parts = given_up(daemon)?;
        assert_eq!(parts.len(), 3, "{parts:?}");
        assert_eq!(parts[0], "user: 64123 (64123), no capabilities");
    }
    // Who may speak to it can still have changes saved where only he may write.
    let private = Lab::loopback(1)?;
    let changes = private.dir().join("changes.vfo");
    run(node.ask_to(&["overlay"]).arg("save").arg(&changes))?;
    assert_eq!(changes.metadata()?.uid(), 0);
    // The key is root's, and read no more.
    let said = run(&mut node.ask_to(&["key", "reload"])).expect_err("a user read root's key").to_string();
    assert!(said.contains("ermission denied"), "{said}");
    // The socket is the user's, and goes with the daemon.
    node.nbd().parent().map(own).transpose()?;
    assert!(node.leave(Duration::from_secs(20))?.success());
    assert!(!node.nbd().exists());
    Ok(())
}

#[test]
fn a_link_in_the_place_of_a_socket_makes_nothing_his() -> Outcome {
    if !have(&[Need::Root]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(3)?, vfield());
    let image = random_file(&lab.dir().join("disk.img"), MIB, 1)?;
    let origin = vfield.serve(lab.host(0), &[&image]).name("origin").ready()?;
    // A way in that leads on when the test wants it to: the daemon has bound its socket then, and
    // is root still.
    let way_in = TcpListener::bind(lab.host(2).addr())?;
    let words = ["--user", "64123"];
    let mut node = vfield.join(lab.host(1), lab.host(2).addr()).store("0").args(&words).spawn()?;
    let (client, _) = way_in.accept()?;
    let precious = lab.dir().join("precious");
    std::fs::write(&precious, "root's")?;
    std::fs::remove_file(node.control())?;
    std::os::unix::fs::symlink(&precious, node.control())?;
    let server = TcpStream::connect(origin.addr())?;
    for (mut from, mut to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
    }
    assert!(!node.process_mut().wait(NEWS)?.success());
    let log = node.process().log();
    assert!(log.contains("somebody has put something else in the place of the socket"), "{log}");
    assert_eq!(precious.metadata()?.uid(), 0);
    Ok(())
}

#[test]
fn a_user_who_could_not_serve_is_refused() -> Outcome {
    if !have(&[Need::Root]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(1)?, vfield());
    let image = random_file(&lab.dir().join("disk.img"), MIB, 1)?;
    let (changes, mount) = (lab.dir().join("changes"), lab.dir().join("mount"));
    let path = |path: &'static str| Path::new(path).to_owned();
    let refusals = [
        (vec![path("--user"), path("nobody-of-that-name")], "there is no user \"nobody-of-that-name\""),
        (vec![path("--user"), path("0")], "root has the rights that --user is to drop"),
        (vec![path("--user"), path("64123"), path("--mount"), mount], "devices and mounts need root"),
        (vec![path("--user"), path("64123"), path("--overlay"), changes], "Permission denied"),
    ];
    for (words, wanted) in refusals {
        let mut daemon = vfield.serve(lab.host(0), &[&image]).args(&words).name("refused").spawn()?;
        assert!(!daemon.process_mut().wait(NEWS)?.success());
        let log = daemon.process().log().to_lowercase();
        assert!(log.contains(&wanted.to_lowercase()), "{log}");
    }
    Ok(())
}

#[test]
fn a_link_that_is_changed_later_leads_nowhere() -> Outcome {
    // Two labs, because a daemon may read what lies beside its own files.
    let (lab, elsewhere, vfield) = (Lab::loopback(2)?, Lab::loopback(1)?, vfield());
    let new_key = |path: &Path| run(Command::new(vfield.path()).args(["key", "new"]).arg(path));
    let image = random_file(&lab.dir().join("disk.img"), MIB, 1)?;
    let outside = elsewhere.dir().join("other.key");
    new_key(&outside)?;
    for (host, sandbox) in ["off", "require"].into_iter().enumerate() {
        let key = lab.dir().join(sandbox);
        new_key(&key)?;
        let words = [Path::new("--sandbox"), Path::new(sandbox), Path::new("--field-key"), &key];
        let origin = vfield.serve(lab.host(host), &[&image]).args(&words).name(sandbox).ready()?;
        let link = lab.dir().join("link");
        std::os::unix::fs::symlink(&outside, &link)?;
        std::fs::rename(&link, &key)?;
        let reloaded = run(&mut origin.ask_to(&["key", "reload"]));
        // The user whom it runs as may read the file, so nothing else than its own confinement
        // stands in the way.
        match sandbox {
            "off" => drop(reloaded?),
            _ => {
                let said = reloaded.expect_err("a confined daemon read what is none of its business").to_string();
                assert!(said.contains("ermission denied"), "{said}");
            }
        }
    }
    Ok(())
}

#[test]
fn what_cannot_be_given_up_is_named() -> Outcome {
    let (lab, vfield) = (Lab::loopback(2)?, vfield());
    let image = random_file(&lab.dir().join("disk.img"), MIB, 1)?;
    let off = vfield.serve(lab.host(0), &[&image]).args(&["--sandbox", "off"]).name("off").ready()?;
    assert_eq!(given_up(&off)?, ["off"]);
    let mounted = vfield.serve(lab.host(1), &[&image]).args(&["--sandbox", "require"]).name("mounted").mounted(true);
    let mut mounted = mounted.spawn()?;
    assert!(!mounted.process_mut().wait(NEWS)?.success());
    let log = mounted.process().log();
    assert!(log.contains("vfield: the sandbox is incomplete: files: --mount needs a program that mounts"), "{log}");
    Ok(())
}

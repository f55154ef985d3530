//! Lasting identities and admission lists: a lost machine is shut out, a copied identity is named,
//! and a list counts under its operator's signature only.

use crate::signatures::new_key;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vfield_e2e::Outcome;
use vfield_e2e::field::{NEWS, live, while_running};
use vfield_e2e::program::vfield;
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::daemon::Start;
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::wait::wait_until;
use vfield_lab::{Daemon, Lab, LabError, client};

const NEEDS: [Need; 2] = [Need::Tool("minisign"), Need::Tool("nbdcopy")];

/// A new identity in the lab's directory: its file, its public key and its node id.
struct Machine {
    file: PathBuf,
    key: String,
    node: String,
}

fn machine(lab: &Lab, name: &str) -> Result<Machine, LabError> {
    let file = lab.dir().join(format!("{name}.identity"));
    let text = run(key(&["identity"]).arg(&file))?;
    let word = |word: &str| text.lines().find_map(|line| line.strip_prefix(word)).unwrap_or_default().to_owned();
    Ok(Machine { key: word("key "), node: word("node "), file })
}

fn key(words: &[&str]) -> Command {
    let mut command = Command::new(vfield().path());
    command.arg("key").args(words);
    command
}

/// Edits a list, and signs it.
fn edit(words: &[&str], list: &Path, rest: &[&str], secret: &Path) -> Result<String, LabError> {
    run(key(words).arg(list).args(rest).arg("--secret-key").arg(secret))
}

/// The line with which a daemon ends that does not start.
fn refused(lab: &Lab, host: usize, start: Start<'_>) -> Result<String, vfield_e2e::Failed> {
    let mut node = start.name("refused").spawn()?;
    let status = node.process_mut().wait(Duration::from_secs(20))?;
    let log = node.process().log();
    assert!(!status.success() && !log.contains("panicked"), "{log}");
    std::fs::remove_file(lab.host(host).dir().join("refused.log"))?;
    Ok(log.lines().find(|line| line.starts_with("vfield: ")).unwrap_or(&log).to_owned())
}

fn sees(status: &Value, other: &Daemon) -> bool {
    live(status).contains(&other.addr().to_string())
}

/// The machine is lost with its disk: it has the field's key and its identity. The operator changes
/// nothing on the machines that stay.
#[test]
fn a_lost_machine_is_shut_out_and_stays_out() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::best(4)?, vfield());
    let [public, secret] = new_key(&lab, "operator")?;
    let (list, field_key) = (lab.dir().join("list"), lab.dir().join("field.key"));
    run(key(&["new"]).arg(&field_key))?;
    let names = ["origin", "one", "two", "lost"];
    let machines: Vec<Machine> = names.iter().map(|name| machine(&lab, name)).collect::<Result<_, _>>()?;
    for (name, machine) in names.iter().zip(&machines) {
        edit(&["allow"], &list, &[&machine.key, name], &secret)?;
    }
    let image = random_file(&lab.dir().join("disk.img"), 6 * MIB + 5, 1)?;
    // The others have the list from the field.
    let trust = |at: usize| {
        let words = [Path::new("--field-key"), &field_key, Path::new("--identity"), &machines[at].file];
        words.into_iter().chain([Path::new("--admission-trust"), &public]).map(Path::to_owned).collect::<Vec<_>>()
    };
    let origin = vfield.serve(lab.host(0), &[&image]).name("origin").state(lab.host(0).dir()).args(&trust(0));
    let origin = origin.args(&[Path::new("--admission"), &list]).ready()?;
    let join = |at: usize| {
        let start = vfield.join(lab.host(at), origin.addr()).store("all").args(&["--join-boost", "9"]);
        start.state(lab.host(at).dir()).name(names[at]).args(&trust(at))
    };
    let stay = [join(1).ready()?, join(2).ready()?];
    let mut lost = join(3).ready()?;
    for daemon in stay.iter().chain([&lost, &origin]) {
        let knows = |status: &Value| live(status).len() == 4 && status["admission"]["allowed"] == 4;
        daemon.wait_status("all four, with the list", NEWS, knows)?;
    }
    assert_eq!(lost.status()?["node"], machines[3].node);

    edit(&["revoke"], &list, &["lost"], &secret)?;
    let work = || {
        let told = run(&mut origin.ask_to(&["key", "reload"]))?;
        assert!(told.contains("4 allowed, 1 revoked"), "{told}");
        stay.iter().chain([&origin]).try_for_each(|daemon| {
            let gone = |status: &Value| !sees(status, &lost) && status["admission"]["revoked"] == 1;
            daemon.wait_status("the lost machine is out", NEWS, gone)
        })?;
        // Its connections have ended: nothing but the machine itself is left to it.
        lost.wait_status("it is alone", NEWS, |status| live(status).len() == 1)
    };
    let mut readers = [0, 1].into_iter().cycle();
    while_running(work, || {
        let at = readers.next().unwrap_or(0);
        client::compare_nbd(lab.host(at + 1), &stay[at].uri(""), &image).expect("those who stay read on");
    })?;

    lost.kill();
    let again = refused(&lab, 3, join(3))?;
    assert!(again.contains("its admission list does not admit this node's identity"), "{again}");
    let fresh = machine(&lab, "fresh")?;
    let fresh = vfield
        .join(lab.host(3), origin.addr())
        .args(&[Path::new("--field-key"), &field_key])
        .args(&[Path::new("--identity"), &fresh.file]);
    let fresh = refused(&lab, 3, fresh)?;
    assert!(fresh.contains("its admission list does not admit this node's identity"), "{fresh}");
    // A machine that has the list says so itself.
    let own = refused(&lab, 3, join(3).args(&[Path::new("--admission"), &list]))?;
    assert!(own.contains("the admission list does not admit this node"), "{own}");
    for daemon in stay.iter().chain([&origin]) {
        let status = daemon.status()?;
        assert_eq!(live(&status).len(), 3, "{status:#}");
    }

    // Who starts again without any file of the list has not gone back to an older one.
    let [mut one, two] = stay;
    let kept = || {
        let files = std::fs::read_dir(lab.host(1).dir().join("state")).into_iter().flatten().flatten();
        let texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
        texts.into_iter().any(|text| text.contains("revoke "))
    };
    wait_until("the list is kept", NEWS, kept)?;
    one.leave(Duration::from_secs(20))?;
    let one = join(1).name("one-again").ready()?;
    assert_eq!(one.status()?["admission"]["revoked"], 1);
    client::compare_nbd(lab.host(1), &one.uri(""), &image)?;
    client::compare_nbd(lab.host(2), &two.uri(""), &image)?;
    Ok(())
}

#[test]
fn an_identity_outlives_its_process() -> Outcome {
    let (lab, vfield) = (Lab::best(3)?, vfield());
    let image = random_file(&lab.dir().join("disk.img"), MIB, 1)?;
    let origin = vfield.serve(lab.host(0), &[&image]).name("origin").ready()?;
    let watcher = vfield.join(lab.host(1), origin.addr()).store("0").ready()?;
    let machine = machine(&lab, "machine")?;
    let port = |at: u16| std::net::SocketAddr::new(lab.host(2).addr().ip(), 5000 + at);
    for at in 0..4 {
        let start = vfield.join(lab.host(2), origin.addr()).name(&format!("life-{at}")).store("all").listen(port(at));
        let mut node = start.args(&[Path::new("--identity"), &machine.file]).ready()?;
        let status = node.status()?;
        assert_eq!(status["node"], machine.node);
        assert_eq!(
            (&status["identity"]["key"], &status["identity"]["lasting"]),
            (&machine.key.clone().into(), &true.into())
        );
        watcher.wait_status("it is a member", NEWS, |status| {
            let nodes = status["nodes"].as_array().into_iter().flatten();
            let mut found = nodes.filter(|node| node["id"] == machine.node && node["state"] == "alive");
            found.next().is_some_and(|found| found["addr"] == node.addr().to_string() && found["key"] == machine.key)
        })?;
        if at % 2 == 0 {
            node.kill();
        } else {
            node.leave(Duration::from_secs(20))?;
        }
    }
    Ok(())
}

#[test]
fn a_copied_identity_is_named_and_moves_nobody() -> Outcome {
    let (lab, vfield) = (Lab::best(4)?, vfield());
    let image = random_file(&lab.dir().join("disk.img"), MIB, 1)?;
    let origin = vfield.serve(lab.host(0), &[&image]).name("origin").ready()?;
    let machine = machine(&lab, "machine")?;
    let first = vfield.join(lab.host(1), origin.addr()).store("all").args(&[Path::new("--identity"), &machine.file]);
    let mut first = first.ready()?;
    let watcher = vfield.join(lab.host(2), origin.addr()).store("0").ready()?;
    watcher.wait_status("three members", NEWS, |status| live(status).len() == 3)?;

    // On the same machine the file itself tells.
    let same = vfield.join(lab.host(3), origin.addr()).args(&[Path::new("--identity"), &machine.file]);
    let same = refused(&lab, 3, same)?;
    assert!(same.ends_with("another process of this machine uses it"), "{same}");
    // On another one, and however it joins, the field does.
    let copy = lab.dir().join("copy.identity");
    std::fs::copy(&machine.file, &copy)?;
    for through in [origin.addr(), watcher.addr(), first.addr()] {
        let second = vfield.join(lab.host(3), through).args(&[Path::new("--identity"), &copy]);
        let second = refused(&lab, 3, second)?;
        assert_eq!(second, format!("vfield: another process uses this identity at {}", first.addr()), "via {through}");
    }
    for daemon in [&origin, &watcher] {
        assert!(sees(&daemon.status()?, &first), "{:#}", daemon.status()?);
        let log = daemon.process().log();
        let flaps = log.lines().filter(|line| line.contains("died") || line.contains("left")).count();
        assert_eq!(flaps, 0, "{log}");
    }
    first.process_mut().check()?;
    Ok(())
}

/// Two machines begin fields of their own with one identity, and a third joins both. One of them
/// ends with a line, and the other goes on.
#[test]
fn of_two_live_processes_with_one_identity_one_ends() -> Outcome {
    let (lab, vfield) = (Lab::best(3)?, vfield());
    let machine = machine(&lab, "machine")?;
    let copy = lab.dir().join("copy.identity");
    std::fs::copy(&machine.file, &copy)?;
    let files = [&machine.file, &copy];
    let mut both = Vec::new();
    for (at, file) in files.into_iter().enumerate() {
        let image = random_file(&lab.dir().join(format!("disk{at}.img")), MIB, at as u64)?;
        let start = vfield.serve(lab.host(at), &[&image]).name(&format!("origin-{at}"));
        both.push(start.args(&[Path::new("--identity"), file]).ready()?);
    }
    let second = both[1].addr().to_string();
    let join = vfield.join(lab.host(2), both[0].addr()).args(&[second.as_str(), "--image", "disk0.img"]).store("0");
    let watcher = join.ready()?;
    let mut ended = None;
    // Four answers of one of them, each up to some exchanges of snapshots after the last.
    wait_until("one of the two ends", Duration::from_secs(180), || {
        ended = both.iter_mut().position(|daemon| daemon.process_mut().ended().is_some());
        ended.is_some()
    })?;
    let ended = ended.unwrap_or_default();
    let stays = &both[1 - ended];
    let log = both[ended].process().log();
    assert!(log.contains(&format!("vfield: another process uses this identity at {}", stays.addr())), "{log}");
    watcher.wait_status("the other is a member", NEWS, |status| sees(status, stays))?;
    both[1 - ended].process_mut().check()?;
    Ok(())
}

#[test]
fn lists_that_nobody_trusted_signed_are_refused() -> Outcome {
    if !have(&NEEDS) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::best(2)?, vfield());
    let ([public, secret], [_, foreign]) = (new_key(&lab, "operator")?, new_key(&lab, "foreign")?);
    let (list, machine) = (lab.dir().join("list"), machine(&lab, "machine")?);
    let image = random_file(&lab.dir().join("disk.img"), MIB, 1)?;
    let words = [Path::new("--admission"), &list, Path::new("--admission-trust"), &public];
    let serve = |words: &[&Path]| refused(&lab, 0, vfield.serve(lab.host(0), &[&image]).state(lab.dir()).args(words));
    let fact = |why: &str| format!("vfield: admission list {}: {why}", list.display());

    assert_eq!(serve(&words)?, fact("no such file or directory"));
    run(key(&["revoke"]).arg(&list).arg(&machine.key))?;
    assert_eq!(serve(&words)?, fact("it is not signed"));
    edit(&["revoke"], &list, &[&machine.key], &foreign)?;
    assert_eq!(serve(&words)?, fact("it is not signed with a trusted key"));
    edit(&["revoke"], &list, &[&machine.key], &secret)?;
    let good = std::fs::read_to_string(&list)?;
    std::fs::write(&list, format!("{good}# one more\n"))?;
    assert_eq!(serve(&words)?, fact("it is not signed with a trusted key"));
    std::fs::write(&list, "vfield-admission 1\npermit all\n")?;
    run(Command::new("minisign").arg("-Sm").arg(&list).arg("-s").arg(&secret))?;
    assert_eq!(serve(&words)?, fact("line 2: not \"allow KEY NAME\" or \"revoke KEY NAME\""));
    let alone = serve(&words[..2])?;
    assert_eq!(alone, format!("vfield: nobody is trusted to sign the admission list {}", list.display()));
    let none = serve(&[words[0], words[1], words[2], &secret])?;
    assert!(none.ends_with("not a public key of minisign"), "{none}");
    for text in ["vfield-identity-1 00 00\n", "-----BEGIN PRIVATE KEY-----\n"] {
        std::fs::write(&machine.file, text)?;
        let identity = serve(&[Path::new("--identity"), &machine.file])?;
        assert!(identity.ends_with("checksum does not fit") || identity.ends_with("not an identity"), "{identity}");
    }

    // A running node goes on with the list that it has.
    std::fs::write(&list, &good)?;
    run(Command::new("minisign").arg("-Sm").arg(&list).arg("-s").arg(&secret))?;
    let origin = vfield.serve(lab.host(0), &[&image]).name("origin").state(lab.dir()).args(&words).ready()?;
    std::fs::write(&list, format!("{good}# one more\n"))?;
    assert!(run(&mut origin.ask_to(&["key", "reload"])).is_err());
    assert_eq!(origin.status()?["admission"]["revoked"], 1);
    // A member without the list is admitted, since nobody is listed as allowed.
    let node = vfield.join(lab.host(1), origin.addr()).store("0").ready()?;
    node.wait_status("a member", NEWS, |status| live(status).len() == 2)?;
    let id = node.status()?["node"].as_str().unwrap_or_default().to_owned();
    // By its id, which the daemon knows, and the id alone.
    std::fs::write(&list, &good)?;
    let control = origin.control().display().to_string();
    edit(&["revoke"], &list, &[&id, "--control", &control], &secret)?;
    run(&mut origin.ask_to(&["key", "reload"]))?;
    origin.wait_status("it is out", NEWS, |status| !sees(status, &node))?;
    Ok(())
}

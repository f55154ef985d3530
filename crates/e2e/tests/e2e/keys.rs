//! Fields with a key: which nodes get in, what rejected ones see, and how a key is changed while
//! the field goes on.

use serde_json::Value;
use std::collections::HashSet;
use std::io::Write as _;
use std::net::UdpSocket;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vfield_e2e::field::{Field, NEWS, Plan, is_uncharged, live, while_running};
use vfield_e2e::program::vfield;
use vfield_e2e::{Outcome, liar};
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::need::{Need, have};
use vfield_lab::process::run;
use vfield_lab::{Daemon, Lab, LabError, client};

/// A new key in the lab's directory.
fn new_key(lab: &Lab, name: &str) -> Result<PathBuf, LabError> {
    let path = lab.dir().join(name);
    run(Command::new(vfield().path()).args(["key", "new"]).arg(&path))?;
    Ok(path)
}

/// What `vfield key id` says of a file.
fn ids(path: &Path) -> Result<Vec<String>, LabError> {
    let text = run(Command::new(vfield().path()).args(["key", "id"]).arg(path))?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// Replaces a key file by the keys of others, in this order.
fn write_keys(path: &Path, from: &[&Path]) -> Result<(), LabError> {
    let write = || {
        let texts: Vec<String> = from.iter().map(std::fs::read_to_string).collect::<Result<_, _>>()?;
        let new = path.with_extension("new");
        let mut file = std::fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(texts.concat().as_bytes())?;
        std::fs::rename(new, path)
    };
    write().map_err(|source| LabError::System { what: path.display().to_string(), source })
}

/// Tells a daemon to read its keys again; which are in force then.
fn reload(daemon: &Daemon) -> Result<Vec<String>, LabError> {
    let text = run(&mut daemon.ask_to(&["key", "reload"]))?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

fn is_closed_with(status: &Value, keys: &[String]) -> bool {
    status["field"]["closed"] == true && status["field"]["keys"] == Value::from(keys.to_vec())
}

#[test]
fn members_read_and_nobody_on_the_way_can() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let lab = Lab::loopback(4)?;
    let vfield = vfield();
    let key = new_key(&lab, "field.key")?;
    let with_key = [Path::new("--field-key"), &key];
    let image = random_file(&lab.dir().join("disk.img"), 6 * MIB + 5, 1)?;
    let front = lab.host(3).addr();
    let overheard = liar::listen_in(front, lab.host(0).addr())?;
    let origin = vfield.serve(lab.host(0), &[&image]).args(&with_key);
    let origin = origin.args(&["--advertise", &front.to_string()]).name("origin").ready()?;
    let one = vfield.join(lab.host(1), front).store("all").args(&with_key).args(&["--join-boost", "9"]).ready()?;
    let two = vfield.join(lab.host(2), one.addr()).store("0").args(&with_key).ready()?;
    one.wait("covered", NEWS)?;
    client::compare_nbd(lab.host(1), &one.uri(""), &image)?;
    client::compare_nbd(lab.host(2), &two.uri(""), &image)?;
    for daemon in [&origin, &one, &two] {
        assert!(is_closed_with(&daemon.status()?, &ids(&key)?));
        assert_eq!(live(&daemon.status()?).len(), 3);
    }

    let (bytes, streams) = (std::fs::read(&image)?, overheard.streams());
    assert!(streams.len() > bytes.len(), "the image went by: {} bytes", streams.len());
    let seen = |needle: &[u8]| streams.windows(needle.len()).any(|window| window == needle);
    assert!(!seen(b"VFIELD") && !seen(b"disk.img"), "a greeting or a name in the clear");
    let chunks: HashSet<&[u8]> = bytes.chunks_exact(64 << 10).map(|chunk| &chunk[..16]).collect();
    assert!(!streams.windows(16).any(|window| chunks.contains(window)), "a chunk in the clear");
    let datagrams = overheard.datagrams();
    let in_clear = |datagram: &Vec<u8>| datagram.starts_with(b"VFG") || datagram.windows(8).any(|w| w == b"disk.img");
    assert!(!datagrams.is_empty() && !datagrams.iter().any(in_clear), "gossip in the clear");
    Ok(())
}

#[test]
fn a_link_goes_on_when_its_keys_are_worn_out() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let (lab, vfield) = (Lab::loopback(3)?, vfield());
    let key = new_key(&lab, "field.key")?;
    let with_key = [Path::new("--field-key"), &key];
    // Dozens of keys for the chunks, since those of a program that is built for tests last for a
    // MiB.
    let image = random_file(&lab.dir().join("disk.img"), 48 * MIB + 5, 1)?;
    let front = lab.host(2).addr();
    let overheard = liar::listen_in(front, lab.host(0).addr())?;
    let origin = vfield.serve(lab.host(0), &[&image]).args(&with_key);
    let origin = origin.args(&["--advertise", &front.to_string()]).name("origin").ready()?;
    let node = vfield.join(lab.host(1), front).store("0").args(&with_key).ready()?;
    node.wait_status("both know each other", NEWS, |status| live(status).len() == 2)?;
    let ended = overheard.ended();
    client::compare_nbd(lab.host(1), &node.uri(""), &image)?;
    assert_eq!(overheard.ended(), ended, "a link has ended");
    for daemon in [&origin, &node] {
        // A busy machine may take a living node for dead for a moment.
        daemon.wait_status("both are members", NEWS, |status| live(status).len() == 2)?;
        let status = daemon.status()?;
        assert!(is_uncharged(&status), "{status:#}");
    }
    Ok(())
}

/// Starts a node that is to be refused; what it says.
fn refused(field: &Field, words: &[&str]) -> Result<String, vfield_e2e::Failed> {
    let start = field.vfield.join(field.host(0), field.origin.addr()).name("refused").store("0").args(words);
    let mut node = start.spawn()?;
    let status = node.process_mut().wait(Duration::from_secs(20))?;
    let log = node.process().log();
    assert!(!status.success() && !log.contains("panicked"), "{log}");
    std::fs::remove_file(field.host(0).dir().join("refused.log"))?;
    Ok(log.lines().find(|line| line.starts_with("vfield: ")).unwrap_or(&log).to_owned())
}

/// A field with a key whose only node is its origin.
fn closed(lab: Lab, key: &Path) -> Result<Field, LabError> {
    let (vfield, image) = (vfield(), random_file(&lab.dir().join("disk.img"), MIB, 1)?);
    let origin = vfield.serve(lab.host(0), &[&image]).args(&[Path::new("--field-key"), key]).name("origin").ready()?;
    Ok(Field { nodes: Vec::new(), origin, image, vfield, lab })
}

#[test]
fn who_does_not_have_the_key_is_refused_with_a_line() -> Outcome {
    let lab = Lab::best(2)?;
    let (key, foreign) = (new_key(&lab, "field.key")?, new_key(&lab, "foreign.key")?);
    let open_key = lab.dir().join("open.key");
    std::fs::copy(&key, &open_key)?;
    std::fs::set_permissions(&open_key, std::fs::Permissions::from_mode(0o644))?;
    let damaged = lab.dir().join("damaged.key");
    write_keys(&damaged, &[&key])?;
    let text = std::fs::read_to_string(&damaged)?;
    std::fs::write(&damaged, &text[..text.len() - 3])?;
    let mut field = closed(lab, &key)?;
    let name = |path: &Path| path.display().to_string();

    let none = refused(&field, &[])?;
    assert!(none.ends_with("its field has a key and this node was given none"), "{none}");
    let other = refused(&field, &["--field-key", &name(&foreign)])?;
    assert!(other.ends_with("its field has another key"), "{other}");
    let open = refused(&field, &["--field-key", &name(&open_key)])?;
    assert_eq!(open, format!("vfield: field key {}: open to others (mode 644)", open_key.display()));
    let broken = refused(&field, &["--field-key", &name(&damaged)])?;
    assert!(broken.ends_with("line 2: a damaged field key: its checksum does not fit"), "{broken}");
    let missing = refused(&field, &["--field-key", "no.key"])?;
    assert_eq!(missing, "vfield: field key no.key: no such file or directory");

    // The origin says it once, however often the same machine tries, and goes on.
    let status = field.origin.status()?;
    assert_eq!(status["field"]["turned_away"], 2, "{status:#}");
    let told = field.origin.process().log().matches("rejected: it does not have").count();
    assert_eq!((told, live(&status).len()), (1, 1), "{status:#}");
    field.origin.process_mut().check()?;
    Ok(())
}

#[test]
fn a_benchmark_of_a_node_needs_the_key_too() -> Outcome {
    let lab = Lab::loopback(1)?;
    let key = new_key(&lab, "field.key")?;
    let field = closed(lab, &key)?;
    let bench = |words: &[&Path]| {
        let mut bench = Command::new(field.vfield.path());
        bench.args(["bench", "--json", "--streams", "1", "--size", "512K", "--peer"]);
        run(bench.arg(field.origin.addr().to_string()).args(words))
    };
    let found: Value = serde_json::from_str(&bench(&[Path::new("--field-key"), &key])?)?;
    assert_eq!(found["runs"][0]["bytes"], 512 << 10, "{found:#}");
    assert!(bench(&[]).is_err());
    Ok(())
}

#[test]
fn a_node_with_a_key_does_not_join_an_open_field() -> Outcome {
    let field = Field::start(Plan { image_bytes: MIB, spare_hosts: 1, ..Plan::default() })?;
    let key = new_key(&field.lab, "field.key")?;
    let said = refused(&field, &["--field-key", &key.display().to_string()])?;
    assert!(said.ends_with("its field is open, and this node was given a field key"), "{said}");
    let status = field.origin.status()?;
    assert_eq!((&status["field"]["closed"], live(&status).len()), (&Value::Bool(false), 1), "{status:#}");
    Ok(())
}

#[test]
fn strangers_see_nothing_but_a_connection_that_ends() -> Outcome {
    use std::io::Read as _;
    let lab = Lab::loopback(2)?;
    let key = new_key(&lab, "field.key")?;
    let mut field = closed(lab, &key)?;
    let greeting = b"VFIELD\r\n\x02\0\0\0\x10\0\0\0................";
    let hello = b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03";
    for bytes in [&greeting[..], hello, b"GET / HTTP/1.0\r\n\r\n", &[0xff; 4096]] {
        let mut stream = std::net::TcpStream::connect(field.origin.addr())?;
        stream.write_all(bytes)?;
        let mut answer = Vec::new();
        // It may be reset where bytes are left unread.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty(), "a hint for a stranger: {answer:?}");
    }
    field.origin.process_mut().check()?;
    Ok(())
}

#[test]
fn what_strangers_gossip_and_what_is_repeated_is_dropped() -> Outcome {
    let lab = Lab::loopback(4)?;
    let vfield = vfield();
    let key = new_key(&lab, "field.key")?;
    let with_key = [Path::new("--field-key"), &key];
    let image = random_file(&lab.dir().join("disk.img"), MIB, 1)?;
    let front = lab.host(3).addr();
    let overheard = liar::listen_in(front, lab.host(0).addr())?;
    let origin = vfield.serve(lab.host(0), &[&image]).args(&with_key);
    let origin = origin.args(&["--advertise", &front.to_string()]).name("origin").ready()?;
    let mut nodes = Vec::new();
    for host in [1, 2] {
        nodes.push(vfield.join(lab.host(host), front).store("all").args(&with_key).ready()?);
    }
    origin.wait_status("three members", NEWS, |status| live(status).len() == 3)?;
    nodes[1].kill();
    origin.wait_status("one is gone", NEWS, |status| live(status).len() == 2)?;

    // All that was ever said to the origin, the dead node's pings among it, once more.
    let repeated = overheard.datagrams();
    let stranger = UdpSocket::bind((lab.host(3).addr().ip(), 0))?;
    let dropped = |status: &Value| status["field"]["dropped_datagrams"].as_u64().unwrap_or_default();
    let before = dropped(&origin.status()?);
    assert!(!repeated.is_empty(), "nothing was overheard");
    let mut sent = 0;
    for datagram in repeated.iter().cycle().take(20) {
        stranger.send_to(datagram, lab.host(0).addr())?;
        stranger.send_to(&[b"VFG\x03", &datagram[4..]].concat(), lab.host(0).addr())?;
        sent += 2;
    }
    origin.wait_status("all of it is dropped", NEWS, |status| dropped(status) >= before + sent)?;
    assert_eq!(live(&origin.status()?).len(), 2, "the dead stay dead");
    Ok(())
}

#[test]
fn a_key_is_changed_while_all_goes_on_and_who_lacks_the_new_one_is_out() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let lab = Lab::best(4)?;
    let vfield = vfield();
    let (old, new) = (new_key(&lab, "old.key")?, new_key(&lab, "new.key")?);
    let image = random_file(&lab.dir().join("disk.img"), 24 * MIB + 777, 1)?;
    let files: Vec<PathBuf> = (0..3).map(|node| lab.dir().join(format!("node-{node}.key"))).collect();
    for file in &files {
        write_keys(file, &[&old])?;
    }
    let with_key = |node: usize| [Path::new("--field-key").to_owned(), files[node].clone()];
    let origin = vfield.serve(lab.host(0), &[&image]).args(&with_key(0)).name("origin").ready()?;
    let stays = vfield.join(lab.host(1), origin.addr()).store("10%").args(&with_key(1)).ready()?;
    let mut expelled = vfield.join(lab.host(2), stays.addr()).store("all").args(&with_key(2)).ready()?;
    expelled.wait("filled", NEWS)?;

    let members = [(&origin, &files[0]), (&stays, &files[1])];
    let mut steps = vec![vec![&new], vec![&new, &old], vec![&old, &new]];
    let changed = AtomicBool::new(false);
    let reading = || {
        while !changed.load(Ordering::Relaxed) {
            client::compare_nbd(lab.host(1), &stays.uri(""), &image)?;
        }
        Ok(())
    };
    let mut change = || -> Result<(), LabError> {
        let keys: Vec<&Path> = steps.pop().into_iter().flatten().map(PathBuf::as_path).collect();
        let names: Result<Vec<_>, LabError> = keys.iter().map(|key| ids(key)).collect();
        for (daemon, file) in members {
            write_keys(file, &keys)?;
            assert_eq!(reload(daemon)?, names.as_ref().expect("the keys are sound").concat());
        }
        changed.store(steps.is_empty(), Ordering::Relaxed);
        Ok(())
    };
    let mut failed = None;
    while_running(reading, || {
        if failed.is_none() && !changed.load(Ordering::Relaxed) {
            failed = change().err();
            changed.fetch_or(failed.is_some(), Ordering::Relaxed);
        }
    })?;
    failed.map_or(Ok(()), Err)?;

    let out = lab.host(2).addr().to_string();
    for (daemon, _) in members {
        daemon.wait_status("it is out", NEWS, |status| live(status).len() == 2 && !live(status).contains(&out))?;
        assert!(is_closed_with(&daemon.status()?, &ids(&new)?));
    }
    expelled.wait_status("it is alone", NEWS, |status| live(status).len() == 1)?;
    client::compare_nbd(lab.host(1), &stays.uri(""), &image)?;
    // Nor does it come back.
    expelled.kill();
    let again = vfield.join(lab.host(2), stays.addr()).name("again").store("0").args(&with_key(2));
    let mut again = again.spawn()?;
    assert!(!again.process_mut().wait(Duration::from_secs(20))?.success());
    assert!(again.process().log().contains("its field has another key"), "{}", again.process().log());
    // A file that is not fit is refused, and the keys stay as they are.
    std::fs::set_permissions(&files[1], std::fs::Permissions::from_mode(0o666))?;
    assert!(reload(&stays).is_err());
    assert!(is_closed_with(&stays.status()?, &ids(&new)?));
    Ok(())
}

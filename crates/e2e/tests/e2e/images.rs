//! Images that come and go while daemons run: an added image is read at once, a dropped one is
//! used by nobody.

use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use vfield_e2e::field::{Field, NEWS, Plan};
use vfield_e2e::program::vfield;
use vfield_e2e::{Failed, Outcome};
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::need::{Need, fuse_works, have};
use vfield_lab::process::run;
use vfield_lab::{Daemon, Lab, client, daemon};

/// Length of the second image.
const BYTES: u64 = 4 * MIB + 777;

/// An origin, and a node that holds all of its image; nobody on hosts 2 and 3.
fn field() -> Result<Field, Failed> {
    let field = Field::on(Lab::loopback(4)?, Plan { stores: &["all"], mounted: true, ..Plan::default() })?;
    field.covered()?;
    Ok(field)
}

fn second_file(field: &Field) -> Result<PathBuf, Failed> {
    Ok(random_file(&field.lab.dir().join("second.img"), BYTES, 9)?)
}

/// What a daemon answers to an order.
fn order(daemon: &Daemon, words: &[&str]) -> Result<String, Failed> {
    Ok(run(&mut daemon.ask_to(words))?)
}

/// Why a daemon does not obey.
fn refusal(daemon: &Daemon, words: &[&str]) -> String {
    run(&mut daemon.ask_to(words)).expect_err("it is refused").to_string()
}

fn names(status: &Value) -> Vec<&str> {
    status["images"].as_array().into_iter().flatten().filter_map(|image| image["name"].as_str()).collect()
}

/// What `image` looks like in a status.
fn image<'a>(status: &'a Value, name: &str) -> &'a Value {
    let images = status["images"].as_array().expect("images");
    images.iter().find(|image| image["name"] == name).expect("it is there")
}

/// A client that has the export `name` open, and asks for nothing.
fn hold(daemon: &Daemon, name: &str) -> std::io::Result<UnixStream> {
    let mut socket = UnixStream::connect(daemon.nbd())?;
    let mut greeting = [0; 18];
    socket.read_exact(&mut greeting)?;
    let mut hello = vec![0, 0, 0, 3];
    hello.extend(b"IHAVEOPT\0\0\0\x01");
    hello.extend((name.len() as u32).to_be_bytes());
    hello.extend(name.as_bytes());
    socket.write_all(&hello)?;
    let mut size_and_flags = [0; 10];
    socket.read_exact(&mut size_and_flags)?;
    Ok(socket)
}

/// A node names many images when it joins, as a host of containers does, and has each of them.
#[test]
fn forty_images_are_joined_at_once() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let lab = Lab::loopback(3)?;
    let names: Vec<String> = (0..40).map(|layer| format!("layer-{layer}.img")).collect();
    let files = names.iter().zip(0..).map(|(name, seed)| random_file(&lab.dir().join(name), MIB / 4, seed));
    let files: Vec<PathBuf> = files.collect::<Result<_, _>>()?;
    let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let origin = vfield().serve(lab.host(0), &paths).ready()?;
    let words: Vec<&str> = names.iter().flat_map(|name| ["--image", name]).collect();
    let node = vfield().join(lab.host(1), origin.addr()).store("all").args(&words).ready()?;
    let status = node.status()?;
    let mut joined = self::names(&status);
    joined.sort_unstable_by_key(|name| names.iter().position(|other| other == name));
    assert_eq!(joined, names);
    for (name, file) in names.iter().zip(&files) {
        client::compare_nbd(lab.host(2), &node.uri(name), file)?;
    }
    Ok(())
}

/// A running origin gets a second file, a running node joins it and reads all of it, by NBD and as
/// a file.
#[test]
fn a_second_image_is_added_while_both_run() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let field = field()?;
    let (file, node) = (second_file(&field)?, &field.nodes[0]);
    let path = file.to_str().expect("a path");
    let said = order(&field.origin, &["add", path])?;
    assert!(said.starts_with("the daemon serves second.img (id "), "{said}");
    let status = field.origin.status()?;
    let source = &image(&status, "second.img")["source"];
    assert_eq!((source["path"].as_str(), source["moved"].as_str()), (Some(path), Some("")), "{source:#}");
    client::compare_nbd(field.lab.host(0), &field.origin.uri("second.img"), &file)?;

    let said = order(node, &["add", "second.img", "--store", "50%"])?;
    assert!(said.starts_with("the daemon has joined second.img (id "), "{said}");
    client::compare_nbd(field.host(0), &node.uri("second.img"), &file)?;
    client::compare_nbd(field.host(0), &node.uri("disk.img"), &field.image)?;
    if let Some(mount) = node.mount() {
        let entries = std::fs::read_dir(mount)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut entries: Vec<String> = entries.collect();
        entries.sort();
        assert_eq!(entries, ["disk.img", "second.img"]);
        client::compare_file(field.host(0), &mount.join("second.img"), &file)?;
    }
    node.wait_status("filled", daemon::FILL_LIMIT, |status| image(status, "second.img")["filled"] == true)?;
    let status = node.status()?;
    let held = image(&status, "second.img")["held_bytes"].as_u64().expect("a number");
    assert!(held > BYTES * 2 / 5 && held < BYTES * 3 / 5, "{held} of {BYTES}");

    // A moved file is noticed, as one served from the start is.
    std::fs::remove_file(&file)?;
    let moved = |status: &Value| image(status, "second.img")["source"]["moved"] == "unlinked";
    field.origin.wait_status("it is gone", NEWS, moved)?;
    Ok(())
}

/// The client hands the kept hashes over with the file: the sandbox shows the daemon neither.
#[test]
fn a_file_with_kept_hashes_is_added_without_hashing_it() -> Outcome {
    let field = field()?;
    let file = second_file(&field)?;
    let path = file.to_str().expect("a path");
    let tree = format!("{path}.vfh");
    run(Command::new(vfield().path()).args(["id", "--hashes", &tree, path]))?;
    order(&field.origin, &["add", path])?;
    let status = field.origin.status()?;
    let source = &image(&status, "second.img")["source"];
    assert_eq!(source["state"], "checked", "its bytes are not known yet: {source:#}");
    order(&field.nodes[0], &["add", "second.img"])?;
    client::compare_nbd(field.host(0), &field.nodes[0].uri("second.img"), &file)?;
    Ok(())
}

/// An image that cannot be added costs a line, and changes nothing.
#[test]
fn what_cannot_be_added_is_said() -> Outcome {
    let field = field()?;
    let (file, node) = (second_file(&field)?, &field.nodes[0]);
    let path = file.to_str().expect("a path");
    order(&field.origin, &["add", path])?;
    let twice = refusal(&field.origin, &["add", path]);
    assert!(twice.contains("this node has second.img (id ") && twice.contains("already"), "{twice}");
    let twice = refusal(node, &["add", "disk.img"]);
    assert!(twice.contains("this node has disk.img (id ") && twice.contains("already"), "{twice}");
    let nobody = refusal(node, &["add", "nothing.img"]);
    assert!(nobody.contains("the field has no image \"nothing.img\"; it has ") && nobody.contains("second.img (id "));
    // Another file of a name that is here.
    let dir = field.lab.dir().join("elsewhere");
    std::fs::create_dir(&dir)?;
    let other = random_file(&dir.join("second.img"), BYTES, 10)?;
    let namesake = refusal(&field.origin, &["add", other.to_str().expect("a path")]);
    assert!(namesake.contains("another image of that name: second.img (id "), "{namesake}");
    assert!(refusal(node, &["add", "./missing.img"]).contains("no such file"));
    assert!(refusal(node, &["add", path, "--store", "50%"]).contains("is a file, which is served from where it is"));
    assert_eq!(names(&node.status()?), ["disk.img"]);
    Ok(())
}

/// An image goes when nobody uses it and nothing is lost with it, or when it is forced to.
#[test]
fn an_image_is_dropped_when_nobody_needs_it() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let field = field()?;
    let (file, node) = (second_file(&field)?, &field.nodes[0]);
    let only = refusal(node, &["drop", "disk.img"]);
    assert!(only.contains("disk.img is the only image of this node"), "{only}");
    order(&field.origin, &["add", file.to_str().expect("a path")])?;
    order(node, &["add", "second.img", "--store", "0"])?;
    let last = refusal(&field.origin, &["drop", "second.img"]);
    assert!(last.contains("second.img") && last.contains("would be lost with it"), "{last}");

    // The origin gives up what the node holds; others still read it, also later joiners.
    let covered = |status: &Value| image(status, "disk.img")["origin_may_leave"] == true;
    field.origin.wait_status("covered", NEWS, covered)?;
    order(&field.origin, &["drop", "disk.img"])?;
    assert_eq!(names(&field.origin.status()?), ["second.img"]);
    File::options().append(true).open(&field.image)?;
    client::compare_nbd(field.host(0), &node.uri("disk.img"), &field.image)?;
    let late = field.vfield.join(field.lab.host(2), field.origin.addr()).store("0").args(&["--image", "disk.img"]);
    let late = late.ready()?;
    client::compare_nbd(field.lab.host(2), &late.uri("disk.img"), &field.image)?;
    node.wait_status("no origin", NEWS, |status| image(status, "disk.img")["origins"] == 0)?;

    // Somebody has it open.
    let mut client = hold(node, "disk.img")?;
    let open = node.mount().map(|mount| File::open(mount.join("disk.img"))).transpose()?;
    let used = refusal(node, &["drop", "disk.img"]);
    assert!(used.contains("disk.img is in use on this machine: 1 NBD client"), "{used}");
    assert!(open.is_none() || used.contains("1 open file"), "{used}");
    drop(open);
    let used = refusal(node, &["drop", "disk.img"]);
    assert!(used.contains("1 NBD client") && !used.contains("open file"), "{used}");
    order(node, &["drop", "disk.img", "--force"])?;
    assert_eq!(client.read(&mut [0])?, 0, "it is cut off");
    assert_eq!(names(&node.status()?), ["second.img"]);
    client::compare_nbd(field.host(0), &node.uri("second.img"), &file)?;
    hold(node, "disk.img").expect_err("it is not offered any more");
    if let Some(mount) = node.mount() {
        assert!(fuse_works() && !mount.join("disk.img").exists());
        client::compare_file(field.host(0), &mount.join("second.img"), Path::new(&file))?;
    }
    Ok(())
}

/// An added image is closed to clients over TCP where rules speak of others only.
#[test]
fn a_refused_nbd_client_is_logged() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let lab = Lab::loopback(1)?;
    let vfield = vfield_e2e::program::vfield();
    let image = random_file(&lab.dir().join("disk.img"), BYTES, 1)?;
    let tcp = format!("tcp:{}:0", lab.host(0).addr().ip());
    let serve = vfield.serve(lab.host(0), &[&image]).args(&["--nbd", &tcp, "--nbd-allow", "198.18.9.0/24"]);
    let mut origin = serve.ready()?;
    let uri = tcp_uri(&origin)?;
    assert!(client::compare_nbd(lab.host(0), &format!("{uri}/disk.img"), &image).is_err());
    origin.says("refused the NBD client 127.", NEWS)?;
    origin.leave(NEWS)?;
    assert!(origin.process().log().trim_end().ends_with("this node has left the field"));
    Ok(())
}

/// Where TCP clients attach its images.
fn tcp_uri(origin: &Daemon) -> Result<String, Failed> {
    let status = origin.status()?;
    let addresses = status["exports"].as_array().into_iter().flatten().filter_map(|export| export["address"].as_str());
    let uri = addresses.into_iter().find(|address| address.starts_with("nbd://")).expect("a URI").to_owned();
    Ok(uri.trim_end_matches('/').to_owned())
}

#[test]
fn an_added_image_needs_a_rule_of_its_own() -> Outcome {
    if !have(&[Need::Tool("nbdcopy")]) {
        return Ok(());
    }
    let lab = Lab::loopback(2)?;
    let vfield = vfield_e2e::program::vfield();
    let first = random_file(&lab.dir().join("first.img"), BYTES, 1)?;
    let second = random_file(&lab.dir().join("second.img"), BYTES, 2)?;
    let tcp = format!("tcp:{}:0", lab.host(0).addr().ip());
    for (rule, is_open) in [("first.img=127.0.0.0/8", false), ("127.0.0.0/8", true)] {
        let serve = vfield.serve(lab.host(0), &[&first]).args(&["--nbd", &tcp, "--nbd-allow", rule]);
        let mut origin = serve.name(if is_open { "open" } else { "closed" }).ready()?;
        order(&origin, &["add", second.to_str().expect("a path")])?;
        let uri = tcp_uri(&origin)?;
        client::compare_nbd(lab.host(0), &format!("{uri}/first.img"), &first)?;
        assert_eq!(client::compare_nbd(lab.host(0), &format!("{uri}/second.img"), &second).is_ok(), is_open, "{rule}");
        client::compare_nbd(lab.host(0), &origin.uri("second.img"), &second)?;
        if !is_open {
            origin.says("second.img is closed to TCP clients: no --nbd-allow rule names it", NEWS)?;
        }
        origin.leave(NEWS)?;
    }
    Ok(())
}

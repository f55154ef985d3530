//! The main job before the reader's eyes: share an image, lose its origin, go on reading.
//!
//! Run by `make demo`, which builds and installs what it needs. Everything it makes lies in one
//! directory in RAM and is gone at the end, also after ctrl-C.

use serde_json::Value;
use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use vfield_lab::bytes::human;
use vfield_lab::need::{fuse_works, is_root};
use vfield_lab::process::run;
use vfield_lab::{Daemon, Host, Lab, LabError, Vfield, client, daemon};

/// What each node holds of the image: 145 % together, so any place is held without the origin.
const STORES: [&str; 4] = ["40%", "35%", "35%", "35%"];
/// What the late node holds.
const LATE_STORE: &str = "30%";
/// Parts of `/usr` are taken until they are this long; compressed they make a few hundred MB.
const FILES_BYTES: u64 = 640_000_000;
/// The image's name.
const NAME: &str = "usr.squashfs";

fn main() {
    let start = Instant::now();
    let outcome = demonstrate();
    match outcome {
        Ok(()) => say("", &format!("Done in {:.0} s; nothing is left behind.", start.elapsed().as_secs_f64())),
        Err(error) => {
            say("", &format!("{} {error}", paint("31;1", "The demonstration failed:")));
            std::process::exit(1);
        }
    }
}

/// The story, in the order in which it is told.
fn demonstrate() -> Result<(), LabError> {
    let program = std::env::var_os("VFIELD_BIN").expect("VFIELD_BIN names the program; `make demo` sets it");
    let vfield = Vfield::at(Path::new(&program));
    let lab = Lab::loopback(2 + STORES.len())?;
    let image = make_image(&lab)?;

    title("An origin serves it, and four nodes join");
    let mut clock = Instant::now();
    let mut origin = vfield.serve(lab.host(0), &[&image]).name("origin").ready()?;
    let id = origin.image()?["id"].as_str().unwrap_or_default().to_owned();
    done(&mut clock, &format!("origin at {} serves image {}…", origin.addr(), &id[..id.len().min(16)]));
    let mut nodes = Vec::new();
    for (index, store) in STORES.iter().enumerate() {
        // Any member will do: each joins through its predecessor.
        let through = nodes.last().map_or(origin.addr(), Daemon::addr);
        let node = join(&vfield, lab.host(index + 1), through, store)?;
        let how = attached(&node);
        done(&mut clock, &format!("{} joins through {}, holds {store}, {how}", node.addr(), through));
        nodes.push(node);
    }
    for node in &nodes {
        node.wait("filled", daemon::FILL_LIMIT)?;
    }
    nodes[0].wait("covered", daemon::FILL_LIMIT)?;
    let least = nodes[0].image()?["multiplicity_min"].as_u64().unwrap_or_default();
    done(&mut clock, &format!("all stores are filled; every chunk is held by {least} of them or more"));
    done(&mut clock, &paint("32;1", "coverage is complete: the origin may leave"));

    let expected = client::checksum_file(lab.host(0), &image)?;
    title("Every node reads everything");
    say("  ", &format!("BLAKE3 of the file: {}…", &expected[..32]));
    read_everywhere(&lab, &nodes, &expected)?;

    title("The origin is killed, no goodbye");
    let mut clock = Instant::now();
    origin.kill();
    std::fs::remove_file(&image).ok();
    done(&mut clock, "SIGKILL sent to the origin, and its file deleted");

    title("Every node reads everything again");
    read_everywhere(&lab, &nodes, &expected)?;

    title("A fifth node joins through a survivor");
    let mut clock = Instant::now();
    let survivor = nodes[2].addr();
    let late = join(&vfield, lab.host(1 + STORES.len()), survivor, LATE_STORE)?;
    done(&mut clock, &format!("{} joins through {survivor}, holds {LATE_STORE}, {}", late.addr(), attached(&late)));
    late.wait("filled", daemon::FILL_LIMIT)?;
    done(&mut clock, "its store is filled, without an origin");
    nodes.push(late);
    read_everywhere(&lab, &nodes[STORES.len()..], &expected)?;

    mount_image(&lab, &nodes[1])?;

    title("Where each node's bytes came from");
    print_sources(&origin, &nodes)
}

/// A squashfs image of parts of `/usr`.
fn make_image(lab: &Lab) -> Result<PathBuf, LabError> {
    title("A squashfs image is made of this machine's own files");
    let mut clock = Instant::now();
    let parts = ["usr/bin", "usr/sbin"].map(PathBuf::from).into_iter();
    let parts = parts.chain(children(Path::new("/usr/lib"))).chain(children(Path::new("/usr/share")));
    let mut left = FILES_BYTES;
    let mut chosen = Vec::new();
    for part in parts {
        let bytes = length_below(&Path::new("/").join(&part));
        if bytes <= left {
            left -= bytes;
            chosen.push(part);
        }
    }
    let image = lab.dir().join(NAME);
    let mut command = lab.host(0).client(client::READ_LIMIT, "mksquashfs");
    command.current_dir("/").args(&chosen).arg(&image);
    run(command.args(["-no-strip", "-comp", "lz4", "-no-xattrs", "-quiet", "-no-progress"]))?;
    let length = std::fs::metadata(&image).map_or(0, |meta| meta.len());
    done(&mut clock, &format!("{NAME}: {} of files in {}", human(FILES_BYTES - left), human(length)));
    Ok(image)
}

/// Directories and files of a directory in the order of their names, without the leading slash.
fn children(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.path().strip_prefix("/").ok()?.to_owned())).collect();
    paths.sort();
    paths
}

/// Sum of the lengths of the files below a path; links are not followed.
fn length_below(path: &Path) -> u64 {
    let Ok(meta) = path.symlink_metadata() else { return 0 };
    if !meta.is_dir() {
        return meta.len();
    }
    std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| length_below(&entry.path())).sum()
}

/// A node that is attached in every way this machine has.
fn join(vfield: &Vfield, host: &Host, through: SocketAddr, store: &str) -> Result<Daemon, LabError> {
    vfield.join(host, through).store(store).args(&["--join-boost", "9"]).mounted(fuse_works()).ready()
}

/// How a node is attached, in words.
fn attached(node: &Daemon) -> &'static str {
    if node.mount().is_some() { "mounted with FUSE, exported with NBD" } else { "exported with NBD (no FUSE here)" }
}

/// All nodes read the whole image at the same time, each in both ways.
fn read_everywhere(lab: &Lab, nodes: &[Daemon], expected: &str) -> Result<(), LabError> {
    let start = Instant::now();
    let host = |node: &Daemon| lab.hosts().iter().find(|host| host.addr() == node.addr()).expect("it runs there");
    let reads: Vec<Result<Vec<(&str, Duration)>, LabError>> = std::thread::scope(|scope| {
        let readers: Vec<_> =
            nodes.iter().map(|node| scope.spawn(|| read_both_ways(host(node), node, expected))).collect();
        readers.into_iter().map(|reader| reader.join().expect("a reader does not panic")).collect()
    });
    for (node, read) in nodes.iter().zip(reads) {
        let ways: Vec<_> = read?.iter().map(|(way, took)| format!("{way} {:.1} s", took.as_secs_f64())).collect();
        let mark = paint("32", "same checksum");
        say("  ", &format!("{:<22}{mark}   {}", node.addr().to_string(), ways.join("   ")));
    }
    say("  ", &paint("2", &format!("{:.1} s in all", start.elapsed().as_secs_f64())));
    Ok(())
}

/// Reads a node's image through FUSE and NBD and compares the checksums.
fn read_both_ways<'a>(host: &Host, node: &Daemon, expected: &str) -> Result<Vec<(&'a str, Duration)>, LabError> {
    let mut ways = Vec::new();
    let mut check = |way: &'a str, sum: String, start: Instant| {
        ways.push((way, start.elapsed()));
        if sum == expected {
            return Ok(());
        }
        Err(LabError::Command { command: format!("{way} on {}", node.addr()), why: format!("wrong checksum {sum}") })
    };
    if let Some(mount) = node.mount() {
        let file = mount.join(NAME);
        client::forget(&file)?;
        let start = Instant::now();
        check("FUSE", client::checksum_file(host, &file)?, start)?;
    }
    let start = Instant::now();
    check("NBD", client::checksum_nbd(host, &node.uri(NAME))?, start)?;
    Ok(ways)
}

/// Mounts the image itself, out of a node's FUSE mount, and looks at a file.
fn mount_image(lab: &Lab, node: &Daemon) -> Result<(), LabError> {
    let (true, Some(mount)) = (is_root(), node.mount()) else { return Ok(()) };
    title("The image of one node is mounted as a file system");
    let mut clock = Instant::now();
    let dir = lab.dir().join("root");
    std::fs::create_dir(&dir).map_err(|source| LabError::System { what: dir.display().to_string(), source })?;
    let mut command = Command::new("mount");
    command.args(["-t", "squashfs", "-o", "loop,ro"]).arg(mount.join(NAME)).arg(&dir);
    if let Err(error) = run(&mut command) {
        say("  ", &format!("left out: this machine has no loop devices or no squashfs ({error})"));
        return Ok(());
    }
    // On a machine with many programs /usr/bin is too long for the image.
    let usual = Some(dir.join("usr/bin/env")).filter(|file| file.is_file());
    let file = usual.or_else(|| first_file(&dir)).unwrap_or_else(|| dir.clone());
    let here = Path::new("/").join(file.strip_prefix(&dir).unwrap_or(&file));
    let listed = run(Command::new("ls").arg("-l").arg(&file))?;
    run(Command::new("cmp").arg(&file).arg(&here))?;
    done(&mut clock, &format!("mounted {} of {}", NAME, node.addr()));
    say("  ", &listed.replace(&dir.display().to_string(), ""));
    done(&mut clock, &format!("the same bytes as this machine's {}", here.display()));
    run(Command::new("umount").arg(&dir)).map(drop)
}

/// The first regular file below a directory.
fn first_file(dir: &Path) -> Option<PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let is = |path: &&PathBuf, kind: fn(&std::fs::FileType) -> bool| {
        path.symlink_metadata().is_ok_and(|meta| kind(&meta.file_type()))
    };
    let file = paths.iter().find(|path| is(path, std::fs::FileType::is_file)).cloned();
    file.or_else(|| paths.iter().filter(|path| is(path, std::fs::FileType::is_dir)).find_map(|path| first_file(path)))
}

/// For each node, what it took from its own store, from each peer and from the origin.
fn print_sources(origin: &Daemon, nodes: &[Daemon]) -> Result<(), LabError> {
    let columns: Vec<_> = std::iter::once(origin).chain(nodes).map(|node| node.addr().to_string()).collect();
    let short = |addr: &str| addr.split(':').next().unwrap_or_default().to_owned();
    let mut rows = vec![vec!["node".to_owned(), "own memory".to_owned(), "from origin".to_owned()]];
    rows[0].extend(columns[1..].iter().map(|addr| format!("from {}", short(addr))));
    for node in nodes {
        let status = node.status()?;
        let from = |addr: &str| {
            let peers = status["peers"].as_array().into_iter().flatten();
            peers.filter(|peer| peer["addr"] == addr).filter_map(|peer| peer["received_bytes"].as_u64()).sum::<u64>()
        };
        let traffic = |key: &str| status["traffic"][key].as_u64().unwrap_or_default();
        let own = node.addr().to_string();
        let mut row = vec![short(&own), human(traffic("from_store_bytes")), human(traffic("from_origin_bytes"))];
        row.extend(columns[1..].iter().map(|addr| if *addr == own { "-".to_owned() } else { human(from(addr)) }));
        rows.push(row);
        let warnings = status["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
        warnings.for_each(|warning| say("  ", &format!("{own} warns: {warning}")));
    }
    for (index, row) in rows.iter().enumerate() {
        let line: String = row.iter().map(|cell| format!("{cell:>15}")).collect();
        say("", &if index == 0 { paint("1", &line) } else { line });
    }
    say(
        "  ",
        &paint("2", "own memory: read out of the node's store, or out of what it had read ahead from the others"),
    );
    Ok(())
}

/// Prints a heading after an empty line.
fn title(text: &str) {
    say("", &format!("\n{}", paint("1;36", text)));
}

/// A step that is done, with the time it took.
fn done(clock: &mut Instant, text: &str) {
    say("  ", &format!("{text} {}", paint("2", &format!("({:.1} s)", clock.elapsed().as_secs_f64()))));
    *clock = Instant::now();
}

fn say(indent: &str, text: &str) {
    // A closed pipe is no reason to stop in the middle.
    let _ = writeln!(std::io::stdout(), "{indent}{text}");
}

/// Colours for terminals only.
fn paint(code: &str, text: &str) -> String {
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

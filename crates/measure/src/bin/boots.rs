//! Boots machines at once, each on a link of its own, from one image: `boots WAY MACHINES [--mbit
//! 20] [--size 96]`.
//!
//! A way is `field-ublk`, `field-nbd`, `nbdkit`, or `file`: a disk of the emulator's, without any
//! network. With `qemu-field` and `qemu-nbdkit` that disk is an ext4 image, which the emulator's
//! own NBD client reads: from a node on the machine's host, or from the server. With
//! `field-squashfs` and `field-packed` the root has this machine's own programs: in a compressed
//! squashfs, or packed. Such a root comes from the field by ublk. A machine is up when it has read
//! all files of its root. Prints one JSON object; `scripts/bench-boot` runs the recorded ones.
//! Needs root.

use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::machine::{Disk, Hardware};
use vfield_lab::process::run;
use vfield_lab::{Lab, LabError, Link, Machine, Vfield, wait_until};

/// Long enough for a server that sends everything to everybody.
const UP: Duration = Duration::from_secs(3000);
/// Starting a server.
const SOON: Duration = Duration::from_secs(30);
/// How often files are looked for in which machines say how far they are.
const LOOK: Duration = Duration::from_millis(50);
/// Whose files a root of own programs has.
const OWN: [&str; 2] = ["/usr/bin", "/usr/lib/x86_64-linux-gnu"];
/// Lengths of a root's files in KiB, in turns: some for each power of two.
const FILES_KIB: [u64; 8] = [4, 8, 16, 32, 64, 128, 256, 1024];

/// Boots machines from one image, and says how long they took.
#[derive(Parser)]
struct Options {
    /// field-ublk, field-nbd, field-squashfs, field-packed, nbdkit, qemu-field, qemu-nbdkit, file
    way: String,
    /// How many machines
    machines: usize,
    /// Rate of each link, each way on its own, the server's too
    #[arg(long, default_value_t = 20)]
    mbit: u64,
    /// Length of the image in MiB
    #[arg(long, default_value_t = 96)]
    size: u64,
    /// What each machine holds
    #[arg(long, default_value = "all")]
    store: String,
    /// What machines run
    #[arg(long, default_value = "scripts/bench-boot.sh")]
    script: PathBuf,
}

/// Times of a machine since it was switched on, in seconds; zero for those to come.
#[derive(Clone, Copy, Default)]
struct Times {
    begun: f64,
    mounted: f64,
    up: f64,
}

impl Times {
    /// Looks how far a machine is.
    fn look(&mut self, shared: &Path, start: Instant) {
        for (name, time) in [("begun", &mut self.begun), ("mounted", &mut self.mounted), ("up", &mut self.up)] {
            if *time == 0.0 && shared.join(name).exists() {
                *time = start.elapsed().as_secs_f64();
            }
        }
    }
}

/// Random files that cannot be compressed; their names.
fn random_tree(tree: &Path, size_mib: u64) -> Result<Vec<String>, LabError> {
    let mut names = Vec::new();
    let mut left_kib = size_mib << 10;
    for (number, kib) in (0_u64..).zip(FILES_KIB.into_iter().cycle()) {
        let kib = kib.min(left_kib);
        if kib == 0 {
            break;
        }
        names.push(format!("{number:04}"));
        random_file(&tree.join(&names[names.len() - 1]), kib * (MIB >> 10), number)?;
        left_kib -= kib;
    }
    Ok(names)
}

/// Files of this machine in the order of their names, as many as fit; their names here.
fn own_tree(tree: &Path, size_mib: u64) -> Result<Vec<String>, LabError> {
    let listed =
        run(Command::new("find").args(OWN).args(["-xdev", "-type", "f", "-size", "-4M", "-printf", "%s %p\n"]))?;
    let mut files: Vec<(&str, &str)> = listed.lines().filter_map(|line| line.split_once(' ')).collect();
    files.sort_by_key(|(_, path)| *path);
    let (mut names, mut left) = (Vec::new(), size_mib * MIB);
    for (bytes, path) in files {
        let bytes = bytes.parse().unwrap_or(u64::MAX);
        if bytes > left {
            break;
        }
        left -= bytes;
        names.push(format!("{:05}", names.len()));
        let to = tree.join(&names[names.len() - 1]);
        std::fs::copy(path, &to).map_err(|source| LabError::System { what: path.to_owned(), source })?;
    }
    Ok(names)
}

/// A file system, and in it the names of its files in the order in which they are read.
fn make_image(dir: &Path, size_mib: u64, way: &str, program: &Vfield) -> Result<PathBuf, LabError> {
    let tree = dir.join("tree");
    run(Command::new("mkdir").arg(&tree))?;
    let has_own = ["field-squashfs", "field-packed"].contains(&way);
    let names = if has_own { own_tree(&tree, size_mib)? } else { random_tree(&tree, size_mib)? };
    // Any order that is not the image's: multiples of a number that has no divisor in common with
    // how many there are.
    let step = (names.len() / 3..).find(|step| gcd(*step, names.len()) == 1).unwrap_or(1);
    let order: String = (0..names.len()).map(|turn| format!("{}\n", names[turn * step % names.len()])).collect();
    let path = tree.join("order");
    std::fs::write(&path, order).map_err(|source| LabError::System { what: path.display().to_string(), source })?;
    let image = dir.join("root");
    let mut make = Command::new("mksquashfs");
    make.args([&tree, &image]).args(["-quiet", "-no-progress"]);
    match way {
        "field-squashfs" => {
            make.args(["-comp", "zstd"]);
        }
        "field-packed" => {
            make = Command::new(program.path());
            make.arg("pack").args([&tree, Path::new("--output"), &image]);
        }
        _ if way.starts_with("qemu-") => {
            // Room for its own tables, about a sixteenth.
            let size = format!("{}M", size_mib + size_mib / 8 + 8);
            make = Command::new("mke2fs");
            make.args(["-q", "-t", "ext4", "-d"]).args([&tree, &image]).arg(size);
        }
        _ => {
            make.args(["-noI", "-noD", "-noF", "-noX"]);
        }
    }
    run(&mut make)?;
    run(Command::new("rm").arg("-r").arg(&tree))?;
    Ok(image)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let machine = Machine::find().ok_or("no machine: run scripts/machine and set VFIELD_MACHINE to what it made")?;
    let (program, script) = (Vfield::at(&machine.program()), std::fs::read_to_string(&options.script)?);
    let lab = Lab::namespaces(options.machines + 1, Link::mbit(options.mbit))?;
    let way = options.way.as_str();
    let (server, image) = (lab.host(0), make_image(lab.dir(), options.size, way, &program)?);
    // Dropped, and ended, before the lab.
    let (mut nbdkit, mut origin) = (None, None);
    match way {
        "nbdkit" | "qemu-nbdkit" => {
            let (ip, port) = (server.addr().ip().to_string(), server.addr().port().to_string());
            let mut command = server.command("nbdkit");
            command.args(["-f", "-r", "-i", &ip, "-p", &port, "file"]).arg(&image);
            nbdkit = Some(server.spawn("nbdkit", &mut command)?);
            let listens = || run(server.command("ss").args(["-Hltn"])).is_ok_and(|text| text.contains(&port));
            wait_until("nbdkit listens", SOON, listens)?;
        }
        "file" => {}
        _ => origin = Some(program.serve(server, &[&image]).ready()?),
    }
    let before = lab.counters(server)?;
    let start = Instant::now();
    let (mut running, mut nodes) = (Vec::new(), Vec::new());
    for host in &lab.hosts()[1..] {
        let mut uri = format!("nbd://{}", server.addr());
        if way == "qemu-field" {
            let node = program.join(host, server.addr()).store(&options.store).ready()?;
            uri = node.uri("");
            nodes.push(node);
        }
        let disk = match way {
            "file" => Some(Disk::File(&image)),
            "qemu-field" | "qemu-nbdkit" => Some(Disk::Nbd(&uri)),
            _ => None,
        };
        let hardware = Hardware { memory_mib: 512, processors: 1, disk, right_clock: true };
        let words =
            format!("way={way} address={} server={} store={}\n", host.addr().ip(), server.addr().ip(), options.store);
        running.push(machine.start(&format!("boot-{}", host.index()), &(words + &script), host, &hardware)?);
    }
    let mut times = vec![Times::default(); running.len()];
    while times.iter().any(|times| times.up == 0.0) {
        if start.elapsed() > UP {
            return Err("not up in time".into());
        }
        std::thread::sleep(LOOK);
        for ((process, shared), times) in running.iter_mut().zip(&mut times) {
            process.check()?;
            times.look(shared, start);
        }
    }
    let sent = lab.counters(server)?.sent_bytes - before.sent_bytes;
    let mut ups: Vec<f64> = times.iter().map(|times| times.up).collect();
    ups.sort_by(f64::total_cmp);
    let mut memory = String::new();
    if way.starts_with("field-") {
        let path = running[0].1.join("memory");
        wait_until("the first machine has said what its daemon takes", UP, || {
            memory = std::fs::read_to_string(&path).unwrap_or_default();
            memory.contains("Memfd")
        })?;
    }
    println!(
        "{}",
        serde_json::json!({
            "way": way, "machines": options.machines, "mbit": options.mbit, "image_bytes": std::fs::metadata(&image)?.len(),
            "store": options.store, "first_up_s": ups.first(), "last_up_s": ups.last(), "server_sent_bytes": sent,
            "begun_s": times.iter().map(|times| times.begun).collect::<Vec<_>>(),
            "mounted_s": times.iter().map(|times| times.mounted).collect::<Vec<_>>(),
            "memory": memory.lines().collect::<Vec<_>>(),
        })
    );
    drop((running, nodes, nbdkit, origin));
    Ok(())
}

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
//!
//! With `--in-turn` each machine is switched on after the one before. That one is up then, the
//! origin has heard all that it read first, and it is switched off. So the first one boots without
//! a list, and the others are led.

use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::machine::{Disk, Hardware};
use vfield_lab::process::{Process, run};
use vfield_lab::{Daemon, Deadline, Host, Lab, LabError, Link, Machine, Vfield, wait_until};

/// Long enough for a server that sends everything to everybody.
const UP: Duration = Duration::from_secs(3000);
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
    /// Read only so many files
    #[arg(long)]
    files: Option<usize>,
    /// Read only the first bytes of each file, so many KiB, as programs are that start
    #[arg(long)]
    part: Option<u64>,
    /// Delay of what a machine sends, in milliseconds: a round trip takes as long
    #[arg(long, default_value_t = 0)]
    delay: u64,
    /// One machine after the other
    #[arg(long)]
    in_turn: bool,
    /// Program of the server, and of nodes beside machines [default: that of the machines]
    #[arg(long)]
    program: Option<PathBuf>,
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
    /// In which a read of the root's device was under way.
    blocked: f64,
}

impl Times {
    /// Looks how far a machine is.
    fn look(&mut self, shared: &Path, start: Instant) {
        for (name, time) in [("begun", &mut self.begun), ("mounted", &mut self.mounted), ("up", &mut self.up)] {
            if *time == 0.0 && shared.join(name).exists() {
                *time = start.elapsed().as_secs_f64();
            }
        }
        // Its tenth number is the time with a request under way, in milliseconds.
        let counters = std::fs::read_to_string(shared.join("reads")).unwrap_or_default();
        let busy_ms: Option<f64> = counters.split_whitespace().nth(9).and_then(|number| number.parse().ok());
        self.blocked = busy_ms.map_or(self.blocked, |busy_ms| busy_ms / 1000.0);
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
fn make_image(dir: &Path, options: &Options, program: &Vfield) -> Result<PathBuf, LabError> {
    let (size_mib, way) = (options.size, options.way.as_str());
    let tree = dir.join("tree");
    run(Command::new("mkdir").arg(&tree))?;
    let has_own = ["field-squashfs", "field-packed"].contains(&way);
    let names = if has_own { own_tree(&tree, size_mib)? } else { random_tree(&tree, size_mib)? };
    // Any order that is not the image's: multiples of a number that has no divisor in common with
    // how many there are.
    let step = (names.len() / 3..).find(|step| gcd(*step, names.len()) == 1).unwrap_or(1);
    let read = options.files.unwrap_or(usize::MAX).min(names.len());
    let order: String = (0..read).map(|turn| format!("{}\n", names[turn * step % names.len()])).collect();
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

/// Machines that one image is for, and what they are started with.
struct Room<'a> {
    options: &'a Options,
    machine: &'a Machine,
    program: &'a Vfield,
    image: &'a Path,
    server: &'a Host,
    /// Nodes on the machines' hosts, where QEMU's client reads.
    nodes: Vec<Daemon>,
}

impl Room<'_> {
    /// Switches the machine of a host on.
    fn start(&mut self, host: &Host) -> Result<(Process, PathBuf), Box<dyn std::error::Error>> {
        let (options, way, server) = (self.options, self.options.way.as_str(), self.server.addr());
        let mut uri = format!("nbd://{server}");
        if way == "qemu-field" {
            let node = self.program.join(host, server).store(&options.store).ready()?;
            uri = node.uri("");
            self.nodes.push(node);
        }
        let disk = match way {
            "file" => Some(Disk::File(self.image)),
            "qemu-field" | "qemu-nbdkit" => Some(Disk::Nbd(&uri)),
            _ => None,
        };
        let hardware = Hardware { memory_mib: 512, processors: 1, disk };
        let part = options.part.map_or_else(String::new, |kib| (kib << 10).to_string());
        let words = format!(
            "way={way} address={} server={} store={} delay_ms={} part={part}\n",
            host.addr().ip(),
            server.ip(),
            options.store,
            options.delay
        );
        let script = words + &std::fs::read_to_string(&options.script)?;
        Ok(self.machine.start(&format!("boot-{}", host.index()), &script, host, &hardware)?)
    }

    /// Boots a machine, and switches it off when `origin` has heard all that it read first.
    fn boot(&mut self, host: &Host, origin: Option<&Daemon>) -> Result<Times, Box<dyn std::error::Error>> {
        let start = Instant::now();
        let mut running = self.start(host)?;
        let times = await_all(std::slice::from_mut(&mut running), start)?[0];
        if let Some(origin) = origin {
            // The origin asks more and more rarely: what it heard first is a part.
            let (process, shared) = &mut running;
            Deadline::after(UP).poll("the origin hears what the machine has learned", || {
                process.check()?;
                let learned = std::fs::read_to_string(shared.join("learned")).unwrap_or_default();
                let heard = run(&mut origin.ask_to(&["learned", "root"])).unwrap_or_default();
                Ok((!learned.is_empty() && heard.trim() == learned.trim()).then_some(()))
            })?;
        }
        Ok(times)
    }
}

/// Looks how far machines are that were switched on at once, until all are up.
fn await_all(running: &mut [(Process, PathBuf)], start: Instant) -> Result<Vec<Times>, Box<dyn std::error::Error>> {
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
    Ok(times)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let machine = Machine::find().ok_or("no machine: run scripts/machine and set VFIELD_MACHINE to what it made")?;
    // It runs in another folder.
    let program = options.program.as_deref().map_or_else(|| Ok(machine.program()), std::path::absolute)?;
    let program = Vfield::at(&program);
    let lab = Lab::namespaces(options.machines + 1, Link::mbit(options.mbit))?;
    let way = options.way.as_str();
    let (server, image) = (lab.host(0), make_image(lab.dir(), &options, &program)?);
    // Dropped, and ended, before the lab.
    let (mut nbdkit, mut origin) = (None, None);
    match way {
        "nbdkit" | "qemu-nbdkit" => {
            let (ip, port) = (server.addr().ip().to_string(), server.addr().port().to_string());
            let mut command = server.command("nbdkit");
            command.args(["-f", "-r", "-i", &ip, "-p", &port, "file"]).arg(&image);
            nbdkit = Some(server.listening(server.spawn("nbdkit", &mut command)?, server.addr())?);
        }
        "file" => {}
        _ => origin = Some(program.serve(server, &[&image]).ready()?),
    }
    let before = lab.counters(server)?;
    let mut room =
        Room { options: &options, machine: &machine, program: &program, image: &image, server, nodes: Vec::new() };
    let (start, hosts) = (Instant::now(), &lab.hosts()[1..]);
    let mut running = Vec::new();
    let times = if options.in_turn {
        // Nobody is led by the last one.
        let of = |turn| origin.as_ref().filter(|_| turn < hosts.len());
        hosts.iter().zip(1..).map(|(host, turn)| room.boot(host, of(turn))).collect::<Result<_, _>>()?
    } else {
        running = hosts.iter().map(|host| room.start(host)).collect::<Result<Vec<_>, _>>()?;
        await_all(&mut running, start)?
    };
    let sent = lab.counters(server)?.sent_bytes - before.sent_bytes;
    let received: Result<Vec<_>, _> =
        hosts.iter().map(|host| lab.counters(host).map(|all| all.received_bytes)).collect();
    let mut memory = String::new();
    if let Some((_, shared)) = running.first().filter(|_| way.starts_with("field-")) {
        wait_until("the first machine has said what its daemon takes", UP, || {
            memory = std::fs::read_to_string(shared.join("memory")).unwrap_or_default();
            memory.contains("Memfd")
        })?;
    }
    let of_each = |time: fn(&Times) -> f64| times.iter().map(time).collect::<Vec<_>>();
    let up_s = of_each(|times| times.up);
    println!(
        "{}",
        serde_json::json!({
            "way": way, "machines": options.machines, "mbit": options.mbit, "image_bytes": std::fs::metadata(&image)?.len(),
            "store": options.store, "first_up_s": up_s.iter().copied().reduce(f64::min),
            "last_up_s": up_s.iter().copied().reduce(f64::max), "server_sent_bytes": sent,
            "begun_s": of_each(|times| times.begun), "mounted_s": of_each(|times| times.mounted), "up_s": up_s,
            "blocked_s": of_each(|times| times.blocked), "received_bytes": received?,
            "memory": memory.lines().collect::<Vec<_>>(),
        })
    );
    drop((running, room, nbdkit, origin));
    Ok(())
}

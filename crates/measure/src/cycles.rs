//! What a byte costs on its way from an origin to a node, from node to node, and to a reader.
//!
//! Each [`Row`] moves one image in several ways that take turns, over the loopback device: with
//! vfield, and with bare processes or another server. What counts is the whole machine's busy time,
//! since the kernel's work on packets is charged to the process that runs. If the machine does
//! other work meanwhile, only the ratios of processes' own time say something.
//! Used by the program `cycles`; needs no root.

mod bare;
mod slots;

pub use bare::play;

use crate::storm::meter;
use bare::{Bare, VARIABLE};
use serde::Serialize;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use vfield_lab::process::run;
use vfield_lab::{Daemon, Deadline, Host, Lab, LabError, Process, Vfield, bytes};

/// A way that takes longer than this hangs.
const LIMIT: Duration = Duration::from_secs(120);
/// Pause between two looks for a daemon's socket.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A path of bytes that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Row {
    /// An origin, and a node that fills its store.
    Fill,
    /// An origin, and two nodes that fill their stores at once: each byte crosses two sockets.
    Pair,
    /// A client reads a whole image from a node that stores nothing.
    Read,
}

/// Who moves the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// An origin, and nodes that join it.
    Vfield,
    /// The same with stores in large pages, on a kernel that gives them.
    Huge,
    /// Bare processes whose slots are resident.
    Bare,
    /// Bare processes whose slots are fresh pages.
    Fresh,
    /// nbdkit, which the client reads without a node between them.
    Nbdkit,
}

impl Row {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Fill, Self::Pair, Self::Read];

    /// The ways in which it is measured, that of vfield first.
    pub const fn ways(self) -> &'static [Way] {
        match self {
            Self::Fill | Self::Pair => &[Way::Vfield, Way::Huge, Way::Bare, Way::Fresh],
            Self::Read => &[Way::Vfield, Way::Bare, Way::Nbdkit],
        }
    }
}

/// What one run took.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Taken {
    /// From the word to the last byte.
    pub seconds: f64,
    /// Time that the machine's processors were not idle meanwhile, all of them added up.
    pub busy_s: f64,
    /// Processor time of the process that has the image.
    pub sender_s: f64,
    /// Processor time of all processes that move the image, a client's not counted.
    pub processes_s: f64,
}

/// The programs and the length of the image.
#[derive(Debug)]
pub struct Bench {
    vfield: Vfield,
    this: PathBuf,
    size_bytes: u64,
}

/// The clock, and the processes whose time counts.
struct Meter {
    start: Instant,
    busy_s: f64,
    before: Vec<(u32, Duration)>,
}

impl Meter {
    /// Starts the clock. The first process is the sender; more may join it.
    fn start(pids: &[u32]) -> Self {
        let before = pids.iter().map(|pid| (*pid, vfield_lab::process::cpu(*pid))).collect();
        Self { busy_s: meter::machine_s(), before, start: Instant::now() }
    }

    /// A process that began after the clock.
    fn joined(&mut self, pid: u32) {
        self.before.push((pid, Duration::ZERO));
    }

    /// Stops the clock.
    fn stop(&self) -> Taken {
        let (seconds, busy_s) = (self.start.elapsed().as_secs_f64(), meter::machine_s() - self.busy_s);
        let took =
            |(pid, before): &(u32, Duration)| vfield_lab::process::cpu(*pid).saturating_sub(*before).as_secs_f64();
        let processes: Vec<f64> = self.before.iter().map(took).collect();
        let sender_s = processes.first().copied().unwrap_or_default();
        Taken { seconds, busy_s, sender_s, processes_s: processes.iter().sum() }
    }
}

impl Bench {
    /// Of this program and an image of so many bytes.
    ///
    /// # Errors
    /// If this program has no path.
    pub fn new(vfield: &Path, size_bytes: u64) -> Result<Self, LabError> {
        let this = std::env::current_exe().map_err(LabError::at(Path::new("this program")))?;
        Ok(Self { vfield: Vfield::at(vfield), this, size_bytes })
    }

    /// Runs a row once in one way.
    ///
    /// # Errors
    /// If a program is missing, or does not come to its end.
    pub fn run(&self, row: Row, way: Way) -> Result<Taken, LabError> {
        let lab = Lab::loopback(3)?;
        let image = bytes::random_file(&lab.dir().join("image"), self.size_bytes, 1)?;
        match (row, way) {
            (Row::Fill, Way::Vfield) => self.fill(&lab, &image, 1, &[]),
            (Row::Pair, Way::Vfield) => self.fill(&lab, &image, 2, &[]),
            (Row::Fill, Way::Huge) => self.fill(&lab, &image, 1, &["--huge"]),
            (Row::Pair, Way::Huge) => self.fill(&lab, &image, 2, &["--huge"]),
            (Row::Read, Way::Vfield) => self.read(&lab, &image),
            (Row::Read, Way::Nbdkit) => nbdkit(&lab, &image),
            (row, way) => self.bare(&lab, &image, row, way == Way::Fresh),
        }
    }

    /// Nodes fill their stores at once.
    fn fill(&self, lab: &Lab, image: &Path, nodes: usize, words: &[&str]) -> Result<Taken, LabError> {
        let origin = self.vfield.serve(lab.host(0), &[image]).ready()?;
        let mut meter = Meter::start(&[origin.process().pid()]);
        let words = [&["--join-boost", "9"], words].concat();
        let join = |host| self.vfield.join(host, origin.addr()).store("all").args(&words).spawn();
        let mut joined: Vec<Daemon> = lab.hosts()[1..=nodes].iter().map(join).collect::<Result<_, _>>()?;
        for node in &mut joined {
            meter.joined(node.process().pid());
            await_socket(node)?;
        }
        joined.iter().try_for_each(|node| node.wait("filled", LIMIT))?;
        Ok(meter.stop())
    }

    /// A client reads everything through a node that stores nothing.
    fn read(&self, lab: &Lab, image: &Path) -> Result<Taken, LabError> {
        let origin = self.vfield.serve(lab.host(0), &[image]).ready()?;
        let node = self.vfield.join(lab.host(1), origin.addr()).store("0").ready()?;
        let meter = Meter::start(&[origin.process().pid(), node.process().pid()]);
        copy(lab.host(2), &node.uri("image"))?;
        Ok(meter.stop())
    }

    fn bare(&self, lab: &Lab, image: &Path, row: Row, fresh: bool) -> Result<Taken, LabError> {
        let addr = |host: usize| lab.host(host).addr();
        let size_bytes = usize::try_from(self.size_bytes).unwrap_or(usize::MAX);
        let last = |from: SocketAddr| Bare::Fill { from, size_bytes, fresh, onward: None };
        let mut parts = vec![Bare::Send { file: image.to_owned(), listen: addr(0) }];
        match row {
            Row::Fill => parts.push(last(addr(0))),
            Row::Pair => {
                parts.push(Bare::Fill { from: addr(0), size_bytes, fresh, onward: Some(addr(1)) });
                parts.push(last(addr(1)));
            }
            Row::Read => {
                parts.push(Bare::Relay { from: addr(0), size_bytes, onward: addr(1) });
                parts.push(Bare::Drop { from: addr(1), size_bytes });
            }
        }
        let mut parts: Vec<Part> = parts.iter().map(|part| Part::start(&self.this, part)).collect::<Result<_, _>>()?;
        parts.iter_mut().try_for_each(|part| part.hear("ready"))?;
        // A client's time does not count.
        let counted = if row == Row::Read { 2 } else { parts.len() };
        let meter = Meter::start(&parts[..counted].iter().map(Part::pid).collect::<Vec<_>>());
        parts.iter_mut().for_each(Part::go);
        parts.iter_mut().try_for_each(|part| part.hear("done"))?;
        Ok(meter.stop())
    }
}

/// nbdkit serves the image to the client over TCP.
fn nbdkit(lab: &Lab, image: &Path) -> Result<Taken, LabError> {
    let host = lab.host(0);
    let (ip, port) = (host.addr().ip().to_string(), host.addr().port().to_string());
    let mut command = host.command("nbdkit");
    let mut server = host.spawn("nbdkit", command.args(["-f", "-r", "-i", &ip, "-p", &port, "file"]).arg(image))?;
    await_port(&mut server, host)?;
    let meter = Meter::start(&[server.pid()]);
    copy(lab.host(2), &format!("nbd://{}", host.addr()))?;
    Ok(meter.stop())
}

fn await_port(server: &mut Process, host: &Host) -> Result<(), LabError> {
    Deadline::after(LIMIT).poll("nbdkit listens", || {
        server.check()?;
        Ok(std::net::TcpStream::connect(host.addr()).ok().map(drop))
    })
}

/// Reads all of an export as fast as it comes.
fn copy(host: &Host, uri: &str) -> Result<(), LabError> {
    let mut command = host.client(LIMIT, "nbdcopy");
    run(command.args(["--connections=4", "--requests=16", "--request-size=262144", uri, "null:"])).map(drop)
}

/// Waits until a daemon can be asked, without asking.
fn await_socket(daemon: &mut Daemon) -> Result<(), LabError> {
    let start = Instant::now();
    while !daemon.control().exists() {
        daemon.process_mut().check()?;
        if start.elapsed() > LIMIT {
            return Err(LabError::Late { what: "a daemon can be asked".to_owned(), limit: LIMIT });
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// A bare process.
struct Part {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Part {
    fn start(this: &Path, part: &Bare) -> Result<Self, LabError> {
        let role = serde_json::to_string(part).expect("parts are plain data");
        let mut command = Command::new(this);
        let mut child = command
            .env(VARIABLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(LabError::at(this))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("it was piped"));
        Ok(Self { child, stdin, stdout: BufReader::new(stdout) })
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a word. A process that has ended says no more.
    fn hear(&mut self, word: &str) -> Result<(), LabError> {
        let mut line = String::new();
        let heard = self.stdout.read_line(&mut line).map_err(LabError::at(Path::new("a bare process")))?;
        if heard > 0 && line.trim() == word {
            return Ok(());
        }
        let (name, how) = ("a bare process".to_owned(), format!("before it said {word:?}"));
        Err(LabError::Ended { name, how, log: line })
    }

    /// An ended process is noticed by its silence.
    fn go(&mut self) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(b"go\n");
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // The end of its input ends it, and so does this.
        drop(self.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes so much memory and gives it back. The host of a virtual machine may have taken it, and
/// gives it again page by page, which takes longer than all that is measured.
pub fn warm_memory(bytes: u64) {
    let mut memory = vec![0_u8; usize::try_from(bytes).unwrap_or_default()];
    memory.iter_mut().step_by(4 << 10).for_each(|byte| *byte = 1);
    std::hint::black_box(memory);
}

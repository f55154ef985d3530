//! `vfield bench`: how fast an image is read here, or a node over there, and how near the limit
//! that is.
//!
//! Owns the order of things: the target, the runs one after the other, and the report. Streams,
//! readings and texts are the modules below. It measures and does nothing else: no bytes are
//! written, except by a write pattern; and a node that is asked directly gets no new member.

pub mod args;
mod cpu;
mod export;
mod file;
mod guest;
mod interrupt;
mod link;
mod load;
mod matrix;
mod nbd;
mod nodes;
mod outcome;
mod sample;
mod sealed;
mod socket;
mod table;
mod traffic;
pub mod values;
mod work;

use crate::args::{BenchOptions, Pattern};
use cpu::Reading;
use export::Export;
use guest::Guest;
use link::Link;
use load::{Channel, Doing, Measured};
use matrix::Row;
use nodes::Survey;
use outcome::{FromPeer, Image, Matrix, Network, NodeRate, Outcome, Run, Setting, Target};
use sample::{PeerChannel, Sample};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vfield_console::bar::{bar, count_bar};
use vfield_console::failure::Failure;
use vfield_console::log::{Console, Style};
use vfield_console::values::address::Address;
use vfield_console::volume::Volume;
use vfield_console::{log, output};
use vfield_control::client;
use vfield_control::message::DaemonStatus;
use vfield_core::image::{Geometry, Header};
use vfield_core::record::Record;
use vfield_node::config::DEFAULT_PORT;
use vfield_node::status::ImageStatus;
use vfield_trust::{KeyRing, NodeKey};
use work::{Order, Work};

/// An image: as `nbdcopy` reads one.
const STREAMS: [u64; 1] = [4];
/// Requests of each stream.
const DEPTH: u64 = 4;
/// A node: so many requests at once, each on a connection of its own.
const PEER_STREAMS: [u64; 5] = [1, 2, 4, 8, 12];
/// Requests of each connection: with one the number of streams is the number of requests.
const PEER_DEPTH: u64 = 1;
/// How long each run takes at most: long against what starts a run, short enough to wait for.
const SECONDS: Duration = Duration::from_secs(10);
/// The same for a node or a matrix, where there are many runs.
const SHORT_SECONDS: Duration = Duration::from_secs(5);
/// The same for each way of each node of a field, which may be many.
const NODE_SECONDS: Duration = Duration::from_secs(1);
/// So many different bytes of a node are asked for, then the same again: more than a cache holds.
const PEER_BYTES: u64 = 1 << 30;
/// Block of a sequential run: what readers of whole images use.
const SEQUENTIAL_BLOCK: u64 = 256 << 10;
/// Block of a random run: a page, what file systems read.
const RANDOM_BLOCK: u64 = 4 << 10;
/// Largest block: what every NBD server gives at once.
const BLOCK_MAX: u64 = 32 << 20;

/// Reads the field keys of the files that were given, or else of the usual place.
pub type ReadKeys = fn(Vec<PathBuf>) -> Result<Option<KeyRing>, Failure>;

/// Measures, and prints the results.
pub fn run(options: &BenchOptions, volume: Volume, read_keys: ReadKeys) -> Result<(), Failure> {
    if !options.field_key.is_empty() && !options.peers && options.peer.is_none() {
        let failure = Failure::usage("--field-key is for --peer and --peers");
        return Err(failure.hint("see `vfield bench --help`"));
    }
    let console = log::start(Style::choose(false, volume), volume);
    let stop = interrupt::watch()?;
    let (runs, nodes) = (Vec::new(), Vec::new());
    let mut bench = Bench { options, console, stop, read_keys, runs, matrix: None, nodes };
    let (target, image, link, result) = match &options.peer {
        _ if options.peers => bench.field()?,
        Some(addr) => bench.peer(addr)?,
        None => bench.export()?,
    };
    if bench.runs.is_empty() && bench.nodes.is_empty() {
        result?;
        return Err(Failure::failed("interrupted before anything was measured"));
    }
    let limit = if options.peers { outcome::limit_of_nodes(&bench.nodes, &link) } else { outcome::limit(&bench.runs) };
    let interrupted = bench.stop.load(Ordering::Relaxed);
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let (format, runs, matrix, nodes) = (outcome::FORMAT, bench.runs, bench.matrix, bench.nodes);
    let outcome = Outcome { format, version, target, image, link, runs, matrix, nodes, interrupted, limit };
    output::put(shown(&outcome, options.json).as_bytes())?;
    // Results before a failure are kept; the failure follows them.
    result
}

fn shown(outcome: &Outcome, json: bool) -> String {
    if json {
        let mut text = serde_json::to_string_pretty(outcome).expect("plain data becomes JSON");
        text.push('\n');
        return text;
    }
    table::text(outcome)
}

/// The target, its image, the link and the outcome.
type Done = (Target, Option<Image>, Link, Result<(), Failure>);

struct Bench<'a> {
    options: &'a BenchOptions,
    console: Console,
    stop: Arc<AtomicBool>,
    read_keys: ReadKeys,
    /// Done so far.
    runs: Vec<Run>,
    /// Its bounds, with `--matrix`.
    matrix: Option<Matrix>,
    /// Of a field.
    nodes: Vec<NodeRate>,
}

impl Bench<'_> {
    /// Reads an export of this machine.
    fn export(&mut self) -> Result<Done, Failure> {
        let options = self.options;
        let control = options.control.control.as_deref();
        let daemon = match (&options.nbd, client::status(control)) {
            (_, Ok(daemon)) => Some(daemon),
            // Whoever names a daemon wants that one's counters.
            (Some(_), Err(_)) if control.is_none() => None,
            (_, Err(failure)) => return Err(failure),
        };
        let daemon = daemon.filter(|daemon| options.nbd.as_ref().is_none_or(|uri| export::is_of(daemon, uri)));
        let (export, image) = match (&options.nbd, &daemon) {
            (Some(uri), daemon) => {
                let known = daemon.as_ref().and_then(|daemon| image_of(daemon, &uri.name));
                (Export::named(uri)?, known.map(Image::from))
            }
            (None, Some(daemon)) => {
                let images: Vec<Image> = daemon.node.images.iter().map(Image::from).collect();
                let image = export::choose(options.image.as_deref(), &images, "this node")?;
                let status = daemon.node.images.iter().find(|status| status.id == image.id);
                let status = status.ok_or_else(|| Failure::failed("the node has dropped the image"))?;
                (Export::of_daemon(daemon, status, options.via)?, Some(image.clone()))
            }
            (None, None) => return Err(Failure::failed("no daemon and no export to read from")),
        };
        let peers: Vec<IpAddr> = daemon.iter().flat_map(peers).collect();
        let link = Link::towards(&peers, options.link.map(|rate| rate.0));
        let filled = |daemon: &DaemonStatus| daemon.node.images.iter().all(|image| image.filled);
        let target = Target::Export {
            export: export.shown.clone(),
            node: daemon.as_ref().map(|daemon| daemon.node.node.clone()),
            addr: daemon.as_ref().map(|daemon| daemon.node.addr.clone()),
            origin: daemon.as_ref().zip(image.as_ref()).map(|(daemon, image)| is_origin(daemon, image)),
            pid: daemon.as_ref().map(|daemon| daemon.pid),
            filled: daemon.as_ref().map(filled),
        };
        let result = self.read(&export, daemon.as_ref(), &link);
        Ok((target, image, link, result))
    }

    /// All runs on an export.
    fn read(&mut self, export: &Export, daemon: Option<&DaemonStatus>, link: &Link) -> Result<(), Failure> {
        let usual: &[u64] = if self.options.matrix { &matrix::STREAMS } else { &STREAMS };
        self.matrix = self.options.matrix.then(|| Matrix { end_bytes: export.end_bytes() });
        for row in self.rows(export.end_bytes())? {
            for streams in self.streams(usual) {
                self.read_row(export, daemon, link, (row, streams))?;
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Kinds of runs on an export of `end_bytes`.
    fn rows(&self, end_bytes: u64) -> Result<Vec<Row>, Failure> {
        if self.options.matrix {
            return Ok(matrix::rows(end_bytes));
        }
        let patterns = match &self.options.pattern[..] {
            [] => &[Pattern::Sequential, Pattern::Random][..],
            chosen => chosen,
        };
        let row = |&pattern| Ok(Row { pattern, block_bytes: self.block_bytes(pattern)?, span_bytes: end_bytes });
        patterns.iter().map(row).collect()
    }

    /// One run on an export.
    fn read_row(
        &mut self,
        export: &Export,
        daemon: Option<&DaemonStatus>,
        link: &Link,
        (row, streams): (Row, u64),
    ) -> Result<(), Failure> {
        let control = self.options.control.control.as_deref();
        let Row { pattern, block_bytes, span_bytes } = row;
        let (usual_depth, time, in_order) = match self.options.matrix {
            true => (matrix::DEPTH, SHORT_SECONDS, Order::Onward),
            false => (DEPTH, SECONDS, Order::Sequential),
        };
        let depth = self.options.depth.unwrap_or(usual_depth);
        let setting = Setting { pattern, streams, depth, block_bytes, span_bytes: Some(span_bytes) };
        let (order, doing) = match pattern {
            Pattern::Sequential => (in_order, Doing::Reading),
            Pattern::Random => (Order::Random, Doing::Reading),
            Pattern::Write => (in_order, Doing::Writing),
            Pattern::Randwrite => (Order::Random, Doing::Writing),
        };
        let (channels, depth) = export.open(doing, streams, depth, block_bytes)?;
        let want = self.options.size.map_or(span_bytes, |size| size.0);
        let (blocks, count) = (span_bytes.div_ceil(block_bytes), want.div_ceil(block_bytes));
        let before = daemon.map(|_| client::status(control)).transpose()?;
        let shares = Reading::take(daemon.map(|daemon| daemon.pid));
        let work = self.work(order, blocks, count, time);
        let measured = self.measure(setting, want, channels, depth, &work)?;
        let shares = shares.until(&Reading::take(daemon.map(|daemon| daemon.pid)));
        let after = daemon.map(|_| client::status(control)).transpose()?;
        // Writes cause no network traffic.
        let network = before.zip(after).filter(|_| doing == Doing::Reading).map(|(before, after)| {
            let (bytes, seconds) = (measured.bytes, measured.time.as_secs_f64());
            let found = traffic::found(&before, &after, order == Order::Random, bytes);
            Network::of(traffic::came(&before, &after), bytes, seconds, link).with(found)
        });
        self.runs.push(Run::of(setting, &measured, shares, network));
        Ok(())
    }

    /// The keys of the other node's field.
    fn keys(&self) -> Result<Option<KeyRing>, Failure> {
        (self.read_keys)(self.options.field_key.clone())
    }

    /// Asks a node for what it has.
    fn peer(&mut self, addr: &Address) -> Result<Done, Failure> {
        let addr = addr.first(DEFAULT_PORT)?;
        // One guest, however many connections it has.
        let me = NodeKey::draw().map_err(|_| Failure::failed("the system has no randomness"))?;
        let mut guest = Guest::greet(addr, &me, self.keys()?.as_ref())?;
        let peer = *guest.peer();
        let (record, image) = self.image_of(&mut guest)?;
        let geometry = Geometry::new(header(&record)?);
        let want = self.options.size.map_or(PEER_BYTES, |size| size.0);
        let sample = Arc::new(Sample::gather(&mut guest, &record, &geometry, want)?);
        drop(guest);
        let link = Link::towards(&[addr.ip()], self.options.link.map(|rate| rate.0));
        let target = Target::Peer {
            node: peer.node.to_string(),
            addr: addr.to_string(),
            origin: record.origin,
            chunks: sample.len(),
        };
        let result = self.sweep((addr, &me), &sample, geometry.chunk_bytes(), (&link, record.origin));
        Ok((target, Some(image), link, result))
    }

    /// Asks all nodes of a field, one after the other.
    fn field(&mut self) -> Result<Done, Failure> {
        let me = NodeKey::draw().map_err(|_| Failure::failed("the system has no randomness"))?;
        let keys = self.keys()?;
        let (known, node, addr) = match &self.options.peer {
            Some(member) => {
                let mut guest = Guest::greet(member.first(DEFAULT_PORT)?, &me, keys.as_ref())?;
                (nodes::of_member(&mut guest)?, guest.peer().node.to_string(), guest.addr().to_string())
            }
            None => {
                let daemon = client::status(self.options.control.control.as_deref())?;
                (nodes::of_daemon(&daemon), daemon.node.node, daemon.node.addr)
            }
        };
        if known.is_empty() {
            return Err(Failure::failed(format!("node {addr} knows no other node")));
        }
        let ips: Vec<IpAddr> = known.iter().map(|known| known.addr.ip()).collect();
        let link = Link::towards(&ips, self.options.link.map(|rate| rate.0));
        let bar = self.console.bars.add(count_bar("measuring", known.len() as u64));
        let survey = Survey {
            me: &me,
            keys: keys.as_ref(),
            time: self.options.seconds.map_or(NODE_SECONDS, |seconds| seconds.0),
            bytes_max: self.options.size.map_or(u64::MAX, |size| size.0),
            stop: &self.stop,
        };
        self.nodes = survey.of(&known, &|next| {
            bar.set_message(format!("measuring {}", next.addr));
            bar.inc(1);
        });
        bar.finish_and_clear();
        let failed = outcome::fastest(&self.nodes).is_none() && !self.nodes.is_empty();
        let result = if failed { Err(Failure::failed("no node could be measured")) } else { Ok(()) };
        Ok((Target::Field { node, addr }, None, link, result))
    }

    /// What the guest's node says of the image that is wanted.
    fn image_of(&self, guest: &mut Guest) -> Result<(Record, Image), Failure> {
        let node = guest.peer().node;
        let records = guest.snapshot()?.records;
        let sound = records.into_iter().filter(|record| record.node == node && record.is_sound());
        let mut found: Vec<(Record, Image)> = Vec::new();
        for record in sound {
            let header = header(&record)?;
            let (id, chunk_size_bytes) = (record.image().to_string(), header.chunk_size().bytes());
            let image = Image {
                name: record.subject.names.first().to_owned(),
                id,
                size_bytes: header.length_bytes(),
                chunk_size_bytes,
            };
            found.push((record, image));
        }
        let images: Vec<Image> = found.iter().map(|(_, image)| image.clone()).collect();
        let wanted = self.options.peer_image.as_deref();
        let chosen = export::choose(wanted, &images, "that node")?;
        let chosen = found.into_iter().find(|(_, image)| image.id == chosen.id);
        chosen.ok_or_else(|| Failure::failed("that node has no such image"))
    }

    /// All runs on a node.
    fn sweep(
        &mut self,
        (addr, me): (SocketAddr, &NodeKey),
        sample: &Arc<Sample>,
        block_bytes: u64,
        (link, origin): (&Link, bool),
    ) -> Result<(), Failure> {
        let keys = self.keys()?;
        for streams in self.streams(&PEER_STREAMS) {
            let depth = self.options.depth.unwrap_or(PEER_DEPTH);
            let pattern = Pattern::Sequential;
            let setting = Setting { pattern, streams, depth, block_bytes, span_bytes: None };
            let mut channels: Vec<Box<dyn Channel>> = Vec::new();
            for _ in 0..streams {
                channels.push(Box::new(PeerChannel::new(Guest::greet(addr, me, keys.as_ref())?, Arc::clone(sample))));
            }
            let count = self.options.size.map_or(u64::MAX, |size| size.0.div_ceil(block_bytes));
            let shares = Reading::take(None);
            let work = self.work(Order::Sequential, sample.len(), count, SHORT_SECONDS);
            let want = self.options.size.map_or(0, |size| size.0);
            let measured = self.measure(setting, want, channels, depth as usize, &work)?;
            let shares = shares.until(&Reading::take(None));
            let all = vec![FromPeer { addr: addr.to_string(), origin, bytes: measured.bytes }];
            let network = Network::of(all, measured.bytes, measured.time.as_secs_f64(), link);
            self.runs.push(Run::of(setting, &measured, shares, Some(network)));
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }

    /// One run, with a bar on a terminal; `want` bytes, or as many as there is time for.
    fn measure(
        &self,
        setting: Setting,
        want: u64,
        channels: Vec<Box<dyn Channel>>,
        depth: usize,
        work: &Arc<Work>,
    ) -> Result<Measured, Failure> {
        let streams = if setting.streams == 1 { "stream" } else { "streams" };
        let bar = self.console.bars.add(bar(setting.pattern.name(), &format!("{} {streams}", setting.streams), want));
        let measured = load::run(channels, depth, work, &|bytes| bar.set_position(bytes));
        bar.finish_and_clear();
        measured
    }

    fn work(&self, order: Order, blocks: u64, count: u64, usual: Duration) -> Arc<Work> {
        let time = self.options.seconds.map_or(usual, |seconds| seconds.0);
        Arc::new(Work::new(order, blocks, count, time, Arc::clone(&self.stop)))
    }

    fn streams(&self, usual: &[u64]) -> Vec<u64> {
        if self.options.streams.is_empty() { usual.to_vec() } else { self.options.streams.clone() }
    }

    fn block_bytes(&self, pattern: Pattern) -> Result<u64, Failure> {
        let usual = match pattern {
            Pattern::Sequential | Pattern::Write => SEQUENTIAL_BLOCK,
            Pattern::Random | Pattern::Randwrite => RANDOM_BLOCK,
        };
        let bytes = self.options.block_size.map_or(usual, |size| size.0);
        if (1..=BLOCK_MAX).contains(&bytes) {
            return Ok(bytes);
        }
        let fact = format!("--block-size: blocks of {bytes} bytes cannot be read or written");
        Err(Failure::usage(fact).hint("give 1 byte to 32M"))
    }
}

/// The image behind an export; "" is the first.
fn image_of<'a>(daemon: &'a DaemonStatus, name: &str) -> Option<&'a ImageStatus> {
    let mut images = daemon.node.images.iter();
    if name.is_empty() { images.next() } else { images.find(|image| image.has_name(name)) }
}

/// Addresses of the other nodes.
fn peers(daemon: &DaemonStatus) -> Vec<IpAddr> {
    let others = daemon.node.nodes.iter().filter(|node| node.state != "self");
    others.filter_map(|node| node.addr.parse::<SocketAddr>().ok()).map(|addr| addr.ip()).collect()
}

/// True if the daemon reads the image from a file or object itself.
fn is_origin(daemon: &DaemonStatus, image: &Image) -> bool {
    daemon.node.images.iter().any(|status| status.id == image.id && status.source.is_some())
}

fn header(record: &Record) -> Result<Header, Failure> {
    Header::decode(&record.subject.header)
        .map_err(|error| Failure::failed(format!("image {}: {error}", record.subject.names)))
}

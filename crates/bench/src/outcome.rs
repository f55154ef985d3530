//! What a benchmark found, as one value: the object of `vfield bench --json`, and what the table
//! shows.
//!
//! Field names are an interface for scripts, with a version ([`FORMAT`]).
//! docs/reference/bench-json.md lists them.

use super::cpu::Shares;
use super::link::Link;
use super::load::Measured;
use crate::args::Pattern;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Above this share the payload fills a link: headers of Ethernet, IP and TCP take 6 % of one.
const LINK_FULL: f64 = 0.85;
/// Above this share the processors have nothing left.
const PROCESSORS_FULL: f64 = 0.9;
/// Above this share a run says nothing about the network.
const MOSTLY: f64 = 0.9;

/// Version of the object. It rises when a field is renamed, goes, or changes its meaning; a new
/// field leaves it.
pub const FORMAT: u32 = 1;

/// All of it.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Version of this object: [`FORMAT`].
    pub format: u32,
    /// Version of this program.
    pub version: String,
    /// The source of the bytes.
    pub target: Target,
    /// The image, where it is known.
    pub image: Option<Image>,
    /// The link to the peers.
    pub link: Link,
    /// One for each pattern and number of streams, in the order in which they were made; none of a
    /// whole field.
    pub runs: Vec<Run>,
    /// Its bounds, with `--matrix`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matrix: Option<Matrix>,
    /// The nodes of a field, in the order in which they were measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeRate>,
    /// True if somebody ended it before it was done; the last run is shorter then.
    pub interrupted: bool,
    /// What kept the fastest run from being faster.
    pub limit: Limit,
}

/// A source of bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Target {
    /// An export on this machine.
    Export {
        /// `nbd+unix:///...`, `nbd://...`, or the path of a file.
        export: String,
        /// The node behind it, if a daemon answered.
        node: Option<String>,
        /// The node's address.
        addr: Option<String>,
        /// True if that node reads the image from a file or object itself.
        origin: Option<bool>,
        /// The daemon's process id.
        pid: Option<u32>,
        /// True if all that its store is to hold was there before the first run.
        filled: Option<bool>,
    },
    /// A node over the network.
    Peer {
        /// The node's id.
        node: String,
        /// The node's address.
        addr: String,
        /// True if it is an origin of the image.
        origin: bool,
        /// How many different chunks it was asked for.
        chunks: u64,
    },
    /// The nodes of a field.
    Field {
        /// The node that knows them.
        node: String,
        /// That node's address.
        addr: String,
    },
}

/// The bounds of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Matrix {
    /// Bytes of the export: no span is longer.
    pub end_bytes: u64,
}

/// What the link of a node carries between it and this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeRate {
    /// The node's id.
    pub node: String,
    /// The node's address.
    pub addr: String,
    /// Bytes of chunks that came from it in a second; nothing if it holds none.
    pub up_bytes_per_s: Option<u64>,
    /// Bytes that it took in a second.
    pub down_bytes_per_s: Option<u64>,
    /// What the node says of its link itself, once it has measured it.
    pub link_bytes_per_s: Option<u64>,
    /// True if others have a link of twice the rate.
    pub slow: bool,
    /// Why something is missing.
    pub failure: Option<String>,
}

/// The image that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Image {
    /// The image's name.
    pub name: String,
    /// Its id, 64 hexadecimal digits.
    pub id: String,
    /// Exact length in bytes.
    pub size_bytes: u64,
    /// Unit of verification and transfer.
    pub chunk_size_bytes: u64,
}

/// Results of one run.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// In which order; chunks of a peer are asked for in that of the image.
    pub pattern: Pattern,
    /// Number of parallel streams.
    pub streams: u64,
    /// Requests under way in each of them.
    pub depth: u64,
    /// Bytes of a request.
    pub block_bytes: u64,
    /// Bytes from the start of the image within which all requests lay; nothing for a peer.
    pub span_bytes: Option<u64>,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// Bytes that were read.
    pub bytes: u64,
    /// How many requests brought them.
    pub requests: u64,
    /// Requests that the peer refused.
    pub refused: u64,
    /// Requests without an answer at the end: they wait for something that nobody delivers.
    pub unanswered: u64,
    /// Millions of bytes a second.
    pub mb_per_s: f64,
    /// From asking to the last byte of the answer; nothing if there was no answer.
    pub delay_us: Option<Delays>,
    /// Who used the processors of this machine.
    pub cpu: Shares,
    /// Network traffic, where it is known.
    pub network: Option<Network>,
}

/// Delays in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Delays {
    /// The shortest delay.
    pub min: f64,
    /// Half of all are shorter.
    pub median: f64,
    /// 95 % are shorter.
    pub p95: f64,
    /// 99 % are shorter.
    pub p99: f64,
    /// The longest delay.
    pub max: f64,
}

impl Delays {
    /// Of delays in nanoseconds; nothing if there are none.
    pub fn of(nanos: &Histogram<u64>) -> Option<Self> {
        let at = |quantile| nanos.value_at_quantile(quantile) as f64 / 1000.0;
        (!nanos.is_empty()).then(|| Self {
            min: nanos.min() as f64 / 1000.0,
            median: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            max: nanos.max() as f64 / 1000.0,
        })
    }
}

/// Network traffic during a run, for all readers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Network {
    /// Bytes of chunks and hash pages, without any headers.
    pub bytes: u64,
    /// Millions of them a second.
    pub mb_per_s: f64,
    /// Their rate as a share of the link's, if that is known. A full Ethernet link has 0.94.
    pub of_link: Option<f64>,
    /// Bytes that were read and did not come over the network meanwhile.
    pub own_store_bytes: u64,
    /// What the node had; nothing for a peer.
    #[serde(flatten)]
    pub found: Option<Found>,
    /// By peer, the most first; who sent nothing is left out.
    pub peers: Vec<FromPeer>,
}

/// What a node had of the bytes that were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Bytes that were in its memory, or its own file, when they were asked for.
    pub hit_bytes: u64,
    /// The same in a word.
    pub state: State,
}

/// Whether a run measured memory or the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Hardly anything came over the network.
    Warm,
    /// Some of it came.
    Mixed,
    /// Nearly all of it came.
    Cold,
}

impl State {
    /// The word in tables and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Mixed => "mixed",
            Self::Cold => "cold",
        }
    }
}

/// Traffic of one peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FromPeer {
    /// Address as `ip:port`.
    pub addr: String,
    /// True if it is an origin of the image.
    pub origin: bool,
    /// Bytes of chunks and hash pages.
    pub bytes: u64,
}

impl Network {
    /// `peers` sent this in `seconds` while `read_bytes` were read.
    pub fn of(mut peers: Vec<FromPeer>, read_bytes: u64, seconds: f64, link: &Link) -> Self {
        peers.retain(|peer| peer.bytes > 0);
        peers.sort_unstable_by(|one, other| (other.bytes, &one.addr).cmp(&(one.bytes, &other.addr)));
        let bytes: u64 = peers.iter().map(|peer| peer.bytes).sum();
        let rate = per_second(bytes, seconds);
        Self {
            bytes,
            mb_per_s: rate / 1e6,
            of_link: link.bits_per_second.map(|bits| rate * 8.0 / bits as f64),
            own_store_bytes: read_bytes.saturating_sub(bytes),
            found: None,
            peers,
        }
    }

    /// The same, with what the node had.
    pub fn with(self, found: Found) -> Self {
        Self { found: Some(found), ..self }
    }

    /// Bytes of origins, or of all other peers.
    pub fn from(&self, origins: bool) -> u64 {
        self.peers.iter().filter(|peer| peer.origin == origins).map(|peer| peer.bytes).sum()
    }
}

/// How a run was made.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// In which order.
    pub pattern: Pattern,
    /// Number of parallel streams.
    pub streams: u64,
    /// Requests under way in each of them.
    pub depth: u64,
    /// Bytes of a request.
    pub block_bytes: u64,
    /// No byte behind this one is read.
    pub span_bytes: Option<u64>,
}

impl Run {
    /// Assembles the results of a run.
    pub fn of(setting: Setting, measured: &Measured, cpu: Shares, network: Option<Network>) -> Self {
        let seconds = measured.time.as_secs_f64();
        Self {
            pattern: setting.pattern,
            streams: setting.streams,
            depth: setting.depth,
            block_bytes: setting.block_bytes,
            span_bytes: setting.span_bytes,
            seconds,
            bytes: measured.bytes,
            requests: measured.delays.len(),
            refused: measured.refused,
            unanswered: measured.unanswered,
            mb_per_s: per_second(measured.bytes, seconds) / 1e6,
            delay_us: Delays::of(&measured.delays),
            cpu,
            network,
        }
    }
}

fn per_second(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 }
}

/// What keeps the fastest run from being faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The link to the peers is full.
    Link,
    /// The processors of this machine are busy.
    Processors,
    /// Nearly nothing came over the network: the bytes were here.
    OwnStore,
    /// The link's rate or its traffic is unknown.
    Unknown,
    /// None of these: the peers' links, their processors, or delays that more requests at once
    /// would hide.
    Elsewhere,
}

/// The run that says most about the limit: the one for which most came over the network, else the
/// fastest.
pub fn best(runs: &[Run]) -> Option<&Run> {
    let network = |run: &Run| run.network.as_ref().map_or(0.0, |network| network.mb_per_s);
    let key = |run: &Run| (network(run), run.mb_per_s);
    runs.iter().max_by(|one, other| key(one).0.total_cmp(&key(other).0).then(key(one).1.total_cmp(&key(other).1)))
}

/// What kept the [`best`] of `runs` from being faster.
pub fn limit(runs: &[Run]) -> Limit {
    let Some(run) = best(runs).filter(|run| run.bytes > 0) else { return Limit::Unknown };
    let of_link = run.network.as_ref().and_then(|network| network.of_link);
    let own = run.network.as_ref().map_or(0, |network| network.own_store_bytes);
    if of_link >= Some(LINK_FULL) {
        Limit::Link
    } else if run.cpu.machine >= Some(PROCESSORS_FULL) {
        Limit::Processors
    } else if own as f64 >= MOSTLY * run.bytes as f64 {
        Limit::OwnStore
    } else if of_link.is_none() {
        Limit::Unknown
    } else {
        Limit::Elsewhere
    }
}

/// What bounds the rates of a field's nodes: this machine's link, if the fastest of them fills it.
pub fn limit_of_nodes(nodes: &[NodeRate], link: &Link) -> Limit {
    let Some(fastest) = fastest(nodes) else { return Limit::Unknown };
    match link.bits_per_second {
        None => Limit::Unknown,
        Some(bits) if fastest as f64 * 8.0 >= LINK_FULL * bits as f64 => Limit::Link,
        Some(_) => Limit::Elsewhere,
    }
}

/// The highest rate of all, in bytes a second.
pub fn fastest(nodes: &[NodeRate]) -> Option<u64> {
    nodes.iter().flat_map(|node| [node.up_bytes_per_s, node.down_bytes_per_s]).flatten().max()
}

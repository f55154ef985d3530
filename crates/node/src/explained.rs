//! A node's knowledge of chunks that are waited for, with addresses instead of ids: the object
//! behind `vfield explain --json`.
//!
//! Field names are an interface for scripts: they are added to, not renamed.

use crate::driver::Driver;
use crate::pursued;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use vfield_block::gather::Gather as _;
use vfield_core::chunk::Chunk;
use vfield_core::fetch::{STAGES, Stage};
use vfield_core::identity::NodeId;
use vfield_core::image::ImageId;
use vfield_core::node::Node as Core;
use vfield_core::node::explain::{ChunkView, WaitView};
use vfield_core::slow_reads::{Cause, SlowRead};

/// Most awaited chunks that are explained at once.
pub const AWAITED_MAX: usize = 16;

/// Explanations of chunks, and of reads that were slow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// Each chunk that was asked for, or that readers wait for, the oldest first.
    pub chunks: Vec<ExplainedChunk>,
    /// The slowest reads of the last hour, the slowest first.
    pub slow: Vec<SlowReadStatus>,
}

/// The knowledge of one chunk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExplainedChunk {
    /// Name of the image.
    pub image: String,
    /// Offset of the chunk in the image, in bytes.
    pub offset_bytes: u64,
    /// The chunk, then the page that it waits for, and so on.
    pub steps: Vec<StepStatus>,
    /// The nodes that wait for each other for its sake, as they say: hints.
    pub hops: Vec<HopStatus>,
}

/// What another node says of its wait for a chunk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HopStatus {
    /// Address of the node.
    pub addr: String,
    /// Its answer in words.
    pub says: String,
    /// Number of the chunk that it waits for, or of the page.
    pub chunk: Option<u64>,
    /// Seconds in the stage that it says.
    pub stage_s: Option<f64>,
    /// Address of the node that it asked.
    pub asked: Option<String>,
    /// Seconds since it asked.
    pub asked_s: Option<f64>,
}

/// The knowledge of a chunk, or of a page on the way to it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepStatus {
    /// Number of the chunk; pages come after data.
    pub chunk: u64,
    /// True for a page of hashes.
    pub page: bool,
    /// True if it is here.
    pub here: bool,
    /// The fetch; nothing if it is here, or if nobody wants it.
    pub fetch: Option<FetchStatus>,
    /// Nodes that have it, or are to have it.
    pub holders: Vec<HolderStatus>,
}

/// A fetch under way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FetchStatus {
    /// The stage in words.
    pub stage: String,
    /// Seconds in this stage.
    pub stage_s: f64,
    /// Seconds since the fetch began.
    pub age_s: f64,
    /// Seconds in stages that it has left, by stage.
    pub spent_s: BTreeMap<String, f64>,
    /// Address of the peer whose window it waits for.
    pub parked_for: Option<String>,
    /// True if a reader of this machine waits for it.
    pub reader: bool,
    /// Requests of other nodes that wait for it.
    pub askers: u64,
    /// Requests under way.
    pub requests: Vec<RequestStatus>,
    /// Peers that were asked in this round.
    pub tried: Vec<String>,
    /// Requests that failed in all rounds.
    pub failures: u64,
    /// Why no peer can be asked, in words.
    pub why: Option<String>,
    /// For how many seconds it has been so.
    pub why_s: Option<f64>,
}

/// A request under way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestStatus {
    /// Address of the asked peer.
    pub addr: String,
    /// Seconds since it was sent.
    pub age_s: f64,
    /// Seconds without any sign of life of the peer.
    pub silent_s: f64,
}

/// A node that has a chunk, or is to have it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HolderStatus {
    /// The address that others know it by.
    pub addr: String,
    /// True for an origin.
    pub origin: bool,
    /// True if it announces to have the chunk already.
    pub announces: bool,
    /// Its state, as in the status.
    pub state: String,
}

/// A read that was slow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SlowReadStatus {
    /// Name of the image.
    pub image: String,
    /// Offset of the chunk in the image, in bytes.
    pub offset_bytes: u64,
    /// Seconds since it ended.
    pub ago_s: f64,
    /// Seconds that the reader waited.
    pub waited_s: f64,
    /// The cause in words.
    pub cause: String,
    /// Address of the node that is the cause, if it is one.
    pub cause_addr: Option<String>,
    /// Address of the node that delivered the chunk.
    pub from: Option<String>,
    /// Seconds that this node waited for it itself, by its own account.
    pub from_waited_s: Option<f64>,
    /// Seconds of the fetch in each stage.
    pub spent_s: BTreeMap<String, f64>,
    /// Requests that failed.
    pub failures: u64,
}

/// The chunk at `offset` of an image; `None` if the image ends before. If told to follow, with the
/// wait for it from node to node.
pub(crate) async fn chunk(driver: &Driver, id: ImageId, offset_bytes: u64, follow: bool) -> Option<Explained> {
    let image = driver.image(id)?;
    let geometry = image.geometry();
    let chunk = geometry.chunk(offset_bytes / geometry.chunk_bytes()).filter(|chunk| geometry.is_data(*chunk))?;
    let mut explained = driver.look(|core| View { driver, core }.chunk(id, chunk))?;
    if follow {
        explained.hops = pursued::hops(driver, id, chunk).await;
    }
    Some(Explained { chunks: vec![explained], slow: Vec::new() })
}

/// All that readers wait for, and the slow reads. If told to follow, the oldest wait is followed
/// from node to node.
pub(crate) async fn all(driver: &Driver, follow: bool) -> Explained {
    let (mut all, oldest) = driver.look(|core| {
        let view = View { driver, core };
        let awaited = core.awaited(AWAITED_MAX);
        let explained = Explained {
            chunks: awaited.iter().filter_map(|(id, chunk)| view.chunk(*id, *chunk)).collect(),
            slow: core.slow_reads().iter().filter_map(|read| view.slow(read)).collect(),
        };
        (explained, awaited.first().copied().filter(|_| follow))
    });
    if let (Some(chunk), Some((id, awaited))) = (all.chunks.first_mut(), oldest) {
        chunk.hops = pursued::hops(driver, id, awaited).await;
    }
    all
}

/// A core, and the names of what it speaks of.
struct View<'a> {
    driver: &'a Driver,
    core: &'a Core,
}

impl View<'_> {
    /// The address of a node, or its id if it has gone.
    fn addr(&self, node: NodeId) -> String {
        self.core.addr_of(node).map_or_else(|| format!("node {node}, which has gone"), |addr| addr.to_string())
    }

    fn chunk(&self, id: ImageId, chunk: Chunk) -> Option<ExplainedChunk> {
        let image = self.driver.image(id)?;
        let steps = self.core.explain(id, chunk).into_iter().map(|view| self.step(view));
        let (offset_bytes, steps) = (image.geometry().extent(chunk).start(), steps.collect());
        Some(ExplainedChunk { image: image.name().to_owned(), offset_bytes, steps, hops: Vec::new() })
    }

    fn step(&self, view: ChunkView) -> StepStatus {
        let holders = view.holders.iter().map(|holder| HolderStatus {
            addr: self.addr(holder.node),
            origin: holder.is_origin,
            announces: holder.announces,
            state: holder.state.to_owned(),
        });
        StepStatus {
            chunk: view.chunk.0,
            page: view.is_page,
            here: view.is_here,
            holders: holders.collect(),
            fetch: view.fetch.map(|fetch| self.fetch(&fetch)),
        }
    }

    fn fetch(&self, fetch: &WaitView) -> FetchStatus {
        let requests = fetch.requests.iter().map(|(peer, age, silent)| RequestStatus {
            addr: self.addr(*peer),
            age_s: age.as_secs_f64(),
            silent_s: silent.as_secs_f64(),
        });
        FetchStatus {
            stage: STAGES[fetch.stage.index()].to_owned(),
            stage_s: fetch.in_stage.as_secs_f64(),
            age_s: fetch.age.as_secs_f64(),
            spent_s: spent(&fetch.spent),
            parked_for: if let Stage::Parked(peer) = fetch.stage { Some(self.addr(peer)) } else { None },
            reader: fetch.has_reader,
            askers: fetch.askers as u64,
            requests: requests.collect(),
            tried: fetch.tried.iter().map(|node| self.addr(*node)).collect(),
            failures: fetch.failures.into(),
            why: fetch.why.map(|(why, _)| why.to_string()),
            why_s: fetch.why.map(|(_, wait)| wait.as_secs_f64()),
        }
    }

    fn slow(&self, read: &SlowRead) -> Option<SlowReadStatus> {
        let image = self.driver.image(read.image)?;
        let (cause, node) = words(read.cause());
        let from = read.trail.from();
        Some(SlowReadStatus {
            image: image.name().to_owned(),
            offset_bytes: image.geometry().extent(read.chunk).start(),
            ago_s: self.core.ago(read).as_secs_f64(),
            waited_s: read.waited.as_secs_f64(),
            cause: cause.to_owned(),
            cause_addr: node.map(|node| self.addr(node)),
            from: from.map(|(node, _)| self.addr(node)),
            from_waited_s: from.map(|(_, waited)| waited.as_secs_f64()),
            spent_s: spent(&read.trail.spent()),
            failures: read.trail.failures().into(),
        })
    }
}

/// The stages that took time.
fn spent(stages: &[Duration]) -> BTreeMap<String, f64> {
    let named = STAGES.iter().zip(stages).filter(|(_, time)| !time.is_zero());
    named.map(|(stage, time)| ((*stage).to_owned(), time.as_secs_f64())).gathered()
}

/// A cause in words, and the node that it is.
const fn words(cause: Cause) -> (&'static str, Option<NodeId>) {
    match cause {
        Cause::Page => ("the page with its hash came late", None),
        Cause::OwnWindow => ("this node's own link was full", None),
        Cause::PeersWindow(node) => ("a peer had as many requests as it delivers in time", Some(node)),
        Cause::Upstream(node) => ("a peer waited for the chunk itself", Some(node)),
        Cause::Peer(node) => ("a peer or the link to it was slow", Some(node)),
        Cause::Failures => ("peers were asked in vain before one delivered", None),
        Cause::Unusable => ("answers could not be used", None),
        Cause::Nobody => ("no reachable node had it", None),
    }
}

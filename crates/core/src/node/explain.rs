//! Why a chunk is not here yet: the stages of its fetch, since when, and because of whom.
//!
//! Read-only, for `explain`. If a chunk needs its page, the page is the next step. So a view has at
//! most as many steps as the hash tree is high. Lists of nodes are bounded by [`NODES_MAX`].

use super::Node;
use super::Output;
use super::images::Image;
use crate::chunk::Chunk;
use crate::fetch::{Asker, Fetch, Stage, Why};
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::pursuit::{Account, Wait};
use crate::slow_reads::SlowRead;
use crate::wire::{Priority, Refusal};
use std::net::SocketAddr;
use std::time::Duration;

/// Most nodes that a list has.
pub const NODES_MAX: usize = 16;
/// Most steps from a chunk to the page that it waits for: more than any hash tree is high.
const STEPS_MAX: usize = 16;

/// What this node knows of a chunk.
#[derive(Debug, Clone)]
pub struct ChunkView {
    /// The chunk; data chunks come first, then pages.
    pub chunk: Chunk,
    /// True for a page of hashes.
    pub is_page: bool,
    /// True if it is in this node's memory, or is zeros, or in its own file.
    pub is_here: bool,
    /// The fetch, if it is wanted and not here.
    pub fetch: Option<WaitView>,
    /// Nodes that announce to have it, or are to have it.
    pub holders: Vec<HolderView>,
}

/// A fetch under way.
#[derive(Debug, Clone)]
pub struct WaitView {
    /// See the table of [`crate::fetch::Fetches`].
    pub stage: Stage,
    /// Time in this stage.
    pub in_stage: Duration,
    /// Time since the fetch began.
    pub age: Duration,
    /// Time in each stage that it has left, in the order of [`crate::fetch::STAGES`].
    pub spent: [Duration; crate::fetch::STAGES.len()],
    /// The most urgent priority.
    pub priority: Priority,
    /// Readers of this machine that wait for it, or for a chunk whose hash is in it.
    pub has_reader: bool,
    /// Requests of other nodes that wait for it.
    pub askers: usize,
    /// Requests under way: peer, age, and for how long the peer has given no sign of life.
    pub requests: Vec<(NodeId, Duration, Duration)>,
    /// Peers that were asked in this round and did not deliver.
    pub tried: Vec<NodeId>,
    /// Requests that failed in all rounds.
    pub failures: u32,
    /// The reason, if no peer can be asked, and for how long it has been so.
    pub why: Option<(Why, Duration)>,
}

/// A node that has a chunk, or is to have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HolderView {
    /// A member, or a node that the map still has.
    pub node: NodeId,
    /// True for an origin.
    pub is_origin: bool,
    /// True if it announces to have the chunk already.
    pub announces: bool,
    /// Its state, as in [`super::MemberView::state`].
    pub state: &'static str,
}

impl Node {
    /// The view of a chunk, then of the page that it waits for, and so on. Empty if there is
    /// no such image or chunk.
    pub fn explain(&self, id: ImageId, chunk: Chunk) -> Vec<ChunkView> {
        let Some(image) = self.images.get(&id) else { return Vec::new() };
        let geometry = image.inventory.geometry();
        let (mut steps, mut next) = (Vec::new(), geometry.chunk(chunk.0));
        while let Some(chunk) = next.filter(|_| steps.len() < STEPS_MAX) {
            let view = self.chunk_view(image, chunk);
            let needs_page = view.fetch.as_ref().is_some_and(|fetch| fetch.stage == Stage::NeedsParent);
            next = geometry.parent(chunk).map(|(page, _)| page).filter(|_| needs_page);
            steps.push(view);
        }
        steps
    }

    /// What this node tells others of a chunk, or of the page that has to come first. `None` if
    /// there is no such image or chunk.
    pub fn account(&self, id: ImageId, chunk: Chunk) -> Option<Account> {
        let view = self.explain(id, chunk).pop()?;
        let wait = view.fetch.map(|fetch| {
            let first = fetch.requests.iter().max_by_key(|(_, age, _)| *age);
            Wait::new(fetch.stage, fetch.in_stage, first.map(|(peer, age, _)| (*peer, *age)))
        });
        Some(Account { chunk: view.chunk.0, is_here: view.is_here, wait })
    }

    /// Answers members only, and no more often than is good for readers.
    pub(super) fn asked_why(&mut self, asker: Asker, node: NodeId, id: ImageId, chunk: Chunk) {
        let account = if self.identity_of(node).is_none() {
            Err(Refusal::NotHeld)
        } else if !self.given.one_more(self.now) {
            Err(Refusal::Busy)
        } else {
            self.account(id, chunk).ok_or(Refusal::NoSuchImage)
        };
        self.out(match account {
            Ok(account) => Output::Account(asker, account),
            Err(refusal) => Output::Refuse(asker, refusal),
        });
    }

    /// The chunks that readers of this machine wait for, the oldest fetch first; at most `most`.
    pub fn awaited(&self, most: usize) -> Vec<(ImageId, Chunk)> {
        let of = |image: &Image| {
            let id = image.subject.image;
            let wanted = self.fetches.of(image.number).filter(|(_, fetch)| !fetch.waiters.is_empty());
            wanted.map(move |(chunk, fetch)| (fetch.trail.begun(), id, chunk)).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = self.images.values().flat_map(|image| of(image)).collect();
        all.sort_unstable();
        all.into_iter().take(most).map(|(_, id, chunk)| (id, chunk)).collect()
    }

    /// Notes each move of a fetch from now on, beginning with the present stages; or none any more.
    pub fn note_moves(&mut self, noted: bool) {
        self.fetches.note_moves(noted);
    }

    /// The moves since they were taken last, which is to be after each input; [`None`] in place of
    /// a stage where the fetch has ended.
    pub fn take_moves(&mut self) -> Vec<(ImageId, Chunk, Option<Stage>)> {
        let moves = self.fetches.take_moves();
        moves.into_iter().map(|((image, chunk), stage)| (self.id_of(image), chunk, stage)).collect()
    }

    /// The address of a node that this one knows.
    pub fn addr_of(&self, node: NodeId) -> Option<SocketAddr> {
        let me = self.me();
        if me.node == node { Some(me.addr) } else { self.identity_of(node).map(|identity| identity.addr) }
    }

    /// The slowest reads of the last hour, the slowest first.
    pub fn slow_reads(&self) -> Vec<SlowRead> {
        self.slow_reads.lately(self.now)
    }

    /// Time since a read ended.
    pub fn ago(&self, read: &SlowRead) -> Duration {
        self.now - read.ended
    }

    fn chunk_view(&self, image: &Image, chunk: Chunk) -> ChunkView {
        let geometry = image.inventory.geometry();
        let fetch = self.fetches.get((image.number, chunk)).map(|fetch| self.wait_view(image, chunk, fetch));
        ChunkView {
            chunk,
            is_page: !geometry.is_data(chunk),
            is_here: image.origin || image.inventory.is_here(chunk),
            fetch,
            holders: self.holders(image, chunk),
        }
    }

    fn wait_view(&self, image: &Image, chunk: Chunk, fetch: &Fetch) -> WaitView {
        let requests = fetch.requests().iter().filter_map(|request| self.requests.get(request.0));
        let requests = requests.take(NODES_MAX).map(|request| {
            let age = self.now - request.sent;
            (request.peer, age, self.peers.silent_for(request.peer, self.now).min(age))
        });
        WaitView {
            stage: fetch.stage(),
            in_stage: self.now - fetch.trail.since(),
            age: self.now - fetch.trail.begun(),
            spent: fetch.trail.spent(),
            priority: fetch.priority(),
            has_reader: self.fetches.has_reader((image.number, chunk)),
            askers: fetch.askers.len(),
            requests: requests.collect(),
            tried: fetch.tried.iter().take(NODES_MAX).copied().collect(),
            failures: fetch.trail.failures(),
            why: fetch.waiting.map(|(since, why)| (why, self.now - since)),
        }
    }

    fn holders(&self, image: &Image, chunk: Chunk) -> Vec<HolderView> {
        let me = self.me().node;
        let suspects = self.membership.suspects();
        let view = |node: NodeId, is_origin, announces| {
            let state = if node == me { "self" } else { self.state_of(node, suspects) };
            HolderView { node, is_origin, announces, state }
        };
        let homes = image.map.homes_in_turn(chunk);
        let homes = homes.iter().map(|home| view(home.node, false, image.map.has(home, chunk)));
        let origins = image.map.origins().iter().map(|node| view(*node, true, true));
        origins.chain(homes).take(NODES_MAX).collect()
    }
}

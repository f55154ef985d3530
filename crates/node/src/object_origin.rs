//! An origin's object: an image that lies in a store on the network, read by runs of chunks.
//!
//! Owns the object, the image's [`HashTree`], the cached runs and the reads under way. Invariants:
//! a run has at most one read under way, and every chunk is compared with its hash before it is
//! given out. A failed read is tried again after growing pauses, while a peer or reader waits.
//! Peers' connections and exports of the same node call it, and wait with [`ObjectOrigin::bring`].
//! It does not know how a store is spoken to: see [`vfield_block::object`].

mod compared;
pub mod entrusting;
mod layout;
mod pace;
pub mod publish;
mod runs;
mod under_way;

use crate::apart;
use crate::origin::{Health, OriginState};
use crate::source::{Away, PATIENCE};
use bytes::Bytes;
use compared::Compared;
pub use compared::Whose;
use layout::Layout;
pub use layout::{CACHE_BYTES, CACHE_BYTES_MIN};
use pace::{Pace, Turn};
use runs::{Found, Runs};
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use under_way::UnderWay;
use vfield_block::extent::Extent;
use vfield_block::object::{Object, ObjectError};
use vfield_block::source::Piece;
use vfield_core::chunk::Chunk;
use vfield_core::hash_tree::HashTree;
use vfield_core::image::{Geometry, ImageId};

/// For so long a read leaves chunks in memory that homes are coming for, before it takes their
/// place. It is less than [`PATIENCE`], and more than a home takes on a busy machine.
const COURTESY: Duration = Duration::from_millis(300);

/// The known condition of a store and its object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Condition {
    /// Why the store does not deliver now.
    pub trouble: Option<String>,
    /// How it shows that the object is another than the published one.
    pub changed: Option<String>,
}

/// A published object.
pub struct ObjectOrigin {
    object: Arc<dyn Object>,
    address: PathBuf,
    name: String,
    id: ImageId,
    tree: Arc<HashTree>,
    layout: Layout,
    health: Health,
    state: Mutex<State>,
    /// Another read may begin.
    freed: Notify,
    /// Chunks may have to leave that no store keeps.
    crowded: Notify,
    /// A store keeps another chunk.
    kept: Notify,
    condition: watch::Sender<Condition>,
}

struct State {
    runs: Runs,
    under_way: UnderWay,
    pace: Pace,
    /// Chunks that homes are coming for.
    awaited: usize,
}

impl ObjectOrigin {
    fn new(
        object: Arc<dyn Object>,
        address: &str,
        name: String,
        (id, tree): (ImageId, HashTree),
        cache_bytes: u64,
    ) -> Arc<Self> {
        let layout = Layout::of(&tree, object.compression(), cache_bytes);
        let state = State {
            runs: Runs::new(layout),
            under_way: UnderWay::default(),
            pace: Pace::new(Instant::now()),
            awaited: 0,
        };
        Arc::new(Self {
            object,
            address: PathBuf::from(address),
            name,
            id,
            layout,
            tree: Arc::new(tree),
            health: Health::default(),
            state: Mutex::new(state),
            freed: Notify::new(),
            crowded: Notify::new(),
            kept: Notify::new(),
            condition: watch::Sender::default(),
        })
    }

    /// Caches a run that was read before the start.
    fn keep(&self, compared: Compared) {
        self.lock().runs.keep(compared, &self.tree);
    }

    /// The image's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The object's address, without secrets, where a file has its path.
    pub fn path(&self) -> &Path {
        &self.address
    }

    /// The image's id.
    pub const fn id(&self) -> ImageId {
        self.id
    }

    /// All hashes of the image.
    pub fn tree(&self) -> &HashTree {
        &self.tree
    }

    fn geometry(&self) -> &Geometry {
        self.tree.geometry()
    }

    /// The known condition now, and each change of it.
    pub fn condition(&self) -> watch::Receiver<Condition> {
        self.condition.subscribe()
    }

    /// The known state of the object.
    pub fn state(&self) -> OriginState {
        if let Some(changed) = self.health.changed() {
            return changed;
        }
        match &self.condition.borrow().trouble {
            Some(why) => OriginState::Unreachable { why: why.clone() },
            None => OriginState::Checked,
        }
    }

    /// A chunk, data or page, if it is here. [`Away::Failing`] if it has to be brought.
    pub fn read(&self, chunk: Chunk) -> Result<Piece, Away> {
        if !self.geometry().is_data(chunk) {
            let page = self.tree.page(chunk).cloned();
            return Ok(Piece::Bytes(page.unwrap_or_else(|| self.tree.zeros().page(chunk))));
        }
        if self.tree.is_zero(chunk) {
            return Ok(Piece::Zero(self.geometry().length(chunk)));
        }
        self.data(chunk).map(Piece::Bytes)
    }

    /// Appends the pieces of the longest available part of `extent`, from its start. Returns its
    /// length in bytes.
    pub fn pieces(&self, extent: Extent, pieces: &mut Vec<Piece>) -> u64 {
        let mut done_bytes = 0;
        for chunk in self.geometry().covering(extent).map(Chunk) {
            let whole = self.geometry().extent(chunk);
            let part = whole.clip(extent);
            if self.tree.is_zero(chunk) {
                match pieces.last_mut().filter(|_| done_bytes > 0) {
                    Some(Piece::Zero(length)) => *length += part.len(),
                    _ => pieces.push(Piece::Zero(part.len())),
                }
            } else {
                let Ok(bytes) = self.data(chunk) else { break };
                let at = |offset: u64| (offset - whole.start()) as usize;
                pieces.push(Piece::Bytes(bytes.slice(at(part.start())..at(part.end()))));
            }
            done_bytes += part.len();
        }
        done_bytes
    }

    /// True for a chunk that has to be brought first.
    pub fn is_away(&self, chunk: Chunk) -> bool {
        self.look(chunk) == Err(Away::Failing)
    }

    /// What [`ObjectOrigin::read`] would say, without the bytes.
    fn look(&self, chunk: Chunk) -> Result<(), Away> {
        if !self.geometry().is_data(chunk) || self.tree.is_zero(chunk) { Ok(()) } else { self.data(chunk).map(drop) }
    }

    /// The bytes of a chunk of data that is not all zeros.
    fn data(&self, chunk: Chunk) -> Result<Bytes, Away> {
        match self.lock().runs.find(chunk, Instant::now()) {
            Found::Here(bytes) => Ok(bytes),
            Found::Bad => Err(Away::Changed),
            Found::Missing => Err(Away::Failing),
        }
    }

    /// Reads ahead: those of `chunks` that nobody asked for, as far as there is room for it.
    pub fn prefetch(self: &Arc<Self>, chunks: Range<u64>) {
        let chunks = chunks.start..chunks.end.min(self.geometry().data_chunks());
        for run in self.layout.runs(chunks.clone()) {
            let all = self.layout.chunks_of(run, &self.tree);
            self.ahead(chunks.start.max(all.start)..chunks.end.min(all.end));
        }
    }

    /// Reads a chunk, unless it is here, and waits for it. Fails if the object has other bytes, or
    /// if the store keeps failing for [`PATIENCE`].
    pub async fn bring(self: &Arc<Self>, chunk: Chunk) -> Result<(), Away> {
        let mut condition = self.condition.subscribe();
        let mut failing_since = None;
        loop {
            let mut ended = match self.look(chunk) {
                Ok(()) => return Ok(()),
                Err(Away::Changed) => return Err(Away::Changed),
                Err(Away::Failing) => self.want(chunk),
            };
            loop {
                let fails = condition.borrow_and_update().trouble.is_some();
                failing_since = if fails { failing_since.or_else(|| Some(Instant::now())) } else { None };
                let patience = failing_since.map(|since| since + PATIENCE);
                tokio::select! {
                    biased;
                    _ = ended.wait_for(|ended| *ended) => break,
                    // The sender lives as long as this value.
                    _ = condition.changed() => {}
                    () = until(patience), if fails => return Err(Away::Failing),
                }
            }
        }
    }

    /// The read of a chunk, which begins if it is not under way. If readers walk into its run, the
    /// next one is read ahead.
    fn want(self: &Arc<Self>, chunk: Chunk) -> watch::Receiver<bool> {
        let run = self.layout.run(chunk);
        let (ended, goes_on) = {
            let mut state = self.lock();
            let goes_on = state.runs.is_walked_into(run, &self.tree);
            let ended = state.under_way.of(chunk);
            (ended.unwrap_or_else(|| self.begin(&mut state, chunk, chunk.0 + 1)), goes_on)
        };
        if goes_on {
            self.ahead(self.layout.chunks_of(run + 1, &self.tree));
        }
        ended
    }

    /// A node gets a chunk. If it lies late in its run, the next one is wanted soon, if the run
    /// before was read too.
    pub fn sent(self: &Arc<Self>, chunk: Chunk, whose: Whose) {
        if !self.geometry().is_data(chunk) {
            return;
        }
        let run = self.layout.run(chunk);
        let goes_on = {
            let mut state = self.lock();
            state.runs.sent(chunk, whose);
            if whose == Whose::Stores {
                self.kept.notify_waiters();
            }
            self.layout.is_late(chunk)
                && state.runs.is_whole(run, &self.tree)
                && state.runs.is_walked_into(run, &self.tree)
        };
        if goes_on {
            self.ahead(self.layout.chunks_of(run + 1, &self.tree));
        }
    }

    /// A store has a chunk.
    pub fn kept(&self, chunk: Chunk) {
        if self.geometry().is_data(chunk) {
            self.lock().runs.sent(chunk, Whose::Stores);
            self.kept.notify_waiters();
        }
    }

    /// Homes are coming for so many chunks.
    fn await_homes(&self, chunks: usize) {
        self.lock().awaited = chunks;
    }

    /// Waits until chunks that homes are coming for do not fill the memory, for [`COURTESY`] at
    /// most.
    async fn room(&self) {
        let until = Instant::now() + COURTESY;
        loop {
            let kept = self.kept.notified();
            let is_full = {
                let state = self.lock();
                state.awaited > 0 && state.runs.is_full_of_loose()
            };
            if !is_full || tokio::time::timeout_at(until.into(), kept).await.is_err() {
                return;
            }
        }
    }

    /// The chunks that no store keeps, in the order in which they will make room, and the bytes of
    /// them beyond half of the memory. Waits until there are such bytes.
    async fn loose(&self) -> (Vec<Chunk>, u64) {
        loop {
            let crowded = self.crowded.notified();
            let excess_bytes = self.lock().runs.loose_bytes();
            if excess_bytes > 0 {
                return (self.lock().runs.loose(), excess_bytes);
            }
            crowded.await;
        }
    }

    /// Begins reads of chunks of one run that nobody waits for yet.
    fn ahead(self: &Arc<Self>, chunks: Range<u64>) {
        let mut state = self.lock();
        while state.pace.has_room(state.under_way.count())
            && let Some(first) = state.runs.unread(chunks.clone(), &self.tree)
        {
            drop(self.begin(&mut state, first, chunks.end));
        }
    }

    /// Begins a read for a chunk that is missing and that no read brings, and for those up to `end`
    /// in the same run.
    fn begin(self: &Arc<Self>, state: &mut State, chunk: Chunk, end: u64) -> watch::Receiver<bool> {
        let free = state.under_way.gap(chunk);
        let chunks = state.runs.ask(chunk, end, free, &self.tree, Instant::now());
        let ended = state.under_way.begin(chunks.clone());
        tokio::spawn(Arc::clone(self).fetch(chunks));
        ended
    }

    /// Reads chunks of a run, again and again while somebody waits for them.
    async fn fetch(self: Arc<Self>, chunks: Range<u64>) {
        let [first, last] = [chunks.start, chunks.end - 1].map(|number| self.geometry().extent(Chunk(number)));
        let extent = Extent::from(first.start()..last.end());
        self.room().await;
        loop {
            self.turn().await;
            let read = self.object.read(extent).await;
            self.note(read.as_ref().err());
            let compared = match read {
                Ok(bytes) => {
                    let (tree, chunks) = (Arc::clone(&self.tree), chunks.clone());
                    apart::run(move || Compared::new(chunks, &bytes, &tree, Instant::now())).await
                }
                Err(ObjectError::Changed(_)) => Compared::lost(chunks.clone(), Instant::now()),
                Err(ObjectError::Failed { .. }) => {
                    let mut state = self.lock();
                    if state.under_way.is_wanted(chunks.start) {
                        continue;
                    }
                    state.runs.give_up(chunks.clone());
                    state.under_way.end(chunks.start);
                    return;
                }
            };
            for bad in compared.bad() {
                self.health.mark_bad(bad);
            }
            let mut state = self.lock();
            state.runs.keep(compared, &self.tree);
            state.under_way.end(chunks.start);
            self.crowded.notify_one();
            return;
        }
    }

    /// Waits for a turn among the reads.
    async fn turn(&self) {
        loop {
            let freed = self.freed.notified();
            let turn = self.lock().pace.turn(Instant::now());
            match turn {
                Turn::Now => return,
                Turn::At(at) => tokio::time::sleep_until(at.into()).await,
                Turn::AfterAnother => freed.await,
            }
        }
    }

    /// A read has ended: others may begin, and the condition may be a new one.
    fn note(&self, failure: Option<&ObjectError>) {
        let chance = RandomState::new().hash_one(0) as f64 / u64::MAX as f64;
        let is_failing = {
            let mut state = self.lock();
            state.pace.ended(failure, Instant::now(), chance);
            state.pace.is_failing()
        };
        self.freed.notify_waiters();
        let trouble = failure.filter(|_| is_failing).map(ToString::to_string);
        let known = Condition { trouble, changed: self.object.changed() };
        self.condition.send_if_modified(|condition| {
            let is_new = *condition != known;
            *condition = known;
            is_new
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for ObjectOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "origin of {:?} from {}", self.id, self.address.display())
    }
}

/// Returns then; never without a time.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

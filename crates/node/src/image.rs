//! One image on this machine: its store, and its source if this node is an origin.
//!
//! It answers reads and peers' requests without asking a peer. Exports' readers, senders to peers
//! and receivers share it. It takes no lock.

use crate::compression::Compression;
use crate::learned::Learned;
use crate::limits::Pacer;
use crate::object_origin::{ObjectOrigin, Whose};
use crate::slices::Slices;
use crate::source::{Away, Source};
use crate::store::withheld::Waiter;
use crate::store::{Check, Store};
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::Notify;
use vfield_block::extent::Extent;
use vfield_block::source::Piece;
use vfield_core::chunk::Chunk;
use vfield_core::directory::Directory;
use vfield_core::hash_tree::{self, Hash};
use vfield_core::header_proof::HeaderProof;
use vfield_core::identity::NodeId;
use vfield_core::image::{Geometry, ImageId};
use vfield_core::names::Names;
use vfield_core::time::Time;
use vfield_core::wire::Priority;

/// The local sources of one image.
pub struct LocalImage {
    /// Its names on this node.
    names: Names,
    store: Arc<Store>,
    origin: Option<Source>,
    /// The proof of its header: that of a member, or made of the top page when a peer asks for it.
    proof: OnceLock<HeaderProof>,
    complete: AtomicBool,
    dropped: AtomicBool,
    /// The nodes to which chunks of the file were sent recently.
    directory: Mutex<Directory>,
    slices: Slices,
    compression: Arc<Compression>,
    learned: Learned,
    /// The limit of bytes to other nodes.
    limit: Arc<Pacer>,
    pages: Notify,
    /// True once a change of the file was logged, here or at an origin.
    change_reported: AtomicBool,
}

/// A chunk, or the reason why it is unavailable.
pub enum Local {
    /// Here it is.
    Here(Piece),
    /// The chunk is not here.
    Missing,
    /// The chunk is not here, and this node can have it from its object.
    Away,
    /// It should be here, but the file has changed.
    SourceChanged,
}

impl LocalImage {
    /// An image that this node serves from its source. A file has every byte at once; an object has
    /// to be waited for.
    pub fn origin(names: Names, store: Arc<Store>, origin: Source) -> Self {
        let learned = Learned::new(store.geometry());
        let complete = matches!(origin, Source::File(_));
        Self {
            names,
            store,
            origin: Some(origin),
            proof: OnceLock::new(),
            complete: AtomicBool::new(complete),
            dropped: AtomicBool::new(false),
            directory: Mutex::default(),
            slices: Slices::default(),
            compression: Arc::default(),
            learned,
            limit: Arc::default(),
            pages: Notify::new(),
            change_reported: AtomicBool::new(false),
        }
    }

    /// An image that this node has joined; `proof` is that of its header, if a member has shown it.
    pub fn joined(names: Names, store: Arc<Store>, proof: Option<HeaderProof>) -> Self {
        let learned = Learned::new(store.geometry());
        let compression = Arc::default();
        store.take_as_it_came(&compression);
        Self {
            names,
            store,
            origin: None,
            proof: proof.map_or_else(OnceLock::new, OnceLock::from),
            complete: AtomicBool::new(false),
            dropped: AtomicBool::new(false),
            directory: Mutex::default(),
            slices: Slices::default(),
            compression,
            learned,
            limit: Arc::default(),
            pages: Notify::new(),
            change_reported: AtomicBool::new(false),
        }
    }

    /// Its first name on this node.
    pub fn name(&self) -> &str {
        self.names.first()
    }

    /// All its names on this node.
    pub const fn names(&self) -> &Names {
        &self.names
    }

    /// What machines read first of it.
    pub const fn learned(&self) -> &Learned {
        &self.learned
    }

    /// The image's id.
    pub fn id(&self) -> ImageId {
        self.store.id()
    }

    /// The limit of its bytes to other nodes, beside that of the node.
    pub const fn limit(&self) -> &Arc<Pacer> {
        &self.limit
    }

    /// The numbering of its chunks.
    pub fn geometry(&self) -> &Geometry {
        self.store.geometry()
    }

    /// The chunks held in memory.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The file or object, on an origin.
    pub fn source(&self) -> Option<&Source> {
        self.origin.as_ref()
    }

    /// The object, on an origin that has one.
    pub fn object(&self) -> Option<&Arc<ObjectOrigin>> {
        match &self.origin {
            Some(Source::Object(object)) => Some(object),
            Some(Source::File(_)) | None => None,
        }
    }

    /// True if the change of the file is to be logged: at the first call.
    pub fn tell_of_change(&self) -> bool {
        !self.change_reported.swap(true, Ordering::Relaxed)
    }

    /// A whole chunk, data or page.
    pub fn chunk(&self, chunk: Chunk) -> Local {
        if let Some(piece) = self.store.chunk_piece(chunk) {
            return Local::Here(piece);
        }
        match &self.origin {
            None => Local::Missing,
            Some(Source::File(origin)) => origin.read(chunk).map_or(Local::SourceChanged, Local::Here),
            Some(Source::Object(object)) => match object.read(chunk) {
                Ok(piece) => Local::Here(piece),
                Err(Away::Changed) => Local::SourceChanged,
                Err(Away::Failing) => Local::Away,
            },
        }
    }

    /// Checks whether `bytes`, from a peer, are those of `chunk`. Hashes them on the calling
    /// thread.
    pub fn check(&self, chunk: Chunk, bytes: &[u8]) -> Check {
        let Some(origin) = &self.origin else { return self.store.check(chunk, bytes) };
        let is_long = bytes.len() as u64 == self.geometry().length(chunk);
        if is_long && hash_tree::verify(&origin.tree().hash(chunk), bytes) { Check::Good } else { Check::Bad }
    }

    /// The proof of its header. Made of the top page at the first call if no member has shown it,
    /// which hashes the page; `None` if that is not here.
    pub fn header_proof(&self) -> Option<&HeaderProof> {
        if self.proof.get().is_none() {
            let top = self.geometry().top();
            let page = match &self.origin {
                Some(origin) => origin.tree().page(top).cloned(),
                None => self.store.page(top),
            };
            // Another task may have made it meanwhile; all proofs of an image are the same.
            let _ = self.proof.set(HeaderProof::of(self.geometry().header(), &page?));
        }
        self.proof.get()
    }

    /// On an origin, the node to which an asker is redirected in place of an answer; see
    /// [`Directory`].
    pub fn instead(&self, chunk: Chunk, asker: NodeId, insists: bool, now: Time) -> Option<NodeId> {
        self.origin.as_ref()?;
        let is_away = self.object().is_some_and(|object| object.is_away(chunk));
        let mut directory = self.directory.lock().unwrap_or_else(PoisonError::into_inner);
        if !insists {
            return directory.instead(chunk, asker, now);
        }
        let keeper = if is_away { directory.keeper(chunk, asker, now) } else { None };
        if keeper.is_none() {
            directory.sent_to(chunk, asker, now);
        }
        keeper
    }

    /// A node gets a chunk of this origin's object; `is_home` if it is to store it.
    pub fn sent(&self, chunk: Chunk, to: NodeId, is_home: bool, now: Time) {
        let Some(object) = self.object() else { return };
        object.sent(chunk, if is_home { Whose::Stores } else { Whose::Readers });
        if is_home {
            self.kept_by(chunk, to, now);
        }
    }

    /// A node says that it stores a chunk of this origin's object.
    pub fn stored_by(&self, chunk: Chunk, node: NodeId, now: Time) {
        let Some(object) = self.object() else { return };
        object.kept(chunk);
        self.kept_by(chunk, node, now);
    }

    fn kept_by(&self, chunk: Chunk, node: NodeId, now: Time) {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner).kept_by(chunk, node, now);
    }

    /// A node is gone: no asker is redirected to it any more.
    pub fn forget(&self, gone: NodeId) {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner).forget(gone);
    }

    /// Nobody should be sent to a node, or others may be again.
    pub fn set_available(&self, node: NodeId, available: bool) {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner).set_available(node, available);
    }

    /// True if [`LocalImage::pieces`] does not wait for a disk.
    pub fn is_in_memory(&self, extent: Extent) -> bool {
        match &self.origin {
            Some(Source::File(origin)) => origin.is_in_memory(extent),
            Some(Source::Object(_)) => true,
            None => !self.store.waits_for_disk(extent),
        }
    }

    /// True for a chunk that is to be brought first, from the source or from the store's disk.
    pub fn is_away(&self, chunk: Chunk) -> bool {
        match &self.origin {
            Some(source) => source.is_away(chunk),
            None => self.geometry().is_data(chunk) && self.store.waits_for_disk(self.geometry().extent(chunk)),
        }
    }

    /// Reads a chunk into memory for a peer, and waits for it. Fails if the source has other bytes,
    /// or if it or the disk does not deliver for [`crate::source::PATIENCE`].
    pub async fn bring(&self, chunk: Chunk, priority: Priority) -> Result<(), Away> {
        match &self.origin {
            Some(source) => source.bring(chunk, priority).await,
            None => self.store.bring(self.geometry().extent(chunk), Waiter::Peer(priority)).await,
        }
    }

    /// Appends the pieces of as long a part of `extent`, from its start, as is here; returns its
    /// length.
    pub fn pieces(&self, extent: Extent, pieces: &mut Vec<Piece>) -> u64 {
        match &self.origin {
            None => self.store.pieces_prefix(extent, pieces),
            Some(Source::Object(object)) => {
                let here = object.pieces(extent, pieces);
                // What it does not have now, a peer may have sent.
                if here > 0 { here } else { self.store.pieces_prefix(extent, pieces) }
            }
            Some(Source::File(origin)) if origin.read_extent(extent, pieces).is_ok() => extent.len(),
            Some(Source::File(origin)) => {
                // A bad place in the file: up to it chunk by chunk; there the store may have it
                // from a peer.
                let first = self.geometry().covering(extent).start;
                let part = self.geometry().extent(Chunk(first)).clip(extent);
                let read = origin.read_extent(part, pieces);
                read.map_or_else(|_| self.store.pieces_prefix(part, pieces), |()| part.len())
            }
        }
    }

    /// The slices that came, and those that were sent.
    pub const fn slices(&self) -> &Slices {
        &self.slices
    }

    /// Its compressed chunks.
    pub fn compression(&self) -> &Compression {
        &self.compression
    }

    /// The bytes of an extent, if a slice that came has them.
    pub fn sliced(&self, extent: Extent) -> Option<Bytes> {
        let chunks = self.geometry().covering(extent);
        let start = self.geometry().extent(Chunk(chunks.start)).start();
        (chunks.end - chunks.start == 1).then(|| self.slices.find(Chunk(chunks.start), start, extent))?
    }

    /// The hash of a chunk that is known here without asking a peer.
    pub fn hash(&self, chunk: Chunk) -> Option<Hash> {
        self.origin.as_ref().map_or_else(|| self.store.read_hash(chunk), |origin| Some(origin.tree().hash(chunk)))
    }

    /// Notes that a hash page has come: found chunks below it can be verified.
    pub fn note_page(&self) {
        self.pages.notify_one();
    }

    /// Returns when one has come since the last time.
    pub async fn page_came(&self) {
        self.pages.notified().await;
    }

    /// True once this node takes part in it no more, though callers still have it.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Notes that this node takes part in it no more.
    pub fn set_dropped(&self) {
        self.dropped.store(true, Ordering::Relaxed);
    }

    /// True once every byte is here for good.
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Relaxed)
    }

    /// Every byte is here for good, or no longer.
    pub fn set_complete(&self, complete: bool) {
        self.complete.store(complete, Ordering::Relaxed);
    }
}

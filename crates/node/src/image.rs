//! One image on this machine: its store, and its file if this node is an origin.
//!
//! What a read or a peer's request can be answered from without asking anybody. Shared by exports'
//! readers, by senders to peers and by receivers; takes no lock.

use crate::origin::Origin;
use crate::store::Store;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;
use vfield_block::extent::Extent;
use vfield_block::source::Piece;
use vfield_core::chunk::Chunk;
use vfield_core::directory::Directory;
use vfield_core::identity::NodeId;
use vfield_core::image::{Geometry, ImageId};
use vfield_core::names::Names;
use vfield_core::time::Time;

/// See the module.
pub struct LocalImage {
    /// What it is called here.
    names: Names,
    store: Arc<Store>,
    origin: Option<Origin>,
    complete: AtomicBool,
    dropped: AtomicBool,
    /// To whom chunks of the file were sent lately.
    directory: Mutex<Directory>,
    pages: Notify,
    /// People know that the file has changed, here or at an origin.
    change_told: AtomicBool,
}

/// A chunk, or why it cannot be given.
pub enum Local {
    /// Here it is.
    Here(Piece),
    /// It is not here.
    Missing,
    /// It should be, but the file no longer has what was published.
    SourceChanged,
}

impl LocalImage {
    /// An image that this node serves from a file.
    pub fn origin(names: Names, store: Arc<Store>, origin: Origin) -> Self {
        Self {
            names,
            store,
            origin: Some(origin),
            complete: AtomicBool::new(true),
            dropped: AtomicBool::new(false),
            directory: Mutex::default(),
            pages: Notify::new(),
            change_told: AtomicBool::new(false),
        }
    }

    /// An image that this node has joined.
    pub fn joined(names: Names, store: Arc<Store>) -> Self {
        Self {
            names,
            store,
            origin: None,
            complete: AtomicBool::new(false),
            dropped: AtomicBool::new(false),
            directory: Mutex::default(),
            pages: Notify::new(),
            change_told: AtomicBool::new(false),
        }
    }

    /// What it is called here, by those who want one name.
    pub fn name(&self) -> &str {
        self.names.first()
    }

    /// What it is called here.
    pub const fn names(&self) -> &Names {
        &self.names
    }

    /// Its id.
    pub fn id(&self) -> ImageId {
        self.store.id()
    }

    /// The numbering of its chunks.
    pub fn geometry(&self) -> &Geometry {
        self.store.geometry()
    }

    /// The chunks held in memory.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The file, on an origin.
    pub fn source(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// True if people are to be told now that the file has changed: the first time that this is asked.
    pub fn tell_of_change(&self) -> bool {
        !self.change_told.swap(true, Ordering::Relaxed)
    }

    /// A whole chunk, data or page.
    pub fn chunk(&self, chunk: Chunk) -> Local {
        if let Some(piece) = self.store.chunk_piece(chunk) {
            return Local::Here(piece);
        }
        match &self.origin {
            None => Local::Missing,
            Some(origin) => origin.read(chunk).map_or(Local::SourceChanged, Local::Here),
        }
    }

    /// Whom an asker is to be sent to instead of being sent a chunk, on an origin; see [`Directory`].
    pub fn instead(&self, chunk: Chunk, asker: NodeId, insists: bool, now: Time) -> Option<NodeId> {
        self.origin.as_ref()?;
        let mut directory = self.directory.lock().unwrap_or_else(PoisonError::into_inner);
        if insists {
            directory.sent_to(chunk, asker, now);
            return None;
        }
        directory.instead(chunk, asker, now)
    }

    /// A node is gone: nobody is sent to it any more.
    pub fn forget(&self, gone: NodeId) {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner).forget(gone);
    }

    /// Nobody can connect to a node, or others can again.
    pub fn set_reachable(&self, node: NodeId, reachable: bool) {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner).set_reachable(node, reachable);
    }

    /// Appends the pieces of as long a part of `extent`, from its start, as is here; returns its length.
    pub fn pieces(&self, extent: Extent, pieces: &mut Vec<Piece>) -> u64 {
        match &self.origin {
            None => self.store.pieces_prefix(extent, pieces),
            Some(origin) if origin.read_extent(extent, pieces).is_ok() => extent.len(),
            Some(origin) => {
                // A bad place in the file: up to it chunk by chunk; there the store may have it from a peer.
                let first = self.geometry().covering(extent).start;
                let part = self.geometry().extent(Chunk(first)).clip(extent);
                let read = origin.read_extent(part, pieces);
                read.map_or_else(|_| self.store.pieces_prefix(part, pieces), |()| part.len())
            }
        }
    }

    /// A hash page has come: what was found below it can be verified.
    pub fn note_page(&self) {
        self.pages.notify_one();
    }

    /// Returns when one has come since the last time.
    pub async fn page_came(&self) {
        self.pages.notified().await;
    }

    /// True once this node takes part in it no more, though somebody still has it in hand.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Relaxed)
    }

    /// This node takes part in it no more.
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

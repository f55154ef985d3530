//! The comparison of a file with a tree of an earlier start: the chunks that were read and are
//! right.
//!
//! Invariant: a chunk is in it once its bytes were compared with their hash while the lease was
//! held. The lease keeps writers out from then on, so the chunk's pages may go out unchecked. The
//! origin's reads use it. It does not read.

use super::health::Health;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use vfield_core::bits::Bits;
use vfield_core::chunk::Chunk;

/// The chunks of a file that were compared so far.
#[derive(Debug)]
pub struct Comparison {
    right: Mutex<Bits>,
    /// Chunks with data that were not compared yet.
    left: AtomicU64,
    /// The file of the tree, as far as it may be written.
    tree: Option<File>,
    path: PathBuf,
}

impl Comparison {
    /// Nothing is compared yet of `populated` chunks with data; their hashes are from `path`.
    /// `tree` is that file, opened for writing, if it may be.
    pub fn new(populated: u64, tree: Option<File>, path: PathBuf) -> Self {
        Self { right: Mutex::default(), left: AtomicU64::new(populated), tree, path }
    }

    /// The file of the tree.
    pub const fn path(&self) -> &PathBuf {
        &self.path
    }

    /// True once all chunks were compared.
    pub fn is_done(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// True if this chunk was compared.
    pub fn has(&self, chunk: Chunk) -> bool {
        self.is_done() || self.right().contains(chunk)
    }

    /// Notes that the chunk, which has data, was compared and is right.
    pub fn note(&self, chunk: Chunk) {
        if self.right().insert(chunk) {
            self.left.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Empties the file of the tree, since the tree is wrong: the next start hashes the image.
    pub fn refute(&self, health: &Health) {
        if health.changed().is_some() {
            return;
        }
        let emptied = self.tree.as_ref().map(|tree| tree.set_len(0));
        if let Some(Err(error)) = emptied {
            tracing::warn!(%error, path = %self.path.display(), "emptying a wrong tree");
        }
    }

    fn right(&self) -> MutexGuard<'_, Bits> {
        self.right.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! What an image is served from: a file of this machine, or an object in a store on the network.
//!
//! The node and its images ask for what both have in common. Each kind has its own room:
//! [`Origin`] for files, [`ObjectOrigin`] for objects.

use crate::object_origin::ObjectOrigin;
use crate::origin::{Moved, Origin, OriginState};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use vfield_block::extent::Extent;
use vfield_block::source::Allocation;
use vfield_core::chunk::Chunk;
use vfield_core::hash_tree::HashTree;
use vfield_core::image::{Header, ImageId};
use vfield_core::wire::Priority;

/// For so long a peer or reader waits while the source fails; then it may ask others. A read goes
/// on within a second if a node has its bytes, so this is less.
pub const PATIENCE: Duration = Duration::from_millis(800);

/// Why a chunk was not brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Away {
    /// The source has other bytes there, or none that can be read.
    Changed,
    /// The store fails, or the disk stands still. The read is tried again, or goes on.
    Failing,
}

/// The source of an image on its origin.
#[derive(Debug)]
pub enum Source {
    /// A regular file or block device.
    File(Box<Origin>),
    /// An object of a store on the network.
    Object(Arc<ObjectOrigin>),
}

impl Source {
    /// The image's name.
    pub fn name(&self) -> &str {
        match self {
            Self::File(origin) => origin.name(),
            Self::Object(origin) => origin.name(),
        }
    }

    /// The file's path as it was given, or the object's address without secrets.
    pub fn path(&self) -> &Path {
        match self {
            Self::File(origin) => origin.path(),
            Self::Object(origin) => origin.path(),
        }
    }

    /// The image's id.
    pub fn id(&self) -> ImageId {
        match self {
            Self::File(origin) => origin.id(),
            Self::Object(origin) => origin.id(),
        }
    }

    /// All hashes of the image.
    pub fn tree(&self) -> &HashTree {
        match self {
            Self::File(origin) => origin.tree(),
            Self::Object(origin) => origin.tree(),
        }
    }

    /// The image's header.
    pub fn header(&self) -> &Header {
        self.tree().geometry().header()
    }

    /// True for a chunk that is to be brought first.
    pub fn is_away(&self, chunk: Chunk) -> bool {
        match self {
            Self::File(origin) => origin.is_away(chunk),
            Self::Object(origin) => origin.is_away(chunk),
        }
    }

    /// Reads a chunk into memory, and waits for it. Fails if the source has other bytes, or if it
    /// does not deliver for [`PATIENCE`].
    pub async fn bring(&self, chunk: Chunk, priority: Priority) -> Result<(), Away> {
        match self {
            Self::File(origin) => origin.bring(origin.geometry().extent(chunk), priority).await.map(drop),
            Self::Object(origin) => origin.bring(chunk).await,
        }
    }

    /// The known state of the source now. Reads nothing.
    pub fn state(&self) -> OriginState {
        match self {
            Self::File(origin) => origin.state(),
            Self::Object(origin) => origin.state(),
        }
    }

    /// The state of the name under which a file was opened, at the last look; `None` if it was
    /// still this file, or an object.
    pub fn moved(&self) -> Option<Moved> {
        match self {
            Self::File(origin) => origin.moved(),
            Self::Object(_) => None,
        }
    }

    /// The chunks from this one on that are all zeros; `None` if it is not. Just itself if it is a
    /// page.
    pub fn zeros_from(&self, chunk: Chunk) -> Option<Range<u64>> {
        let (tree, data) = (self.tree(), self.tree().geometry().data_chunks());
        let end = if chunk.0 < data { tree.run(chunk.0, data).0 } else { chunk.0 + 1 };
        tree.is_zero(chunk).then_some(chunk.0..end)
    }

    /// The runs of `extent`, alternately zeros and data; together all of it.
    pub fn allocation(&self, extent: Extent) -> Vec<Allocation> {
        let runs = runs(self.tree(), extent);
        runs.into_iter().map(|(part, zero)| Allocation { length_bytes: part.len(), zero }).collect()
    }
}

/// The longest parts of `extent` that are all zero or all not, by the tree of its image; together
/// all of it.
pub fn runs(tree: &HashTree, extent: Extent) -> Vec<(Extent, bool)> {
    let geometry = tree.geometry();
    let chunks = geometry.covering(extent);
    let (mut at, mut runs) = (chunks.start, Vec::new());
    while at < chunks.end {
        let (end, zero) = tree.run(at, chunks.end);
        let (first, last) = (geometry.extent(Chunk(at)), geometry.extent(Chunk(end - 1)));
        runs.push((Extent::from(first.start()..last.end()).clip(extent), zero));
        at = end;
    }
    runs
}

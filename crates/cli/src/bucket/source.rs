//! An image file that is to be published in a bucket, hashed.

use crate::publish::{ANY_NAME, UNREADABLE, hashing};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use vfield_bucket::Source;
use vfield_console::failure::{Failure, plain};
use vfield_console::log::Console;
use vfield_core::chunk::ChunkSize;
use vfield_core::hash_tree::HashTree;
use vfield_core::image::ImageId;
use vfield_daemon::trees;
use vfield_node::origin::Origin;
use vfield_node::origin::kept_tree::{self, KeptTree};
use vfield_node::origin::tree_file::Head;

/// An image file with its hashes.
pub struct Hashed {
    origin: Origin,
    file: File,
}

impl Hashed {
    /// Hashes a file, unless its hashes are kept beside it.
    pub fn new(path: &Path, chunk_size: ChunkSize, console: &Console) -> Result<Self, Failure> {
        let failed =
            |error: io::Error| Failure::failed(format!("{}: {}", path.display(), plain(&error))).hint(UNREADABLE);
        let file = File::open(path).map_err(failed)?;
        let opened = Arc::new(file.try_clone().map_err(failed)?.into());
        let kept = trees::open_for(path).and_then(|tree| {
            let (kept, remark) = KeptTree::handed(&opened, tree, path, chunk_size);
            remark.iter().for_each(|remark| console.warn(remark));
            kept
        });
        let origin = hashing(path, console, |threads, progress| {
            Origin::publish_open(opened, path, Some(ANY_NAME), chunk_size, threads, kept.as_ref(), progress)
        })?;
        Ok(Self { origin, file })
    }

    /// Length of the image in bytes.
    pub fn length_bytes(&self) -> u64 {
        self.origin.header().length_bytes()
    }
}

impl Source for Hashed {
    fn id(&self) -> ImageId {
        self.origin.id()
    }

    fn tree(&self) -> &HashTree {
        self.origin.tree()
    }

    fn write_hashes(&self, to: &mut Vec<u8>) -> io::Result<()> {
        kept_tree::write(&self.origin, to)
    }

    fn has_hashes(&self, mut beginning: &[u8]) -> bool {
        Head::read(&mut beginning).is_ok_and(|head| head.id == self.origin.id())
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }
}

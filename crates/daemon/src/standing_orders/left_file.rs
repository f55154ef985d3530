//! Files that were added to a daemon, as it leaves them to the next process.
//!
//! A client has opened such a file, and the daemon may have no right to do so again. So the guard
//! has the open file, and a memory file with its hashes: the next process has nothing to hash while
//! clients wait. Invariant: a file is served again only if nothing has written to it since.

use crate::estate::Estate;
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use vfield_control::message::Serve;
use vfield_core::chunk::ChunkSize;
use vfield_core::image::ImageId;
use vfield_core::wire::Proof;
use vfield_node::Node;
use vfield_node::config::{ChunkSizing, ServeConfig};
use vfield_node::keeper::Keeper as _;
use vfield_node::origin::kept_tree::KeptTree;

/// How a file that was left is served.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeftFile {
    path: String,
    chunk_bytes: u64,
    proof: Option<Proof>,
}

/// A file that is to be left.
#[derive(Debug)]
pub struct ToLeave {
    file: Arc<OwnedFd>,
    tree: OwnedFd,
    as_it_is: LeftFile,
}

impl ToLeave {
    /// Of an image that the node serves from this file. `None` if a change of the file could go
    /// unnoticed, as on a block device or a file server. Takes 0.05 % of the image's length in
    /// memory, and blocks.
    ///
    /// # Errors
    /// If there is no such memory.
    pub fn of(node: &Node, image: ImageId, file: Arc<OwnedFd>, serve: Serve) -> io::Result<Option<Self>> {
        let tree = memfd_create("vfield-hashes", MemfdFlags::CLOEXEC)?;
        let mut writer = BufWriter::new(File::from(tree));
        if !node.write_tree(image, &mut writer)? {
            return Ok(None);
        }
        writer.flush()?;
        let tree = writer.into_inner().map_err(io::Error::from)?.into();
        let Serve { path, chunk_bytes, proof, .. } = serve;
        Ok(Some(Self { file, tree, as_it_is: LeftFile { path, chunk_bytes, proof } }))
    }

    /// Leaves it with the guard; how it is to be served.
    pub fn leave(self, estate: &Estate, id: &str) -> LeftFile {
        let [file, tree] = names(id);
        estate.keep_with_guard(&file, self.file.as_fd());
        estate.keep_with_guard(&tree, self.tree.as_fd());
        self.as_it_is
    }
}

impl LeftFile {
    /// Takes it out of the estate: the image `name` with this `id`. `None` if it is not there any
    /// more, or was written to.
    pub fn take(&self, estate: &Estate, id: &str, name: &str) -> Option<ServeConfig> {
        let [file, tree] = names(id).map(|name| estate.pick(&name));
        let (file, tree, path) = (Arc::new(file?), tree?, PathBuf::from(&self.path));
        let chunk_size = ChunkSize::new(u32::try_from(self.chunk_bytes).ok()?).ok()?;
        let kept = Arc::new(KeptTree::left(&file, tree, &path, chunk_size)?);
        Some(ServeConfig {
            path,
            object: None,
            file: Some(file),
            name: Some(name.to_owned()),
            chunk_size: ChunkSizing::Of(chunk_size),
            proof: self.proof.clone(),
            kept: Some(kept),
        })
    }
}

/// Has the guard forget the file of an image, and with it the lease that keeps writers out.
pub fn forget(estate: &Estate, id: &str) {
    names(id).iter().for_each(|name| estate.forget(name));
}

fn names(id: &str) -> [String; 2] {
    [format!("file-{id}"), format!("hashes-{id}")]
}

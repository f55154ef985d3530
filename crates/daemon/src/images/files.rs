//! Files that are added while the daemon runs. A client has opened each of them.

use super::{Images, to_its_end};
use crate::standing_orders::left_file::ToLeave;
use crate::values::image::ImageName;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use vfield_console::failure::plain;
use vfield_control::message::{Reply, Serve};
use vfield_core::chunk::ChunkSize;
use vfield_core::image::ImageId;
use vfield_node::config::{ChunkSizing, ServeConfig};
use vfield_node::origin::kept_tree::KeptTree;

impl Images {
    /// Serves one more file, which a client has opened, with its `hashes` if an earlier start of a
    /// daemon has kept them.
    pub async fn add_file(self: &Arc<Self>, file: File, hashes: Option<File>, serve: Serve) -> Reply {
        let chunk_size = u32::try_from(serve.chunk_bytes).ok().and_then(|bytes| ChunkSize::new(bytes).ok());
        let (Some(chunk_size), Ok(ImageName(name))) = (chunk_size, serve.name.parse()) else {
            return Reply::refused("no such image can be", "use the vfield program of the daemon's version");
        };
        if let Err(refusal) = self.may_add().await {
            return refusal;
        }
        let (path, object, name) = (PathBuf::from(&serve.path), None, Some(name));
        let file: Arc<OwnedFd> = Arc::new(file.into());
        let kept = match hashes {
            Some(hashes) => self.kept(hashes, Arc::clone(&file), path.clone(), chunk_size).await,
            None => None,
        };
        let (proof, chunk_size) = (serve.proof.clone(), ChunkSizing::Of(chunk_size));
        let config = ServeConfig { path, object, file: Some(Arc::clone(&file)), name, chunk_size, proof, kept };
        let added = self.node.add_file(config).await;
        let images = Arc::clone(self);
        to_its_end(async move {
            let left = match &added {
                Ok(image) => images.to_leave(image.id, file, serve).await,
                Err(_) => None,
            };
            images.export(added, |orders, image| orders.added_as_file(image, left)).await
        })
        .await
    }

    /// The hashes that came with a file, if they are its hashes.
    async fn kept(
        &self,
        hashes: File,
        file: Arc<OwnedFd>,
        path: PathBuf,
        chunk_size: ChunkSize,
    ) -> Option<Arc<KeptTree>> {
        let judging = tokio::task::spawn_blocking(move || KeptTree::handed(&file, hashes, &path, chunk_size));
        let (kept, remark) = judging.await.unwrap_or_default();
        remark.iter().for_each(|remark| self.console.warn(remark));
        kept.map(Arc::new)
    }

    /// What the next process needs to serve the file, if there can be one.
    async fn to_leave(&self, id: ImageId, file: Arc<OwnedFd>, serve: Serve) -> Option<ToLeave> {
        if !self.orders.outlive_this_process() {
            return None;
        }
        let node = Arc::clone(&self.node);
        let written = tokio::task::spawn_blocking(move || ToLeave::of(&node, id, file, serve)).await;
        written.unwrap_or_else(|panic| Err(panic.into())).unwrap_or_else(|error| {
            self.console.warn(&format!("the next process will not serve this file: {}", plain(&error)));
            None
        })
    }
}

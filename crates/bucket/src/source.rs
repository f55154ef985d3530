//! What a publisher has to have: an image's bytes, its hashes, and its id.

use crate::{BucketError, ended};
use bytes::Bytes;
use std::io;
use std::sync::Arc;
use vfield_block::extent::Extent;
use vfield_core::chunk::Chunk;
use vfield_core::hash_tree::{HashTree, hash_chunk};
use vfield_core::image::ImageId;

/// An image that was hashed.
pub trait Source: Send + Sync + 'static {
    /// The id that follows from its hashes.
    fn id(&self) -> ImageId;

    /// All its hashes.
    fn tree(&self) -> &HashTree;

    /// Writes the hashes as they lie beside an object.
    ///
    /// # Errors
    /// Those of `to`.
    fn write_hashes(&self, to: &mut Vec<u8>) -> io::Result<()>;

    /// True if these are hashes of this image, or the beginning of them.
    fn has_hashes(&self, beginning: &[u8]) -> bool;

    /// Fills `bytes` with those of the image from `offset` on. Blocks.
    ///
    /// # Errors
    /// If the file cannot be read, or is shorter.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
}

/// Verifies a chunk that was read.
///
/// # Errors
/// If the file has changed since it was hashed.
pub fn verify(tree: &HashTree, chunk: Chunk, bytes: &[u8]) -> Result<(), BucketError> {
    if hash_chunk(bytes) == tree.hash(chunk) { Ok(()) } else { Err(BucketError::Changed(chunk)) }
}

/// Reads and verifies a part of an image, which begins with a chunk.
///
/// # Errors
/// If the file cannot be read, or has changed since it was hashed.
pub async fn read(source: Arc<impl Source>, extent: Extent) -> Result<Bytes, BucketError> {
    let reading = tokio::task::spawn_blocking(move || {
        let mut bytes = vec![0; extent.len() as usize];
        source.read(extent.start(), &mut bytes).map_err(BucketError::File)?;
        let (tree, geometry) = (source.tree(), source.tree().geometry());
        let chunks = geometry.covering(extent).map(Chunk);
        for (chunk, part) in chunks.zip(bytes.chunks(geometry.chunk_bytes() as usize)) {
            verify(tree, chunk, part)?;
        }
        Ok(Bytes::from(bytes))
    });
    ended(reading.await)
}

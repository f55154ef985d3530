//! Publishing an object: with the hashes that lie beside it, or by reading and hashing all of it.
//!
//! The hashes are an object of their own, named like the image with [`SUFFIX`] behind, in the
//! format of [`crate::origin::tree_file`]. Invariant: they are used only if they are whole, fit the
//! object's length, and its first run agrees with them. Later reads compare every chunk, so wrong
//! hashes never lead to wrong bytes. If the address names the image by its id, they have to be
//! those of that id. A store that fails at this moment is asked again for a bounded time.

use super::ObjectOrigin;
use super::compared::Compared;
use super::layout::Layout;
use crate::apart;
use crate::origin::tree_file::Head;
use crate::origin::wrapping::{self, HEAD_BYTES};
use crate::origin::{Progress, PublishError};
use bytes::Bytes;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use vfield_block::extent::Extent;
use vfield_block::object::{Object, ObjectError, ObjectStore};
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_core::doubling::Doubling;
use vfield_core::hash_tree::{HashTree, TreeBuilder, hash_chunk};
use vfield_core::image::ImageId;

/// What the address of the hashes ends with.
pub const SUFFIX: &str = ".vfh";
/// Bytes of one read while an image is hashed: a multiple of each chunk size.
const PART_BYTES: u64 = 4 << 20;
/// Reads at once while an image is hashed.
const PARALLEL: usize = 6;
/// Pauses after failures at the start.
const PAUSES: Doubling = Doubling { first: Duration::from_millis(200), longest: Duration::from_secs(5) };
/// A start fails after so many failures of one read, in about 15 s. A network that comes up with
/// this machine takes less.
const FAILURES_MAX: u32 = 8;
/// Longest hashes, beside [`TREE_SHARE`] of the image: small images.
const TREE_BYTES: u64 = 1 << 20;
/// Smallest chunks have 32 bytes of hash for 16 KiB, and pages of pages.
const TREE_SHARE: u64 = 256;

/// An image's id and hashes, and a run that was compared with them.
type Beside = (ImageId, HashTree, Option<Compared>);

/// An object to publish.
#[derive(Debug, Clone)]
pub struct ServeObject {
    /// Where it is.
    pub store: Arc<dyn ObjectStore>,
    /// The chunk size that was asked for; `None` takes that of the hashes beside it.
    pub chunk_size: Option<ChunkSize>,
    /// Hash it even if there are hashes beside it.
    pub rehash: bool,
    /// Memory for parts of it, in bytes; at least [`super::CACHE_BYTES_MIN`].
    pub cache_bytes: u64,
}

/// A published object.
#[derive(Debug)]
pub struct PublishedObject {
    /// It is served from now on.
    pub origin: Arc<ObjectOrigin>,
    /// The address of the hashes, if those beside it are used.
    pub tree: Option<String>,
}

/// Publishes an object under this name. `progress` is told how far hashing is, and `remark` what a
/// person should know before that.
///
/// # Errors
/// If it cannot be opened or read, or changes while it is read.
pub async fn publish(
    serve: &ServeObject,
    name: String,
    progress: &(dyn Fn(Progress) + Sync),
    remark: &(dyn Fn(String) + Sync),
) -> Result<PublishedObject, PublishError> {
    let address = serve.store.address();
    let failed = |error: ObjectError| PublishError::Object { address: address.to_owned(), why: error.to_string() };
    let object: Arc<dyn Object> = Arc::from(patiently(|| serve.store.open("")).await.map_err(failed)?);
    let named = serve.store.image().map(ImageId);
    if !serve.rehash || named.is_some() {
        match beside(serve, &*object).await {
            // Without them, all of it would have to be read before a byte of it can be trusted.
            Ok(Some((id, ..))) if named.is_some_and(|named| named != id) => {
                return Err(failed(ObjectError::lasting(format!("its hashes are those of the image {}", id.short()))));
            }
            Ok(None) if named.is_some() => {
                return Err(failed(ObjectError::lasting("its hashes are not there, or cannot be read")));
            }
            Err(why) if named.is_some() => return Err(failed(ObjectError::lasting(format!("its hashes: {why}")))),
            Ok(Some((id, tree, read))) => {
                let origin = ObjectOrigin::new(object, address, name, (id, tree), serve.cache_bytes);
                if let Some(compared) = read {
                    origin.keep(compared);
                }
                // A named image has its hashes wherever its store keeps them.
                let tree = if named.is_some() { address.to_owned() } else { format!("{address}{SUFFIX}") };
                return Ok(PublishedObject { origin, tree: Some(tree) });
            }
            Ok(None) => {}
            Err(why) => remark(format!("{address}{SUFFIX} is not used, and all of the image is read: {why}")),
        }
    }
    let head = Extent::from(0..HEAD_BYTES.min(object.length_bytes()));
    let head = patiently(|| object.read(head)).await.map_err(failed)?;
    wrapping::remark(&name, &head).into_iter().for_each(remark);
    let chunk_size = serve.chunk_size.unwrap_or(ChunkSize::DEFAULT);
    let (id, tree) = hash(&object, chunk_size, progress).await.map_err(failed)?;
    if object.changed().is_some() {
        return Err(PublishError::ChangedWhileHashing(PathBuf::from(address)));
    }
    let origin = ObjectOrigin::new(object, address, name, (id, tree), serve.cache_bytes);
    Ok(PublishedObject { origin, tree: None })
}

/// The hashes beside an object, and the run that was compared with them; `None` if there are none.
async fn beside(serve: &ServeObject, object: &dyn Object) -> Result<Option<Beside>, String> {
    let beside = match patiently(|| serve.store.open(SUFFIX)).await {
        Ok(beside) => beside,
        // Not there, or not for us: a bucket that nobody may list says the latter of both.
        Err(ObjectError::Failed { lasting: true, .. }) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let (length, most) = (beside.length_bytes(), object.length_bytes() / TREE_SHARE + TREE_BYTES);
    if length > most {
        return Err(format!("it has {length} bytes, more than hashes of such an image"));
    }
    let mut text = Vec::with_capacity(length as usize);
    for start in (0..length).step_by(PART_BYTES as usize) {
        let extent = Extent::from(start..(start + PART_BYTES).min(length));
        let part = patiently(|| beside.read(extent)).await.map_err(|error| error.to_string())?;
        text.extend_from_slice(&part);
    }
    if let Some(how) = beside.changed() {
        return Err(format!("it changed while it was read: {how}"));
    }
    let read = move || {
        let mut from = &text[..];
        let head = Head::read(&mut from)?;
        head.read_tree(&mut from).map(|tree| (head, tree))
    };
    let (head, tree) = apart::run(read).await.map_err(|error| error.to_string())?;
    let (has, is) = (head.header.length_bytes(), object.length_bytes());
    if has != is {
        return Err(format!("it is about an image of {has} bytes, and this one has {is}"));
    }
    if serve.chunk_size.is_some_and(|wanted| wanted != head.header.chunk_size()) {
        return Err(format!("it is about chunks of {} bytes", head.header.chunk_size().bytes()));
    }
    let layout = Layout::of(&tree, object.compression(), serve.cache_bytes);
    let read = compare(object, layout, &tree).await?;
    Ok(Some((head.id, tree, read)))
}

/// Compares the first run with data of an object with its hashes; `None` if all of it is zeros.
async fn compare(object: &dyn Object, layout: Layout, tree: &HashTree) -> Result<Option<Compared>, String> {
    let data_chunks = tree.geometry().data_chunks();
    let (first, is_zero) = tree.run(0, data_chunks);
    let chunk = Chunk(if is_zero { first } else { 0 });
    if chunk.0 >= data_chunks {
        return Ok(None);
    }
    let chunks = layout.chunks_of(layout.run(chunk), tree);
    let of = |number: u64| tree.geometry().extent(Chunk(number));
    let extent = Extent::from(of(chunks.start).start()..of(chunks.end - 1).end());
    let bytes = patiently(|| object.read(extent)).await.map_err(|error| error.to_string())?;
    let compared = Compared::new(chunks, &bytes, tree, Instant::now());
    let agrees = compared.bad().next().is_none();
    if agrees { Ok(Some(compared)) } else { Err("its hashes are those of other bytes".to_owned()) }
}

/// Reads and hashes all of an object.
async fn hash(
    object: &Arc<dyn Object>,
    chunk_size: ChunkSize,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(ImageId, HashTree), ObjectError> {
    let length_bytes = object.length_bytes();
    let builder = TreeBuilder::new(length_bytes, chunk_size).map_err(|bad| ObjectError::lasting(bad.to_string()))?;
    let builder = Arc::new(Mutex::new(builder));
    let mut parts = (0..length_bytes.div_ceil(PART_BYTES)).map(|part| part * PART_BYTES);
    let (mut reads, mut hashed_bytes) = (JoinSet::new(), 0);
    loop {
        while reads.len() < PARALLEL
            && let Some(start) = parts.next()
        {
            let extent = Extent::from(start..(start + PART_BYTES).min(length_bytes));
            reads.spawn(hash_part(Arc::clone(object), extent, chunk_size, Arc::clone(&builder)));
        }
        let Some(ended) = reads.join_next().await else { break };
        hashed_bytes += ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
        progress(Progress { hashed_bytes, position_bytes: hashed_bytes, length_bytes });
    }
    let Some(builder) = Arc::into_inner(builder) else { unreachable!("all reads have ended") };
    let (_, id, tree) = builder.into_inner().unwrap_or_else(PoisonError::into_inner).finish();
    Ok((id, tree))
}

/// Reads and hashes a part; returns its length.
async fn hash_part(
    object: Arc<dyn Object>,
    extent: Extent,
    chunk_size: ChunkSize,
    builder: Arc<Mutex<TreeBuilder>>,
) -> Result<u64, ObjectError> {
    let bytes: Bytes = patiently(|| object.read(extent)).await?;
    let hash = move || {
        let first = extent.start() / chunk_size.bytes();
        let chunks = (first..).map(Chunk).zip(bytes.chunks(chunk_size.bytes() as usize));
        let hashes: Vec<_> = chunks.map(|(chunk, bytes)| (chunk, hash_chunk(bytes))).collect();
        let mut builder = builder.lock().unwrap_or_else(PoisonError::into_inner);
        hashes.into_iter().for_each(|(chunk, hash)| builder.add(chunk, hash));
    };
    apart::run(hash).await;
    Ok(extent.len())
}

/// Does something again after growing pauses, as long as its failures may pass.
async fn patiently<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, ObjectError>
where
    F: Future<Output = Result<T, ObjectError>>,
{
    for failures in 0.. {
        let begun = Instant::now();
        match attempt().await {
            Err(error) if error.may_pass() && failures + 1 < FAILURES_MAX => {
                let after = if let ObjectError::Failed { after, .. } = &error { *after } else { None };
                let pause = PAUSES.pause(failures).max(after.unwrap_or_default());
                tracing::info!(%error, ?pause, took = ?begun.elapsed(), "an object store is asked again");
                tokio::time::sleep(pause).await;
            }
            outcome => return outcome,
        }
    }
    unreachable!("the attempts are counted")
}

//! An image as an artifact of a registry: one blob with all of it, one with its hashes.
//!
//! The blobs come first, then the manifest that the tag names, so a reader finds all or nothing.
//! Blobs are named by their SHA-256, so those that are there are not sent again. An upload goes on
//! where it was cut off. Memory is bounded by a part, and by the hashes.

use crate::list::HASHES;
use crate::patience::{patiently, waits};
use crate::source::{Source, read};
use crate::upload::Uploaded;
use crate::{BucketError, ended};
use bytes::Bytes;
use ring::digest::{Context, SHA256};
use serde_json::{Value, json};
use std::sync::Arc;
use vfield_block::extent::Extent;
use vfield_block::object::ObjectError;
use vfield_core::hex::write_hex;
use vfield_object::{Push, Upload};

/// Length of a part in bytes: a multiple of each chunk size. At 1 Gbit/s it takes 0.13 s.
const PART_BYTES: u64 = 16 << 20;
/// The kind of the artifact, and of its blobs.
const KIND: &str = "application/vnd.vfield.image.v1";
/// The content that registries expect where a container has its settings.
const NOTHING: &[u8] = b"{}";

/// Pushes an image, named `name`, with its hashes. `progress` is told how many bytes are sent.
///
/// # Errors
/// If the registry or the file fails.
pub async fn push(
    push: &Arc<Push>,
    name: &str,
    source: &Arc<impl Source>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Uploaded, BucketError> {
    let mut hashes = Vec::new();
    source.write_hashes(&mut hashes).map_err(BucketError::File)?;
    // A missing right shows before a large file is read.
    let [nothing, hashes] = [Bytes::from_static(NOTHING), Bytes::from(hashes)];
    let of_nothing = of_memory(push, "its settings", &nothing).await?;
    let beside = format!("{name}{HASHES}");
    let of_hashes = of_memory(push, &beside, &hashes).await?;
    let (digest, length_bytes) = digest_of(source).await?;
    let was_there = patiently(|| push.has(&digest)).await.map_err(BucketError::store(name))?;
    if !was_there {
        let part = |extent| read(Arc::clone(source), extent);
        send(push, name, &digest, length_bytes, part, progress).await?;
    }
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": KIND,
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": of_nothing, "size": nothing.len()},
        "layers": [described(&digest, length_bytes, name), described(&of_hashes, hashes.len() as u64, &beside)],
    });
    let manifest = Bytes::from(manifest.to_string());
    patiently(|| push.tag(manifest.clone())).await.map_err(BucketError::store("its manifest"))?;
    Ok(Uploaded { id: source.id(), was_there, sent_bytes: push.sent_bytes() })
}

/// A blob as a manifest names it.
fn described(digest: &str, length_bytes: u64, title: &str) -> Value {
    json!({
        "mediaType": KIND,
        "digest": digest,
        "size": length_bytes,
        "annotations": {"org.opencontainers.image.title": title},
    })
}

/// Sends a blob out of memory, unless it is there; returns its digest.
async fn of_memory(push: &Arc<Push>, name: &str, bytes: &Bytes) -> Result<String, BucketError> {
    let mut context = Context::new(&SHA256);
    context.update(bytes);
    let digest = digest(context);
    if !patiently(|| push.has(&digest)).await.map_err(BucketError::store(name))? {
        let read = |extent: Extent| {
            let part = bytes.slice(extent.start() as usize..extent.end() as usize);
            async move { Ok(part) }
        };
        send(push, name, &digest, bytes.len() as u64, read, &|_| {}).await?;
    }
    Ok(digest)
}

/// Sends a blob by parts, and goes on where a part was cut off.
async fn send<F>(
    push: &Arc<Push>,
    name: &str,
    digest: &str,
    length_bytes: u64,
    read: impl Fn(Extent) -> F,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), BucketError>
where
    F: Future<Output = Result<Bytes, BucketError>>,
{
    let store = |error| BucketError::store(name)(error);
    let mut upload: Upload = patiently(|| push.begin()).await.map_err(store)?;
    let (mut at, mut failures) = (0, 0);
    while at < length_bytes {
        // Parts begin with a chunk, so that all of them can be verified.
        let begin = at - at % PART_BYTES;
        let part = read(Extent::from(begin..(begin + PART_BYTES).min(length_bytes))).await?;
        let rest = part.slice((at - begin) as usize..);
        let end = begin + part.len() as u64;
        match push.part(&upload, at, rest).await {
            Ok(next) => {
                (upload, at, failures) = (next, end, 0);
                progress(at);
            }
            Err(error) if waits(failures, &error).await => {
                failures += 1;
                (upload, at) = patiently(|| push.so_far(&upload)).await.map_err(store)?;
            }
            Err(error) => return Err(store(error)),
        }
        if at > length_bytes {
            return Err(store(ObjectError::lasting("the registry has more bytes than were sent")));
        }
    }
    patiently(|| push.end(&upload, digest)).await.map_err(store)
}

/// The digest of an image, and its length in bytes.
async fn digest_of(source: &Arc<impl Source>) -> Result<(String, u64), BucketError> {
    let source = Arc::clone(source);
    let reading = tokio::task::spawn_blocking(move || {
        let length_bytes = source.tree().geometry().header().length_bytes();
        let (mut context, mut bytes) = (Context::new(&SHA256), vec![0; (1 << 20).min(length_bytes as usize)]);
        let mut at = 0;
        while at < length_bytes {
            let length = (length_bytes - at).min(bytes.len() as u64);
            let part = &mut bytes[..length as usize];
            source.read(at, part).map_err(BucketError::File)?;
            context.update(part);
            at += length;
        }
        Ok((digest(context), length_bytes))
    });
    ended(reading.await)
}

fn digest(context: Context) -> String {
    let mut text = "sha256:".to_owned();
    // Writing to a string cannot fail.
    let _ = write_hex(&mut text, context.finish().as_ref());
    text
}

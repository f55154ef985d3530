//! Uploading a plain object, with its hashes beside it, in parts.
//!
//! The hashes come first: when the object appears, all of it at once, they are there. Invariant: an
//! object that exists is never overwritten, since origins may serve it. Memory is bounded by
//! [`PARTS_AT_ONCE`] parts, and by the hashes.

use crate::list::HASHES;
use crate::patience::patiently;
use crate::source::{Source, read};
use crate::{BucketError, ended};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::JoinSet;
use vfield_block::extent::Extent;
use vfield_block::object::ObjectError;
use vfield_core::image::ImageId;
use vfield_object::{Bucket, When, WriteError};

/// Length of a part in bytes, unless the object would have too many: a multiple of each chunk size.
/// At 1 Gbit/s a part takes 0.13 s.
const PART_BYTES: u64 = 16 << 20;
/// Most parts of an object; stores take 10 000.
const PARTS_MAX: u64 = 9_000;
/// Parts that are sent at once.
const PARTS_AT_ONCE: usize = 4;
/// Bytes of the hashes beside an object that tell whose they are.
const HASHES_BEGIN: u64 = 192;

/// An object that is there now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uploaded {
    /// Id of the published image.
    pub id: ImageId,
    /// True if it was there before.
    pub was_there: bool,
    /// Bytes that were sent, all in all.
    pub sent_bytes: u64,
}

/// Uploads an image as the object of this name. `progress` is told how many bytes are sent.
///
/// # Errors
/// If the store or the file fails, or the object exists with other bytes.
pub async fn upload(
    bucket: &Arc<Bucket>,
    name: &str,
    source: &Arc<impl Source>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Uploaded, BucketError> {
    let before = bucket.sent_bytes();
    let id = source.id();
    let length_bytes = source.tree().geometry().header().length_bytes();
    let there = patiently(|| bucket.length(name)).await.map_err(BucketError::store(name))?;
    if let Some(there) = there {
        return match there == length_bytes && is_same(bucket, name, &**source).await? {
            true => Ok(Uploaded { id, was_there: true, sent_bytes: 0 }),
            false => Err(BucketError::Exists(name.to_owned())),
        };
    }
    // A missing right shows before a large file is read.
    let ticket = patiently(|| bucket.begin(name)).await.map_err(BucketError::store(name))?;
    let sent = async {
        let mut hashes = Vec::new();
        source.write_hashes(&mut hashes).map_err(BucketError::File)?;
        put_whole(bucket, &format!("{name}{HASHES}"), hashes).await?;
        let part = |extent| read(Arc::clone(source), extent);
        let etags = send_parts(bucket, name, &ticket, length_bytes, part, progress).await?;
        join(bucket, name, &ticket, &etags, When::Absent, length_bytes).await
    };
    match sent.await {
        Ok(()) => Ok(Uploaded { id, was_there: false, sent_bytes: bucket.sent_bytes() - before }),
        Err(error) => {
            give_up(bucket, name, &ticket).await;
            Err(error)
        }
    }
}

/// True if the hashes beside an object are those of the image.
async fn is_same(bucket: &Bucket, name: &str, source: &impl Source) -> Result<bool, BucketError> {
    let beside = format!("{name}{HASHES}");
    match patiently(|| bucket.read(&beside, Extent::from(0..HASHES_BEGIN))).await {
        Ok(range) => Ok(source.has_hashes(&range.bytes)),
        Err(error) if error.may_pass() => Err(BucketError::store(beside)(error)),
        Err(_) => Ok(false),
    }
}

/// Writes an object of any length out of memory, all at once for readers.
pub async fn put_whole(bucket: &Arc<Bucket>, name: &str, bytes: impl Into<Bytes>) -> Result<(), BucketError> {
    let bytes: Bytes = bytes.into();
    if bytes.len() as u64 <= 2 * PART_BYTES {
        return put(bucket, name, bytes).await;
    }
    let ticket = patiently(|| bucket.begin(name)).await.map_err(BucketError::store(name))?;
    let length = bytes.len() as u64;
    let read = |extent: Extent| {
        let part = bytes.slice(extent.start() as usize..extent.end() as usize);
        async move { Ok(part) }
    };
    let sent = async {
        let etags = send_parts(bucket, name, &ticket, length, read, &|_| {}).await?;
        join(bucket, name, &ticket, &etags, When::Always, length).await
    };
    let sent = sent.await;
    if sent.is_err() {
        give_up(bucket, name, &ticket).await;
    }
    sent
}

/// Writes an object in one request.
pub async fn put(bucket: &Bucket, name: &str, bytes: Bytes) -> Result<(), BucketError> {
    let put = || async { bucket.put(name, bytes.clone(), When::Always).await.map(drop).map_err(passing) };
    patiently(put).await.map_err(BucketError::store(name))
}

/// A write without a condition is lost only to another one.
fn passing(error: WriteError) -> ObjectError {
    match error {
        WriteError::Failed(error) => error,
        WriteError::Lost => ObjectError::passing("another process writes it"),
    }
}

/// Sends all parts of an object; returns their ETags.
async fn send_parts<F>(
    bucket: &Arc<Bucket>,
    name: &str,
    ticket: &str,
    length_bytes: u64,
    read: impl Fn(Extent) -> F,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<String>, BucketError>
where
    F: Future<Output = Result<Bytes, BucketError>> + Send + 'static,
{
    let part_bytes = length_bytes.div_ceil(PARTS_MAX).next_multiple_of(1 << 20).max(PART_BYTES);
    let count = length_bytes.div_ceil(part_bytes);
    let mut etags = vec![String::new(); count as usize];
    let (mut next, mut sends, mut sent_bytes) = (0..count, JoinSet::new(), 0);
    loop {
        while sends.len() < PARTS_AT_ONCE
            && let Some(index) = next.next()
        {
            let extent = Extent::from(index * part_bytes..((index + 1) * part_bytes).min(length_bytes));
            let (bucket, name, ticket, reading) =
                (Arc::clone(bucket), name.to_owned(), ticket.to_owned(), read(extent));
            sends.spawn(async move {
                let bytes = reading.await?;
                let number = index as u32 + 1;
                let etag = patiently(|| bucket.part(&name, &ticket, number, bytes.clone())).await;
                Ok::<_, BucketError>((index, extent.len(), etag.map_err(BucketError::store(name))?))
            });
        }
        let Some(sent) = sends.join_next().await else { return Ok(etags) };
        let (index, length, etag) = ended(sent)?;
        etags[index as usize] = etag;
        sent_bytes += length;
        progress(sent_bytes);
    }
}

/// Makes an object of its parts.
async fn join(
    bucket: &Bucket,
    name: &str,
    ticket: &str,
    etags: &[String],
    when: When<'_>,
    length_bytes: u64,
) -> Result<(), BucketError> {
    let is_unsure = AtomicBool::new(false);
    let joined = patiently(|| async {
        let joined = match bucket.join(name, ticket, etags, when).await {
            // Its absence was seen before.
            Err(error) if error.knows_no_conditions() => bucket.join(name, ticket, etags, When::Always).await,
            joined => joined,
        };
        is_unsure.fetch_or(matches!(&joined, Err(WriteError::Failed(error)) if error.may_pass()), Ordering::Relaxed);
        match joined {
            Ok(()) => Ok(true),
            Err(WriteError::Lost) => Ok(false),
            Err(WriteError::Failed(error)) => Err(error),
        }
    });
    let joined = joined.await;
    if joined == Ok(true) {
        return Ok(());
    }
    // An attempt whose answer was lost may have made it.
    let there = || bucket.length(name);
    if is_unsure.into_inner() && patiently(there).await == Ok(Some(length_bytes)) {
        return Ok(());
    }
    match joined {
        Err(error) => Err(BucketError::store(name)(error)),
        Ok(_) => Err(BucketError::Exists(name.to_owned())),
    }
}

/// Parts of an object that is not to be cost money until they are removed.
async fn give_up(bucket: &Bucket, name: &str, ticket: &str) {
    if let Err(error) = bucket.give_up(name, ticket).await {
        tracing::warn!(%error, "parts of {name} may be left in the bucket");
    }
}

//! Publishing a version in packs: only chunks that no pack of the bucket has are uploaded.
//!
//! The order is: a claim, the tables of all packs, new packs, a second look at the packs, the
//! hashes, the index, the tag. Invariants: when an index is written, each of its packs was there a
//! moment before; a tag names only an image whose index is there. Memory is bounded: the places of
//! all chunks, and [`PACKS_AT_ONCE`] packs.

use crate::claim::Claim;
use crate::index::{self, Place};
use crate::list::{HASHES, IMAGES, list};
use crate::pack::{self, Builder, PackName, Packer, table_bytes};
use crate::patience::patiently;
use crate::source::{Source, verify};
use crate::tags;
use crate::upload::put_whole;
use crate::wanted::Wanted;
use crate::{BucketError, ended};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::Arc;
use tokio::task::{JoinHandle, JoinSet};
use vfield_block::extent::Extent;
use vfield_block::object::ObjectError;
use vfield_core::chunk::Chunk;
use vfield_core::hash_tree::Hash;
use vfield_core::image::ImageId;
use vfield_core::tag::{Tag, TagName};
use vfield_object::{Bucket, Listed};

/// Packs that are uploaded at once, in 32 MiB of memory each: enough to fill 1 Gbit/s with a delay
/// of 100 ms.
const PACKS_AT_ONCE: usize = 3;
/// Tables that are read at once: each is a request of some KiB.
const TABLES_AT_ONCE: usize = 16;
/// Bytes of a pack that are read for its table. The table of 1820 chunks fits, and few packs have
/// more.
const TABLE_GUESS: u64 = 64 << 10;
/// Bytes of chunks that one thread reads and compresses before it gives them on.
const BATCH_BYTES: u64 = 4 << 20;
/// A publish begins again so often if packs went that it counts on.
const ATTEMPTS: usize = 3;

/// What a publish has done.
#[derive(Debug, Clone)]
pub struct Published {
    /// Id of the published image.
    pub id: ImageId,
    /// The tag that names it now; `None` if there is no tag to move.
    pub tag: Option<Tag>,
    /// Chunks with data.
    pub chunks: u64,
    /// Those of them that packs had before.
    pub shared_chunks: u64,
    /// Those that no pack had, each once.
    pub new_chunks: u64,
    /// Their length in bytes.
    pub new_bytes: u64,
    /// The same, compressed.
    pub packed_bytes: u64,
    /// Number of packs that were sent.
    pub new_packs: u64,
    /// Bytes that were sent, all in all.
    pub sent_bytes: u64,
    /// Packs that are damaged, and so not counted on.
    pub damaged: u64,
    /// False if the store ignores conditions: of two publishers at once, one may lose its move.
    pub is_compared: bool,
}

/// Publishes an image under a tag. `progress` is told how many bytes of new chunks are read, and of
/// how many.
///
/// # Errors
/// If the store or the file fails, or the tag moves meanwhile. The bucket can then be read as
/// before.
pub async fn publish(
    bucket: &Arc<Bucket>,
    source: &Arc<impl Source>,
    tag: &TagName,
    keep: Option<u8>,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Published, BucketError> {
    let before = bucket.sent_bytes();
    let seen = tags::read(bucket, tag).await?;
    let next = seen.next(Some(source.id()), keep)?;
    let claim = Claim::take(bucket).await?;
    let written = async {
        let mut published = write(bucket, source, &claim, progress).await?;
        // A tag that names the image already stays, unless it is to keep more or fewer versions.
        let names = |tag: &Tag| tag.image == Some(source.id()) && keep.is_none_or(|keep| keep == tag.keep);
        match seen.tag().filter(|tag| names(tag)) {
            Some(tag) => published.tag = Some(tag.clone()),
            None => {
                seen.move_to(bucket, &claim, &next).await?;
                published.tag = Some(next);
            }
        }
        Ok(published)
    };
    let written = written.await;
    claim.end(bucket).await;
    let published = written?;
    Ok(Published { sent_bytes: bucket.sent_bytes() - before, ..published })
}

/// Writes all of an image but for a tag.
async fn write(
    bucket: &Arc<Bucket>,
    source: &Arc<impl Source>,
    claim: &Claim,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Published, BucketError> {
    let (id, geometry) = (source.id(), *source.tree().geometry());
    if geometry.data_chunks() > index::PAGES_MAX * index::PAGE_CHUNKS {
        return Err(BucketError::TooLarge);
    }
    let mut version = Version { claim, wanted: Wanted::new(source.tree()), packs: Vec::new(), known: BTreeMap::new() };
    let mut published = Published {
        id,
        tag: None,
        chunks: version.wanted.count() as u64,
        shared_chunks: 0,
        new_chunks: 0,
        new_bytes: 0,
        packed_bytes: 0,
        new_packs: 0,
        sent_bytes: 0,
        damaged: 0,
        is_compared: claim.is_compared(),
    };
    for attempt in 1.. {
        published.damaged = version.find(bucket).await?;
        published.shared_chunks = version.wanted.placed();
        version.add(bucket, source, &mut published, progress).await?;
        claim.renew(bucket).await?;
        match version.gone(bucket).await? {
            Some(pack) if attempt == ATTEMPTS => return Err(BucketError::Gone(pack.object())),
            Some(_) => continue,
            None => break,
        }
    }
    put_hashes(bucket, source).await?;
    let mut text = Vec::new();
    index::write(&geometry, &id, &version.packs, |chunk| version.wanted.place(chunk), &mut text)
        .map_err(BucketError::File)?;
    put_whole(bucket, &format!("{IMAGES}{id}"), text).await?;
    Ok(published)
}

/// Writes the hashes of an image.
async fn put_hashes(bucket: &Arc<Bucket>, source: &Arc<impl Source>) -> Result<(), BucketError> {
    let mut hashes = Vec::new();
    source.write_hashes(&mut hashes).map_err(BucketError::File)?;
    put_whole(bucket, &format!("{IMAGES}{}{HASHES}", source.id()), hashes).await
}

/// A version that is being written: the packs that it counts on, and the places of its chunks.
struct Version<'a> {
    claim: &'a Claim,
    wanted: Wanted<'a>,
    packs: Vec<PackName>,
    known: BTreeMap<PackName, u32>,
}

impl Version<'_> {
    /// Finds the chunks that packs of the bucket have; returns how many packs are damaged.
    async fn find(&mut self, bucket: &Arc<Bucket>) -> Result<u64, BucketError> {
        let mut packs = packs(bucket).await?;
        packs.retain(|(name, _)| !self.known.contains_key(name));
        let (mut packs, mut reads, mut damaged) = (packs.into_iter(), JoinSet::new(), 0);
        loop {
            while reads.len() < TABLES_AT_ONCE
                && let Some((name, length_bytes)) = packs.next()
            {
                reads.spawn(read_table(Arc::clone(bucket), name, length_bytes));
            }
            let Some(read) = reads.join_next().await else { return Ok(damaged) };
            let (name, rows) = ended(read)?;
            damaged += u64::from(rows.is_empty());
            for (hash, stored) in rows {
                if self.wanted.lacks(&hash) {
                    let pack = self.number(name);
                    self.wanted.lies_at(&hash, Place { pack, stored });
                }
            }
        }
    }

    /// Packs and uploads the chunks that have no place.
    async fn add(
        &mut self,
        bucket: &Arc<Bucket>,
        source: &Arc<impl Source>,
        published: &mut Published,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<(), BucketError> {
        let missing = self.wanted.missing();
        let chunk_bytes = source.tree().geometry().chunk_bytes();
        let (total, mut done) = (missing.len() as u64 * chunk_bytes, 0);
        let per_batch = (BATCH_BYTES / chunk_bytes).max(1) as usize;
        let mut batches = missing.chunks(per_batch).map(<[u32]>::to_vec);
        let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let mut made: VecDeque<JoinHandle<Result<Vec<Made>, BucketError>>> = VecDeque::new();
        let (mut builder, mut hashes, mut uploads) = (Builder::default(), Vec::new(), JoinSet::new());
        loop {
            while made.len() < threads
                && let Some(batch) = batches.next()
            {
                let source = Arc::clone(source);
                made.push_back(tokio::task::spawn_blocking(move || make(&*source, &batch)));
            }
            let Some(batch) = made.pop_front() else { break };
            for Made { hash, plain_bytes, stored } in ended(batch.await)? {
                if builder.is_full(stored.len()) {
                    let full = std::mem::take(&mut builder);
                    self.send(bucket, full, std::mem::take(&mut hashes), &mut uploads, published).await?;
                }
                builder.add(hash, &stored);
                hashes.push(hash);
                published.new_chunks += 1;
                published.new_bytes += plain_bytes;
                published.packed_bytes += stored.len() as u64;
                done += plain_bytes;
            }
            progress(done, total);
        }
        if !builder.is_empty() {
            self.send(bucket, builder, hashes, &mut uploads, published).await?;
        }
        while let Some(upload) = uploads.join_next().await {
            ended(upload)?;
        }
        Ok(())
    }

    /// Begins the upload of a pack, after another one if there are many.
    async fn send(
        &mut self,
        bucket: &Arc<Bucket>,
        builder: Builder,
        hashes: Vec<Hash>,
        uploads: &mut JoinSet<Result<(), BucketError>>,
        published: &mut Published,
    ) -> Result<(), BucketError> {
        while uploads.len() >= PACKS_AT_ONCE
            && let Some(upload) = uploads.join_next().await
        {
            ended(upload)?;
        }
        // Hours may have passed.
        self.claim.renew(bucket).await?;
        let (name, bytes, places) = builder.finish();
        let pack = self.number(name);
        for (hash, stored) in hashes.iter().zip(places) {
            self.wanted.lies_at(hash, Place { pack, stored });
        }
        published.new_packs += 1;
        let bucket = Arc::clone(bucket);
        uploads.spawn(async move { put_whole(&bucket, &name.object(), bytes).await });
        Ok(())
    }

    /// A pack that has chunks of the version and is not in the bucket any more. Its chunks then
    /// have no place.
    async fn gone(&mut self, bucket: &Bucket) -> Result<Option<PackName>, BucketError> {
        let there: BTreeMap<PackName, u64> = packs(bucket).await?.into_iter().collect();
        let gone: Vec<PackName> = self.known.keys().filter(|name| !there.contains_key(name)).copied().collect();
        for name in &gone {
            if let Some(number) = self.known.remove(name) {
                self.wanted.forget(number);
            }
        }
        Ok(gone.first().copied())
    }

    /// The number of a pack in the index.
    fn number(&mut self, name: PackName) -> u32 {
        *self.known.entry(name).or_insert_with(|| {
            self.packs.push(name);
            self.packs.len() as u32 - 1
        })
    }
}

/// All packs of a bucket, with their lengths in bytes.
async fn packs(bucket: &Bucket) -> Result<Vec<(PackName, u64)>, BucketError> {
    let named = |listed: Listed| Some((listed.name.parse().ok()?, listed.length_bytes));
    Ok(list(bucket, pack::DIR).await?.into_iter().filter_map(named).collect())
}

/// A pack, and what its table says.
type Rows = (PackName, Vec<(Hash, pack::Stored)>);

/// Reads the table of a pack; no rows if it is damaged, or has gone.
async fn read_table(bucket: Arc<Bucket>, name: PackName, length_bytes: u64) -> Result<Rows, BucketError> {
    let object = name.object();
    let read = async |length: u64| {
        let extent = Extent::from(0..length);
        match patiently(|| bucket.read(&object, extent)).await {
            Ok(range) if range.length_bytes == length_bytes => Ok(range.bytes),
            Ok(_) | Err(ObjectError::Changed(_)) => Ok(Bytes::new()),
            Err(error) if !error.may_pass() && bucket.length(&object).await == Ok(None) => Ok(Bytes::new()),
            Err(error) => Err(BucketError::store(object.as_str())(error)),
        }
    };
    if length_bytes == 0 {
        return Ok((name, Vec::new()));
    }
    let mut bytes = read(TABLE_GUESS.min(length_bytes)).await?;
    if let Ok(table) = table_bytes(&bytes)
        && table > bytes.len()
        && table as u64 <= length_bytes
    {
        bytes = read(table as u64).await?;
    }
    let rows = pack::table(name, &bytes, length_bytes);
    if let Err(why) = &rows {
        tracing::warn!("{object} is not counted on: {why}");
    }
    Ok((name, rows.unwrap_or_default()))
}

/// A chunk as it is stored.
struct Made {
    hash: Hash,
    plain_bytes: u64,
    stored: Vec<u8>,
}

/// Reads, verifies and compresses chunks. Blocks.
fn make(source: &impl Source, chunks: &[u32]) -> Result<Vec<Made>, BucketError> {
    let (tree, mut packer) = (source.tree(), Packer::new().map_err(BucketError::File)?);
    let mut plain = Vec::new();
    let mut made = |number: &u32| {
        let chunk = Chunk(u64::from(*number));
        let (extent, hash) = (tree.geometry().extent(chunk), tree.hash(chunk));
        plain.resize(extent.len() as usize, 0);
        source.read(extent.start(), &mut plain).map_err(BucketError::File)?;
        verify(tree, chunk, &plain)?;
        let stored = packer.pack(&plain).map_err(BucketError::File)?;
        Ok(Made { hash, plain_bytes: extent.len(), stored })
    };
    chunks.iter().map(&mut made).collect()
}

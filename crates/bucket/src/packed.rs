//! An image in packs, as an object that an origin reads by ranges.
//!
//! Owns the index's front, and its pages that were read last. A read brings the places of its
//! chunks, then each part of a pack once, by [`Blocks`], and restores the chunks. Invariant: a read
//! gives back as many bytes as were asked for. A chunk that its pack does not have is zeros, which
//! the node finds by the image's hashes; [`Object::changed`] tells the first one. All is one
//! attempt: the node decides about retries. Memory: the front, a few pages, blocks of packs, and
//! for each read its bytes and those of its packs.

use crate::blocks::{BLOCK_BYTES, Blocks};
use crate::index::{BadIndex, Front, Place};
use crate::list::{HASHES, IMAGES, front_once};
use crate::pack::{DIR, PackName, Stored, Unpacker};
use crate::tags;
use crate::{BucketError, ended};
use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::task::JoinSet;
use vfield_block::extent::Extent;
use vfield_block::object::{Object, ObjectError, ObjectOpening, ObjectReading, ObjectStore};
use vfield_core::chunk::Chunk;
use vfield_core::image::{Geometry, ImageId};
use vfield_core::tag::TagName;
use vfield_object::Bucket;

/// Pages that are kept: 16 GiB of an image with chunks of 64 KiB, in 3 MiB of memory.
const PAGES_KEPT: usize = 64;
/// Bytes between two chunks of a pack that are read along with them: as many as another request is
/// worth.
const GAP_BYTES: u32 = BLOCK_BYTES;
/// Longest range of a pack that is read at once, in bytes: that of a run of incompressible chunks.
const RANGE_BYTES_MAX: u32 = 8 << 20;
/// Ranges of packs that one read asks for at once.
const PARALLEL: usize = 4;

/// The image that is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// The one that a tag names when it is opened.
    Tag(TagName),
    /// The one with this id.
    Id(ImageId),
}

/// A packed image of a bucket, to be opened.
pub struct Packed {
    bucket: Arc<Bucket>,
    which: Which,
    shown: String,
    /// The image that was opened: the tag may move, the image that is served does not.
    id: OnceLock<ImageId>,
}

impl Packed {
    /// An image of a bucket.
    pub fn new(bucket: Bucket, which: Which) -> Self {
        let name = match &which {
            Which::Tag(name) => name.to_string(),
            Which::Id(id) => id.to_string(),
        };
        Self { shown: format!("{}#{name}", bucket.address()), bucket: Arc::new(bucket), which, id: OnceLock::new() }
    }

    /// The name of the image if none is given: the last part of the bucket's address.
    pub fn file_name(&self) -> String {
        self.bucket.name().to_owned()
    }

    /// The id of the image.
    async fn id(&self) -> Result<ImageId, BucketError> {
        if let Some(id) = self.id.get() {
            return Ok(*id);
        }
        let id = match &self.which {
            Which::Id(id) => *id,
            Which::Tag(name) => tags::read_once(&self.bucket, name).await?.image()?,
        };
        Ok(*self.id.get_or_init(|| id))
    }
}

impl ObjectStore for Packed {
    fn address(&self) -> &str {
        &self.shown
    }

    fn files(&self) -> Vec<PathBuf> {
        self.bucket.files()
    }

    fn image(&self) -> Option<[u8; 32]> {
        match &self.which {
            Which::Id(id) => Some(id.0),
            Which::Tag(_) => self.id.get().map(|id| id.0),
        }
    }

    fn open(&self, suffix: &str) -> ObjectOpening<'_> {
        let is_image = suffix.is_empty();
        Box::pin(async move {
            let id = self.id().await.map_err(told)?;
            if !is_image {
                let name = format!("{IMAGES}{id}{HASHES}");
                let first = self.bucket.read(&name, Extent::from(0..1)).await?;
                let bucket = Arc::clone(&self.bucket);
                return Ok(Box::new(Plain { bucket, name, length_bytes: first.length_bytes }) as Box<dyn Object>);
            }
            let front = front_once(&self.bucket, &id).await.map_err(told)?;
            let name = format!("{IMAGES}{id}");
            let mut opened = Opened {
                bucket: Arc::clone(&self.bucket),
                packs: Arc::new(Blocks::new(Arc::clone(&self.bucket))),
                name,
                front,
                compression: 1,
                pages: Mutex::default(),
                changed: OnceLock::new(),
            };
            opened.compression = opened.compression_of_some().await?;
            Ok(Box::new(opened) as Box<dyn Object>)
        })
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// The same failure for a node.
fn told(error: BucketError) -> ObjectError {
    match error {
        BucketError::Store { name, error: ObjectError::Failed { why, after, lasting } } => {
            ObjectError::Failed { why: format!("{name}: {why}"), after, lasting }
        }
        other => ObjectError::lasting(other.to_string()),
    }
}

/// An object as it lies in the bucket.
struct Plain {
    bucket: Arc<Bucket>,
    name: String,
    length_bytes: u64,
}

impl Object for Plain {
    fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    fn read(&self, extent: Extent) -> ObjectReading<'_> {
        Box::pin(async move { Ok(self.bucket.read(&self.name, extent).await?.bytes) })
    }

    fn changed(&self) -> Option<String> {
        None
    }
}

type Page = Arc<[Option<Place>]>;

/// A packed image that was opened.
struct Opened {
    bucket: Arc<Bucket>,
    packs: Arc<Blocks>,
    /// Of the index.
    name: String,
    front: Front,
    /// Bytes of the image for each byte of packs, rounded down; above 0.
    compression: u64,
    /// The last one was used last.
    pages: Mutex<VecDeque<(u64, Page)>>,
    changed: OnceLock<String>,
}

/// A range of a pack, and the chunks in it.
struct Part {
    pack: u32,
    start: u32,
    end: u32,
    chunks: Vec<(Chunk, Place)>,
}

impl Opened {
    /// How many bytes of the image lie in one of packs, by the first page with data. Its readers
    /// mostly begin there.
    async fn compression_of_some(&self) -> Result<u64, ObjectError> {
        let pages = 0..self.front.pages();
        let Some(number) = pages.into_iter().find(|number| self.front.range(*number).is_some()) else { return Ok(1) };
        let page = self.page(number).await?;
        let stored: u64 = page.iter().flatten().map(|place| u64::from(place.stored.length)).sum();
        let plain = page.iter().flatten().count() as u64 * self.front.geometry().chunk_bytes();
        Ok((plain / stored.max(1)).max(1))
    }

    /// The places of chunks.
    async fn places(&self, chunks: std::ops::Range<u64>) -> Result<Vec<(Chunk, Place)>, ObjectError> {
        let mut places = Vec::new();
        let mut page: Option<(u64, Page)> = None;
        for chunk in chunks.map(Chunk) {
            let number = self.front.page(chunk);
            let (_, rows) = match page.take() {
                Some(found) if found.0 == number => page.insert(found),
                _ => page.insert((number, self.page(number).await?)),
            };
            let index = chunk.0 % crate::index::PAGE_CHUNKS;
            places.extend(rows.get(index as usize).copied().flatten().map(|place| (chunk, place)));
        }
        Ok(places)
    }

    /// A page of the index, which is read if it is not here.
    async fn page(&self, number: u64) -> Result<Page, ObjectError> {
        let kept = {
            let mut pages = self.pages();
            let at = pages.iter().position(|(kept, _)| *kept == number);
            at.and_then(|at| pages.remove(at)).map(|kept| {
                pages.push_back(kept.clone());
                kept.1
            })
        };
        if let Some(page) = kept {
            return Ok(page);
        }
        let page: Page = match self.front.range(number) {
            None => Arc::from([]),
            Some(range) => {
                let named = |why: String| ObjectError::lasting(format!("{}: {why}", self.name));
                let stored = self.bucket.read(&self.name, Extent::from(range)).await?;
                self.front.read_page(number, &stored.bytes).map_err(|bad: BadIndex| named(bad.to_string()))?.into()
            }
        };
        let mut pages = self.pages();
        if pages.len() == PAGES_KEPT {
            pages.pop_front();
        }
        pages.push_back((number, Arc::clone(&page)));
        Ok(page)
    }

    fn pages(&self) -> MutexGuard<'_, VecDeque<(u64, Page)>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read_all(&self, extent: Extent) -> Result<Bytes, ObjectError> {
        let geometry = *self.front.geometry();
        let mut parts = VecDeque::from(parts(self.places(geometry.covering(extent)).await?));
        let mut plain = vec![0; extent.len() as usize];
        let mut reads = JoinSet::new();
        loop {
            while reads.len() < PARALLEL
                && let Some(part) = parts.pop_front()
            {
                let pack = self.front.packs()[part.pack as usize];
                reads.spawn(read_part(Arc::clone(&self.packs), pack, part, geometry));
            }
            let Some(read) = reads.join_next().await else { return Ok(plain.into()) };
            let (part, restored) = ended(read)?;
            for ((chunk, _), bytes) in part.chunks.iter().zip(restored) {
                let whole = geometry.extent(*chunk);
                let clipped = whole.clip(extent);
                let Some(bytes) = bytes else {
                    let pack = short(&self.front.packs()[part.pack as usize]);
                    // The first one stays.
                    let _ = self.changed.set(format!("{pack} does not have chunk {chunk}, as the index says"));
                    continue;
                };
                let from = (clipped.start() - whole.start()) as usize;
                let to = (clipped.start() - extent.start()) as usize;
                let length = clipped.len() as usize;
                plain[to..to + length].copy_from_slice(&bytes[from..from + length]);
            }
        }
    }
}

/// A pack's object, with as many digits as people need.
fn short(pack: &PackName) -> String {
    let mut object = pack.object();
    object.truncate(DIR.len() + 12);
    object
}

/// The chunks of a part in its order; `None` where its bytes are not there.
type Restored = Vec<Option<Vec<u8>>>;

/// Reads and restores a part of a pack.
async fn read_part(
    packs: Arc<Blocks>,
    pack: PackName,
    part: Part,
    geometry: Geometry,
) -> Result<(Part, Restored), ObjectError> {
    let chunks: Vec<Stored> = part.chunks.iter().map(|(_, place)| place.stored).collect();
    let stored = match packs.read(pack, part.start..part.end, &chunks).await {
        Ok(stored) => stored,
        // The pack ends before.
        Err(ObjectError::Changed(_)) => Bytes::new(),
        Err(ObjectError::Failed { why, after, lasting }) => {
            return Err(ObjectError::Failed { why: format!("{}: {why}", short(&pack)), after, lasting });
        }
    };
    let restoring = tokio::task::spawn_blocking(move || {
        let restored = part.restore(&stored, &geometry);
        (part, restored)
    });
    Ok(ended(restoring.await))
}

impl Part {
    fn restore(&self, stored: &[u8], geometry: &Geometry) -> Restored {
        let Ok(mut unpacker) = Unpacker::new() else { return vec![None; self.chunks.len()] };
        let mut restore = |(chunk, place): &(Chunk, Place)| {
            let from = (place.stored.offset - self.start) as usize;
            let stored = stored.get(from..from + place.stored.length as usize)?;
            let mut plain = vec![0; geometry.length(*chunk) as usize];
            unpacker.unpack(stored, &mut plain).then_some(plain)
        };
        self.chunks.iter().map(&mut restore).collect()
    }
}

/// Ranges of packs with all these chunks, each byte of a pack in one range at most, but for a gap
/// between far ones.
fn parts(mut places: Vec<(Chunk, Place)>) -> Vec<Part> {
    places.sort_unstable_by_key(|(_, place)| (place.pack, place.stored.offset));
    let mut parts: Vec<Part> = Vec::new();
    for (chunk, place) in places {
        let (start, end) = (place.stored.offset, place.stored.offset + place.stored.length);
        match parts.last_mut() {
            Some(part)
                if part.pack == place.pack
                    && start <= part.end.saturating_add(GAP_BYTES)
                    && end.max(part.end) - part.start <= RANGE_BYTES_MAX =>
            {
                part.end = part.end.max(end);
                part.chunks.push((chunk, place));
            }
            _ => parts.push(Part { pack: place.pack, start, end, chunks: vec![(chunk, place)] }),
        }
    }
    parts
}

impl Object for Opened {
    fn length_bytes(&self) -> u64 {
        self.front.geometry().header().length_bytes()
    }

    fn compression(&self) -> u64 {
        self.compression
    }

    fn read(&self, extent: Extent) -> ObjectReading<'_> {
        Box::pin(self.read_all(extent))
    }

    fn changed(&self) -> Option<String> {
        self.changed.get().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_chunks_of_a_pack_are_read_at_once() {
        let place = |pack, offset, length| Place { pack, stored: Stored { offset, length } };
        let chunks = [
            place(1, 500, 100),
            place(0, 700, 50),
            place(1, 600, 10),
            // The same bytes twice.
            place(1, 500, 100),
            place(1, 610 + GAP_BYTES, 5),
            place(1, 616 + 2 * GAP_BYTES, 5),
        ];
        let parts = parts((0..).map(Chunk).zip(chunks).collect());
        let told: Vec<_> = parts.iter().map(|part| (part.pack, part.start, part.end, part.chunks.len())).collect();
        let far = 616 + 2 * GAP_BYTES;
        assert_eq!(told, [(0, 700, 750, 1), (1, 500, 615 + GAP_BYTES, 4), (1, far, far + 5, 1)]);
    }
}

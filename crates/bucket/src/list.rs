//! Lists: objects of a kind, and what a bucket has for people to see.

use crate::BucketError;
use crate::index::{Front, HEAD_BYTES, front_bytes};
use crate::pack;
use crate::patience::patiently;
use crate::tags;
use std::collections::{BTreeMap, BTreeSet};
use vfield_block::extent::Extent;
use vfield_block::object::ObjectError;
use vfield_core::image::{IdDigits, ImageId};
use vfield_core::tag::{Tag, TagName};
use vfield_object::{Bucket, Listed};

/// What the names of images' objects begin with.
pub const IMAGES: &str = "images/";
/// What the names of hashes end with.
pub const HASHES: &str = ".vfh";
/// Most objects of a list: 128 TiB of packs. Each takes about 100 bytes.
const LISTED_MAX: usize = 1 << 22;

/// The objects whose names begin with `prefix`.
///
/// # Errors
/// If the store fails, or has too many.
pub async fn list(bucket: &Bucket, prefix: &str) -> Result<Vec<Listed>, BucketError> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let part = patiently(|| bucket.list(prefix, after.as_deref())).await.map_err(BucketError::store(prefix))?;
        all.extend(part.objects);
        if part.next.is_none() {
            return Ok(all);
        }
        // A part of a list would be worse than none: objects that it lacks count as gone.
        if part.next == after || all.len() > LISTED_MAX {
            return Err(BucketError::store(prefix)(ObjectError::lasting("its list does not end")));
        }
        after = part.next;
    }
}

/// Reads the part of an image's index before its pages.
///
/// # Errors
/// If the store fails, or something else lies there.
pub async fn front(bucket: &Bucket, id: &ImageId) -> Result<Front, BucketError> {
    patiently(|| front_once(bucket, id)).await
}

/// The same in one attempt.
pub async fn front_once(bucket: &Bucket, id: &ImageId) -> Result<Front, BucketError> {
    let name = format!("{IMAGES}{id}");
    let there = bucket.length(&name).await.map_err(BucketError::store(name.as_str()))?;
    if there.is_none() {
        return Err(BucketError::NoImage(*id));
    }
    let read = async |bytes: usize| {
        let read = bucket.read(&name, Extent::from(0..bytes as u64)).await;
        read.map_err(BucketError::store(name.as_str()))
    };
    let bad = |why: crate::index::BadIndex| BucketError::store(name.as_str())(ObjectError::lasting(why.to_string()));
    let head = read(HEAD_BYTES).await?;
    let front = read(front_bytes(&head.bytes, id).map_err(bad)?).await?;
    Front::read(&front.bytes, id, front.length_bytes).map_err(bad)
}

/// Looks whether an image is whole: its index, its hashes, and each pack.
///
/// # Errors
/// If it is not.
pub async fn whole(bucket: &Bucket, id: &ImageId) -> Result<Front, BucketError> {
    let found = front(bucket, id).await?;
    let hashes = format!("{IMAGES}{id}{HASHES}");
    let there = patiently(|| bucket.length(&hashes)).await.map_err(BucketError::store(hashes.as_str()))?;
    if there.is_none() {
        return Err(BucketError::Gone(hashes));
    }
    let packs: BTreeSet<String> = list(bucket, pack::DIR).await?.into_iter().map(|listed| listed.name).collect();
    match found.packs().iter().find(|name| !packs.contains(&name.to_string())) {
        Some(gone) => Err(BucketError::Gone(gone.object())),
        None => Ok(found),
    }
}

/// The image whose id begins with these digits.
///
/// # Errors
/// If there is none, or there are several.
pub async fn find(bucket: &Bucket, digits: &str) -> Result<ImageId, BucketError> {
    let digits = digits.to_ascii_lowercase();
    let undecided = |count| BucketError::Undecided(digits.clone(), count);
    let Some(wanted) = IdDigits::new(&digits) else { return Err(undecided(0)) };
    let images = list(bucket, IMAGES).await?;
    let found: Vec<ImageId> =
        images.iter().filter_map(|listed| image(&listed.name)).filter(|id| wanted.matches(id)).collect();
    if let [id] = found[..] { Ok(id) } else { Err(undecided(found.len())) }
}

/// What a bucket has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// All tags, in the order of their names.
    pub tags: Vec<TagListed>,
    /// All images, in the order of their ids.
    pub images: Vec<ImageListed>,
    /// Number of all packs.
    pub packs: usize,
    /// Bytes of packs, indexes and hashes.
    pub stored_bytes: u64,
}

/// A tag of a bucket, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagListed {
    /// Its name, which is that of its object.
    pub name: String,
    /// The tag, or why it cannot be read.
    pub tag: Result<Tag, String>,
}

/// An image of a bucket, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageListed {
    /// Its id, of 64 digits.
    pub id: ImageId,
    /// Its length in bytes and that of its packs, or why its index cannot be read.
    pub sizes: Result<(u64, u64), String>,
    /// When it was written, in seconds since 1970.
    pub written_s: u64,
}

/// Lists all tags and images; reads the beginning of each index.
///
/// # Errors
/// If the store fails.
pub async fn contents(bucket: &Bucket) -> Result<Contents, BucketError> {
    let packs: BTreeMap<String, u64> =
        list(bucket, pack::DIR).await?.into_iter().map(|listed| (listed.name, listed.length_bytes)).collect();
    let listed = list(bucket, IMAGES).await?;
    let mut images = Vec::new();
    for (id, written_s) in listed.iter().filter_map(|listed| Some((image(&listed.name)?, listed.written_s))) {
        let sizes = front(bucket, &id).await.map(|front| {
            let of_pack = |name| packs.get(&format!("{name}")).copied().unwrap_or_default();
            (front.geometry().header().length_bytes(), front.packs().iter().map(of_pack).sum())
        });
        images.push(ImageListed { id, sizes: sizes.map_err(|error| error.to_string()), written_s });
    }
    let mut tags = Vec::new();
    for name in names(bucket).await? {
        let seen = tags::read(bucket, &name).await;
        let tag = match seen.map(|seen| seen.tag().cloned()) {
            Ok(Some(tag)) => Ok(tag),
            Ok(None) => continue,
            Err(error) => Err(error.to_string()),
        };
        tags.push(TagListed { name: name.to_string(), tag });
    }
    let stored_bytes = packs.values().sum::<u64>() + listed.iter().map(|listed| listed.length_bytes).sum::<u64>();
    Ok(Contents { tags, images, packs: packs.len(), stored_bytes })
}

/// The names of all tags.
///
/// # Errors
/// If the store fails.
pub async fn names(bucket: &Bucket) -> Result<BTreeSet<TagName>, BucketError> {
    Ok(list(bucket, tags::DIR).await?.iter().filter_map(|listed| listed.name.parse().ok()).collect())
}

/// The image of which an object of this name is the index.
pub fn image(name: &str) -> Option<ImageId> {
    let id: ImageId = name.parse().ok()?;
    (id.to_string() == name).then_some(id)
}

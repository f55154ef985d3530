//! Rubbish in a bucket: images that no tag names, and packs that no such image needs.
//!
//! Marking begins at the tags, and their earlier versions count. Removal has two phases: a sweep
//! writes the names that nobody needs into the object `doomed`. A sweep a day later removes those
//! objects if still nobody needs them. All times are those of the store. Invariant: nothing is
//! removed while a claim counts (see [`crate::claim`]), and nothing at all if a tag or an index
//! cannot be read. Names that this program does not make are left alone.

use crate::BucketError;
use crate::claim::{self, Claim, Moment, SWEEP, SWEEP_LASTS};
use crate::list::{HASHES, IMAGES, front, image, list, names};
use crate::pack::{self, PackName};
use crate::patience::patiently;
use crate::tags;
use crate::upload::put_whole;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use vfield_core::image::ImageId;
use vfield_object::{Bucket, When, WriteError};

/// For so long nobody has to need an object before it goes. An origin that was started from a tag
/// reads its image on when the tag has moved.
pub const GRACE: Duration = Duration::from_secs(24 * 3600);
/// The object with the names that nobody needs, and since when.
const DOOMED: &str = "doomed";
/// First line of that object.
const FIRST: &str = "vfield-doomed 1";
/// Longest text of that object in bytes: 190 000 names. More of them wait for another sweep.
const DOOMED_MAX: usize = 16 << 20;

/// An object that nobody needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doomed {
    /// Its name, below the bucket's address.
    pub name: String,
    /// Its length in bytes.
    pub length_bytes: u64,
    /// In so many seconds it may go; 0 if that is now.
    pub goes_in_s: u64,
}

/// What a sweep has found and done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// Objects that are gone now, or that would be.
    pub gone: Vec<Doomed>,
    /// Objects that nobody needs, and that may still be taken up again.
    pub doomed: Vec<Doomed>,
}

/// Finds what nobody needs at this time, in seconds since 1970, and changes nothing.
///
/// # Errors
/// If the store fails, or a tag or an index cannot be read.
pub async fn look(bucket: &Bucket, now_s: u64) -> Result<Swept, BucketError> {
    Ok(mark(bucket, now_s).await?.0)
}

/// Removes what nobody has needed for [`GRACE`].
///
/// # Errors
/// If somebody publishes at this moment, the store fails, or a tag or an index cannot be read.
pub async fn sweep(bucket: &Arc<Bucket>) -> Result<Swept, BucketError> {
    let begun = Moment::now();
    let (now_s, own) = lock(bucket).await?;
    let swept = remove(bucket, now_s, begun).await;
    let unlocked = unlock(bucket, &own).await;
    let swept = swept?;
    unlocked.map(|()| swept)
}

/// Keeps publishers out; returns the store's time, and the text of the lock.
async fn lock(bucket: &Bucket) -> Result<(u64, String), BucketError> {
    // Where a sweep is under way, or rights are missing, this says so.
    let claim = Claim::take(bucket).await?;
    let is_compared = claim.is_compared();
    claim.end(bucket).await;
    if !is_compared {
        return Err(BucketError::NotCompared);
    }
    let stale = patiently(|| bucket.whole(SWEEP, 4096)).await.map_err(BucketError::store(SWEEP))?;
    let when = stale.as_ref().map_or(When::Absent, |stale| When::Is(&stale.etag));
    let text = format!("sweeps {}\n", claim::number()?);
    match bucket.put(SWEEP, text.clone().into(), when).await {
        Ok(_) => {}
        Err(WriteError::Lost) => return Err(BucketError::Sweeping),
        Err(WriteError::Failed(error)) => return Err(BucketError::store(SWEEP)(error)),
    }
    let own = list(bucket, SWEEP).await?.into_iter().find(|listed| listed.name == SWEEP);
    let now_s = own.ok_or(BucketError::Sweeping)?.written_s;
    let writers = list(bucket, claim::DIR).await?.iter().filter(|listed| Claim::counts(listed, now_s)).count();
    if writers == 0 {
        return Ok((now_s, text));
    }
    unlock(bucket, &text).await?;
    Err(BucketError::Writers(writers))
}

/// Lets publishers in, unless the lock is that of another sweep by now.
async fn unlock(bucket: &Bucket, own: &str) -> Result<(), BucketError> {
    let there = patiently(|| bucket.whole(SWEEP, 4096)).await.map_err(BucketError::store(SWEEP))?;
    if there.is_none_or(|there| there.bytes != own) {
        return Ok(());
    }
    patiently(|| bucket.remove(SWEEP)).await.map_err(BucketError::store(SWEEP))
}

/// Marks, and removes the objects that are due.
async fn remove(bucket: &Arc<Bucket>, now_s: u64, begun: Moment) -> Result<Swept, BucketError> {
    let (mut swept, text) = mark(bucket, now_s).await?;
    put_whole(bucket, DOOMED, text).await?;
    // An image goes before its packs. A sweep that was cut off leaves images that can be read, and
    // rubbish.
    swept.gone.sort_by_key(|doomed| (doomed.name.starts_with(pack::DIR), doomed.name.ends_with(HASHES)));
    let due = std::mem::take(&mut swept.gone);
    for doomed in due {
        if begun.age() > SWEEP_LASTS / 2 {
            swept.doomed.push(doomed);
            continue;
        }
        patiently(|| bucket.remove(&doomed.name)).await.map_err(BucketError::store(doomed.name.as_str()))?;
        swept.gone.push(doomed);
    }
    for listed in list(bucket, claim::DIR).await?.iter().filter(|listed| !Claim::counts(listed, now_s)) {
        let name = format!("{}{}", claim::DIR, listed.name);
        patiently(|| bucket.remove(&name)).await.map_err(BucketError::store(name.as_str()))?;
    }
    Ok(swept)
}

/// Finds what nobody needs, and the text that says since when.
async fn mark(bucket: &Bucket, now_s: u64) -> Result<(Swept, String), BucketError> {
    let (images, packs) = live(bucket).await?;
    let is_live = |dir: &str, name: &str| match dir {
        IMAGES => image(name.strip_suffix(HASHES).unwrap_or(name)).is_none_or(|id| images.contains(&id)),
        _ => name.parse().map_or(true, |name: PackName| packs.contains(&name)),
    };
    let since = doomed_before(bucket).await?;
    let (mut swept, mut text) = (Swept::default(), format!("{FIRST}\n"));
    for dir in [IMAGES, pack::DIR] {
        for listed in list(bucket, dir).await?.iter().filter(|listed| !is_live(dir, &listed.name)) {
            let name = format!("{dir}{}", listed.name);
            // An object that was written again was needed again.
            let before = since.get(&name).filter(|since| **since >= listed.written_s && **since <= now_s);
            let since_s = before.copied().unwrap_or(now_s);
            let goes_in_s = GRACE.as_secs().saturating_sub(now_s - since_s);
            let line = format!("{since_s} {name}\n");
            let is_told = text.len() + line.len() <= DOOMED_MAX;
            text.push_str(if is_told { &line } else { "" });
            let doomed = Doomed { name, length_bytes: listed.length_bytes, goes_in_s };
            if goes_in_s == 0 { swept.gone.push(doomed) } else { swept.doomed.push(doomed) }
        }
    }
    Ok((swept, text))
}

/// The images that tags name, earlier versions among them, and the packs of these images.
async fn live(bucket: &Bucket) -> Result<(BTreeSet<ImageId>, BTreeSet<PackName>), BucketError> {
    let (mut images, mut packs) = (BTreeSet::new(), BTreeSet::new());
    for name in names(bucket).await? {
        let seen = tags::read(bucket, &name).await?;
        images.extend(seen.tag().into_iter().flat_map(|tag| tag.versions()).map(|version| version.image));
    }
    for id in &images {
        match front(bucket, id).await {
            Ok(front) => packs.extend(front.packs().iter().copied()),
            // It needs nothing any more.
            Err(BucketError::NoImage(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((images, packs))
}

/// Since when each object was not needed, as an earlier sweep wrote it down. A text that is damaged
/// counts as none: the grace begins anew.
async fn doomed_before(bucket: &Bucket) -> Result<BTreeMap<String, u64>, BucketError> {
    let whole = patiently(|| bucket.whole(DOOMED, DOOMED_MAX)).await.map_err(BucketError::store(DOOMED))?;
    let text = whole.map(|whole| String::from_utf8_lossy(&whole.bytes).into_owned()).unwrap_or_default();
    let Some(rows) = text.strip_prefix(FIRST) else { return Ok(BTreeMap::new()) };
    let row = |row: &str| {
        let (since, name) = row.split_once(' ')?;
        Some((name.to_owned(), since.parse().ok()?))
    };
    Ok(rows.lines().filter_map(row).collect())
}

//! Tags in a bucket: texts of [`vfield_core::tag`], moved by conditional writes.
//!
//! A text has no signature: a bucket is as trusted as its writers. Invariant: a move that is told
//! as done was made from the state that was read; of two at once, one is lost.

use crate::BucketError;
use crate::claim::Claim;
use crate::list::whole;
use crate::patience::patiently;
use vfield_core::image::ImageId;
use vfield_core::tag::{TEXT_MAX, Tag, TagName};
use vfield_object::{Bucket, When, WriteError};

/// What the names of tags' objects begin with.
pub const DIR: &str = "tags/";

/// A tag that was read, or the place for one.
#[derive(Debug, Clone)]
pub struct Seen {
    name: TagName,
    /// `None` if there is none.
    tag: Option<Tag>,
    etag: String,
}

/// Reads a tag.
///
/// # Errors
/// If the store fails, or something else lies there.
pub async fn read(bucket: &Bucket, name: &TagName) -> Result<Seen, BucketError> {
    patiently(|| read_once(bucket, name)).await
}

/// The same in one attempt.
pub(crate) async fn read_once(bucket: &Bucket, name: &TagName) -> Result<Seen, BucketError> {
    let object = format!("{DIR}{name}");
    let whole = bucket.whole(&object, TEXT_MAX).await.map_err(BucketError::store(object.as_str()))?;
    let Some(whole) = whole else { return Ok(Seen { name: name.clone(), tag: None, etag: String::new() }) };
    let bad = |why| BucketError::BadTag(name.to_string(), why);
    let text = String::from_utf8_lossy(&whole.bytes);
    let tag: Tag = text.parse().map_err(bad)?;
    tag.check().map_err(bad)?;
    if tag.name != *name {
        return Err(bad(vfield_core::tag::BadTag::Name));
    }
    Ok(Seen { name: name.clone(), tag: Some(tag), etag: whole.etag })
}

/// Moves a tag to an image, or to none; returns it.
///
/// # Errors
/// If the image is not there, or the tag moves meanwhile.
pub async fn set(
    bucket: &Bucket,
    name: &TagName,
    image: Option<ImageId>,
    keep: Option<u8>,
) -> Result<Tag, BucketError> {
    let seen = read(bucket, name).await?;
    let next = seen.next(image, keep)?;
    change(bucket, &seen, next).await
}

/// A step back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Serial of the version that the tag has left.
    pub left: u64,
    /// Serial under which it named the image before.
    pub to: u64,
}

/// Moves a tag back to the version of a serial, or to the one before; returns the tag.
///
/// # Errors
/// If the tag keeps no such version, its image has gone, or the tag moves meanwhile.
pub async fn roll_back(bucket: &Bucket, name: &TagName, to: Option<u64>) -> Result<(Tag, Step), BucketError> {
    let seen = read(bucket, name).await?;
    let tag = seen.tag.as_ref().ok_or_else(|| BucketError::NoTag(name.to_string()))?;
    let version = tag.before.iter().find(|version| to.is_none_or(|to| version.serial == to));
    let version = *version.ok_or_else(|| BucketError::NoVersion(name.to_string()))?;
    let step = Step { left: tag.serial, to: version.serial };
    let next = seen.next(Some(version.image), None)?;
    Ok((change(bucket, &seen, next).await?, step))
}

/// Moves a tag from a state that was seen.
async fn change(bucket: &Bucket, seen: &Seen, next: Tag) -> Result<Tag, BucketError> {
    let claim = Claim::take(bucket).await?;
    let moving = async {
        if let Some(image) = &next.image {
            whole(bucket, image).await?;
        }
        seen.move_to(bucket, &claim, &next).await
    };
    let moved = moving.await;
    claim.end(bucket).await;
    moved.map(|()| next)
}

impl Seen {
    /// The tag, if there is one. A removed tag is one without an image.
    pub const fn tag(&self) -> Option<&Tag> {
        self.tag.as_ref()
    }

    /// The image that it names.
    ///
    /// # Errors
    /// If it names none.
    pub fn image(&self) -> Result<ImageId, BucketError> {
        let image = self.tag.as_ref().and_then(|tag| tag.image);
        image.ok_or_else(|| BucketError::NoTag(self.name.to_string()))
    }

    /// The tag that names this image from now on, or none.
    ///
    /// # Errors
    /// If no later serial is possible, or it cannot keep so many versions.
    pub fn next(&self, image: Option<ImageId>, keep: Option<u8>) -> Result<Tag, BucketError> {
        let bad = |why| BucketError::BadTag(self.name.to_string(), why);
        let next = match (&self.tag, image) {
            (Some(tag), _) => tag.next(image).map_err(bad)?,
            (None, Some(image)) => Tag::first(self.name.clone(), image),
            (None, None) => return Err(BucketError::NoTag(self.name.to_string())),
        };
        let next = keep.map_or_else(|| next.clone(), |keep| next.clone().keeping(keep));
        next.check().map_err(bad)?;
        Ok(next)
    }

    /// Moves the tag from this state to that of `next`.
    ///
    /// # Errors
    /// [`BucketError::Moved`] if it is in another state by now.
    pub async fn move_to(&self, bucket: &Bucket, claim: &Claim, next: &Tag) -> Result<(), BucketError> {
        claim.renew(bucket).await?;
        // Without conditions, a move is lost only if it comes between this look and the write.
        if !claim.is_compared() && read(bucket, &self.name).await?.tag != self.tag {
            return Err(BucketError::Moved(self.name.to_string()));
        }
        let object = format!("{DIR}{}", self.name);
        let text = next.to_string();
        let when = match &self.tag {
            _ if !claim.is_compared() => When::Always,
            Some(_) => When::Is(&self.etag),
            None => When::Absent,
        };
        let moved = patiently(|| async {
            match bucket.put(&object, text.clone().into(), when).await {
                Ok(_) => Ok(true),
                Err(WriteError::Lost) => Ok(false),
                Err(WriteError::Failed(error)) => Err(error),
            }
        });
        match moved.await {
            Ok(true) => Ok(()),
            Err(error) if !error.may_pass() => Err(BucketError::store(object)(error)),
            // An attempt whose answer was lost may have moved it.
            _ if read(bucket, &self.name).await?.tag.as_ref() == Some(next) => Ok(()),
            Ok(false) => Err(BucketError::Moved(self.name.to_string())),
            Err(error) => Err(BucketError::store(object)(error)),
        }
    }
}

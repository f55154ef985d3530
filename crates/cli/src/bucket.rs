//! `vfield publish FILE URL` and `vfield bucket`: images in buckets.
//!
//! No daemon has a part in it, and credentials are those of the environment. This module reads
//! addresses and prints results; the work is that of [`vfield_bucket`].

mod source;
mod words;

use crate::args::{BucketAction, BucketOptions, PublishOptions};
use crate::source_file;
use crate::source_object::variable;
use source::Hashed;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use vfield_bucket::{BucketError, Packed, Which};
use vfield_console::bar::bar;
use vfield_console::failure::{Failure, plain};
use vfield_console::log::{self, Style};
use vfield_console::output;
use vfield_console::volume::Volume;
use vfield_core::tag::TagName;
use vfield_object::{BadPlace, Bucket, Push};

/// Runs `vfield publish FILE URL`.
pub fn publish(options: &PublishOptions, volume: Volume) -> Result<(), Failure> {
    let url = options.to.as_deref().unwrap_or_default();
    source_file::check(&options.file)?;
    let chunk_size = options.chunk_size.unwrap_or_default().of_image(&options.file);
    let to = To::parse(url, &options.file)?;
    let keep = options.numbers.keep;
    if keep.is_some() && !matches!(to, To::Tag { .. }) {
        return Err(Failure::usage("--keep: an object has no versions").hint(words::FORMS));
    }
    let console = log::start(Style::choose(false, volume), volume);
    source_file::remark(&options.file).iter().for_each(|remark| console.warn(remark));
    let source = Arc::new(Hashed::new(&options.file, chunk_size, &console)?);
    let progress = console.bars.add(bar("publishing", &options.file.display().to_string(), source.length_bytes()));
    let told = |done, total| {
        progress.set_length(total);
        progress.set_position(done);
    };
    let said = match to {
        To::Artifact { push, name } => {
            let push_all = async |push: &Arc<Push>| {
                let length_bytes = source.length_bytes();
                let uploaded = vfield_bucket::push(push, &name, &source, &|done| told(done, length_bytes)).await?;
                Ok(words::uploaded(&uploaded, push.address()))
            };
            wait_at(push, push_all, words::push_failure)
        }
        To::Object { bucket, key } => wait(bucket, async |bucket| {
            let length_bytes = source.length_bytes();
            let uploaded = vfield_bucket::upload(bucket, &key, &source, &|done| told(done, length_bytes)).await?;
            Ok(words::uploaded(&uploaded, &format!("{}/{key}", bucket.address())))
        }),
        To::Tag { bucket, tag } => wait(bucket, async |bucket| {
            let published = vfield_bucket::publish(bucket, &source, &tag, keep, &told).await?;
            Ok(words::published(&published, &format!("{}#{tag}", bucket.address())))
        }),
    };
    progress.finish_and_clear();
    output::put(said?.as_bytes())
}

/// Runs `vfield bucket`.
pub fn run(options: &BucketOptions) -> Result<(), Failure> {
    let said = match &options.action {
        BucketAction::Ls { url } => {
            wait(all(url)?, async |bucket| Ok(words::list(&vfield_bucket::contents(bucket).await?)))
        }
        BucketAction::Set { url, image, keep } => {
            let (bucket, tag) = tagged(url)?;
            wait(bucket, async |bucket| {
                let image = vfield_bucket::find(bucket, image).await?;
                Ok(words::moved(&vfield_bucket::tags::set(bucket, &tag, Some(image), *keep).await?))
            })
        }
        BucketAction::Rollback { url, to } => {
            let (bucket, tag) = tagged(url)?;
            wait(bucket, async |bucket| {
                let (moved, version) = vfield_bucket::tags::roll_back(bucket, &tag, *to).await?;
                let undo = format!("vfield bucket rollback {url} --to {}", version.left);
                Ok(format!(
                    "{}that is the version of serial {}; to undo it: {undo}\n",
                    words::moved(&moved),
                    version.to
                ))
            })
        }
        BucketAction::Rm { url } => {
            let (bucket, tag) = tagged(url)?;
            wait(bucket, async |bucket| Ok(words::moved(&vfield_bucket::tags::set(bucket, &tag, None, None).await?)))
        }
        BucketAction::Gc { url, dry_run: true } => wait(all(url)?, async |bucket| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Ok(words::swept(&vfield_bucket::sweep::look(bucket, now.as_secs()).await?, true))
        }),
        BucketAction::Gc { url, dry_run: false } => {
            wait(all(url)?, async |bucket| Ok(words::swept(&vfield_bucket::sweep::sweep(bucket).await?, false)))
        }
    };
    output::put(said?.as_bytes())
}

/// The packed image that an address names, if it is one: `s3://BUCKET/PREFIX#TAG` or `#ID`.
///
/// # Errors
/// If it looks like one and is none.
pub fn packed(text: &str) -> Result<Option<Packed>, Failure> {
    let Some((url, which)) = text.split_once('#').filter(|_| Bucket::is_meant(text)) else { return Ok(None) };
    let which = match which.parse() {
        Ok(id) => Which::Id(id),
        Err(_) => Which::Tag(name(which)?),
    };
    Ok(Some(Packed::new(all(url)?, which)))
}

/// Where an image is published.
enum To {
    /// As an artifact of a registry, with blobs of this name.
    Artifact { push: Push, name: String },
    /// As an object of this key.
    Object { bucket: Bucket, key: String },
    /// In packs, under a tag.
    Tag { bucket: Bucket, tag: TagName },
}

impl To {
    fn parse(url: &str, file: &Path) -> Result<Self, Failure> {
        if Push::is_meant(url) {
            let bad = |why: BadPlace| Failure::usage(format!("the address in a registry: {}", why.fact));
            let push = Push::parse(url, &variable).map_err(|why| bad(why).hint(words::FORMS))?;
            return Ok(Self::Artifact { push, name: source_file::name_of(file)? });
        }
        if url.contains('#') {
            let (bucket, tag) = tagged(url)?;
            return Ok(Self::Tag { bucket, tag });
        }
        let slash = url.find("://").and_then(|at| Some(at + 3 + url[at + 3..].find('/')?));
        let (bucket, key) = slash.map_or((url, ""), |slash| (&url[..slash], &url[slash + 1..]));
        let bucket = all(bucket)?;
        let key = match key {
            dir if dir.is_empty() || dir.ends_with('/') => format!("{dir}{}", source_file::name_of(file)?),
            key => key.to_owned(),
        };
        Ok(Self::Object { bucket, key })
    }
}

/// A bucket without a tag.
fn all(url: &str) -> Result<Bucket, Failure> {
    let bad = |fact| Failure::usage(format!("the address of a bucket: {fact}")).hint(words::FORMS);
    if url.contains('#') {
        return Err(bad("it names a tag, and all of the bucket is meant".to_owned()));
    }
    Bucket::parse(url, &variable).map_err(|why| bad(why.fact))
}

/// A bucket and a tag in it.
fn tagged(url: &str) -> Result<(Bucket, TagName), Failure> {
    let missing = || Failure::usage("the address of a bucket: it names no tag").hint(words::FORMS);
    let (url, tag) = url.split_once('#').ok_or_else(missing)?;
    Ok((all(url)?, name(tag)?))
}

fn name(tag: &str) -> Result<TagName, Failure> {
    tag.parse().map_err(|why| Failure::usage(format!("{tag:?}: {why}")).hint(words::FORMS))
}

/// Does something in a bucket, and waits for it.
fn wait<T>(bucket: Bucket, act: impl AsyncFnOnce(&Arc<Bucket>) -> Result<T, BucketError>) -> Result<T, Failure> {
    wait_at(bucket, act, words::failure)
}

/// Does something at a place, and waits for it.
fn wait_at<P, T>(
    place: P,
    act: impl AsyncFnOnce(&Arc<P>) -> Result<T, BucketError>,
    failed: fn(&P, BucketError) -> Failure,
) -> Result<T, Failure> {
    let system = |error| Failure::failed(format!("the threads of this program: {}", plain(&error)));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(system)?;
    let place = Arc::new(place);
    runtime.block_on(act(&place)).map_err(|error| failed(&place, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(url: &str) -> Result<(String, String), String> {
        match To::parse(url, Path::new("dir/v1.erofs")) {
            Ok(To::Object { bucket, key }) => Ok((bucket.address().to_owned(), key)),
            Ok(To::Tag { bucket, tag }) => Ok((bucket.address().to_owned(), format!("#{tag}"))),
            Ok(To::Artifact { push, name }) => Ok((push.address().to_owned(), name)),
            Err(failure) => Err(failure.fact().to_owned()),
        }
    }

    #[test]
    fn an_address_says_object_or_packs() {
        for (url, bucket, what) in [
            ("s3://images/a/v.img", "s3://images", "a/v.img"),
            ("s3://images/a/", "s3://images", "a/v1.erofs"),
            ("s3://images", "s3://images", "v1.erofs"),
            ("gs://images/a/v.img", "gs://images", "a/v.img"),
            ("oci:registry.example/a/b:1", "oci:registry.example/a/b:1", "v1.erofs"),
            ("s3://images#prod", "s3://images", "#prod"),
            ("s3://images/room/#prod", "s3://images/room", "#prod"),
        ] {
            assert_eq!(to(url), Ok((bucket.to_owned(), what.to_owned())), "{url}");
        }
        for url in [
            "",
            "images",
            "https://a/b",
            "oci:a/b",
            "oci:a/b@1",
            "s3://",
            "s3://a",
            "s3://images#",
            "s3://images#a b",
            "#a",
        ] {
            assert!(to(url).is_err(), "{url}");
        }
    }

    #[test]
    fn packs_are_named_by_tag_or_id() {
        let shown = |text: &str| packed(text).map(|packed| packed.map(|packed| format!("{packed:?}")));
        let id = "ab".repeat(32);
        for text in ["s3://images/room#prod".to_owned(), format!("s3://images#{id}")] {
            assert_eq!(shown(&text), Ok(Some(text.clone())));
        }
        for text in ["s3://images/room", "https://a/b#c", "./a#b"] {
            assert_eq!(shown(text), Ok(None), "{text}");
        }
        assert!(shown("s3://images#a b").is_err() && shown("s3://images/a#b#c").is_err());
    }
}

//! What the commands about buckets say.

use vfield_bucket::sweep::{Doomed, Swept};
use vfield_bucket::{BucketError, Contents, Published, Uploaded};
use vfield_console::failure::Failure;
use vfield_console::text::{aligned, clean};
use vfield_console::values::duration;
use vfield_console::values::size::human;
use vfield_core::tag::Tag;
use vfield_object::{Bucket, Push};

/// How a bucket is named.
pub const FORMS: &str = "give s3://BUCKET/NAME for an object, s3://BUCKET/PREFIX#TAG for packs and their tag, \
                         oci:HOST/REPOSITORY:TAG for a registry";

/// A plain object is there.
pub fn uploaded(uploaded: &Uploaded, url: &str) -> String {
    let id = uploaded.id.short();
    let how = if uploaded.was_there {
        "was there already".to_owned()
    } else {
        format!("is there; sent {}", human(uploaded.sent_bytes))
    };
    format!("{} (id {id}) {how}\nserve it: vfield serve {0}\n", clean(url))
}

/// A version is there.
pub fn published(published: &Published, url: &str) -> String {
    let Published {
        chunks,
        shared_chunks,
        new_chunks,
        new_bytes,
        packed_bytes,
        new_packs,
        sent_bytes,
        damaged,
        is_compared,
        ..
    } = published;
    let percent = *shared_chunks as f64 * 100.0 / (*chunks).max(1) as f64;
    let mut said = published.tag.as_ref().map_or_else(String::new, moved);
    said += &format!("in packs before: {shared_chunks} of {chunks} chunks with data, {percent:.0} %\n");
    let packs = if *new_packs == 1 { "pack" } else { "packs" };
    said += &format!(
        "new: {new_chunks} chunks, {}, {} compressed, in {new_packs} {packs}; sent {}\n",
        human(*new_bytes),
        human(*packed_bytes),
        human(*sent_bytes)
    );
    if !is_compared {
        said += "the store ignores conditions of writes: publish by one machine at a time\n";
    }
    if *damaged > 0 {
        said += &format!("{damaged} packs are damaged, and nothing counts on them from now on\n");
    }
    format!("{said}serve it: vfield serve {}\n", clean(url))
}

/// A tag has moved.
pub fn moved(tag: &Tag) -> String {
    let what = match tag.image {
        Some(image) => format!("names the image {}", image.short()),
        None => "names no image any more".to_owned(),
    };
    format!("tag {}: serial {} {what}\n", tag.name, tag.serial)
}

/// `vfield bucket ls`.
pub fn list(contents: &Contents) -> String {
    let Contents { tags, images, packs, stored_bytes } = contents;
    if images.is_empty() && tags.is_empty() {
        return "no images in packs\n".to_owned();
    }
    let mut rows = vec![["TAG", "SERIAL", "IMAGE", "KEPT BEFORE"].map(str::to_owned).to_vec()];
    for listed in tags {
        rows.push(match &listed.tag {
            Err(why) => vec![clean(&listed.name), String::new(), clean(why), String::new()],
            Ok(tag) => {
                let before = tag.before.iter().map(|version| format!("{} {}", version.serial, version.image.short()));
                let image = tag.image.map_or_else(|| "removed".to_owned(), |image| image.short());
                let before = before.collect::<Vec<_>>().join(", ");
                vec![clean(&listed.name), tag.serial.to_string(), image, before]
            }
        });
    }
    let mut said = if tags.is_empty() { String::new() } else { format!("{}\n", aligned(&rows, &[1])) };
    let mut rows = vec![["IMAGE", "LENGTH", "ITS PACKS", "TAGS"].map(str::to_owned).to_vec()];
    for image in images {
        let keeps = |listed: &&vfield_bucket::TagListed| listed.tag.as_ref().is_ok_and(|tag| tag.keeps(&image.id));
        let names = tags.iter().filter(keeps).map(|listed| clean(&listed.name)).collect::<Vec<_>>().join(", ");
        let (length, packs) = match &image.sizes {
            Ok((length, packs)) => (human(*length), human(*packs)),
            Err(why) => (clean(why), String::new()),
        };
        rows.push(vec![image.id.short(), length, packs, names]);
    }
    said += &aligned(&rows, &[1, 2]);
    format!("{said}\n{packs} packs; all objects together {}\n", human(*stored_bytes))
}

/// `vfield bucket gc`.
pub fn swept(swept: &Swept, dry_run: bool) -> String {
    let Swept { gone, doomed } = swept;
    if gone.is_empty() && doomed.is_empty() {
        return "no rubbish\n".to_owned();
    }
    let sum = |of: &[Doomed]| human(of.iter().map(|doomed| doomed.length_bytes).sum());
    let row = |doomed: &Doomed, fate: String| {
        // As many digits as people need.
        let name = doomed.name.rsplit_once('/').map_or_else(String::new, |(dir, name)| {
            let (digits, end) = name.split_at_checked(64).unwrap_or((name, ""));
            format!("{dir}/{}{end}", digits.get(..12).unwrap_or(digits))
        });
        vec![clean(&name), human(doomed.length_bytes), fate]
    };
    let fate = if dry_run { "goes now" } else { "gone" };
    let mut rows: Vec<Vec<String>> = gone.iter().map(|doomed| row(doomed, fate.to_owned())).collect();
    rows.extend(doomed.iter().map(|doomed| row(doomed, format!("in {}", duration::human(doomed.goes_in_s as f64)))));
    let verb = if dry_run { "would go now" } else { "gone" };
    format!("{}\n{} {verb}, {} later\n", aligned(&rows, &[1]), sum(gone), sum(doomed))
}

/// A failure of a registry or of the file, and what to do.
pub fn push_failure(push: &Push, error: BucketError) -> Failure {
    let words = error.to_string();
    let hint = match &error {
        BucketError::Store { .. } if words.contains("401") || words.contains("403") => {
            "`docker login` writes credentials; they need the right to push"
        }
        BucketError::Store { .. } => "nothing is half published; try again",
        _ => "the file must be readable and must not change while it is read",
    };
    Failure::failed(format!("{}: {words}", push.address())).hint(hint)
}

/// A failure, and what to do.
pub fn failure(bucket: &Bucket, error: BucketError) -> Failure {
    let words = error.to_string();
    let hint = match &error {
        BucketError::Store { .. } if words.contains("NoSuchBucket") => {
            "check the name of the bucket, and AWS_ENDPOINT_URL_S3"
        }
        BucketError::Store { .. } if words.contains("403") && !bucket.has_credentials() => {
            "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SHARED_CREDENTIALS_FILE"
        }
        BucketError::Store { .. } if words.contains("403") => {
            "the credentials found here need the rights to list, read and write below this prefix"
        }
        BucketError::Store { .. } => "nothing is half published; try again",
        BucketError::NoTag(_) | BucketError::NoImage(_) | BucketError::Undecided(..) => {
            "`vfield bucket ls` lists the tags and images"
        }
        BucketError::NoVersion(..) => "`vfield bucket ls` lists the versions; `vfield bucket set` names any image",
        BucketError::BadTag(..) => "another program wrote it: remove that object",
        BucketError::Moved(_) => "another publisher was faster; look with `vfield bucket ls`, then publish again",
        BucketError::Exists(_) => "an origin may serve it: choose another name, or remove it first",
        BucketError::Gone(_) => "somebody removes packs by hand; publish again",
        BucketError::Changed(_) | BucketError::File(_) => {
            "the file must be readable and must not change while it is read"
        }
        BucketError::TooLarge => "pack it with a larger --chunk-size",
        BucketError::Sweeping => "try again when `vfield bucket gc` is done; one that was cut off ends after an hour",
        BucketError::NotCompared => "use a store with conditional writes, or remove old prefixes as a whole",
        BucketError::Late => "publish again: what was sent is there",
        BucketError::Writers(_) => "try again when they are done; nothing was removed",
    };
    Failure::failed(format!("{}: {words}", bucket.address())).hint(hint)
}

//! Publishing: files and objects are hashed one after the other, on threads of their own, and
//! become images.

use super::StartError;
use crate::apart;
use crate::config::{NodeConfig, ServeConfig};
use crate::event::{Event, EventSink};
use crate::object_origin::publish;
use crate::origin::{Origin, Progress, PublishError};
use crate::source::Source;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use vfield_core::names::Names;
use vfield_core::wire::Proof;

/// Interval of progress reports of hashing.
const HASH_REPORTS: Duration = Duration::from_millis(200);

/// An image to serve; files with the same content are one image with several names.
pub(super) struct Published {
    pub names: Names,
    pub origin: Source,
    pub proofs: Vec<Proof>,
}

/// Hashes all files that are to be served; `percent` says how far that is.
pub(super) async fn publish(
    config: &NodeConfig,
    events: &EventSink,
    percent: &Arc<AtomicU32>,
) -> Result<Vec<Published>, StartError> {
    let mut origins: Vec<Published> = Vec::new();
    let files = config.serve.len() as u64;
    for (serve, hashed) in config.serve.iter().zip(0u64..) {
        let percent = Arc::clone(percent);
        let part = move |part: u64| {
            percent
                .store(((u128::from(hashed) * 100 + u128::from(part)) / u128::from(files)) as u32, Ordering::Relaxed);
        };
        let one = publish_one(serve.clone(), config.hash_threads, events, part).await?;
        let name = one.origin.name();
        if origins.iter().any(|other| other.names.contains(name) && other.origin.id() != one.origin.id()) {
            return Err(StartError::NameTaken(name.to_owned()));
        }
        match origins.iter_mut().find(|other| other.origin.id() == one.origin.id()) {
            Some(same) => {
                same.names = Names::of(same.names.iter().chain([name]))?;
                same.proofs.extend(one.proofs);
            }
            None => origins.push(one),
        }
    }
    Ok(origins)
}

/// Publishes one file or object; tells `percent` how far its hashing is.
pub(super) async fn publish_one(
    serve: ServeConfig,
    threads: usize,
    events: &EventSink,
    percent: impl Fn(u64) + Send + Sync + 'static,
) -> Result<Published, StartError> {
    let threads = NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN);
    let proofs = serve.proof.iter().cloned().collect();
    let image = serve.image_name();
    let reports = Reports { events: Arc::clone(events), image, last: Mutex::new(Instant::now()), percent };
    let origin = match serve.object.clone() {
        Some(object) => {
            let failed = |error: PublishError| StartError::PublishObject { why: error.to_string() };
            publish_object(&object, reports).await.map_err(failed)?
        }
        None => {
            let published = apart::run(move || publish_file(&serve, threads, &reports)).await;
            let failed = |error: PublishError| StartError::Publish { why: error.to_string() };
            Source::File(Box::new(published.map_err(failed)?))
        }
    };
    Ok(Published { names: Names::of([origin.name()])?, proofs, origin })
}

/// Hashes one file, unless its hashes are kept. Blocks.
fn publish_file(
    serve: &ServeConfig,
    threads: NonZeroUsize,
    reports: &Reports<impl Fn(u64) + Send + Sync>,
) -> Result<Origin, PublishError> {
    let (name, progress) = (serve.name.as_deref(), |progress| reports.progress(progress));
    let chunk_size = serve.chunk_size.of(&serve.path);
    let origin = match (&serve.file, &serve.kept) {
        (None, None) => Origin::publish(&serve.path, name, chunk_size, threads, &progress),
        (None, Some(kept)) => Origin::publish_kept(&serve.path, name, chunk_size, threads, kept, &progress),
        (Some(file), kept) => {
            let (file, kept) = (Arc::clone(file), kept.as_deref());
            Origin::publish_open(file, &serve.path, name, chunk_size, threads, kept, &progress)
        }
    }?;
    let tree = origin.kept_tree().map(|tree| tree.display().to_string());
    reports.published(&origin.id().to_string(), origin.header().length_bytes(), tree);
    if let Some(Err(why)) = serve.kept.as_ref().map(|kept| kept.keep(&origin)) {
        reports.remark(why);
    }
    origin.remark().into_iter().for_each(|remark| reports.remark(remark));
    Ok(origin)
}

/// Opens one object, and hashes it unless its hashes are beside it.
async fn publish_object(
    serve: &publish::ServeObject,
    reports: Reports<impl Fn(u64) + Send + Sync>,
) -> Result<Source, PublishError> {
    let (progress, remark) = (|progress| reports.progress(progress), |remark| reports.remark(remark));
    let published = publish::publish(serve, reports.image.clone(), &progress, &remark).await?;
    let publish::PublishedObject { origin, tree } = published;
    reports.published(&origin.id().to_string(), origin.tree().geometry().header().length_bytes(), tree);
    Ok(Source::Object(origin))
}

/// Tells how far one image is.
struct Reports<P> {
    events: EventSink,
    image: String,
    last: Mutex<Instant>,
    percent: P,
}

impl<P: Fn(u64)> Reports<P> {
    fn progress(&self, progress: Progress) {
        let part = u128::from(progress.position_bytes) * 100 / u128::from(progress.length_bytes.max(1));
        (self.percent)(part as u64);
        // A locked report means that another thread reports at this moment.
        let Ok(mut last) = self.last.try_lock() else { return };
        if last.elapsed() < HASH_REPORTS {
            return;
        }
        *last = Instant::now();
        let (done_bytes, total_bytes) = (progress.position_bytes, progress.length_bytes);
        (self.events)(Event::Hashing { image: self.image.clone(), done_bytes, total_bytes });
    }

    fn remark(&self, remark: String) {
        (self.events)(Event::Warning(remark));
    }

    fn published(&self, id: &str, size_bytes: u64, tree: Option<String>) {
        let image = || self.image.clone();
        (self.events)(Event::Hashing { image: image(), done_bytes: size_bytes, total_bytes: size_bytes });
        tree.into_iter().for_each(|tree| (self.events)(Event::KeptTree { image: image(), tree }));
        (self.events)(Event::Published { image: image(), id: id.to_owned(), size_bytes });
    }
}

//! Publishing: files are hashed one after the other, on threads of their own, and become images.

use super::StartError;
use crate::config::{NodeConfig, ServeConfig};
use crate::event::{Event, EventSink};
use crate::origin::{Origin, Progress, PublishError};
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
    pub origin: Origin,
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

/// Hashes one file; tells `percent` how far that is.
pub(super) async fn publish_one(
    serve: ServeConfig,
    threads: usize,
    events: &EventSink,
    percent: impl Fn(u64) + Send + Sync + 'static,
) -> Result<Published, StartError> {
    let (events, threads) = (Arc::clone(events), NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN));
    let (path, proofs) = (serve.path.clone(), serve.proof.iter().cloned().collect());
    let hashing = tokio::task::spawn_blocking(move || {
        let file_name = || serve.path.file_name().map(|name| name.to_string_lossy().into_owned());
        let image = serve.name.clone().or_else(file_name).unwrap_or_default();
        let reported = Mutex::new(Instant::now());
        let progress = |progress: Progress| {
            let part = u128::from(progress.position_bytes) * 100 / u128::from(progress.length_bytes.max(1));
            percent(part as u64);
            // A locked report means that another thread reports at this moment.
            let Ok(mut last) = reported.try_lock() else { return };
            if last.elapsed() < HASH_REPORTS {
                return;
            }
            *last = Instant::now();
            let (done_bytes, total_bytes) = (progress.position_bytes, progress.length_bytes);
            events(Event::Hashing { image: image.clone(), done_bytes, total_bytes });
        };
        let name = serve.name.as_deref();
        let origin = match (&serve.file, &serve.kept) {
            (None, None) => Origin::publish(&serve.path, name, serve.chunk_size, threads, &progress),
            (None, Some(kept)) => Origin::publish_kept(&serve.path, name, serve.chunk_size, threads, kept, &progress),
            (Some(file), _) => {
                Origin::publish_open(Arc::clone(file), &serve.path, name, serve.chunk_size, threads, &progress)
            }
        }?;
        let (id, size_bytes) = (origin.id().to_string(), origin.header().length_bytes());
        events(Event::Hashing { image: image.clone(), done_bytes: size_bytes, total_bytes: size_bytes });
        if let Some(tree) = origin.kept_tree() {
            events(Event::KeptTree { image: image.clone(), tree: tree.display().to_string() });
        }
        events(Event::Published { image, id, size_bytes });
        if let Some(Err(why)) = serve.kept.map(|kept| kept.keep(&origin)) {
            events(Event::Warning(why));
        }
        Ok(origin)
    });
    let published = hashing.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
    let origin = published.map_err(|error: PublishError| StartError::Publish { path, why: error.to_string() })?;
    Ok(Published { names: Names::of([origin.name()])?, proofs, origin })
}

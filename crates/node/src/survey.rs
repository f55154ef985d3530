//! The survey of the chunks that are here before any peer is asked: an earlier process's store for
//! an image, and what other versions of the image have. It verifies all of them in the background,
//! and reports the right ones to the core.
//!
//! No task waits for it. A task that wants an unchecked chunk has that one checked at once
//! ([`look`]), and no request for it goes to a peer. Only if its disk does not deliver it in time,
//! others are asked. Chunks whose hash page is missing are checked again when a page has come. They
//! are dropped when the store is full.

use crate::apart;
use crate::driver::Driver;
use crate::event::Event;
use crate::image::LocalImage;
use crate::source::PATIENCE;
use crate::store::found::{Adopted, Place};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use vfield_core::chunk::Chunk;
use vfield_core::image::ImageId;
use vfield_core::node::Input;
use vfield_core::wire::Priority;

/// Bytes verified in one go, 3 ms of work: a node that ends waits no longer. A disk that takes
/// [`crate::disk_reads::STILL`] for them stands still.
const PART_BYTES: u64 = 4 << 20;

/// How long a chunk is awaited at which another version's survey is. One in memory is checked
/// within this time, on a busy machine too. One on a disk may take for ever.
const LENDER_WITHIN: Duration = Duration::from_millis(20);

/// Checks found `chunks` of an image, and reports the right ones to the core. Those that a disk has
/// to read are waited for as long as a reader waits for a disk ([`PATIENCE`]). Those that are
/// checked later are reported then.
pub async fn look(driver: &Arc<Driver>, image: &Arc<LocalImage>, chunks: Range<u64>) {
    let Some(reads) = image.store().awaited(chunks.clone()) else {
        look_in_memory(driver, image, chunks);
        return;
    };
    if reads.is_jammed() {
        return;
    }
    let (driver, image) = (Arc::clone(driver), Arc::clone(image));
    let looking = reads.run(Priority::Demand, move || ((), look_on_disk(&driver, &image, chunks)));
    let _ = timeout(PATIENCE, looking).await;
}

/// The same of those that no disk has to read.
pub fn look_in_memory(driver: &Arc<Driver>, image: &LocalImage, chunks: Range<u64>) {
    check(driver, image, chunks, Place::Memory, tell(driver));
}

/// The same on a thread that may wait for a disk. True if something was read.
fn look_on_disk(driver: &Arc<Driver>, image: &LocalImage, chunks: Range<u64>) -> bool {
    check(driver, image, chunks, Place::Disk, tell(driver))
}

fn tell(driver: &Arc<Driver>) -> impl FnMut(ImageId, Adopted) {
    |image, Adopted { chunks, zeros, .. }| driver.apply(Input::Found { image, chunks, zeros })
}

/// Checks found `chunks` of an image on the calling thread, and tells which are right: first of
/// its lenders, since an earlier process may have left their chunks as well. True if something was
/// read.
pub fn check(
    driver: &Driver,
    image: &LocalImage,
    chunks: Range<u64>,
    from: Place,
    mut tell: impl FnMut(ImageId, Adopted),
) -> bool {
    let (store, mut delivered) = (image.store(), false);
    if store.found() == 0 && !store.has_lenders() {
        return false;
    }
    let mut check = |image: &LocalImage| {
        let mut adopted = Adopted::default();
        chunks.clone().for_each(|number| image.store().adopt(Chunk(number), from, &mut adopted));
        let postponed = adopted.postponed;
        delivered |= adopted.delivered;
        if !adopted.chunks.is_empty() {
            tell(image.id(), adopted);
        }
        postponed
    };
    for lender in store.lenders().into_iter().filter_map(|id| driver.image(id)) {
        if chunks.clone().any(|number| lender.store().is_found(Chunk(number))) {
            check(&lender);
        }
    }
    // The survey of the lender may be at the same chunk. That takes it a moment, and a chunk that
    // is not awaited here is fetched.
    let since = Instant::now();
    while check(image) && since.elapsed() < LENDER_WITHIN {
        std::thread::yield_now();
    }
    delivered
}

/// Looks at everything that was found, `runs` of chunks, beginning where the fill did. What of it
/// an earlier process `left` is told of.
pub async fn run(driver: Arc<Driver>, image: Arc<LocalImage>, runs: Vec<Range<u64>>, from: u64, left: bool) {
    let most = (PART_BYTES / image.geometry().chunk_bytes()).max(1);
    let parts = in_order(&runs, image.geometry().data_chunks(), from, most);
    pass(&driver, &image, &parts).await;
    driver.apply(Input::Surveyed(image.id()));
    let store = image.store();
    if left {
        let (adopted_bytes, spoiled) = (store.adopted_bytes(), store.spoiled());
        driver.event(Event::TakenOver { image: image.name().to_owned(), adopted_bytes, spoiled });
    }
    look_on(&driver, &image, &runs, &parts).await;
    if store.has_lenders() && store.lent_bytes() > 0 {
        driver.event(Event::Shared { image: image.name().to_owned(), shared_bytes: store.lent_bytes() });
    }
}

/// Looks at chunks again whose page was missing, until all are known or the store is full.
async fn look_on(driver: &Arc<Driver>, image: &Arc<LocalImage>, runs: &[Range<u64>], parts: &[Range<u64>]) {
    let (store, mut changes) = (image.store(), driver.changes());
    while store.found() > 0 {
        let filled = driver.look(|core| core.images().iter().any(|view| view.id == image.id() && view.filled));
        if filled {
            runs.iter().cloned().for_each(|run| store.drop_found(run));
            return;
        }
        tokio::select! {
            () = image.page_came() => pass(driver, image, parts).await,
            changed = changes.changed() => if changed.is_err() { return },
        }
    }
}

async fn pass(driver: &Arc<Driver>, image: &Arc<LocalImage>, parts: &[Range<u64>]) {
    for part in parts {
        if !part.clone().any(|number| image.store().is_found(Chunk(number))) {
            continue;
        }
        let reads = image.store().awaited(part.clone());
        let (driver, image, part) = (Arc::clone(driver), Arc::clone(image), part.clone());
        let look = move || ((), look_on_disk(&driver, &image, part));
        match reads {
            Some(reads) => reads.run(Priority::Fill, look).await,
            None => drop(apart::run(look).await),
        }
    }
}

/// The runs in parts of at most `most` chunks: hash pages, then data from `from` on and around.
fn in_order(runs: &[Range<u64>], data_chunks: u64, from: u64, most: u64) -> Vec<Range<u64>> {
    let from = from.min(data_chunks);
    let mut parts = Vec::new();
    for within in [data_chunks..u64::MAX, from..data_chunks, 0..from] {
        for run in runs {
            let (mut start, end) = (run.start.max(within.start), run.end.min(within.end));
            while start < end {
                parts.push(start..end.min(start + most));
                start += most;
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_first_and_data_from_where_the_fill_began() {
        let runs = [2..5, 90..700, 702..703];
        let parts = [600..700, 702..703, 100..356, 356..600, 2..5, 90..100];
        assert_eq!(in_order(&runs, 600, 100, 256), parts);
        assert_eq!(in_order(&runs[..1], 5, 900, 256), runs[..1]);
        assert!(in_order(&[], 5, 0, 256).is_empty());
    }
}

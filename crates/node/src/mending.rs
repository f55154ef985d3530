//! What happens to a store on a disk, or to compressed chunks: the core hears of it, and people do
//! once.
//!
//! A chunk that came back otherwise is fetched again. While the disk does not deliver one, it is
//! withheld. If there is no room for more, the store stays as large as it is, and readers go on
//! with chunks that pass through. Once there is room again, it grows: a disk was cleared up, or
//! another version has gone.

use crate::apart;
use crate::driver::Driver;
use crate::image::LocalImage;
use crate::store::on_disk::Trouble;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vfield_core::chunk::Chunk;
use vfield_core::doubling::Doubling;
use vfield_core::node::Input;

/// The pauses before a full store looks for room. Its peers hear of each change of its arc, so a
/// store that was full before waits longer.
const LOOKS: Doubling = Doubling { first: Duration::from_secs(10), longest: Duration::from_secs(600) };

/// How often it is looked whether a disk delivers again. Nobody waits for that: a chunk whose own
/// read has ended is released at once.
const LOOKS_AT_DISK: Duration = Duration::from_secs(1);

/// How long nothing more is said of a disk that was late: one may be late every minute.
const LATE_AGAIN: Duration = Duration::from_secs(3600);

/// Tells the core of each trouble of an image's store, for as long as the image is here.
pub async fn watch(driver: Arc<Driver>, image: Arc<LocalImage>, disk: Option<PathBuf>) {
    let id = image.id();
    let place = disk.map_or_else(|| "memory".to_owned(), |dir| format!("the disk of {}", dir.display()));
    let (mut told_of_wrong, mut told_of_late) = (false, None::<Instant>);
    let (mut is_full, mut times_full) = (false, 0);
    loop {
        let Trouble { spoiled, turned, refused } = tokio::select! {
            trouble = image.store().trouble() => trouble,
            () = tokio::time::sleep(LOOKS_AT_DISK), if image.store().withheld_chunks() > 0 => {
                image.store().release();
                continue;
            }
            () = room(&driver, &image, LOOKS.pause(times_full)), if is_full => {
                is_full = false;
                times_full += 1;
                driver.apply(Input::Roomy(id));
                continue;
            }
        };
        if !spoiled.is_empty() {
            image.set_complete(false);
            driver.apply(Input::Spoiled { image: id, chunks: spoiled });
            if !std::mem::replace(&mut told_of_wrong, true) {
                let name = image.name();
                driver.warn(format!("{name}: {place} gave back other bytes, which are fetched again"));
            }
        }
        let (withheld, released): (Vec<Chunk>, _) =
            turned.into_iter().partition(|chunk| image.store().is_withheld(*chunk));
        if !released.is_empty() {
            driver.apply(Input::Released { image: id, chunks: released });
        }
        if !withheld.is_empty() {
            driver.apply(Input::Withheld { image: id, chunks: withheld });
            if told_of_late.is_none_or(|told| told.elapsed() >= LATE_AGAIN) {
                told_of_late = Some(Instant::now());
                let name = image.name();
                driver.warn(format!("{name}: {place} does not deliver in time; other nodes are asked meanwhile"));
            }
        }
        if let Some(why) = refused {
            driver.apply(Input::Full(id));
            if !std::mem::replace(&mut is_full, true) && times_full == 0 {
                let name = image.name();
                driver.warn(format!("{name}: {place} takes no more chunks ({why}); reads go on without them"));
            }
        }
    }
}

/// Waits until a full store may grow again, and looks after each pause.
async fn room(driver: &Driver, image: &LocalImage, pause: Duration) {
    loop {
        tokio::time::sleep(pause).await;
        let store = Arc::clone(image.store());
        // A file server that is gone does not say how much room it has.
        if apart::run(move || store.may_grow()).await && driver.look(|core| core.may_grow(image.id())) {
            return;
        }
    }
}

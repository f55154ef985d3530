//! Reports that the file behind an image differs from the published one: on its origin, and on
//! nodes that ask there.
//!
//! Each node reports each image once in the log, and in `status` from then on. This module decides
//! nothing: [`crate::origin`] decides what may be sent, and the core what a reader gets.

use crate::driver::Driver;
use crate::image::LocalImage;
use crate::object_origin::{Condition, ObjectOrigin};
use crate::origin::{Origin, OriginState};
use crate::source::Source;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use vfield_core::image::ImageId;

/// Interval of looks at a file, with an `fstat` and a `stat`; soon enough for a person.
const LOOK: Duration = Duration::from_secs(1);

/// Trouble of a store that lasts longer is worth a warning.
const TROUBLE: Duration = Duration::from_secs(3);

/// Watches the source of an image that this node serves.
pub async fn watch(driver: Arc<Driver>, image: Arc<LocalImage>) {
    match image.source() {
        None => {}
        Some(Source::File(origin)) => {
            tokio::join!(look(&image), watch_disk(&driver, origin), watch_file(&driver, &image, origin));
        }
        Some(Source::Object(object)) => watch_object(&driver, &image, object).await,
    }
}

/// Warns of each trouble of a store that lasts, once of a change of the object; never returns.
async fn watch_object(driver: &Driver, image: &LocalImage, object: &ObjectOrigin) {
    let address = object.path().display();
    let mut condition = object.condition();
    let mut told = false;
    loop {
        let now = condition.borrow_and_update().clone();
        if let Some(how) = &now.changed
            && image.tell_of_change()
        {
            driver.warn(format!(
                "{address} is another object now: {how}; each chunk is compared with image {} before it is sent, and \
                 what is another now only nodes that hold it can deliver; serve it again to share what it has now",
                image.name()
            ));
        }
        if now.trouble.is_none() && told {
            told = false;
            tracing::info!("{address} delivers again");
        }
        let is_new =
            |known: &Condition| known.trouble.is_some() != now.trouble.is_some() || known.changed != now.changed;
        // The object lives as long as this task, and so does its sender.
        if now.trouble.is_none() || told {
            drop(condition.wait_for(is_new).await);
        } else if tokio::time::timeout(TROUBLE, condition.wait_for(is_new)).await.is_err() {
            let why = condition.borrow().trouble.clone().unwrap_or_default();
            warn_of_trouble(driver, object.path(), &why);
            told = true;
        }
    }
}

fn warn_of_trouble(driver: &Driver, source: &Path, why: &str) {
    driver.warn(format!("{} does not deliver: {why}; reads go on from stores, or wait", source.display()));
}

/// Looks at the file behind an image again and again; never returns. A look may wait for another
/// machine, so it is on a thread of its own.
async fn look(image: &Arc<LocalImage>) {
    loop {
        let image = Arc::clone(image);
        let look = move || {
            if let Some(Source::File(origin)) = image.source() {
                origin.look();
            }
        };
        drop(tokio::task::spawn_blocking(look).await);
        tokio::time::sleep(LOOK).await;
    }
}

/// Warns each time that the disk under a file stands still; never returns.
async fn watch_disk(driver: &Driver, origin: &Origin) {
    let mut told = false;
    loop {
        let still = origin.still();
        match &still {
            Some(why) if !told => warn_of_trouble(driver, origin.path(), why),
            None if told => tracing::info!("{} delivers again", origin.path().display()),
            _ => {}
        }
        told = still.is_some();
        tokio::time::sleep(LOOK).await;
    }
}

/// Watches a file until it has changed.
async fn watch_file(driver: &Driver, image: &LocalImage, origin: &Origin) {
    while !origin.is_compared() && origin.guard().is_leased() {
        if let (OriginState::Changed { .. }, Some(tree)) = (origin.state(), origin.kept_tree()) {
            image.tell_of_change();
            driver.warn(format!(
                "{} differs from its kept hashes in {}: what differs only nodes that hold it can deliver; serve the \
                 file again to share what it has now",
                origin.path().display(),
                tree.display()
            ));
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
    // Without a lease there is nobody to wait for: the value is true from the start.
    if origin.guard().broken().wait_for(|broken| *broken).await.is_err() {
        return;
    }
    tracing::info!("{}: no read lease on this file; each chunk is verified", origin.path().display());
    loop {
        let changed = matches!(origin.state(), OriginState::Changed { .. });
        if (changed || origin.is_written()) && image.tell_of_change() {
            driver.warn(format!(
                "{} was written to: each chunk is compared with image {} before it is sent, and what is another \
                 now only nodes that hold it can deliver; serve the file again to share what it has now",
                origin.path().display(),
                image.name()
            ));
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Reports that an origin, or a node that asked there, has refused a chunk because the file has
/// changed.
pub fn refused(driver: &Arc<Driver>, id: ImageId, addr: SocketAddr) {
    let Some(image) = driver.image(id).filter(|image| image.tell_of_change()) else { return };
    driver.warn(format!(
        "image {}: {addr} says that the file at its origin was written to: what is another there now only nodes that \
         hold it can deliver, and reads of it fail where there is none",
        image.name()
    ));
}

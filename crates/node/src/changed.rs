//! Reports that the file behind an image differs from the published one: on its origin, and on
//! nodes that ask there.
//!
//! Each node reports each image once in the log, and in `status` from then on. This module decides
//! nothing: [`crate::origin`] decides what may be sent, and the core what a reader gets.

use crate::driver::Driver;
use crate::image::LocalImage;
use crate::origin::OriginState;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use vfield_core::image::ImageId;

/// Interval at which a file without a lease is checked, with an `fstat`; soon enough for a person.
const LOOK: Duration = Duration::from_secs(1);

/// Watches the file of an image that this node serves, until it has changed.
pub async fn watch(driver: Arc<Driver>, image: Arc<LocalImage>) {
    let Some(origin) = image.source() else { return };
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

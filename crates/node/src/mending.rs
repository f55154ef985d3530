//! What happens to a store on a disk: the core hears of it, and people do once.
//!
//! A chunk that the disk gave back otherwise is fetched again. If the disk takes no more, the store
//! stays as large as it is, and readers go on with chunks that pass through.

use crate::driver::Driver;
use crate::image::LocalImage;
use crate::store::on_disk::Trouble;
use std::path::PathBuf;
use std::sync::Arc;
use vfield_core::node::Input;

/// Tells the core of each trouble of an image's store, for as long as the image is here.
pub async fn watch(driver: Arc<Driver>, image: Arc<LocalImage>, dir: PathBuf) {
    let (id, dir) = (image.id(), dir.display().to_string());
    let (mut told_of_wrong, mut told_of_full) = (false, false);
    loop {
        let Trouble { spoiled, refused } = image.store().trouble().await;
        if !spoiled.is_empty() {
            image.set_complete(false);
            driver.apply(Input::Spoiled { image: id, chunks: spoiled });
            if !std::mem::replace(&mut told_of_wrong, true) {
                let name = image.name();
                driver.warn(format!("{name}: the disk of {dir} gave back other bytes, which are fetched again"));
            }
        }
        if let Some(why) = refused {
            driver.apply(Input::Full(id));
            if !std::mem::replace(&mut told_of_full, true) {
                let name = image.name();
                driver.warn(format!("{name}: {dir} takes no more chunks ({why}); reads go on without them"));
            }
        }
    }
}

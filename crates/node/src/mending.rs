//! What happens to a store on a disk, or to compressed chunks: the core hears of it, and people do
//! once.
//!
//! A chunk that came back otherwise is fetched again. If there is no room for more, the store stays
//! as large as it is, and readers go on with chunks that pass through.

use crate::driver::Driver;
use crate::image::LocalImage;
use crate::store::on_disk::Trouble;
use std::path::PathBuf;
use std::sync::Arc;
use vfield_core::node::Input;

/// Tells the core of each trouble of an image's store, for as long as the image is here.
pub async fn watch(driver: Arc<Driver>, image: Arc<LocalImage>, disk: Option<PathBuf>) {
    let id = image.id();
    let place = disk.map_or_else(|| "memory".to_owned(), |dir| format!("the disk of {}", dir.display()));
    let (mut told_of_wrong, mut told_of_full) = (false, false);
    loop {
        let Trouble { spoiled, refused } = image.store().trouble().await;
        if !spoiled.is_empty() {
            image.set_complete(false);
            driver.apply(Input::Spoiled { image: id, chunks: spoiled });
            if !std::mem::replace(&mut told_of_wrong, true) {
                let name = image.name();
                driver.warn(format!("{name}: {place} gave back other bytes, which are fetched again"));
            }
        }
        if let Some(why) = refused {
            driver.apply(Input::Full(id));
            if !std::mem::replace(&mut told_of_full, true) {
                let name = image.name();
                driver.warn(format!("{name}: {place} takes no more chunks ({why}); reads go on without them"));
            }
        }
    }
}

//! What machines read first of this daemon's images, kept over a restart: the next morning's boots
//! are led too if all machines were switched off, the origin's among them.
//!
//! A small file for each image in the place for lasting state of a service manager. It is a hint,
//! as what members say is, so a damaged file is none.

use crate::lasting;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use vfield_console::failure::plain;
use vfield_core::image::ImageId;
use vfield_core::prefetch::BYTES_MAX;
use vfield_node::{Node, apart};

/// The beginning of a file's name.
const NAME: &str = "learned-";
/// How often it is looked whether more was learned: a boot takes a minute, and a lost one
/// comes again.
const EVERY: Duration = Duration::from_secs(30);
/// Most files: as many images as a daemon knows tags of, times two versions, and few megabytes.
const FILES_MAX: usize = 128;

/// Gives the node what an earlier process of it has learned, and keeps what it learns, while it is
/// polled.
pub async fn keep(node: Arc<Node>) {
    let (dir, mut kept, mut has_warned) = (lasting::usual_dir(), BTreeMap::new(), false);
    loop {
        let images = node.images();
        kept.retain(|id, _| images.iter().any(|image| image.id == *id));
        for id in images.into_iter().map(|image| image.id) {
            let (is_new, place) = (!kept.contains_key(&id), dir.clone());
            if is_new {
                let list = apart::run(move || read(&place, &id)).await;
                list.into_iter().for_each(|list| node.remember(id, list));
            }
            let now = node.learned_extent(id);
            let before = kept.insert(id, now);
            if is_new || before == Some(now) {
                continue;
            }
            let (_, list) = node.learned(id);
            if list.is_empty() {
                continue;
            }
            let place = dir.clone();
            if let Err(error) = apart::run(move || write(&place, &id, &list.encode())).await
                && !std::mem::replace(&mut has_warned, true)
            {
                tracing::warn!("what machines read first cannot be kept in {}: {}", dir.display(), plain(&error));
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

fn read(dir: &Path, id: &ImageId) -> Option<Vec<u8>> {
    lasting::read(dir, &format!("{NAME}{id}"), BYTES_MAX as u64)
}

fn write(dir: &Path, id: &ImageId, list: &[u8]) -> std::io::Result<()> {
    lasting::replace(dir, &format!("{NAME}{id}"), list)?;
    forget_oldest(dir, FILES_MAX);
    Ok(())
}

/// Removes the files that were written first, until no more than so many are there.
fn forget_oldest(dir: &Path, most: usize) {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(NAME.as_bytes()));
    let age =
        |entry: &fs::DirEntry| entry.metadata().and_then(|file| file.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let mut files: Vec<_> = ours.map(|entry| (age(&entry), entry.path())).collect();
    files.sort();
    for (_, path) in &files[..files.len().saturating_sub(most)] {
        // A file that cannot be removed is tried again when the next one is written.
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> ImageId {
        ImageId([number; 32])
    }

    #[test]
    fn a_list_comes_back_and_rubbish_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("state");
        assert_eq!(read(&place, &id(1)), None);
        write(&place, &id(1), b"one").unwrap();
        write(&place, &id(1), b"two").unwrap();
        assert_eq!((read(&place, &id(1)), read(&place, &id(2))), (Some(b"two".to_vec()), None));
        fs::write(place.join(format!("{NAME}{}", id(3))), vec![0; BYTES_MAX + 1]).unwrap();
        fs::create_dir(place.join(format!("{NAME}{}", id(4)))).unwrap();
        assert_eq!((read(&place, &id(3)), read(&place, &id(4))), (None, None));
    }

    #[test]
    fn the_files_are_bounded_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("tag-0-a.json"), "{}").unwrap();
        for number in 1..=5 {
            write(dir.path(), &id(number), b"list").unwrap();
            let past = SystemTime::UNIX_EPOCH + Duration::from_secs(number.into());
            let file = fs::File::options().write(true).open(dir.path().join(format!("{NAME}{}", id(number)))).unwrap();
            file.set_modified(past).unwrap();
        }
        forget_oldest(dir.path(), 2);
        let left: Vec<u8> = (1..=5).filter(|number| read(dir.path(), &id(*number)).is_some()).collect();
        assert_eq!((left, dir.path().join("tag-0-a.json").exists()), (vec![4, 5], true));
    }
}

//! Which image was read under which name, and when it was signed: so that nobody can hand out an
//! old image again.
//!
//! A small file of this machine, replaced as a whole. A machine without a disk of its own remembers
//! nothing across a start, and is protected only while it runs.

use crate::lasting::{replace, usual_dir};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use vfield_console::failure::{Failure, plain};
use vfield_node::apart;
use vfield_node::status::{ImageStatus, SignatureStatus};

/// Name of the file in [`usual_dir`].
const FILE: &str = "signed.json";
/// A longer file is something else: an entry takes about 200 bytes.
const LENGTH_MAX: u64 = 1 << 20;

/// One image that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    id: String,
    key: String,
    timestamp: u64,
}

/// The entries by image name.
type Entries = BTreeMap<String, Entry>;

/// Refuses images of which a later one was read here before, unless `allowed`; remembers all
/// others.
pub async fn check(images: Vec<ImageStatus>, allowed: bool) -> Result<(), Failure> {
    apart::run(move || check_in(&usual_dir(), &images, allowed)).await
}

fn check_in<'a>(dir: &Path, images: &'a [ImageStatus], allowed: bool) -> Result<(), Failure> {
    let signed: Vec<_> = images.iter().filter_map(|image| Some((image, image.signed.as_ref()?))).collect();
    if signed.is_empty() {
        return Ok(());
    }
    let path = dir.join(FILE);
    let before = read(&path)?;
    let mut entries = before.clone();
    let names =
        |image: &'a ImageStatus| if image.names.is_empty() { vec![&image.name] } else { image.names.iter().collect() };
    let named =
        signed.into_iter().flat_map(|(image, signed)| names(image).into_iter().map(move |name| (name, image, signed)));
    for (name, image, SignatureStatus { key, timestamp }) in named {
        if let Some(last) = entries.get(name).filter(|last| *timestamp < last.timestamp && !allowed) {
            let fact = format!(
                "image {:?} is refused: it was signed at {timestamp}, and one of {} was read here before",
                name, last.timestamp
            );
            return Err(Failure::failed(fact).hint("to accept the older image: --allow-rollback"));
        }
        let entry = Entry { id: image.id.clone(), key: key.clone(), timestamp: *timestamp };
        entries.insert(name.clone(), entry);
    }
    if entries == before {
        return Ok(());
    }
    write(dir, &entries).map_err(|error| {
        refuse(&path, &plain(&error)).hint("this file is needed to tell an older image from a newer one")
    })
}

fn read(path: &Path) -> Result<Entries, Failure> {
    let hint = "remove it to start afresh; rollbacks of images seen before then go unnoticed";
    let text = match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Entries::new()),
        Ok(metadata) if metadata.len() > LENGTH_MAX => return Err(refuse(path, "far too long").hint(hint)),
        _ => std::fs::read(path).map_err(|error| refuse(path, &plain(&error)).hint(hint))?,
    };
    serde_json::from_slice(&text).map_err(|_| refuse(path, "damaged").hint(hint))
}

fn write(dir: &Path, entries: &Entries) -> std::io::Result<()> {
    replace(dir, FILE, &serde_json::to_vec_pretty(entries)?)
}

fn refuse(path: &Path, why: &str) -> Failure {
    Failure::failed(format!("signatures seen before, {}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(name: &str, timestamp: u64) -> ImageStatus {
        let signed = Some(SignatureStatus { key: "RW".to_owned(), timestamp });
        ImageStatus { name: name.to_owned(), id: format!("{timestamp:064x}"), signed, ..ImageStatus::default() }
    }

    #[test]
    fn a_name_does_not_go_back_unless_asked() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("state");
        let check = |images: &[ImageStatus], allowed| check_in(&place, images, allowed);
        check(&[image("a", 5), image("b", 9)], false).unwrap();
        check(&[image("a", 5)], false).unwrap();
        check(&[image("a", 7)], false).unwrap();
        let failure = check(&[image("a", 6)], false).unwrap_err();
        assert_eq!(failure.fact(), "image \"a\" is refused: it was signed at 6, and one of 7 was read here before");
        check(&[image("b", 9), image("c", 1)], false).unwrap();
        check(&[image("a", 6)], true).unwrap();
        check(&[image("a", 6)], false).unwrap();
    }

    #[test]
    fn who_trusts_nobody_leaves_no_traces_and_damage_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let unsigned = ImageStatus { signed: None, ..image("a", 1) };
        check_in(&dir.path().join("state"), &[unsigned], false).unwrap();
        assert!(!dir.path().join("state").exists());
        std::fs::write(dir.path().join(FILE), "{").unwrap();
        let failure = check_in(dir.path(), &[image("a", 1)], false).unwrap_err();
        assert!(failure.fact().ends_with("signed.json: damaged"), "{failure}");
    }
}

//! Tags of a daemon: requests about them, and those that this machine knew. They are kept over a
//! restart, so no serial is taken up that is lower than a known one. So is the version to which
//! each of them led.
//!
//! A small file for each tag in the place for lasting state, replaced as a whole: several daemons
//! of a machine may share the place. Each tag is verified again when it is read. A machine without
//! a disk of its own learns its tags from other members.

use crate::lasting::{self, has_place};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use vfield_console::failure::plain;
use vfield_control::message::Reply;
use vfield_control::selection;
use vfield_core::hash_tree::Shared;
use vfield_core::tag::{Tag, TagName, Version};
use vfield_core::tags::{Known, Refused, SignedTag, TAGS_MAX};
use vfield_node::{Node, apart};
use vfield_trust::signature::{digest, read_short};

/// The beginning and the end of a file's name.
const NAME: (&str, &str) = ("tag-", ".json");
/// How often a tag that could not be kept is tried again. Soon after a person has made room, and
/// rare enough for a disk that stays full.
const AGAIN: Duration = Duration::from_secs(5);

/// True if this daemon keeps tags: it follows some, or its service manager has a place for it.
pub fn are_kept(follow: &[TagName]) -> bool {
    !follow.is_empty() || has_place()
}

/// The tags of an earlier process, as far as they are `wanted`; warnings about files that are none.
pub fn read(follow: &[TagName]) -> (Vec<SignedTag>, Vec<String>) {
    read_in(&lasting::usual_dir(), |name| has_place() || follow.contains(name))
}

fn read_in(dir: &Path, wanted: impl Fn(&TagName) -> bool) -> (Vec<SignedTag>, Vec<String>) {
    let (mut tags, mut warnings) = (Vec::new(), Vec::new());
    let names = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    names.retain(|name| name.starts_with(NAME.0) && name.ends_with(NAME.1));
    names.sort_unstable();
    for name in names.into_iter().take(TAGS_MAX) {
        let path = dir.join(name);
        let read = read_short(&path).ok().flatten().and_then(|text| serde_json::from_str::<SignedTag>(&text).ok());
        match read.map(|signed| (signed.text.parse::<Tag>(), signed)) {
            Some((Ok(tag), signed)) => tags.extend(wanted(&tag.name).then_some(signed)),
            _ => warnings.push(format!("{}: damaged; a later tag may be unknown here", path.display())),
        }
    }
    (tags, warnings)
}

/// Keeps each tag that is learned, while it is polled. A tag that cannot be kept is told once, and
/// tried again: a full disk may have room later.
pub async fn keep(node: Arc<Node>, follow: Vec<TagName>) {
    let (mut tagged, dir, mut said) = (node.tagged(), lasting::usual_dir(), BTreeSet::new());
    loop {
        let mut failed = BTreeSet::new();
        let all = node.tags().into_iter();
        for known in all.filter(|known| has_place() || follow.contains(&known.tag.name)) {
            let (place, name) = (dir.clone(), known.tag.name.clone());
            if let Err(error) = apart::run(move || write(&place, &known)).await {
                let why = format!("tag {name} cannot be kept in {}: {}", dir.display(), plain(&error));
                if !said.contains(&why) {
                    tracing::warn!("{why}");
                }
                failed.insert(why);
            }
        }
        said = failed;
        let changed = if said.is_empty() { Ok(tagged.changed().await) } else { timeout(AGAIN, tagged.changed()).await };
        if let Ok(Err(_)) = changed {
            return;
        }
    }
}

/// Keeps a tag, unless that or a later one is there.
fn write(dir: &Path, known: &Known) -> std::io::Result<()> {
    let (tag, signed) = (&known.tag, &known.signed);
    let name = format!("{}{:016x}-{}{}", NAME.0, digest(&signed.signer), tag.name, NAME.1);
    let before = read_short(&dir.join(&name)).ok().flatten();
    let before = before.and_then(|text| serde_json::from_str::<SignedTag>(&text).ok()?.text.parse::<Tag>().ok());
    if before.is_some_and(|before| before == *tag || before.serial > tag.serial) {
        return Ok(());
    }
    lasting::replace(dir, &name, &serde_json::to_vec(signed)?)
}

/// The version to which a tag led in an earlier process. Damage counts as none: the tag begins
/// anew.
pub async fn followed(tag: &TagName) -> Option<Version> {
    let (dir, tag) = (lasting::usual_dir(), tag.clone());
    apart::run(move || followed_in(&dir, &tag)).await
}

fn followed_in(dir: &Path, tag: &TagName) -> Option<Version> {
    let text = read_short(&dir.join(followed_name(tag))).ok().flatten()?;
    let (serial, image) = text.trim_end().split_once(' ')?;
    Some(Version { serial: serial.parse().ok()?, image: image.parse().ok()? })
}

/// Keeps to which version a tag leads, for the next process.
pub async fn keep_followed(tag: &TagName, version: Version) -> std::io::Result<()> {
    let (dir, tag) = (lasting::usual_dir(), tag.clone());
    apart::run(move || keep_followed_in(&dir, &tag, version)).await
}

fn keep_followed_in(dir: &Path, tag: &TagName, version: Version) -> std::io::Result<()> {
    if followed_in(dir, tag) == Some(version) {
        return Ok(());
    }
    lasting::replace(dir, &followed_name(tag), format!("{} {}\n", version.serial, version.image).as_bytes())
}

fn followed_name(tag: &TagName) -> String {
    format!("followed-{tag}")
}

/// Tells the field of a tag that a client has signed.
pub fn tell(node: &Node, tag: SignedTag) -> Reply {
    match node.tag(tag) {
        Ok(()) => Reply::Done,
        Err(why) => Reply::refused(why.to_string(), hint_of(&why)),
    }
}

/// What an image shares with another one.
pub async fn compare(node: Arc<Node>, image: &str, with: &str) -> Reply {
    let images = node.images();
    let chosen = |wanted: &str| {
        let chosen = selection::choose(wanted, &images).map_err(|undecided| undecided.words(wanted, "this node"));
        chosen.map(|chosen| chosen.id).map_err(|(fact, hint)| Reply::refused(fact, hint))
    };
    let (one, other) = match (chosen(image), chosen(with)) {
        (Ok(one), Ok(other)) => (one, other),
        (Err(refused), _) | (_, Err(refused)) => return refused,
    };
    match apart::run(move || node.shared(one, other)).await {
        Some(Shared { with_data, same }) => Reply::Shared { with_data, same },
        None => Reply::refused("only an origin of both images can compare them", "ask a node that serves both"),
    }
}

/// What to do about a tag that is not taken up.
const fn hint_of(why: &Refused) -> &'static str {
    match why {
        Refused::Bad(_) => "make it with the vfield program of the daemon's version",
        Refused::Signature { .. } => "sign the text again",
        Refused::Untrusted { .. } => "sign it with a key that --trust names, or give it to another field",
        Refused::Old { .. } => "`vfield tag show` has the latest; to go back, use `vfield tag rollback`",
        Refused::Full(_) => "use a name that is known: see `vfield tag ls`",
        Refused::Busy => "try again in a second",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfield_core::image::ImageId;

    fn known(name: &str, serial: u64, signer: &str) -> Known {
        let tag = Tag { serial, ..Tag::first(name.parse().unwrap(), ImageId([1; 32])) };
        let signed = SignedTag { signer: signer.to_owned(), text: tag.to_string(), signature: "s".to_owned() };
        Known { digest: signed.digest(), tag, signed }
    }

    #[test]
    fn what_a_tag_led_to_comes_back_and_damage_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let (place, name): (_, TagName) = (dir.path().join("state"), "a".parse().unwrap());
        assert_eq!(followed_in(&place, &name), None);
        for serial in [1, 7, 7, 2] {
            let version = Version { serial, image: ImageId([9; 32]) };
            keep_followed_in(&place, &name, version).unwrap();
            assert_eq!(followed_in(&place, &name), Some(version));
        }
        for damage in ["", "7", "x y", &"x".repeat(9000)] {
            std::fs::write(place.join("followed-a"), damage).unwrap();
            assert_eq!(followed_in(&place, &name), None, "{damage}");
        }
        // It is no tag.
        assert_eq!(read_in(&place, |_| true), (Vec::new(), Vec::new()));
    }

    #[test]
    fn the_latest_of_each_tag_comes_back_and_damage_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("state");
        assert_eq!(read_in(&place, |_| true), (Vec::new(), Vec::new()));
        for (name, serial, signer) in [("a", 5, "k"), ("a", 4, "k"), ("a", 1, "other"), ("b", 1, "k"), ("b", 2, "k")] {
            write(&place, &known(name, serial, signer)).unwrap();
        }
        let (tags, warnings) = read_in(&place, |_| true);
        let serials: Vec<u64> = tags.iter().map(|tag| tag.text.parse::<Tag>().unwrap().serial).collect();
        assert_eq!((serials.iter().sum::<u64>(), serials.len(), warnings.len()), (8, 3, 0), "{tags:?}");
        assert_eq!(read_in(&place, |name| name.as_str() == "b").0.len(), 1);
        for odd in ["{", &"x".repeat(9000)] {
            std::fs::write(place.join("tag-0-a.json"), odd).unwrap();
            let (tags, warnings) = read_in(&place, |_| true);
            assert!(tags.len() == 3 && warnings.len() == 1 && warnings[0].contains("damaged"), "{warnings:?}");
        }
    }
}

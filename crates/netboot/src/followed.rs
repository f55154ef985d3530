//! Tags of the field: the versions that a machine may boot now.
//!
//! A tag is resolved when a machine asks, so the next boot has the next version. Only versions
//! count that the daemon itself has: it can serve them, whoever else is there.

use crate::pinned::Pinned;
use crate::values::machine::Mac;
use vfield_console::failure::Failure;
use vfield_control::message::DaemonStatus;
use vfield_core::identity::NodeId;
use vfield_core::tag::{Tag, TagName, Version};

/// The tag of this name that the daemon knows; `None` if it knows none.
///
/// # Errors
/// If several signers have one.
pub fn find(name: &TagName, status: &DaemonStatus) -> Result<Option<Tag>, Failure> {
    let mut named = status.node.tags.iter().filter(|tag| tag.name == name.as_str());
    let Some(found) = named.next() else { return Ok(None) };
    if named.next().is_some() {
        let failure = Failure::failed(format!("several signers have a tag named {name}"));
        return Err(failure.hint("start the daemon with --trust, which decides"));
    }
    let tag = found.tag().ok_or_else(|| Failure::failed(format!("the daemon's tag {name} cannot be read")))?;
    Ok(Some(tag))
}

/// The versions that a machine may boot, the one that it is to run first: never empty.
///
/// # Errors
/// If the tag is unknown, or the daemon has none of its versions.
pub fn versions(name: &TagName, mac: Mac, status: &DaemonStatus) -> Result<Vec<Version>, Failure> {
    let tag = find(name, status)?.ok_or_else(|| {
        let failure = Failure::failed(format!("the daemon knows no tag named {name} any more"));
        failure.hint("publish it again; machines that run go on")
    })?;
    let now = tag.image.map(|image| Version { serial: tag.serial, image });
    let target = tag.target(NodeId(mac.number()));
    let all = now.into_iter().chain(tag.before.iter().copied());
    // Nothing of a removed tag is wanted more than its last version.
    let wanted = all.skip_while(|version| target.is_some_and(|target| target != *version));
    let has = |version: &Version| {
        let id = version.image.to_string();
        status.node.images.iter().any(|image| image.id == id)
    };
    let versions: Vec<Version> = wanted.filter(has).collect();
    if versions.is_empty() {
        let failure = Failure::failed(format!("the daemon has no version of tag {name}"));
        return Err(failure.hint("serve its images, or let the daemon follow it: vfield join --follow"));
    }
    Ok(versions)
}

/// A version under the name of its tag, which is the root's name on the machine.
pub fn pinned(name: &TagName, version: &Version) -> Pinned {
    Pinned { name: name.to_string(), id: version.image.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfield_core::image::ImageId;
    use vfield_node::status::{ImageStatus, TagStatus, VersionStatus};

    fn id(number: u8) -> String {
        ImageId([number; 32]).to_string()
    }

    /// A daemon with these images, and a tag of these versions, the latest first.
    fn status(images: &[u8], versions: &[(u64, u8)], rollout: u64) -> DaemonStatus {
        let mut status = DaemonStatus::default();
        let image = |number: &u8| ImageStatus { id: id(*number), ..ImageStatus::default() };
        status.node.images = images.iter().map(image).collect();
        let version = |(serial, image): &(u64, u8)| VersionStatus {
            serial: *serial,
            image: id(*image),
            ..VersionStatus::default()
        };
        status.node.tags = vec![TagStatus {
            name: "prod".to_owned(),
            serial: versions[0].0,
            image: Some(id(versions[0].1)),
            keep: 3,
            rollout,
            signer: "k".to_owned(),
            versions: versions.iter().map(version).collect(),
        }];
        status
    }

    fn serials(status: &DaemonStatus, mac: &str) -> Result<Vec<u64>, String> {
        let name = "prod".parse().unwrap();
        let found = versions(&name, mac.parse().unwrap(), status).map_err(|failure| failure.fact().to_owned())?;
        Ok(found.iter().map(|version| version.serial).collect())
    }

    const MAC: &str = "52:54:00:00:00:01";

    #[test]
    fn a_machine_gets_what_the_tag_names_when_it_asks() {
        let all = [(7, 3), (5, 2), (2, 1)];
        assert_eq!(serials(&status(&[1, 2, 3], &all, 100), MAC), Ok(vec![7, 5, 2]));
        // What the daemon does not have yet is for a later boot.
        assert_eq!(serials(&status(&[2, 9], &all, 100), MAC), Ok(vec![5]));
        assert_eq!(serials(&status(&[9], &all, 100), MAC), Err("the daemon has no version of tag prod".to_owned()));
        let mut removed = status(&[2], &all[1..], 100);
        removed.node.tags[0].image = None;
        removed.node.tags[0].serial = 9;
        assert_eq!(serials(&removed, MAC), Ok(vec![5]));
        removed.node.tags.clear();
        assert_eq!(serials(&removed, MAC), Err("the daemon knows no tag named prod any more".to_owned()));
    }

    #[test]
    fn a_part_of_the_machines_is_first() {
        let status = status(&[1, 2], &[(2, 2), (1, 1)], 30);
        let macs = (0..200).map(|number| format!("52:54:00:00:00:{number:02x}"));
        let first = macs.filter(|mac| serials(&status, mac).unwrap()[0] == 2).count();
        assert!((30..90).contains(&first), "{first} of 200");
        assert_eq!(serials(&status, MAC), serials(&status, MAC));
    }

    #[test]
    fn two_signers_of_a_name_are_none() {
        let mut status = status(&[1], &[(1, 1)], 100);
        let other = TagStatus { signer: "other".to_owned(), ..status.node.tags[0].clone() };
        status.node.tags.push(other);
        assert_eq!(serials(&status, MAC), Err("several signers have a tag named prod".to_owned()));
    }
}

//! Following tags: which tag counts under a name here, and the image that a node begins with.
//!
//! A node follows one signer of a name. With trusted signers only theirs are known at all. Without
//! any it is the first signer that the node hears of, for the life of the process. Two signers of
//! one name are none: a person has to decide. The tag is signed and names all of an id, so an image
//! that it names needs no signature of its own.

use super::{Node, NodeImage, StartError, lock};
use crate::config::{ImageSelector, StoreSize};
use crate::entry::Patience;
use crate::event::Event;
use crate::keeper::KeptStores;
use crate::naming::{Chosen, Known as KnownImage, Search};
use crate::status::{TagStatus, VersionStatus};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use vfield_core::hash_tree::Shared;
use vfield_core::image::{IdDigits, ImageId};
use vfield_core::node::Input;
use vfield_core::tag::{Tag, TagName, Version};
use vfield_core::tags::{Known, Refused, SignedTag};

/// How often an image is looked for that no member has: it comes with a member, of which no event
/// tells.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// How long a root waits for a tag that names it, before it needs a signature of its own. Members
/// tell tags within a second.
const VOUCHED_WITHIN: Duration = Duration::from_secs(5);

/// Why a tag is not followed now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotFollowed {
    /// Nobody has told this node of it; some names of which members did.
    #[error("no member knows the tag{}", others(.0))]
    Unknown(Vec<TagName>),
    /// A person has to say which one is meant.
    #[error("several signers have a tag of this name: {}; --trust decides", .0.join(", "))]
    Signers(Vec<String>),
    /// It was removed.
    #[error("the tag was removed with serial {0}")]
    Removed(u64),
    /// The rollout leaves this node out, and there is no earlier version.
    #[error("serial {0} is not for this node yet, and there is no earlier version")]
    NotChosen(u64),
}

/// So many names are told to a person who may have mistyped one.
const NAMES_TOLD: usize = 5;

fn others(names: &[TagName]) -> String {
    let names: Vec<&str> = names.iter().map(TagName::as_str).collect();
    if names.is_empty() { String::new() } else { format!("; members know {}", names.join(", ")) }
}

/// The signer that is followed under each name.
pub(super) type Pins = Mutex<std::collections::BTreeMap<TagName, String>>;

/// The name of a version of a tag on a node: one for each image.
pub fn version_name(tag: &TagName, image: &ImageId) -> String {
    format!("{tag}-{}", image.short())
}

impl Node {
    /// Takes up a tag of this machine's operator, and tells the field.
    ///
    /// # Errors
    /// If it is not news, or not good.
    pub fn tag(&self, tag: SignedTag) -> Result<(), Refused> {
        self.driver.look(|core| core.check_tag(&tag))?;
        self.driver.apply(Input::Tag(tag));
        Ok(())
    }

    /// All tags that this node knows.
    pub fn tags(&self) -> Vec<Arc<Known>> {
        self.driver.look(|core| core.tags().all().cloned().collect())
    }

    /// What the image `one` shares with `other`; `None` unless this node is an origin of both.
    /// Walks both trees on the calling thread: below a second for a terabyte.
    pub fn shared(&self, one: ImageId, other: ImageId) -> Option<Shared> {
        let (one, other) = (self.driver.image(one)?, self.driver.image(other)?);
        Some(one.source()?.tree().shared_with(other.source()?.tree()))
    }

    /// A receiver that changes with each tag that this node learns.
    pub fn tagged(&self) -> watch::Receiver<u64> {
        self.driver.tagged.subscribe()
    }

    /// A receiver that changes with fills and members.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.driver.changes()
    }

    /// Tells the log of something that a tag's follower does.
    pub fn event(&self, event: Event) {
        self.driver.event(event);
    }

    /// The tag that counts under this name here.
    ///
    /// # Errors
    /// If there is none, or more than one.
    pub fn followed(&self, name: &TagName) -> Result<Arc<Known>, NotFollowed> {
        let named: Vec<Arc<Known>> = self.driver.look(|core| core.tags().named(name).cloned().collect());
        let mut pins = lock(&self.pins);
        if let Some(signer) = pins.get(name) {
            return named.into_iter().find(|known| known.signed.signer == *signer).ok_or_else(|| self.unknown(name));
        }
        match &named[..] {
            [] => Err(self.unknown(name)),
            [one] => {
                pins.insert(name.clone(), one.signed.signer.clone());
                Ok(Arc::clone(one))
            }
            several => Err(NotFollowed::Signers(several.iter().map(|known| known.signed.signer.clone()).collect())),
        }
    }

    fn unknown(&self, name: &TagName) -> NotFollowed {
        let all = self.driver.look(|core| core.tags().all().map(|known| known.tag.name.clone()).collect::<Vec<_>>());
        let mut others: Vec<TagName> = all.into_iter().filter(|other| other != name).collect();
        others.sort_unstable();
        others.dedup();
        others.truncate(NAMES_TOLD);
        NotFollowed::Unknown(others)
    }

    /// The version that this node is to run.
    ///
    /// # Errors
    /// If there is none.
    pub fn target(&self, tag: &Tag) -> Result<Version, NotFollowed> {
        let node = self.driver.look(|core| core.me().node);
        match (tag.target(node), tag.image) {
            (Some(version), _) => Ok(version),
            (None, None) => Err(NotFollowed::Removed(tag.serial)),
            (None, Some(_)) => Err(NotFollowed::NotChosen(tag.serial)),
        }
    }

    /// True if this node has the image, and its store has filled.
    pub fn is_filled(&self, image: ImageId) -> bool {
        self.driver.look(|core| core.has_filled(image))
    }

    /// True if this node serves the image out of a file.
    pub fn serves(&self, image: ImageId) -> bool {
        self.driver.image(image).is_some_and(|image| image.source().is_some())
    }

    /// Joins the image that a tag names, unless it is here.
    ///
    /// # Errors
    /// If no member has it, or it cannot be joined here.
    pub async fn add_tagged(&self, tag: &TagName, image: ImageId) -> Result<NodeImage, StartError> {
        let _one_at_a_time = self.adding.lock().await;
        if let Ok(held) = self.held(image) {
            return Ok(held);
        }
        let chosen = self.find_tagged(tag, image, &[]).await?;
        self.check_new(image, &chosen.here)?;
        self.join(chosen, self.config.store, &mut self.none_kept()).await?;
        self.came_by_tag(image);
        self.spawn(super::holding::report_fills(Arc::clone(&self.driver)));
        self.held(image)
    }

    async fn find_tagged(&self, tag: &TagName, image: ImageId, held: &[KnownImage]) -> Result<Chosen, StartError> {
        let id = IdDigits::new(&image.to_string()).expect("all digits of an id");
        let wanted = [ImageSelector::Pinned { name: version_name(tag, &image), id }];
        // The tag vouches for it.
        let search = Search { trusted: None, ..self.search(&wanted, held) };
        let found = search.find(false, Patience::of(Some(Duration::ZERO))).await?;
        let unknown = || StartError::UnknownImage { wanted: image.to_string(), known: Vec::new() };
        found.into_iter().next().ok_or_else(unknown)
    }

    /// Joins all images of which an earlier process left a store, and the version of each followed
    /// tag. A node without any image waits for that version, with the patience of the start, until
    /// a tag is known and somebody has its image. Any other goes on, and its followers join it.
    pub(super) async fn join_tagged(&self, kept: &mut KeptStores, store: StoreSize) -> Result<(), StartError> {
        let patience = Patience::of(self.config.retry);
        let held = kept.known();
        self.join_left(&held, kept, store).await?;
        for name in &self.config.follow {
            let (mut tagged, mut said) = (self.tagged(), None);
            loop {
                let why = match self.begin(name, &held).await {
                    Ok(chosen) => {
                        self.join_by_tag(chosen, store, kept).await?;
                        break;
                    }
                    Err(why) => why,
                };
                let has_images = !self.images().is_empty();
                if patience.is_over() && !has_images {
                    return Err(StartError::NotTagged { tag: name.to_string(), why });
                }
                if said.as_ref() != Some(&why) {
                    self.driver.event(Event::TagWaits { tag: name.to_string(), why: why.clone() });
                    said = Some(why);
                }
                if has_images {
                    break;
                }
                // Whichever comes first; neither is an error.
                let _ = tokio::time::timeout(LOOK_AGAIN, tagged.changed()).await;
            }
        }
        Ok(())
    }

    /// Joins images of which an earlier process of a follower left a store. A reader may have one
    /// open that no tag keeps any more; if none has, it goes as rubbish.
    async fn join_left(&self, held: &[KnownImage], kept: &mut KeptStores, store: StoreSize) -> Result<(), StartError> {
        let Some(first) = self.config.follow.first() else { return Ok(()) };
        for left in held.iter().map(|left| left.id).filter(|left| self.held(*left).is_err()) {
            let keeps = |name: &&TagName| self.followed(name).is_ok_and(|known| known.tag.keeps(&left));
            let name = self.config.follow.iter().find(keeps).unwrap_or(first);
            // Nothing is lost without it but the way back.
            let chosen = self.find_tagged(name, left, held).await.ok();
            self.join_by_tag(chosen, store, kept).await?;
        }
        Ok(())
    }

    /// Joins the first image that was asked for, if it is a version of a followed tag. The tag
    /// vouches for it, as for all of its versions; so does a store of it that an earlier process
    /// has left. It may also have gone since this root moved on to later versions. Returns the
    /// wishes that are left.
    pub(super) async fn join_vouched(
        &self,
        held: &[KnownImage],
        kept: &mut KeptStores,
    ) -> Result<&[ImageSelector], StartError> {
        let all = &self.config.join[..];
        let Some((first, others)) = all.split_first().filter(|_| self.config.joins_version) else { return Ok(all) };
        let Some(digits) = first.digits() else { return Ok(all) };
        let followed = || self.config.follow.iter().filter_map(|name| self.followed(name).ok());
        let is_left = held.iter().any(|left| digits.matches(&left.id));
        let names = |known: Arc<Known>| known.tag.versions().any(|version| digits.matches(&version.image));
        let is_vouched = || is_left || followed().any(names);
        let has_moved = || held.iter().any(|left| followed().any(|known| known.tag.keeps(&left.id)));
        let mut tagged = self.tagged();
        let clear = async {
            while !is_vouched() && !has_moved() {
                // Its sender lives as long as the node.
                let _ = tagged.changed().await;
            }
        };
        let is_clear = tokio::time::timeout(VOUCHED_WITHIN, clear).await.is_ok();
        let wanted = std::slice::from_ref(first);
        if !is_vouched() {
            // It may have a signature of its own.
            let at_once = Patience::of(Some(Duration::ZERO));
            let has_gone = is_clear && self.search(wanted, held).find(false, at_once).await.is_err();
            return Ok(if has_gone { others } else { all });
        }
        let search = Search { trusted: None, ..self.search(wanted, held) };
        for chosen in search.find(false, Patience::of(self.config.retry)).await? {
            self.join_by_tag(Some(chosen), self.config.store, kept).await?;
        }
        Ok(others)
    }

    /// Joins an image that is here for a tag, and for nobody else.
    async fn join_by_tag(
        &self,
        chosen: Option<Chosen>,
        store: StoreSize,
        kept: &mut KeptStores,
    ) -> Result<(), StartError> {
        let Some(chosen) = chosen else { return Ok(()) };
        let id = chosen.known.id;
        self.join(chosen, store, kept).await?;
        self.came_by_tag(id);
        Ok(())
    }

    /// The image with which a follower begins, unless it is here already.
    async fn begin(&self, name: &TagName, held: &[KnownImage]) -> Result<Option<Chosen>, String> {
        let known = self.followed(name).map_err(|why| why.to_string())?;
        let Version { image, serial } = self.target(&known.tag).map_err(|why| why.to_string())?;
        if self.held(image).is_ok() {
            return Ok(None);
        }
        let found = self.find_tagged(name, image, held).await;
        found.map(Some).map_err(|error| no_image(serial, image, &error))
    }

    /// The known tags, for status.
    pub(super) fn tag_status(&self) -> Vec<TagStatus> {
        let version = |Version { serial, image }: Version| {
            let (nodes, filled) = self.driver.look(|core| core.takers(image));
            VersionStatus { serial, image: image.to_string(), nodes: nodes as u64, filled: filled as u64 }
        };
        let status = |known: Arc<Known>| {
            let Tag { name, serial, image, keep, rollout, before } = &known.tag;
            let now = image.map(|image| Version { serial: *serial, image });
            TagStatus {
                name: name.to_string(),
                serial: *serial,
                image: image.map(|image| image.to_string()),
                keep: u64::from(*keep),
                rollout: u64::from(*rollout),
                signer: known.signed.signer.clone(),
                versions: now.into_iter().chain(before.iter().copied()).map(version).collect(),
            }
        };
        self.tags().into_iter().map(status).collect()
    }
}

/// Why the image of a tag cannot be joined, in words.
pub fn no_image(serial: u64, image: ImageId, error: &StartError) -> String {
    match error {
        StartError::UnknownImage { .. } => format!("no member has the image of serial {serial}, id {}", image.short()),
        other => format!("serial {serial}: {other}"),
    }
}

//! Which images of a node somebody needs, as the shell knows it: the operator, readers, tags. The
//! core finds the rubbish; the daemon takes it away.

use super::{Node, lock};
use crate::driver::Driver;
use crate::image::LocalImage;
use crate::status::RubbishStatus;
use tokio::sync::watch;
use vfield_core::image::ImageId;
use vfield_core::node::{Input, Rubbish};
use vfield_core::rubbish::{Need, Stays, Uses};

impl Node {
    /// Pins an image: it stays though no tag keeps it. Or releases it. False if it is not here.
    pub fn pin(&self, id: ImageId, pinned: bool) -> bool {
        self.use_image(id, |uses| uses.pinned = pinned)
    }

    /// Takes note whether readers of this machine have an image open.
    pub fn note_open(&self, id: ImageId, open: bool) {
        self.use_image(id, |uses| uses.open = open);
    }

    /// Takes note that an image is here for a tag, and not because somebody asked for it.
    pub(super) fn came_by_tag(&self, id: ImageId) {
        self.use_image(id, |uses| uses.wished = false);
    }

    fn use_image(&self, id: ImageId, change: impl FnOnce(&mut Uses)) -> bool {
        let changed = {
            let mut all = lock(&self.held);
            let Some(held) = all.iter_mut().find(|held| held.image.id == id) else { return false };
            let before = held.uses;
            change(&mut held.uses);
            (held.uses != before).then_some(held.uses)
        };
        if let Some(uses) = changed {
            self.driver.apply(Input::Used { image: id, uses });
        }
        true
    }

    /// The images that may become rubbish: nobody asked for them but tags.
    pub fn unwished(&self) -> Vec<ImageId> {
        lock(&self.held).iter().filter(|held| !held.uses.wished).map(|held| held.image.id).collect()
    }

    /// The images that nobody needs.
    pub fn rubbish(&self) -> Vec<(ImageId, Rubbish)> {
        self.driver.look(vfield_core::node::Node::rubbish)
    }

    /// Ends the grace of the present rubbish.
    pub fn collect(&self) {
        self.driver.apply(Input::Collect);
    }

    /// True if nobody needs the image and nothing is lost with it.
    pub fn may_discard(&self, id: ImageId) -> bool {
        self.driver.look(|core| core.may_discard(id))
    }

    /// A receiver that changes when rubbish is due.
    pub fn due(&self) -> watch::Receiver<u64> {
        self.driver.due.subscribe()
    }
}

/// Who needs an image, in a word or two; empty if nobody does.
pub(super) fn needed(driver: &Driver, id: ImageId) -> String {
    match driver.look(|core| core.need_for(id)) {
        None => String::new(),
        Some(Need::Served) => "served".to_owned(),
        Some(Need::Wished) => "wished".to_owned(),
        Some(Need::Pinned) => "pinned".to_owned(),
        Some(Need::Open) => "open".to_owned(),
        Some(Need::Tag(name)) => format!("tag {name}"),
    }
}

/// What becomes of an image that nobody needs.
pub(super) fn rubbish(image: &LocalImage, rubbish: Rubbish) -> RubbishStatus {
    let bytes = |chunks: u64| (chunks * image.geometry().chunk_bytes()).min(image.geometry().header().length_bytes());
    let (stays, for_s, lost_bytes) = match rubbish.stays {
        None => ("", 0.0, 0),
        Some(Stays::Grace(left)) => ("grace", left.as_secs_f64(), 0),
        Some(Stays::Settling(left)) => ("settling", left.as_secs_f64(), 0),
        Some(Stays::Minority) => ("minority", 0.0, 0),
        Some(Stays::LastCopy(chunks)) => ("last-copy", 0.0, bytes(chunks)),
    };
    RubbishStatus { since_s: rubbish.unneeded.as_secs_f64(), stays: stays.to_owned(), for_s, lost_bytes }
}

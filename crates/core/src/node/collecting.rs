//! Rubbish in a node: which images nobody needs, what others are told of them, and when the shell
//! is to take one away. [`crate::rubbish`] decides.
//!
//! Nothing of an image changes here before the shell has dropped it: a reader may come until then.

use super::images::Image;
use super::{Node, Notice, Output, Timer};
use crate::identity::Identity;
use crate::image::ImageId;
use crate::membership::{Departed, Departure};
use crate::record::Record;
use crate::rubbish::{Need, Situation, Stays, Step, Uses, need, next};
use crate::time::Time;
use std::time::Duration;

/// How often a node looks whether a last copy may go, or tries again after the shell did not take
/// an image away. Nothing tells of either, and counting takes a moment for each chunk.
const AGAIN: Duration = Duration::from_secs(5);

/// What a node knows of the need for one of its images.
#[derive(Debug, Default)]
pub(super) struct Care {
    uses: Uses,
    /// Since when nobody has needed it.
    unneeded: Option<Time>,
    /// The operator wants no grace.
    hurried: bool,
    /// Since when others have been told not to count on it.
    announced: Option<Time>,
    /// It is verified what others have of it, since something may be lost.
    verifies: bool,
}

impl Care {
    /// True if others are not to count on this node's copy.
    pub const fn gives_up(&self) -> bool {
        self.announced.is_some()
    }

    /// True if others are asked for what they hold of it.
    pub const fn verifies(&self) -> bool {
        self.verifies
    }
}

/// Rubbish of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rubbish {
    /// For how long nobody has needed it.
    pub unneeded: Duration,
    /// Why it stays for now; `None` if it goes.
    pub stays: Option<Stays>,
}

impl Node {
    /// How an image is used on this machine has changed.
    pub(super) fn used(&mut self, id: ImageId, uses: Uses) {
        if let Some(image) = self.images.get_mut(&id) {
            image.care.uses = uses;
            self.care_for(id);
        }
    }

    /// The present rubbish is to go without its grace.
    pub(super) fn collect(&mut self) {
        for image in self.images.values_mut() {
            image.care.hurried = image.care.unneeded.is_some();
        }
        self.care_for_all();
    }

    /// Looks at all images: a tag has moved.
    pub(super) fn care_for_all(&mut self) {
        self.image_ids().into_iter().for_each(|id| self.care_for(id));
    }

    /// A member died: it may be cut off, and need what it had.
    pub(super) fn note_death(&mut self, departed: Departed) {
        if departed.how == Departure::Died {
            self.deaths.died(&departed.identity, self.now);
        }
    }

    /// A member came, or came back.
    pub(super) fn note_life(&mut self, member: &Identity) {
        self.deaths.came(member);
    }

    /// Looks whether anybody needs an image, and takes the next step if nobody does.
    pub(super) fn care_for(&mut self, id: ImageId) {
        let needed = self.need_for(id).is_some();
        let now = self.now;
        let Some(image) = self.images.get_mut(&id) else { return };
        if needed {
            let (uses, timer) = (image.care.uses, image.care_timer.take());
            let before = std::mem::replace(&mut image.care, Care { uses, ..Care::default() });
            self.cancel(timer);
            if before.gives_up() {
                self.announce(id);
            }
            return;
        }
        image.care.unneeded.get_or_insert(now);
        let Some(step) = self.step_for(id) else { return };
        let announces = !matches!(step, Step::Keep(_));
        let Some(image) = self.images.get_mut(&id) else { return };
        if announces != image.care.gives_up() {
            (image.care.announced, image.care.verifies) = (announces.then_some(now), false);
            self.announce(id);
        } else if matches!(step, Step::Announce(Stays::LastCopy(_))) && !image.care.verifies {
            image.care.verifies = true;
            self.verify_anew(id);
            self.spot_check_soon(id);
        }
        let after = match step {
            Step::Keep(Stays::Grace(left)) => left,
            Step::Announce(Stays::Settling(left)) => left,
            Step::Keep(_) | Step::Announce(_) => AGAIN,
            Step::Discard => {
                self.out(Output::Notice(Notice::Discard(id)));
                AGAIN
            }
        };
        self.care_later(id, after);
    }

    fn care_later(&mut self, id: ImageId, after: Duration) {
        let Some(image) = self.images.get_mut(&id) else { return };
        let (number, before) = (image.number, image.care_timer.take());
        self.cancel(before);
        let timer = self.set(after, Timer::Care(number));
        if let Some(image) = self.images.get_mut(&id) {
            image.care_timer = Some(timer);
        }
    }

    /// Who needs an image of this node; `None` if nobody does, or if it is not here.
    pub fn need_for(&self, id: ImageId) -> Option<Need> {
        let image = self.images.get(&id)?;
        need(&id, image.origin, image.care.uses, &self.tags)
    }

    /// What this node would do now with an image that nobody needs.
    fn step_for(&self, id: ImageId) -> Option<Step> {
        let image = self.images.get(&id)?;
        let (care, now) = (&image.care, self.now);
        let mut situation = Situation {
            unneeded: now - care.unneeded?,
            grace: if care.hurried { Duration::ZERO } else { self.config.rubbish_grace },
            announced: care.announced.map(|since| now - since),
            minority: self.deaths.leave_a_minority(self.membership.live().len(), now),
            needed_elsewhere: self.is_needed_elsewhere(image),
            lost: 0,
        };
        // Counting costs a moment for each chunk, so only if it decides.
        if situation.needed_elsewhere && next(&situation) == Step::Discard {
            situation.lost = self.sole_of(image, care.verifies);
        }
        Some(next(&situation))
    }

    /// True if another member takes part in the image and has not given it up. One that announces
    /// of all its images that nobody should count on it is drained, or out of reach, and may read.
    /// Members that died lately may be cut off. Of other zones this node knows little, so they
    /// count too.
    fn is_needed_elsewhere(&self, image: &Image) -> bool {
        if self.is_zoned() {
            return true;
        }
        let (id, live) = (image.subject.image, self.membership.live());
        let takes_part = |record: &Record| {
            record.image() == id && !record.origin && (!record.leaving || self.unavailable.contains(&record.node))
        };
        let records = self.membership.records().iter();
        let mut others = records.filter(|record| record.node != self.me().node && live.contains_key(&record.node));
        let mut missed = self.former.iter().filter(|former| self.deaths.misses(former.identity.node, self.now));
        others.any(takes_part) || missed.any(|former| former.records().iter().any(takes_part))
    }

    /// The images of this node that nobody needs.
    pub fn rubbish(&self) -> Vec<(ImageId, Rubbish)> {
        let of = |id: ImageId| {
            let unneeded = self.now - self.images.get(&id)?.care.unneeded?;
            let stays = match self.step_for(id)? {
                Step::Keep(stays) | Step::Announce(stays) => Some(stays),
                Step::Discard => None,
            };
            Some((id, Rubbish { unneeded, stays }))
        };
        self.image_ids().into_iter().filter_map(of).collect()
    }

    /// True if the shell may take the image away now.
    pub fn may_discard(&self, id: ImageId) -> bool {
        self.need_for(id).is_none() && self.step_for(id) == Some(Step::Discard)
    }
}

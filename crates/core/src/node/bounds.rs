//! Bounds of single images: what an operator lets this node's link carry of one image.
//!
//! Requests of a bounded image leave when its bucket allows, the most urgent first; those of other
//! images pass them. Chunks of the image that wait are queued, and its short reads are held here.
//! The other direction is the shell's affair; the core announces it, so that the image's chain puts
//! this node behind faster ones.

use super::{Node, Timer, TimerKey};
use crate::bucket::Bucket;
use crate::chunk::Chunk;
use crate::fetch::{Goal, ImageNumber, Request, Token, Turn};
use crate::image::ImageId;
use crate::slice::Groups;
use crate::speed::{Link, LinkBounds};
use crate::time::Time;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::time::Duration;

/// The bounds of all images that have some.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    images: Vec<(ImageNumber, Bound)>,
    /// When a closed bucket opens next.
    opens: Option<TimerKey>,
}

/// The bounds of one image.
#[derive(Debug, Default)]
struct Bound {
    link: LinkBounds,
    down: Bucket,
    /// Since when something waits for the bucket, and for how long something did before.
    held_since: Option<Time>,
    held: Duration,
    /// Short reads that wait for it.
    slices: VecDeque<(Token, Chunk, Groups)>,
}

impl Bound {
    fn is_closed(&self, now: Time) -> bool {
        !self.down.wait(now).is_zero()
    }
}

impl Bounds {
    /// What this node says of its link with an image.
    pub(super) fn announced(&self, image: ImageNumber, link: Link) -> Link {
        self.of(image).map_or(link, |bound| bound.link.announced(link))
    }

    fn of(&self, image: ImageNumber) -> Option<&Bound> {
        self.images.iter().find(|(of, _)| *of == image).map(|(_, bound)| bound)
    }

    fn of_mut(&mut self, image: ImageNumber) -> Option<&mut Bound> {
        self.images.iter_mut().find(|(of, _)| *of == image).map(|(_, bound)| bound)
    }

    /// Bytes were requested.
    pub(super) fn take(&mut self, image: ImageNumber, bytes: u64, now: Time) {
        if let Some(bound) = self.of_mut(image) {
            bound.down.take(bytes, now);
        }
    }

    /// A request ended without its bytes.
    pub(super) fn give_back(&mut self, request: &Request) {
        if let Some(bound) = self.of_mut(request.image) {
            bound.down.give_back(request.bytes);
        }
    }

    /// Holds a short read back if its image's bucket is closed.
    pub(super) fn hold(&mut self, goal: Goal, token: Token, groups: Groups, now: Time) -> bool {
        let bound = self.of_mut(goal.0).filter(|bound| bound.is_closed(now));
        bound.map(|bound| bound.slices.push_back((token, goal.1, groups))).is_some()
    }

    /// Counts the waits that have ended: those for buckets that are open now.
    fn settle(&mut self, now: Time) {
        for (_, bound) in self.images.iter_mut().filter(|(_, bound)| !bound.is_closed(now)) {
            bound.held += bound.held_since.take().map_or(Duration::ZERO, |since| now - since);
        }
    }

    fn closed(&self, now: Time) -> Vec<ImageNumber> {
        self.images.iter().filter(|(_, bound)| bound.is_closed(now)).map(|(image, _)| *image).collect()
    }

    pub(super) fn drop_image(&mut self, image: ImageNumber) {
        self.images.retain(|(of, _)| *of != image);
    }
}

impl Node {
    /// Sets the bounds of an image; held requests follow them at once.
    pub(super) fn bound_image(&mut self, id: ImageId, link: LinkBounds) {
        let Some(number) = self.images.get(&id).map(|image| image.number) else { return };
        let said = self.bounds.announced(number, self.speed.announced());
        let now = self.now;
        // An image without bounds keeps its entry: its waits are told until it is dropped.
        if self.bounds.of(number).is_none() && link != LinkBounds::default() {
            self.bounds.images.push((number, Bound::default()));
        }
        let Some(bound) = self.bounds.of_mut(number) else { return };
        bound.link = link;
        bound.down.set_rate(link.down.and_then(NonZeroU64::new), now);
        if self.bounds.announced(number, self.speed.announced()) != said {
            self.announce(id);
        }
    }

    /// For how long requests of an image waited for its bound, summed up.
    pub fn held_back(&self, id: ImageId) -> Duration {
        let bound = self.images.get(&id).and_then(|image| self.bounds.of(image.number));
        bound.map_or(Duration::ZERO, |bound| {
            bound.held + bound.held_since.map_or(Duration::ZERO, |since| self.now - since)
        })
    }

    /// The next queued fetch that its image's bound lets go.
    pub(super) fn next_fetch(&mut self, turn: Turn) -> Option<Goal> {
        if self.bounds.images.is_empty() {
            return self.fetches.next(turn);
        }
        let closed = self.bounds.closed(self.now);
        for image in &closed {
            if let Some(bound) = self.bounds.of_mut(*image)
                && bound.held_since.is_none()
                && (!bound.slices.is_empty() || self.fetches.is_queued(*image, turn))
            {
                bound.held_since = Some(self.now);
            }
        }
        self.fetches.next_but(turn, &closed)
    }

    /// Lets the short reads go on whose image's bucket is open.
    pub(super) fn go_on_with_slices(&mut self) {
        let now = self.now;
        self.bounds.settle(now);
        let waits = |(_, bound): &&(ImageNumber, Bound)| !bound.slices.is_empty() && !bound.is_closed(now);
        while let Some((image, _)) = self.bounds.images.iter().find(waits) {
            let image = *image;
            let next = self.bounds.of_mut(image).and_then(|bound| bound.slices.pop_front());
            if let Some((token, chunk, groups)) = next
                && self.reads.remove(&token).is_some()
            {
                self.read_slice(token, self.id_of(image), chunk, groups);
            }
        }
    }

    /// Sets the timer at which the first closed bucket opens, if something waits for it.
    pub(super) fn set_opening(&mut self) {
        let now = self.now;
        let waits = |bound: &&Bound| bound.is_closed(now) && (bound.held_since.is_some() || !bound.slices.is_empty());
        let held = self.bounds.images.iter().map(|(_, bound)| bound).filter(waits);
        let Some(wait) = held.map(|bound| bound.down.wait(now)).min() else { return };
        if self.bounds.opens.is_none_or(|(at, _)| self.now + wait < at) {
            self.cancel(self.bounds.opens);
            self.bounds.opens = Some(self.set(wait, Timer::Opens));
        }
    }

    /// A bucket opens; its requests go on after the input.
    pub(super) fn opens(&mut self) {
        self.bounds.opens = None;
    }
}

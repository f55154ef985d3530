//! Tags on their way: each is told at once to all partners, and to members that lack it.
//!
//! A tag is rare, and nobody but its operator makes one, so it waits for no other news. What a lost
//! datagram would have told, the next exchange of snapshots finds: after it, both sides tell which
//! tags they know. This module knows no serials; [`crate::tags`] does.

use super::message::Item;
use super::{Effects, Membership, TagNews};
use crate::identity::NodeId;
use crate::tags::Known;
use crate::time::Time;

impl Membership {
    /// Takes in which tags a member knows. Answers go only to members, to where those live.
    pub(super) fn hear_known_tags(&mut self, of: NodeId, digests: Vec<u32>, offer: bool) {
        if self.live().contains_key(&of) {
            self.effects.tags.push(TagNews::Known { of, digests, offer });
        }
    }

    /// Tells a tag to the partners, but for the one that it came from.
    pub fn tell_tag(&mut self, tag: &Known, from: Option<NodeId>, now: Time) -> Effects {
        self.now = now;
        let partners: Vec<NodeId> = self.news.partners().filter(|partner| Some(*partner) != from).collect();
        for partner in partners {
            self.tell_one(partner, &[Item::Tag(tag.signed.clone())]);
        }
        self.finish()
    }

    /// Tells a member tags that it lacks.
    pub fn send_tags<'a>(&mut self, to: NodeId, tags: impl Iterator<Item = &'a Known>, now: Time) -> Effects {
        self.now = now;
        for tag in tags {
            self.tell_one(to, &[Item::Tag(tag.signed.clone())]);
        }
        self.finish()
    }

    /// Tells a member which tags are known here, or of no use.
    pub fn tell_known_tags(&mut self, to: NodeId, digests: Vec<u32>, offer: bool, now: Time) -> Effects {
        self.now = now;
        self.tell_one(to, &[Item::KnownTags { digests, offer }]);
        self.finish()
    }
}

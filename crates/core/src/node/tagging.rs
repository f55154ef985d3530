//! Tags in a node: what others say of them, and what this node tells others.
//!
//! A gateway passes tags on between the zones too.

use super::{Node, Notice, Output};
use crate::identity::NodeId;
use crate::image::{Geometry, Header, ImageId};
use crate::membership::{Effects, Membership, TagNews};
use crate::record::Record;
use crate::tags::{Refused, SignedTag, Tags};
use std::net::SocketAddr;

impl Node {
    /// The tags that this node knows.
    pub const fn tags(&self) -> &Tags {
        &self.tags
    }

    /// Keeps only the tags of these signers from now on; without any, those of all.
    pub fn trust_tags(&mut self, signers: impl IntoIterator<Item = String>) {
        self.tags.trust(signers);
    }

    /// What becomes of a tag if it is given to this node.
    ///
    /// # Errors
    /// Why it would not be taken up.
    pub fn check_tag(&self, tag: &SignedTag) -> Result<(), Refused> {
        self.tags.check(tag, &*self.keys)
    }

    /// True if this node serves the image, or its store of it has filled.
    pub fn has_filled(&self, image: ImageId) -> bool {
        self.images.get(&image).is_some_and(|image| image.origin || image.fill.is_done())
    }

    /// How many nodes of this zone take part in an image, without its origins, and how many of them
    /// have filled their stores; this node included.
    pub fn takers(&self, image: ImageId) -> (usize, usize) {
        let (me, live) = (self.me().node, self.membership.live());
        let is_there = |record: &&Record| record.node == me || live.contains_key(&record.node);
        let records = self.membership.records().iter().filter(|record| record.image() == image && !record.origin);
        let takers: Vec<&Record> = records.filter(is_there).filter(|record| !record.offers_nothing()).collect();
        let is_filled = |record: &&&Record| {
            let size = Header::decode(&record.subject.header).map_or(0, |header| Geometry::new(header).chunks());
            record.arc.length == 0 || record.filled.count >= size
        };
        (takers.len(), takers.iter().filter(is_filled).count())
    }

    /// Takes in a tag of this machine's operator, and tells others.
    pub(super) fn tag(&mut self, tag: SignedTag) {
        self.take_tag(tag, None);
    }

    /// Takes in what others said of tags.
    pub(super) fn hear_tags(&mut self, news: Vec<TagNews>) {
        for news in news {
            match news {
                TagNews::Tag(tag, from, addr) => self.take_tag(tag, Some((from, addr))),
                TagNews::Known { of, digests, offer } => {
                    let lacking = self.tags.lacking(&digests, self.now);
                    let mine = (offer && self.tags.misses(&digests)).then(|| self.tags.digests());
                    self.tell_of_tags(of, |membership, now| {
                        let mut effects = membership.send_tags(of, lacking.iter().map(|tag| &**tag), now);
                        if let Some(mine) = mine {
                            effects.add(membership.tell_known_tags(of, mine, false, now));
                        }
                        effects
                    });
                }
            }
        }
    }

    fn take_tag(&mut self, tag: SignedTag, teller: Option<(NodeId, SocketAddr)>) {
        match self.tags.hear(tag, self.now, &*self.keys) {
            Ok(known) => {
                let from = teller.map(|(node, _)| node);
                let effects = self.membership.tell_tag(&known, from, self.now);
                self.apply(effects);
                if let Some(backbone) = &mut self.outside.backbone {
                    let effects = backbone.tell_tag(&known, from, self.now);
                    self.apply_outside(effects);
                }
                self.out(Output::Notice(Notice::Tagged(known)));
                self.care_for_all();
            }
            // Others know less, or this node hears the same from all its partners.
            Err(Refused::Old { .. } | Refused::Busy) if teller.is_some() => {}
            Err(why) => self.out(Output::Notice(Notice::TagRefused(why, teller.map(|(_, addr)| addr)))),
        }
    }

    /// After an exchange of snapshots: tells the other side which tags are known here.
    pub(super) fn offer_tags(&mut self, to: NodeId) {
        if !self.tags.is_empty() {
            let digests = self.tags.digests();
            self.tell_of_tags(to, |membership, now| membership.tell_known_tags(to, digests, true, now));
        }
    }

    /// Tells a member of this zone, or another gateway.
    fn tell_of_tags(&mut self, to: NodeId, tell: impl FnOnce(&mut Membership, crate::time::Time) -> Effects) {
        if self.membership.live().contains_key(&to) {
            let effects = tell(&mut self.membership, self.now);
            self.apply(effects);
        } else if let Some(backbone) = &mut self.outside.backbone {
            let effects = tell(backbone, self.now);
            self.apply_outside(effects);
        }
    }
}

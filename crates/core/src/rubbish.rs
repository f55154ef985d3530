//! Rubbish: the images on a node that nobody needs any more, and when the node gives one up.
//!
//! Two pure functions. [`need`] says who needs an image. [`next`] says what becomes of an image
//! that nobody needs. It stays for a grace. Then the node announces that nobody should count on its
//! copy. Then it goes. [`Deaths`] says whether a node sees most of its field. The glue is in
//! [`crate::node`], and the shell takes images away.

use crate::identity::{Identity, NodeId};
use crate::image::ImageId;
use crate::tag::TagName;
use crate::tags::Tags;
use crate::time::Time;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// How long an image stays that nobody needs: long enough to see a mistake and to move a tag back.
/// A shorter grace fetches images again, a longer one holds memory.
pub const GRACE: Duration = Duration::from_secs(600);
/// How long a node has announced that nobody should count on its copy before that goes. All members
/// know it by then, so of two nodes that give a copy up at the same moment none relies on the
/// other. Gossip takes a second.
pub const SETTLE: Duration = Duration::from_secs(5);
/// How long a dead member counts as one that may be cut off and still need an image. Partitions
/// that people notice are repaired within that time.
pub const MOURNED: Duration = Duration::from_secs(3600);
/// Most dead members that are counted. Made-up members can die too; then nothing is given up.
const DEATHS_MAX: usize = 4096;

const _: () = assert!(SETTLE.as_millis() < GRACE.as_millis());

/// How an image is used on this machine, as the shell knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uses {
    /// The operator asked for this image, and not for a tag.
    pub wished: bool,
    /// The operator pinned it.
    pub pinned: bool,
    /// A reader has it open, or a tag's name leads to it here.
    pub open: bool,
}

impl Default for Uses {
    /// Nothing is rubbish of which the shell says nothing.
    fn default() -> Self {
        Self { wished: true, pinned: false, open: false }
    }
}

/// Who needs an image on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// The node serves it out of a file.
    Served,
    /// The operator asked for it.
    Wished,
    /// The operator pinned it.
    Pinned,
    /// A tag keeps it.
    Tag(TagName),
    /// A reader has it open.
    Open,
}

/// Who needs an image; `None` if it is rubbish.
pub fn need(image: &ImageId, serves: bool, uses: Uses, tags: &Tags) -> Option<Need> {
    if serves {
        return Some(Need::Served);
    }
    let said = [(uses.wished, Need::Wished), (uses.pinned, Need::Pinned)];
    let tag = || tags.all().find(|known| known.tag.keeps(image)).map(|known| Need::Tag(known.tag.name.clone()));
    let said = said.into_iter().find_map(|(is_so, need)| is_so.then_some(need));
    said.or_else(tag).or_else(|| uses.open.then_some(Need::Open))
}

/// What a node knows of an image that nobody needs here.
#[derive(Debug, Clone, Copy)]
pub struct Situation {
    /// For how long nobody has needed it.
    pub unneeded: Duration,
    /// For how long that has to be so.
    pub grace: Duration,
    /// For how long the node has announced that nobody should count on its copy.
    pub announced: Option<Duration>,
    /// The node sees at most half of its field.
    pub minority: bool,
    /// Another member may need the image: it takes part and has not announced that it gives it up.
    pub needed_elsewhere: bool,
    /// Chunks that would be lost with this node's copy.
    pub lost: u64,
}

/// Why rubbish stays for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stays {
    /// For so much longer, since somebody may want it back.
    Grace(Duration),
    /// The node sees at most half of its field; the others may need it.
    Minority,
    /// For so much longer, until all members know that nobody should count on it.
    Settling(Duration),
    /// It is the last copy of so many chunks of an image that another member may need.
    LastCopy(u64),
}

/// What a node does with rubbish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It stays as it is; members may count on it.
    Keep(Stays),
    /// Nobody should count on it from now on; it stays and is served.
    Announce(Stays),
    /// Nothing is lost with it, so it goes.
    Discard,
}

/// The next step of a node in this situation.
pub fn next(situation: &Situation) -> Step {
    let &Situation { unneeded, grace, announced, minority, needed_elsewhere, lost } = situation;
    if minority {
        return Step::Keep(Stays::Minority);
    }
    if unneeded < grace {
        return Step::Keep(Stays::Grace(grace - unneeded));
    }
    match announced {
        None => Step::Announce(Stays::Settling(SETTLE)),
        Some(since) if since < SETTLE => Step::Announce(Stays::Settling(SETTLE - since)),
        Some(_) if needed_elsewhere && lost > 0 => Step::Announce(Stays::LastCopy(lost)),
        Some(_) => Step::Discard,
    }
}

/// The members that died lately, and did not come back.
#[derive(Debug, Default)]
pub struct Deaths(BTreeMap<NodeId, (Time, SocketAddr)>);

impl Deaths {
    /// A member died.
    pub fn died(&mut self, member: &Identity, now: Time) {
        self.0.retain(|_, (at, _)| now - *at < MOURNED);
        if self.0.len() < DEATHS_MAX {
            self.0.insert(member.node, (now, member.addr));
        }
    }

    /// A member came: neither it nor an earlier process at its address is dead.
    pub fn came(&mut self, member: &Identity) {
        self.0.retain(|node, (_, addr)| *node != member.node && *addr != member.addr);
    }

    /// True if this member died lately and did not come back.
    pub fn misses(&self, node: NodeId, now: Time) -> bool {
        self.0.get(&node).is_some_and(|(at, _)| now - *at < MOURNED)
    }

    /// True if a node that sees `others` live members sees at most half of its field.
    pub fn leave_a_minority(&self, others: usize, now: Time) -> bool {
        others < self.0.values().filter(|(at, _)| now - *at < MOURNED).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Zone;
    use crate::signing::Simulated;
    use crate::tag::Tag;
    use crate::tags::SIGNER_LENGTH;

    fn id(number: u8) -> ImageId {
        ImageId([number; 32])
    }

    /// The tag `prod` of three images that keeps the last two.
    fn tags() -> Tags {
        let tag = Tag::first("prod".parse().unwrap(), id(1));
        let tag = tag.next(Some(id(2))).unwrap().next(Some(id(3))).unwrap();
        let mut tags = Tags::default();
        let signed = Simulated::sign_tag(&"a".repeat(SIGNER_LENGTH), &tag.to_string());
        tags.hear(signed, Time::ZERO, &Simulated(NodeId(1))).unwrap();
        tags
    }

    #[test]
    fn each_need_has_its_name_and_without_one_an_image_is_rubbish() {
        let none = Uses { wished: false, pinned: false, open: false };
        let prod = Need::Tag("prod".parse().unwrap());
        for (image, serves, uses, needed) in [
            (1, false, none, None),
            (2, false, none, Some(prod.clone())),
            (3, false, none, Some(prod.clone())),
            (1, true, none, Some(Need::Served)),
            (1, false, Uses::default(), Some(Need::Wished)),
            (1, false, Uses { pinned: true, ..none }, Some(Need::Pinned)),
            (1, false, Uses { open: true, ..none }, Some(Need::Open)),
            (3, false, Uses { open: true, ..none }, Some(prod)),
        ] {
            assert_eq!(need(&id(image), serves, uses, &tags()), needed, "{image} {uses:?}");
        }
    }

    #[test]
    fn each_situation_has_its_step() {
        let secs = Duration::from_secs;
        let due = Situation {
            unneeded: GRACE,
            grace: GRACE,
            announced: Some(SETTLE),
            minority: false,
            needed_elsewhere: true,
            lost: 0,
        };
        for (situation, step) in [
            (Situation { unneeded: secs(590), announced: None, ..due }, Step::Keep(Stays::Grace(secs(10)))),
            (Situation { minority: true, ..due }, Step::Keep(Stays::Minority)),
            (Situation { announced: None, ..due }, Step::Announce(Stays::Settling(SETTLE))),
            (Situation { announced: Some(secs(2)), ..due }, Step::Announce(Stays::Settling(secs(3)))),
            (Situation { lost: 7, ..due }, Step::Announce(Stays::LastCopy(7))),
            (Situation { lost: 7, needed_elsewhere: false, ..due }, Step::Discard),
            (due, Step::Discard),
        ] {
            assert_eq!(next(&situation), step, "{situation:?}");
        }
    }

    #[test]
    fn a_minority_is_half_of_the_field_or_less_and_is_forgotten_after_an_hour() {
        let member = |node: u64| Identity {
            addr: SocketAddr::from(([198, 18, 0, node as u8], 4000)),
            node: NodeId(node),
            generation: 1,
            zone: Zone::default(),
        };
        let (mut deaths, now) = (Deaths::default(), Time::ZERO);
        assert!(!deaths.leave_a_minority(0, now), "a node alone, that never knew another one");
        (1..=3).for_each(|node| deaths.died(&member(node), now));
        // Two others and this node, of six.
        assert!(deaths.leave_a_minority(2, now));
        assert!(!deaths.leave_a_minority(3, now));
        // Another process at the address of a dead one.
        deaths.came(&Identity { node: NodeId(9), ..member(1) });
        assert!(!deaths.leave_a_minority(2, now) && deaths.leave_a_minority(1, now));
        deaths.came(&member(2));
        assert!(!deaths.leave_a_minority(1, now));
        assert!(deaths.leave_a_minority(0, now) && !deaths.leave_a_minority(0, now + MOURNED));
    }
}

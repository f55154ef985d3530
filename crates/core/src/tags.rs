//! The tags that a node knows: which it takes up, and which it passes on.
//!
//! Of the tags of one name and one signer the highest serial counts; of two with one serial, the
//! one with the higher digest. A node never goes back, so nothing old can be replayed. Tags of
//! others are hostile: each is bounded, and verified before it is kept or passed on. With
//! trusted signers a node keeps their tags only. Without any it keeps the first
//! [`TAGS_MAX`] names, so that nobody can crowd out a tag that is known.

use crate::signing::Signatures;
use crate::tag::{BadTag, NAME_MAX, TEXT_MAX, Tag, TagName};
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc as Shared;
use std::time::Duration;
use vfield_block::gather::Gather as _;

/// Most tags of one node: a field has a few images, and each a few names. They take 80 KiB.
pub const TAGS_MAX: usize = 64;
/// Characters of a signer's key: minisign's public keys in base64.
pub const SIGNER_LENGTH: usize = 56;
/// Longest signature: minisign's take about 330 bytes.
pub const SIGNATURE_MAX: usize = 400;
/// Most digests in an offer of tags: all that are known, and as many that were refused.
pub const DIGESTS_MAX: usize = 2 * TAGS_MAX;
/// Most signatures that are verified in a second. One takes up to 0.2 ms, so a flood of forged tags
/// costs less than a hundredth of a processor. Tags that are put off come with the next exchange.
const VERIFIED_A_SECOND: u32 = 32;
/// Most tags that are sent within a second to members that lack them. A room of some hundred nodes
/// that is switched on gets its tags within a second. A flood of forged questions causes half a
/// megabyte a second.
const TOLD_A_SECOND: u32 = 512;
const SECOND: Duration = Duration::from_secs(1);

const _: () = assert!(NAME_MAX < TEXT_MAX);

/// A tag with its signature, as it travels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SignedTag {
    /// The public key of its signer, as minisign writes it: [`SIGNER_LENGTH`] characters.
    pub signer: String,
    /// The text, see [`crate::tag`].
    pub text: String,
    /// The signature of the text in minisign's format.
    pub signature: String,
}

impl SignedTag {
    /// True if no part is longer than a node keeps.
    pub fn is_bounded(&self) -> bool {
        self.signer.len() == SIGNER_LENGTH && self.text.len() <= TEXT_MAX && self.signature.len() <= SIGNATURE_MAX
    }

    /// 32 bits of a hash, to tell others which tag is known. The signature does not count: a signer
    /// may sign one text twice.
    pub fn digest(&self) -> u32 {
        let hash = blake3::Hasher::new().update(self.signer.as_bytes()).update(self.text.as_bytes()).finalize();
        u32::from_le_bytes(*hash.as_bytes().first_chunk().expect("it has 32 bytes"))
    }
}

/// A tag that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The parsed text.
    pub tag: Tag,
    /// How it came, to be passed on.
    pub signed: SignedTag,
    /// As [`SignedTag::digest`] has it.
    pub digest: u32,
}

impl Known {
    /// The place among the tags of one name and signer: the higher one counts.
    const fn rank(&self) -> (u64, u32) {
        (self.tag.serial, self.digest)
    }
}

/// Why a tag is not taken up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is no tag.
    #[error(transparent)]
    Bad(#[from] BadTag),
    /// Its signature is damaged, or one of another text or signer.
    #[error("tag {name} serial {serial}: its signature is wrong")]
    Signature {
        /// The name in it.
        name: TagName,
        /// The serial in it.
        serial: u64,
    },
    /// This node trusts other signers: it is a tag of another field, most likely.
    #[error("tag {name} serial {serial}: its signer {signer} is not trusted here")]
    Untrusted {
        /// The name in it.
        name: TagName,
        /// The serial in it.
        serial: u64,
        /// The public key of the signer.
        signer: String,
    },
    /// A tag that is as late, or later, is known.
    #[error("tag {name} serial {serial}: serial {known} is known, and serials only grow")]
    Old {
        /// The name in it.
        name: TagName,
        /// The serial in it.
        serial: u64,
        /// The highest serial that is known.
        known: u64,
    },
    /// There is no room.
    #[error("tag {0}: this node knows {TAGS_MAX} tags, and keeps no more names")]
    Full(TagName),
    /// Too many tags came within a second.
    #[error("too many tags came within a second")]
    Busy,
}

/// The tags of a node.
#[derive(Debug, Default)]
pub struct Tags {
    /// The signers whose tags are kept; empty: all.
    trusted: BTreeSet<String>,
    known: BTreeMap<(TagName, String), Shared<Known>>,
    /// Digests of tags that were refused for good, so that others need not send them again.
    refused: VecDeque<u32>,
    verified: Spent,
    told: Spent,
}

/// A count within a second: since when, and how many.
#[derive(Debug, Default)]
struct Spent(Time, u32);

impl Spent {
    /// True, and counted, unless there were `most` within this second.
    fn may(&mut self, most: u32, now: Time) -> bool {
        if now - self.0 >= SECOND {
            *self = Self(now, 0);
        }
        let room = self.1 < most;
        self.1 += u32::from(room);
        room
    }
}

impl Tags {
    /// Keeps only the tags of these signers from now on.
    pub fn trust(&mut self, signers: impl IntoIterator<Item = String>) {
        self.trusted = signers.into_iter().gathered();
        self.refused.clear();
        let trusted = &self.trusted;
        self.known.retain(|(_, signer), _| trusted.is_empty() || trusted.contains(signer));
    }

    /// All known tags, by name.
    pub fn all(&self) -> impl Iterator<Item = &Shared<Known>> {
        self.known.values()
    }

    /// The tags of this name: one of each signer.
    pub fn named(&self, name: &TagName) -> impl Iterator<Item = &Shared<Known>> {
        self.known.values().filter(move |known| known.tag.name == *name)
    }

    /// True if no tag is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Digests of the known tags, and of those that are of no use here.
    pub fn digests(&self) -> Vec<u32> {
        self.known.values().map(|known| known.digest).chain(self.refused.iter().copied()).collect()
    }

    /// The tags to send now to a node that knows those with these digests.
    pub fn lacking(&mut self, known: &[u32], now: Time) -> Vec<Shared<Known>> {
        let (mine, told) = (self.known.values(), &mut self.told);
        let lacks = mine.filter(|tag| !known.contains(&tag.digest));
        lacks.filter(|_| told.may(TOLD_A_SECOND, now)).map(Shared::clone).collect()
    }

    /// True if one of these digests is of a tag that is neither known nor refused here.
    pub fn misses(&self, offered: &[u32]) -> bool {
        let is_here =
            |digest: &u32| self.refused.contains(digest) || self.known.values().any(|known| known.digest == *digest);
        !offered.iter().all(is_here)
    }

    /// What becomes of a tag, without its signature: `Ok` if the signature decides.
    ///
    /// # Errors
    /// Why it is not taken up, whoever signed it.
    fn judge(&self, signed: SignedTag) -> Result<Known, Refused> {
        if !signed.is_bounded() {
            return Err(BadTag::NotATag.into());
        }
        let tag: Tag = signed.text.parse()?;
        let (name, serial, digest) = (tag.name.clone(), tag.serial, signed.digest());
        if !self.trusted.is_empty() && !self.trusted.contains(&signed.signer) {
            return Err(Refused::Untrusted { name, serial, signer: signed.signer });
        }
        let key = (name, signed.signer.clone());
        let new = Known { tag, signed, digest };
        match self.known.get(&key) {
            Some(known) if known.rank() >= new.rank() => {
                Err(Refused::Old { name: key.0, serial, known: known.tag.serial })
            }
            None if self.known.len() >= TAGS_MAX => Err(Refused::Full(key.0)),
            _ => Ok(new),
        }
    }

    /// What [`Tags::hear`] would say of a tag, but for its bounds of time.
    ///
    /// # Errors
    /// Why it would not be taken up.
    pub fn check(&self, signed: &SignedTag, keys: &dyn Signatures) -> Result<(), Refused> {
        self.judge(signed.clone()).and_then(|known| genuine(&known, keys))
    }

    /// Takes up a tag that came at `now`, if it is news and good.
    ///
    /// # Errors
    /// Why it is not taken up. The tags that are known stay.
    pub fn hear(&mut self, signed: SignedTag, now: Time, keys: &dyn Signatures) -> Result<Shared<Known>, Refused> {
        let digest = signed.digest();
        let heard = self.verify(signed, now, keys);
        match &heard {
            // These stay as they are, whoever sends them again.
            Err(Refused::Bad(_) | Refused::Untrusted { .. } | Refused::Full(_)) if !self.refused.contains(&digest) => {
                if self.refused.len() == DIGESTS_MAX - TAGS_MAX {
                    self.refused.pop_front();
                }
                self.refused.push_back(digest);
            }
            // Of a wrong signature another one may be right.
            Err(_) | Ok(_) => {}
        }
        heard
    }

    fn verify(&mut self, signed: SignedTag, now: Time, keys: &dyn Signatures) -> Result<Shared<Known>, Refused> {
        let new = self.judge(signed)?;
        if !self.verified.may(VERIFIED_A_SECOND, now) {
            return Err(Refused::Busy);
        }
        genuine(&new, keys)?;
        let (key, new) = ((new.tag.name.clone(), new.signed.signer.clone()), Shared::new(new));
        match self.known.entry(key) {
            Entry::Vacant(place) => drop(place.insert(Shared::clone(&new))),
            Entry::Occupied(mut place) => drop(place.insert(Shared::clone(&new))),
        }
        Ok(new)
    }
}

/// Refuses a tag that its signer did not sign.
fn genuine(Known { tag, signed, .. }: &Known, keys: &dyn Signatures) -> Result<(), Refused> {
    if keys.signed_by(&signed.signer, signed.text.as_bytes(), &signed.signature) {
        return Ok(());
    }
    Err(Refused::Signature { name: tag.name.clone(), serial: tag.serial })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::NodeId;
    use crate::image::ImageId;
    use crate::signing::Simulated;
    use proptest::prelude::*;

    const KEYS: Simulated = Simulated(NodeId(1));

    fn signer(number: u8) -> String {
        char::from(b'A' + number).to_string().repeat(SIGNER_LENGTH)
    }

    fn tag(name: &str, serial: u64, image: u8) -> Tag {
        Tag { serial, ..Tag::first(name.parse().unwrap(), ImageId([image; 32])) }
    }

    fn signed(by: u8, tag: &Tag) -> SignedTag {
        Simulated::sign_tag(&signer(by), &tag.to_string())
    }

    /// Each in a second of its own.
    fn hear(tags: &mut Tags, second: u64, signed: SignedTag) -> Result<u64, Refused> {
        tags.hear(signed, Time::ZERO + SECOND * second as u32, &KEYS).map(|known| known.tag.serial)
    }

    #[test]
    fn the_highest_serial_counts_and_nothing_goes_back() {
        let mut tags = Tags::default();
        assert_eq!(hear(&mut tags, 0, signed(1, &tag("prod", 7, 1))), Ok(7));
        assert_eq!(hear(&mut tags, 0, signed(1, &tag("prod", 9, 2))), Ok(9));
        let old = hear(&mut tags, 1, signed(1, &tag("prod", 8, 3))).unwrap_err();
        assert_eq!(old.to_string(), "tag prod serial 8: serial 9 is known, and serials only grow");
        assert!(hear(&mut tags, 2, signed(1, &tag("prod", 9, 2))).is_err(), "it is known");
        // Back to the first image by a higher serial.
        assert_eq!(hear(&mut tags, 3, signed(1, &tag("prod", 10, 1))), Ok(10));
        // Other names and signers have serials of their own.
        assert_eq!(hear(&mut tags, 4, signed(1, &tag("test", 1, 1))), Ok(1));
        assert_eq!(hear(&mut tags, 5, signed(2, &tag("prod", 1, 1))), Ok(1));
        assert_eq!(tags.named(&"prod".parse().unwrap()).count(), 2);
        assert_eq!(tags.all().count(), 3);
    }

    #[test]
    fn of_two_tags_with_one_serial_all_nodes_keep_the_same() {
        let two = [signed(1, &tag("prod", 5, 1)), signed(1, &tag("prod", 5, 2))];
        let kept = |order: [usize; 2]| {
            let mut tags = Tags::default();
            order.iter().for_each(|at| drop(hear(&mut tags, 0, two[*at].clone())));
            tags.all().next().unwrap().tag.image
        };
        assert_eq!(kept([0, 1]), kept([1, 0]));
    }

    #[test]
    fn only_good_signatures_of_trusted_signers_count() {
        let mut tags = Tags::default();
        let good = signed(1, &tag("prod", 5, 1));
        let forged = SignedTag { text: tag("prod", 6, 1).to_string(), ..good.clone() };
        let why = hear(&mut tags, 0, forged).unwrap_err();
        assert_eq!(why.to_string(), "tag prod serial 6: its signature is wrong");
        let stolen = SignedTag { signer: signer(2), ..good.clone() };
        assert!(matches!(hear(&mut tags, 1, stolen), Err(Refused::Signature { .. })));
        assert!(tags.is_empty());
        assert_eq!(hear(&mut tags, 2, good), Ok(5));
        tags.trust([signer(2)]);
        assert!(tags.is_empty(), "its signer is not trusted any more");
        let foreign = signed(1, &tag("prod", 8, 1));
        assert!(matches!(hear(&mut tags, 3, foreign.clone()), Err(Refused::Untrusted { .. })));
        // It is not asked for again.
        assert!(!tags.misses(&[foreign.digest()]) && tags.digests() == [foreign.digest()]);
        assert_eq!(hear(&mut tags, 4, signed(2, &tag("prod", 1, 1))), Ok(1));
    }

    #[test]
    fn what_is_too_long_is_no_tag() {
        let good = signed(1, &tag("prod", 5, 1));
        for long in [
            SignedTag { signature: "x".repeat(SIGNATURE_MAX + 1), ..good.clone() },
            SignedTag { text: "x".repeat(TEXT_MAX + 1), ..good.clone() },
            SignedTag { signer: "A".repeat(SIGNER_LENGTH + 1), ..good.clone() },
            SignedTag { signer: String::new(), ..good },
        ] {
            assert_eq!(hear(&mut Tags::default(), 0, long), Err(BadTag::NotATag.into()));
        }
    }

    #[test]
    fn nobody_crowds_out_a_known_tag_or_the_processor() {
        let mut tags = Tags::default();
        assert_eq!(hear(&mut tags, 0, signed(1, &tag("prod", 5, 1))), Ok(5));
        let heard: Vec<_> =
            (1..=2 * TAGS_MAX as u64).map(|at| hear(&mut tags, at, signed(2, &tag(&format!("n{at}"), 1, 1)))).collect();
        assert_eq!(heard.iter().filter(|heard| heard.is_ok()).count(), TAGS_MAX - 1);
        assert!(matches!(heard.last(), Some(Err(Refused::Full(_)))));
        assert_eq!(hear(&mut tags, 999, signed(1, &tag("prod", 6, 1))), Ok(6), "a known name moves on");
        assert!(tags.digests().len() <= DIGESTS_MAX);
        // Forged tags are verified a few times in a second.
        let forged = |serial| SignedTag { signature: String::new(), ..signed(1, &tag("prod", serial, 1)) };
        let tried = |tags: &mut Tags, second| {
            let tried = (100..200).map(|serial| hear(tags, second, forged(serial)));
            tried.filter(|why| matches!(why, Err(Refused::Signature { .. }))).count()
        };
        assert_eq!(tried(&mut tags, 2000), VERIFIED_A_SECOND as usize);
        assert_eq!(hear(&mut tags, 2000, signed(1, &tag("prod", 7, 1))), Err(Refused::Busy));
        assert_eq!(hear(&mut tags, 2001, signed(1, &tag("prod", 7, 1))), Ok(7));
    }

    #[test]
    fn two_nodes_tell_each_other_what_the_other_lacks() {
        let (mut one, mut other) = (Tags::default(), Tags::default());
        hear(&mut one, 0, signed(1, &tag("a", 1, 1))).unwrap();
        hear(&mut one, 0, signed(1, &tag("b", 1, 1))).unwrap();
        hear(&mut other, 0, signed(1, &tag("b", 2, 1))).unwrap();
        assert!(one.misses(&other.digests()) && other.misses(&one.digests()));
        for known in one.lacking(&other.digests(), Time::ZERO) {
            let _ = other.hear(known.signed.clone(), Time::ZERO, &KEYS);
        }
        for known in other.lacking(&one.digests(), Time::ZERO) {
            let _ = one.hear(known.signed.clone(), Time::ZERO, &KEYS);
        }
        assert_eq!(one.digests(), other.digests());
    }

    proptest! {
        /// In any order, all nodes that heard the same tags agree, and the serial of no tag falls.
        #[test]
        fn all_orders_end_alike(heard in prop::collection::vec((0u8..2, 0u8..2, 1u64..9, 0u8..3), 1..24), turn in 0usize..24) {
            let name = |number: u8| if number == 0 { "a" } else { "b" };
            let all: Vec<SignedTag> = heard.iter().map(|(by, of, serial, image)| signed(*by, &tag(name(*of), *serial, *image))).collect();
            let mut turned = all.clone();
            turned.rotate_left(turn % all.len());
            let take = |order: &[SignedTag]| {
                let (mut tags, mut last) = (Tags::default(), BTreeMap::new());
                for (second, one) in (0..).zip(order) {
                    let _ = hear(&mut tags, second, one.clone());
                    for known in tags.all() {
                        let key = (known.tag.name.clone(), known.signed.signer.clone());
                        let before = last.insert(key, known.tag.serial).unwrap_or_default();
                        assert!(before <= known.tag.serial);
                    }
                }
                tags.digests()
            };
            prop_assert_eq!(take(&all), take(&turned));
        }
    }
}

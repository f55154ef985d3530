//! The text of a tag: a name that moves from one version of an image to the next.
//!
//! A tag is a few lines that its owner signs. It names the image of now and those before it, so it
//! alone says which versions live. A tag goes back by a higher serial that names an earlier image.
//! The same tag is always the same text, byte for byte. [`crate::tags`] keeps tags.

use crate::hex::unhex;
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::placement::mix;
use std::fmt;
use std::str::FromStr;

/// First line: what it is, and the version of its form. A signer also signs images and lists, and
/// neither begins like this.
const FIRST: &str = "vfield-tag 1";
/// The word for the image of a removed tag.
const NONE: &str = "none";
/// Longest name in bytes. With it, a tag fits a datagram of gossip.
pub const NAME_MAX: usize = 64;
/// Most versions that a tag keeps, the current one among them. Each takes up to 89 bytes of the
/// text, and the text has to fit a datagram.
pub const KEEP_MAX: u8 = 6;
/// Highest serial: the highest whole number that JSON carries exactly. A later one is always
/// possible below it.
pub const SERIAL_MAX: u64 = (1 << 53) - 1;
/// Longest text in bytes: [`KEEP_MAX`] versions with the longest numbers take 643.
pub const TEXT_MAX: usize = 704;

/// The name of a tag: letters, digits and `-_.`, the first of them a letter or a digit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TagName(String);

impl TagName {
    /// The name in its one spelling.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TagName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for TagName {
    type Err = BadTag;

    fn from_str(text: &str) -> Result<Self, BadTag> {
        let sound = (1..=NAME_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
            && text.as_bytes()[0].is_ascii_alphanumeric();
        if sound { Ok(Self(text.to_owned())) } else { Err(BadTag::Name) }
    }
}

/// A version of an image, as a tag names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// The serial under which the tag named it last.
    pub serial: u64,
    /// The id of the image.
    pub image: ImageId,
}

/// A tag as it was signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    /// Its name, which an operator chooses.
    pub name: TagName,
    /// Its place among the tags of this name, 1 to [`SERIAL_MAX`]: the highest counts.
    pub serial: u64,
    /// The image that it names; `None` if the tag was removed.
    pub image: Option<ImageId>,
    /// Versions that followers keep, 1 to [`KEEP_MAX`], the current one among them.
    pub keep: u8,
    /// Percent of the nodes that follow to the image, 1 to 100. The others stay with the version
    /// before.
    pub rollout: u8,
    /// The versions before this one, the latest first, each image once.
    pub before: Vec<Version>,
}

/// Text that is no tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadTag {
    /// The first line is another one, or the text is too long.
    #[error("not a tag of this version of vfield")]
    NotATag,
    /// The name breaks the rule of [`TagName`].
    #[error("the name of a tag has 1 to {NAME_MAX} letters, digits and -_.")]
    Name,
    /// The serial is none, or leaves no room for a later one.
    #[error("the serial of a tag is a number from 1 to {SERIAL_MAX}")]
    Serial,
    /// The id is none.
    #[error("the image of a tag is an id of 64 digits, or none")]
    Image,
    /// The number of versions is out of bounds.
    #[error("a tag keeps 1 to {KEEP_MAX} versions")]
    Keep,
    /// The share is out of bounds.
    #[error("the rollout of a tag is 1 to 100 percent")]
    Rollout,
    /// The versions before are too many, out of order, or name an image twice.
    #[error("the earlier versions of the tag are not in order")]
    Before,
    /// A line is missing, or there is another one.
    #[error("the lines of the tag are not in the right form")]
    Form,
}

impl Tag {
    /// The first tag of this name.
    pub const fn first(name: TagName, image: ImageId) -> Self {
        Self { name, serial: 1, image: Some(image), keep: 2, rollout: 100, before: Vec::new() }
    }

    /// The tag that follows this one and names `image`, or nothing. The image of now becomes the
    /// version before.
    ///
    /// # Errors
    /// If there is no later serial.
    pub fn next(&self, image: Option<ImageId>) -> Result<Self, BadTag> {
        let serial = self.serial.checked_add(1).filter(|next| *next <= SERIAL_MAX).ok_or(BadTag::Serial)?;
        let now = self.image.map(|image| Version { serial: self.serial, image });
        let versions = now.into_iter().chain(self.before.iter().copied());
        let before = versions.filter(|version| Some(version.image) != image).collect();
        Ok(Self { serial, image, rollout: 100, before, ..self.clone() }.keeping(self.keep))
    }

    /// The same tag that keeps so many versions.
    #[must_use]
    pub fn keeping(mut self, keep: u8) -> Self {
        self.keep = keep;
        // A removed tag keeps what it may go back to.
        let room = usize::from(keep).saturating_sub(usize::from(self.image.is_some()));
        self.before.truncate(room);
        self
    }

    /// The version that a node is to run, if there is one. It follows from the tag and the node
    /// alone. A node is chosen by the image, so a rollout that grows takes no node back.
    pub fn target(&self, node: NodeId) -> Option<Version> {
        let image = self.image?;
        let (head, _) = image.0.split_first_chunk().expect("an id has 32 bytes");
        let drawn = mix(node.0 ^ mix(u64::from_le_bytes(*head))) % 100;
        if drawn < u64::from(self.rollout) {
            return Some(Version { serial: self.serial, image });
        }
        self.before.first().copied()
    }

    /// True if followers keep this image.
    pub fn keeps(&self, image: &ImageId) -> bool {
        self.image.as_ref() == Some(image) || self.before.iter().any(|version| version.image == *image)
    }

    /// Its versions, the current one first.
    pub fn versions(&self) -> impl Iterator<Item = Version> {
        let now = self.image.map(|image| Version { serial: self.serial, image });
        now.into_iter().chain(self.before.iter().copied())
    }

    /// The version with this image, the current one or an earlier one.
    pub fn version_of(&self, image: &ImageId) -> Option<Version> {
        self.versions().find(|version| version.image == *image)
    }

    /// Checks the numbers, which a person may have typed.
    ///
    /// # Errors
    /// The first bound that is broken.
    pub fn check(&self) -> Result<(), BadTag> {
        let Self { serial, image, keep, rollout, before, .. } = self;
        if !(1..=SERIAL_MAX).contains(serial) {
            return Err(BadTag::Serial);
        }
        if !(1..=KEEP_MAX).contains(keep) {
            return Err(BadTag::Keep);
        }
        if !(1..=100).contains(rollout) {
            return Err(BadTag::Rollout);
        }
        let room = usize::from(*keep) - usize::from(image.is_some());
        let serials = std::iter::once(*serial).chain(before.iter().map(|version| version.serial));
        let descend = serials.clone().zip(serials.skip(1)).all(|(later, earlier)| later > earlier);
        let images = || image.iter().chain(before.iter().map(|version| &version.image));
        let once = images().enumerate().all(|(at, one)| images().take(at).all(|other| one != other));
        let sound = before.len() <= room && descend && once && before.iter().all(|version| version.serial > 0);
        if sound { Ok(()) } else { Err(BadTag::Before) }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, serial, image, keep, rollout, before } = self;
        let image = image.map_or_else(|| NONE.to_owned(), |image| image.to_string());
        writeln!(f, "{FIRST}\nname {name}\nserial {serial}\nimage {image}\nkeep {keep}\nrollout {rollout}")?;
        before.iter().try_for_each(|version| writeln!(f, "before {} {}", version.serial, version.image))
    }
}

impl FromStr for Tag {
    type Err = BadTag;

    fn from_str(text: &str) -> Result<Self, BadTag> {
        let mut lines = text.lines();
        if text.len() > TEXT_MAX || lines.next() != Some(FIRST) {
            return Err(BadTag::NotATag);
        }
        let mut value = |key: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(key));
            line.and_then(|line| line.strip_prefix(' ')).ok_or(BadTag::Form)
        };
        let name = value("name")?.parse()?;
        let serial = value("serial")?.parse().map_err(|_| BadTag::Serial)?;
        let image = match value("image")? {
            NONE => None,
            id => Some(ImageId(unhex(id).ok_or(BadTag::Image)?)),
        };
        let keep = value("keep")?.parse().map_err(|_| BadTag::Keep)?;
        let rollout = value("rollout")?.parse().map_err(|_| BadTag::Rollout)?;
        let version = |line: &str| {
            let (serial, image) = line.strip_prefix("before ")?.split_once(' ')?;
            Some(Version { serial: serial.parse().ok()?, image: ImageId(unhex(image)?) })
        };
        let before = lines.map(version).collect::<Option<Vec<Version>>>().ok_or(BadTag::Form)?;
        let tag = Self { name, serial, image, keep, rollout, before };
        tag.check()?;
        // Only the canonical form is valid: a tag has one spelling.
        if tag.to_string() == text { Ok(tag) } else { Err(BadTag::Form) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(number: u8) -> ImageId {
        ImageId([number; 32])
    }

    fn tag() -> Tag {
        Tag::first("prod".parse().unwrap(), id(1))
    }

    #[test]
    fn the_text_is_as_documented() {
        let third = tag().next(Some(id(2))).unwrap();
        let text = Tag { rollout: 10, ..third }.to_string();
        let (one, two) = ("01".repeat(32), "02".repeat(32));
        let golden = format!("vfield-tag 1\nname prod\nserial 2\nimage {two}\nkeep 2\nrollout 10\nbefore 1 {one}\n");
        assert_eq!(text, golden);
        assert_eq!(text.parse::<Tag>().unwrap().to_string(), golden);
        let removed = tag().next(None).unwrap();
        assert!(removed.to_string().contains("image none\n"));
        assert_eq!(removed.to_string().parse(), Ok(removed));
    }

    #[test]
    fn the_longest_tag_fits() {
        let before = (1..KEEP_MAX).map(|at| Version { serial: SERIAL_MAX - u64::from(at), image: id(at) });
        let name = "n".repeat(NAME_MAX).parse().unwrap();
        let tag = Tag { serial: SERIAL_MAX, keep: KEEP_MAX, before: before.collect(), ..Tag::first(name, id(0xff)) };
        let text = tag.to_string();
        assert!(text.len() <= TEXT_MAX, "{}", text.len());
        assert_eq!(text.parse(), Ok(tag));
    }

    #[test]
    fn it_moves_forward_and_back_and_keeps_what_it_says() {
        let two = tag().keeping(3).next(Some(id(2))).unwrap();
        let three = two.next(Some(id(3))).unwrap();
        assert_eq!(three.before.iter().map(|version| version.serial).collect::<Vec<_>>(), [2, 1]);
        // Back to the first: it is the image of now, and once in the list.
        let back = three.next(Some(id(1))).unwrap();
        assert_eq!((back.serial, back.image), (4, Some(id(1))));
        assert_eq!(back.before.iter().map(|version| version.image).collect::<Vec<_>>(), [id(3), id(2)]);
        let again = back.next(Some(id(1))).unwrap();
        assert_eq!((again.serial, &again.before), (5, &back.before));
        let few = back.next(Some(id(4))).unwrap().keeping(1);
        assert!(few.before.is_empty() && few.check().is_ok() && few.keeps(&id(4)) && !few.keeps(&id(1)));
        let removed = three.next(None).unwrap();
        assert_eq!((removed.before.len(), removed.check()), (3, Ok(())));
        assert_eq!(removed.target(NodeId(1)), None);
        let last = Tag { serial: SERIAL_MAX, ..three };
        assert_eq!(last.next(Some(id(9))), Err(BadTag::Serial));
    }

    #[test]
    fn a_rollout_grows_and_takes_nobody_back() {
        let moved = tag().next(Some(id(2))).unwrap();
        let runs = |rollout: u8| {
            let tag = Tag { rollout, ..moved.clone() };
            (0..1000).filter(move |node| tag.target(NodeId(*node)).unwrap().image == id(2)).collect::<Vec<_>>()
        };
        let (few, half, all) = (runs(10), runs(50), runs(100));
        assert!((60..140).contains(&few.len()) && (430..570).contains(&half.len()), "{} {}", few.len(), half.len());
        assert!(few.iter().all(|node| half.contains(node)) && all.len() == 1000);
        // The next image begins with others.
        let next = Tag { rollout: 10, ..moved.next(Some(id(3))).unwrap() };
        assert!(few.iter().any(|node| next.target(NodeId(*node)).unwrap().image == id(2)));
        // Without an earlier version the others have nothing to run.
        let first = Tag { rollout: 1, ..tag() };
        assert!((0..1000).any(|node| first.target(NodeId(node)).is_none()));
    }

    #[test]
    fn there_is_one_spelling_and_each_bound_has_its_line() {
        let text = tag().next(Some(id(2))).unwrap().to_string();
        for (what, with, why) in [
            ("tag 1", "tag 2", BadTag::NotATag),
            ("name prod", "name pr od", BadTag::Name),
            ("name prod", "name .prod", BadTag::Name),
            ("name prod", "name ../a", BadTag::Name),
            ("serial 2", "serial 0", BadTag::Serial),
            ("serial 2", "serial 9007199254740992", BadTag::Serial),
            ("serial 2", "serial 18446744073709551616", BadTag::Serial),
            ("serial 2", "serial 02", BadTag::Form),
            ("image 02", "image 0x", BadTag::Image),
            ("keep 2", "keep 7", BadTag::Keep),
            ("keep 2", "keep 0", BadTag::Keep),
            ("keep 2", "keep 1", BadTag::Before),
            ("rollout 100", "rollout 0", BadTag::Rollout),
            ("rollout 100", "rollout 101", BadTag::Rollout),
            ("before 1", "before 2", BadTag::Before),
            ("before 1", "before 0", BadTag::Before),
            ("before 1 01", "before 1 zz", BadTag::Form),
            ("\n", "\r\n", BadTag::Form),
            ("keep 2\n", "", BadTag::Form),
            ("keep 2\n", "keep 2\nmore 1\n", BadTag::Form),
        ] {
            assert!(text.contains(what), "{what}");
            let changed = text.replacen(what, with, if what == "\n" { 99 } else { 1 });
            assert_eq!(changed.parse::<Tag>(), Err(why), "{changed:?}");
        }
        assert_eq!(format!("{text}\n").parse::<Tag>(), Err(BadTag::Form));
        assert_eq!(text.to_uppercase().parse::<Tag>(), Err(BadTag::NotATag));
        assert_eq!("x".repeat(TEXT_MAX + 1).parse::<Tag>(), Err(BadTag::NotATag));
    }

    proptest! {
        #[test]
        fn any_text_is_a_tag_or_a_refusal(text in "(vfield-tag 1\nname )?\\PC{0,80}\n?(serial [0-9]{0,20}\n)?\\PC{0,80}") {
            let _ = text.parse::<Tag>();
        }

        #[test]
        fn whatever_a_person_does_the_next_tag_is_sound(steps in prop::collection::vec((0u8..6, 1..=KEEP_MAX), 0..20)) {
            let mut tag = tag();
            for (image, keep) in steps {
                let next = tag.next((image > 0).then(|| id(image))).unwrap().keeping(keep);
                prop_assert_eq!(next.check(), Ok(()));
                prop_assert_eq!(next.to_string().parse(), Ok(next.clone()));
                prop_assert!(next.serial > tag.serial);
                tag = next;
            }
        }
    }
}

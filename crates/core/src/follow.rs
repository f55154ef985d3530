//! Following a tag: what a node does next so that the version that its tag names can be read here.
//!
//! A pure function from a plain [`Situation`] to a [`Step`]. A version is switched to once its
//! store has filled, and never under a reader: exports resolve the tag when a reader comes. Until
//! then the tag leads to what it led to before, also if the process has begun anew meanwhile. What
//! the tag does not keep any more is rubbish ([`crate::rubbish`]). What it keeps stays here, so
//! going back moves no byte. The daemon carries out the steps.

use crate::image::ImageId;
use crate::tag::{Tag, Version};

/// What a node knows of a tag that it follows.
#[derive(Debug, Clone, Default)]
pub struct Situation<'a> {
    /// The tag, once it is known.
    pub tag: Option<&'a Tag>,
    /// The version that this node is to run.
    pub target: Option<Version>,
    /// The images of this node.
    pub here: &'a [ImageId],
    /// The image to which the tag leads on this node.
    pub current: Option<ImageId>,
    /// The image to which it led in an earlier process of this node.
    pub before: Option<ImageId>,
    /// True if the store of the target has filled.
    pub filled: bool,
}

/// What a node does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// No tag of the name is known, or it names nothing for this node, which goes on as it is.
    Await,
    /// Join this image.
    Join(ImageId),
    /// The store of the target fills; the node goes on as it is meanwhile.
    Fill(ImageId),
    /// From now on the tag leads to this image.
    Switch(ImageId),
    /// All is as the tag says.
    Rest,
}

/// The next step of a node in this situation.
pub fn next(situation: &Situation<'_>) -> Step {
    let Situation { tag, target, here, current, before, filled } = situation;
    let is_ready = *filled && target.is_some_and(|target| here.contains(&target.image));
    // A process that has just begun goes on with what the one before it led to.
    if let (None, Some(before), false) = (current, before, is_ready)
        && here.contains(before)
    {
        return Step::Switch(*before);
    }
    let (Some(_), Some(Version { image, .. })) = (tag, target) else { return Step::Await };
    if !here.contains(image) {
        return Step::Join(*image);
    }
    if *current != Some(*image) {
        // The first version is read while it fills: there is nothing better.
        return if *filled || current.is_none() { Step::Switch(*image) } else { Step::Fill(*image) };
    }
    Step::Rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(number: u8) -> ImageId {
        ImageId([number; 32])
    }

    fn tag(images: &[u8]) -> Tag {
        let (first, rest) = images.split_first().unwrap();
        let first = Tag::first("prod".parse().unwrap(), id(*first));
        rest.iter().fold(first, |tag, image| tag.next(Some(id(*image))).unwrap())
    }

    #[test]
    fn each_situation_has_its_step() {
        let moved = tag(&[1, 2]);
        let target = moved.target(crate::identity::NodeId(1));
        for (tag, here, current, filled, step) in [
            (None, &[1][..], Some(1), true, Step::Await),
            (Some(&moved), &[], None, false, Step::Join(id(2))),
            (Some(&moved), &[1], Some(1), true, Step::Join(id(2))),
            (Some(&moved), &[1, 2], Some(1), false, Step::Fill(id(2))),
            (Some(&moved), &[2], None, false, Step::Switch(id(2))),
            (Some(&moved), &[1, 2], Some(1), true, Step::Switch(id(2))),
            (Some(&moved), &[1, 2], Some(2), true, Step::Rest),
            (Some(&moved), &[0, 1, 2], Some(2), true, Step::Rest),
            (Some(&moved), &[0, 1, 2], Some(1), false, Step::Fill(id(2))),
        ] {
            let here: Vec<ImageId> = here.iter().copied().map(id).collect();
            let situation = Situation {
                tag,
                target: target.filter(|_| tag.is_some()),
                here: &here,
                current: current.map(id),
                filled,
                ..Situation::default()
            };
            assert_eq!(next(&situation), step, "{situation:?}");
        }
    }

    /// What a crash leaves is gone on with until the target is ready, and after it is removed.
    #[test]
    fn a_process_goes_on_with_what_the_one_before_it_led_to() {
        let moved = tag(&[1, 2]);
        let removed = moved.next(None).unwrap();
        for (tag, here, filled, step) in [
            (Some(&moved), &[1, 2][..], false, Step::Switch(id(1))),
            (Some(&moved), &[1], false, Step::Switch(id(1))),
            (Some(&moved), &[1, 2], true, Step::Switch(id(2))),
            (Some(&moved), &[2], false, Step::Switch(id(2))),
            (Some(&moved), &[], false, Step::Join(id(2))),
            (Some(&removed), &[1, 2], false, Step::Switch(id(1))),
            (None, &[1], false, Step::Switch(id(1))),
            (None, &[2], false, Step::Await),
        ] {
            let here: Vec<ImageId> = here.iter().copied().map(id).collect();
            let target = tag.and_then(|tag| tag.target(crate::identity::NodeId(1)));
            let situation = Situation { tag, target, here: &here, current: None, before: Some(id(1)), filled };
            assert_eq!(next(&situation), step, "{situation:?}");
        }
        let target = moved.target(crate::identity::NodeId(1));
        let here = [id(1), id(2)];
        let (current, before) = (Some(id(1)), Some(id(1)));
        let situation = Situation { tag: Some(&moved), target, here: &here, current, before, filled: false };
        assert_eq!(next(&situation), Step::Fill(id(2)));
    }

    /// A removed tag changes nothing here.
    #[test]
    fn a_removed_tag_leaves_all_as_it_is() {
        let removed = tag(&[1]).next(None).unwrap();
        let target = removed.target(crate::identity::NodeId(1));
        let current = Some(id(1));
        let situation = Situation { tag: Some(&removed), target, here: &[id(1)], current, filled: true, before: None };
        assert_eq!(next(&situation), Step::Await);
    }

    proptest! {
        /// Whatever the tag does, a node that carries out its steps comes to rest, and leads to the
        /// image of the tag.
        #[test]
        fn a_node_comes_to_rest(moves in prop::collection::vec(1u8..6, 1..12)) {
            let mut tag = tag(&[1]);
            let (mut here, mut current) = (Vec::new(), None);
            for image in moves {
                tag = tag.next(Some(id(image))).unwrap();
                let target = tag.target(crate::identity::NodeId(7));
                for round in 0.. {
                    prop_assert!(round < 20);
                    let filled = round % 2 == 1;
                    let situation =
                        Situation { tag: Some(&tag), target, here: &here, current, filled, ..Situation::default() };
                    match next(&situation) {
                        Step::Join(image) => here.push(image),
                        Step::Switch(image) => {
                            prop_assert!(here.contains(&image));
                            current = Some(image);
                        }
                        Step::Fill(_) => {}
                        Step::Await => unreachable!("there is a tag"),
                        Step::Rest => break,
                    }
                }
                prop_assert_eq!(current, Some(id(image)));
            }
        }
    }
}

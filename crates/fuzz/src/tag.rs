//! Tags: their texts, and the tags of strangers.
//!
//! Promises: a tag has one text, which is short. A tag that a person makes is read again. The next
//! tag has a higher serial and can go back. Nothing unsigned is taken up, and no serial falls.

use arbitrary::{Result, Unstructured};
use std::time::Duration;
use vfield_core::identity::NodeId;
use vfield_core::image::ImageId;
use vfield_core::signing::Simulated;
use vfield_core::tag::{KEEP_MAX, SERIAL_MAX, TEXT_MAX, Tag, Version};
use vfield_core::tags::{SIGNER_LENGTH, SignedTag, Tags};
use vfield_core::time::Time;

/// The first byte says whether the others are a text, or the parts to make tags of.
pub fn target(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    if kind % 2 == 0 {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        read(text);
    } else {
        // A missing part was not to be read.
        let _ = make(&mut Unstructured::new(bytes));
    }
}

fn read(text: &str) {
    let signed = SignedTag { signer: "A".repeat(SIGNER_LENGTH), text: text.to_owned(), signature: String::new() };
    let mut tags = Tags::default();
    assert!(tags.check(&signed, &Simulated(NodeId(1))).is_err(), "an unsigned tag");
    assert!(tags.hear(signed, Time::ZERO, &Simulated(NodeId(1))).is_err() && tags.is_empty());
    let Ok(tag) = text.parse::<Tag>() else { return };
    assert!(tag.to_string() == text && text.len() <= TEXT_MAX, "{text:?}");
    follow(&tag);
}

/// A tag of any numbers, and one more that the same signer makes.
fn make(input: &mut Unstructured<'_>) -> Result<()> {
    let id = |input: &mut Unstructured<'_>| Ok(ImageId([input.arbitrary()?; 32]));
    let name = ["a", "prod", "test.2"][input.int_in_range(0..=2)?];
    let mut tag = Tag::first(name.parse().expect("a name"), id(input)?);
    tag.serial = input.arbitrary::<u64>()? >> (input.arbitrary::<u8>()? % 64);
    tag.keep = input.int_in_range(0..=KEEP_MAX + 1)?;
    tag.rollout = input.int_in_range(0..=101)?;
    if input.arbitrary()? {
        tag.image = None;
    }
    for _ in 0..input.int_in_range(0..=KEEP_MAX)? {
        tag.before.push(Version { serial: input.arbitrary()?, image: id(input)? });
    }
    let (text, good) = (tag.to_string(), tag.check());
    assert_eq!(text.parse::<Tag>().ok(), good.is_ok().then(|| tag.clone()), "{text:?}");
    if good.is_ok() {
        follow(&tag);
    }
    Ok(())
}

/// All that is promised of a good tag.
fn follow(tag: &Tag) {
    for node in [0, 1, u64::MAX] {
        let target = tag.target(NodeId(node));
        assert!(target.is_none_or(|version| tag.keeps(&version.image)), "a node leaves what is kept");
        assert!(tag.rollout < 100 || target.map(|version| version.image) == tag.image);
    }
    let signed = |tag: &Tag| Simulated::sign_tag(&"A".repeat(SIGNER_LENGTH), &tag.to_string());
    let hear = |tags: &mut Tags, tag: &Tag, second: u32| {
        let at = Time::ZERO + Duration::from_secs(1) * second;
        tags.hear(signed(tag), at, &Simulated(NodeId(1))).is_ok()
    };
    let mut tags = Tags::default();
    assert!(hear(&mut tags, tag, 0), "a signed tag");
    let back = tag.before.first().map(|version| version.image);
    for image in [tag.image, back, None, Some(ImageId([0xee; 32]))] {
        let Ok(next) = tag.next(image) else {
            assert_eq!(tag.serial, SERIAL_MAX);
            return;
        };
        assert_eq!((next.check(), next.serial, next.image), (Ok(()), tag.serial + 1, image));
        let kept = |version: &Version| tag.keeps(&version.image);
        assert!(next.before.iter().all(kept) && (tag.keep == 1 || tag.image.is_none_or(|now| next.keeps(&now))));
    }
    let next = tag.next(tag.image).expect("there was one above");
    assert!(hear(&mut tags, &next, 1) && !hear(&mut tags, tag, 2), "a serial fell");
}

/// Tags in a text, damaged ones, and parts to make some of.
pub fn seeds() -> Vec<Vec<u8>> {
    let first = Tag::first("prod".parse().expect("a name"), ImageId([1; 32]));
    let third = first.next(Some(ImageId([2; 32]))).and_then(|tag| tag.next(Some(ImageId([1; 32]))));
    let third = third.expect("there are serials").keeping(KEEP_MAX);
    let removed = third.next(None).expect("there are serials");
    let text = |tag: &Tag| [&[0], tag.to_string().as_bytes()].concat();
    let spoilt = |from: &str, to: &str| [&[0], third.to_string().replace(from, to).as_bytes()].concat();
    let made = |shift: u8, step: u8| {
        let mut bytes = vec![1, 0, 7];
        bytes.extend(u64::MAX.to_le_bytes());
        bytes.push(shift);
        bytes.extend((1..60).map(|byte: u8| byte.wrapping_mul(step)));
        bytes
    };
    vec![
        text(&first),
        text(&third),
        text(&removed),
        spoilt("serial 3", "serial 9007199254740991"),
        spoilt("serial 3", "serial 03"),
        spoilt("keep 6", "keep 1"),
        made(11, 37),
        made(60, 3),
    ]
}

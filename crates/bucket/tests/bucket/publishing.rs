//! Versions in packs: the bytes that are sent, and writers that come in between.

use crate::image::Image;
use crate::memory::{Act, Memory};
use crate::reading::compare;
use crate::{publish, runtime, tag};
use std::sync::atomic::{AtomicU32, Ordering};
use vfield_bucket::{BucketError, Source as _, tags};

const URL: &str = "s3://images/room";

#[test]
fn a_version_sends_what_no_pack_has() {
    runtime().block_on(async {
        let memory = Memory::start();
        let bucket = memory.bucket(URL);
        // Two equal chunks, and zeros.
        let first = Image::drawn([1, 2, 0, 1, 3, 0, 0, 4]);
        let published = publish(&bucket, &first, "prod").await.unwrap();
        assert_eq!((published.chunks, published.new_chunks, published.new_packs), (5, 4, 1));
        assert!(published.packed_bytes < published.new_bytes * 3 / 4, "{published:?}");
        compare(&memory, "prod", &first).await;

        let second = Image::drawn([1, 2, 5, 1, 3, 0, 6, 4]);
        let published = publish(&bucket, &second, "prod").await.unwrap();
        assert_eq!((published.chunks, published.new_chunks, published.new_packs), (7, 2, 1));
        assert_eq!(published.tag.as_ref().map(|tag| (tag.serial, tag.before.len())), Some((2, 1)));
        compare(&memory, "prod", &second).await;

        // The tag goes back, and the same version is published once more: nothing is sent anew.
        let (back, step) = tags::roll_back(&bucket, &tag("prod"), None).await.unwrap();
        assert_eq!((back.image, step.to, step.left), (Some(first.id()), 1, 2));
        compare(&memory, "prod", &first).await;
        let published = publish(&bucket, &second, "test").await.unwrap();
        assert_eq!((published.new_chunks, published.new_packs), (0, 0));
        let contents = vfield_bucket::contents(&bucket).await.unwrap();
        assert_eq!((contents.tags.len(), contents.images.len(), contents.packs), (2, 2, 2));
        assert!(contents.images.iter().all(|image| image.sizes.is_ok()));
        let short = first.id().short();
        assert_eq!(vfield_bucket::find(&bucket, &short).await.unwrap(), first.id());
        let none = vfield_bucket::find(&bucket, "0123456789").await.unwrap_err();
        assert!(matches!(none, BucketError::Undecided(_, 0)), "{none}");
    });
}

#[test]
fn images_of_zeros_have_no_packs() {
    runtime().block_on(async {
        let memory = Memory::start();
        let image = Image::drawn([0; 5000]);
        let published = publish(&memory.bucket(URL), &image, "prod").await.unwrap();
        assert_eq!((published.chunks, published.new_packs), (0, 0));
        assert!(published.sent_bytes < 4096, "{published:?}");
        compare(&memory, "prod", &image).await;
    });
}

#[test]
fn a_tag_that_moves_meanwhile_is_not_moved_back() {
    runtime().block_on(async {
        let memory = Memory::start();
        let bucket = memory.bucket(URL);
        let [first, second, third] = [1, 2, 3].map(|number| Image::drawn([number, 9]));
        for (has_tag, before) in [(false, None), (true, Some(&first))] {
            if let Some(before) = before {
                publish(&bucket, before, "prod").await.unwrap();
            }
            // Another publisher writes its tag while the index of this one is written.
            let other = tags::read(&bucket, &tag("prod")).await.unwrap().next(Some(third.id()), None).unwrap();
            let own = format!("/images/room/images/{}", second.id());
            memory.hook(move |state, method, key| {
                if (method, key) == ("PUT", own.as_str()) {
                    state.put("room/tags/prod", other.to_string().into());
                }
                Act::Answer
            });
            let lost = publish(&bucket, &second, "prod").await.unwrap_err();
            assert!(matches!(&lost, BucketError::Moved(name) if name == "prod"), "{has_tag}: {lost}");
            memory.no_hook();
            let now = tags::read(&bucket, &tag("prod")).await.unwrap();
            assert_eq!(now.image().unwrap(), third.id());
            memory.state().objects.remove("room/tags/prod");
        }
    });
}

#[test]
fn a_store_without_conditions_is_told_of() {
    runtime().block_on(async {
        let memory = Memory::start();
        memory.state().ignores_conditions = true;
        let bucket = memory.bucket(URL);
        let [first, second, third] = [1, 2, 3].map(|number| Image::drawn([number, 9]));
        assert!(!publish(&bucket, &first, "prod").await.unwrap().is_compared);
        // A move before the last look is seen.
        let other = tags::read(&bucket, &tag("prod")).await.unwrap().next(Some(third.id()), None).unwrap();
        let own = format!("/images/room/images/{}", second.id());
        memory.hook(move |state, method, key| {
            if (method, key) == ("PUT", own.as_str()) {
                state.put("room/tags/prod", other.to_string().into());
            }
            Act::Answer
        });
        let lost = publish(&bucket, &second, "prod").await.unwrap_err();
        assert!(matches!(&lost, BucketError::Moved(_)), "{lost}");
        memory.no_hook();
        let refused = vfield_bucket::sweep::sweep(&bucket).await.unwrap_err();
        assert!(matches!(&refused, BucketError::NotCompared), "{refused}");
        memory.state().ignores_conditions = false;
        assert!(publish(&bucket, &second, "prod").await.unwrap().is_compared);
    });
}

#[test]
fn a_pack_that_goes_meanwhile_is_sent_again() {
    runtime().block_on(async {
        let memory = Memory::start();
        let bucket = memory.bucket(URL);
        publish(&bucket, &Image::drawn(1..40), "prod").await.unwrap();
        let image = Image::drawn(2..42);
        let goes_at = |memory: &Memory, lists: std::ops::RangeInclusive<u32>| {
            let seen = AtomicU32::new(0);
            memory.hook(move |state, method, key| {
                // Of each attempt, the second list is the second look.
                if method == "GET" && key == "/images" && state.keys("room/writers/").len() > 1 {
                    let now = seen.fetch_add(1, Ordering::SeqCst);
                    if lists.contains(&now) {
                        state.keys("room/packs/").iter().for_each(|key| drop(state.objects.remove(key)));
                    }
                }
                Act::Answer
            });
        };
        // The lists: of the sweep, of packs, of packs.
        goes_at(&memory, 2..=2);
        let published = publish(&bucket, &image, "prod").await.unwrap();
        // The last chunk of the version before was short.
        assert_eq!(published.new_chunks, 3 + 40, "all of it is sent again: {published:?}");
        compare(&memory, "prod", &image).await;

        goes_at(&memory, 2..=1000);
        let other = Image::drawn(3..43);
        let gone = publish(&bucket, &other, "prod").await.unwrap_err();
        assert!(matches!(gone, BucketError::Gone(_)), "{gone}");
        memory.no_hook();
        let now = tags::read(&bucket, &tag("prod")).await.unwrap();
        assert_eq!(now.image().unwrap(), image.id());
    });
}

#[test]
fn a_store_that_refuses_is_left_as_it_was() {
    runtime().block_on(async {
        let memory = Memory::start();
        let bucket = memory.bucket(URL);
        let [first, second] = [1, 2].map(|number| Image::drawn([number, 9, 0]));
        publish(&bucket, &first, "prod").await.unwrap();
        let before = memory.state().keys("");
        memory.hook(|_, method, _| match method {
            "PUT" | "POST" | "DELETE" => Act::Refuse(403, "AccessDenied"),
            _ => Act::Answer,
        });
        let refused = publish(&bucket, &second, "prod").await.unwrap_err().to_string();
        assert!(refused.contains("403 Forbidden") && refused.contains("(AccessDenied)"), "{refused}");
        assert!(!refused.contains('\n'), "{refused}");
        assert_eq!(memory.state().keys(""), before);
        // Each write in turn, and none of them is followed by the tag.
        for refused_at in 0..6 {
            let memory = Memory::start();
            let bucket = memory.bucket(URL);
            publish(&bucket, &first, "prod").await.unwrap();
            let mut writes = 0;
            memory.hook(move |_, method, _| {
                writes += u32::from(method == "PUT");
                if method == "PUT" && writes == refused_at + 1 { Act::Refuse(403, "AccessDenied") } else { Act::Answer }
            });
            publish(&bucket, &second, "prod").await.unwrap_err();
            memory.no_hook();
            compare(&memory, "prod", &first).await;
        }
        let missing = publish(&memory.bucket("s3://nothing/room"), &first, "prod").await.unwrap_err().to_string();
        assert!(missing.contains("404 Not Found") && missing.contains("(NoSuchBucket)"), "{missing}");
    });
}

#[test]
fn an_answer_that_is_lost_is_asked_for_again() {
    runtime().block_on(async {
        let memory = Memory::start();
        let image = Image::drawn([1, 2, 0]);
        let mut cut = std::collections::BTreeSet::new();
        // Each write is done once without an answer, that of the tag among them.
        memory.hook(
            move |_, method, key| {
                if method == "PUT" && cut.insert(key.to_owned()) { Act::DoAndCut } else { Act::Answer }
            },
        );
        let published = publish(&memory.bucket(URL), &image, "prod").await.unwrap();
        assert_eq!(published.tag.map(|tag| tag.serial), Some(1));
        compare(&memory, "prod", &image).await;
    });
}

#[test]
fn damaged_packs_are_not_counted_on() {
    runtime().block_on(async {
        let memory = Memory::start();
        let bucket = memory.bucket(URL);
        let image = Image::drawn([1, 2, 3]);
        publish(&bucket, &image, "prod").await.unwrap();
        let pack = memory.state().keys("room/packs/").remove(0);
        memory.state().objects.get_mut(&pack).unwrap().bytes[20] ^= 1;
        memory.state().put("room/packs/readme.txt", b"hello".to_vec());
        memory.state().put(&format!("room/packs/{}", "0".repeat(64)), Vec::new());
        let published = publish(&bucket, &image, "prod").await.unwrap();
        // The same pack is written again.
        assert_eq!((published.damaged, published.new_chunks), (2, 3));
        compare(&memory, "prod", &image).await;
    });
}

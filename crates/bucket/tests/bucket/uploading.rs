//! Plain objects, with their hashes beside them.

use crate::image::Image;
use crate::memory::{Act, Memory};
use crate::runtime;
use std::sync::Arc;
use vfield_bucket::{BucketError, Source as _, Uploaded, upload};
use vfield_object::Bucket;

const KEY: &str = "dir/disk.img";

async fn put(bucket: &Arc<Bucket>, image: &Arc<Image>) -> Result<Uploaded, BucketError> {
    upload(bucket, KEY, image, &|_| {}).await
}

#[test]
fn an_object_appears_whole_and_with_its_hashes() {
    runtime().block_on(async {
        let memory = Memory::start();
        let bucket = memory.bucket("s3://images");
        // Three parts.
        let image = Image::drawn((0..2500).map(|number| number % 3));
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        let told = Arc::clone(&seen);
        memory.hook(move |state, _, _| {
            told.lock().unwrap().push(state.keys(""));
            Act::Answer
        });
        let uploaded = put(&bucket, &image).await.unwrap();
        assert!(!uploaded.was_there && uploaded.sent_bytes > image.bytes.len() as u64);
        memory.no_hook();
        let beside = format!("{KEY}.vfh");
        for keys in seen.lock().unwrap().iter() {
            assert!(!keys.contains(&KEY.to_owned()) || keys.contains(&beside), "{keys:?}");
        }
        assert!(memory.state().objects[KEY].bytes == image.bytes);
        assert!(image.has_hashes(&memory.state().objects[&beside].bytes));

        assert!(put(&bucket, &image).await.unwrap().was_there);
        let other = put(&bucket, &Image::drawn([1, 2])).await.unwrap_err();
        assert!(matches!(other, BucketError::Exists(_)), "{other}");
        assert!(memory.state().objects[KEY].bytes == image.bytes);
    });
}

#[test]
fn of_two_uploads_one_is_refused() {
    runtime().block_on(async {
        let memory = Memory::start();
        let bucket = memory.bucket("s3://images");
        memory.hook(|state, method, key| {
            if method == "PUT" && key.ends_with(".vfh") {
                state.put(KEY, b"another".to_vec());
            }
            Act::Answer
        });
        let lost = put(&bucket, &Image::drawn([1, 2])).await.unwrap_err();
        assert!(matches!(lost, BucketError::Exists(_)), "{lost}");
        assert_eq!(memory.state().objects[KEY].bytes, b"another");
    });
}

#[test]
fn a_refused_upload_leaves_nothing_to_be_seen() {
    runtime().block_on(async {
        let memory = Memory::start();
        let bucket = memory.bucket("s3://images");
        let image = Image::drawn([1, 2]);
        for refused in ["POST", "PUT"] {
            memory.hook(
                move |_, method, _| if method == refused { Act::Refuse(403, "AccessDenied") } else { Act::Answer },
            );
            let words = put(&bucket, &image).await.unwrap_err().to_string();
            assert!(words.contains("403 Forbidden"), "{words}");
            assert_eq!(memory.state().keys(""), [""; 0]);
        }
        // The object is made, and the answer about it is lost.
        let mut cuts = 1;
        memory.hook(move |state, method, key| {
            let is_joined = method == "POST" && key.ends_with(KEY) && state.keys("").len() == 1;
            if is_joined && std::mem::take(&mut cuts) == 1 { Act::DoAndCut } else { Act::Answer }
        });
        assert!(!put(&bucket, &image).await.unwrap().was_there);
        assert!(memory.state().objects[KEY].bytes == image.bytes);
    });
}

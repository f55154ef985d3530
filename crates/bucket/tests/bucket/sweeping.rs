//! Rubbish: the time of its removal, and everything that keeps it.

use crate::image::Image;
use crate::memory::{Act, Memory};
use crate::reading::compare;
use crate::{publish, runtime, tag};
use std::sync::Arc;
use std::time::Duration;
use vfield_bucket::claim::{CLAIM_LASTS, Claim, SWEEP_LASTS};
use vfield_bucket::sweep::{GRACE, look, sweep};
use vfield_bucket::{BucketError, tags};
use vfield_object::Bucket;

const URL: &str = "s3://images/room";

fn pass(memory: &Memory, seconds: u64) {
    memory.state().now_s += seconds;
}

/// Number of objects that went, and of those that are doomed.
async fn swept(bucket: &Arc<Bucket>) -> (usize, usize) {
    let swept = sweep(bucket).await.unwrap();
    (swept.gone.len(), swept.doomed.len())
}

#[test]
fn rubbish_goes_a_day_after_a_sweep_has_found_it() {
    runtime().block_on(async {
        let memory = Memory::start();
        let bucket = memory.bucket(URL);
        let versions = [[1, 2, 9], [3, 4, 9], [5, 6, 9]].map(Image::drawn);
        for version in &versions {
            publish(&bucket, version, "prod").await.unwrap();
        }
        memory.state().put("room/images/readme.txt", b"mine".to_vec());
        memory.state().put("other/packs/readme.txt", b"mine".to_vec());
        // The tag keeps two versions. The first one's pack has a chunk of the others.
        assert_eq!(swept(&bucket).await, (0, 2));
        pass(&memory, GRACE.as_secs() - 1);
        let now_s = memory.state().now_s;
        let found = look(&bucket, now_s).await.unwrap();
        assert_eq!((found.gone.len(), found.doomed[0].goes_in_s), (0, 1));
        assert_eq!(swept(&bucket).await, (0, 2));
        pass(&memory, 1);
        assert_eq!(swept(&bucket).await, (2, 0));
        assert_eq!(swept(&bucket).await, (0, 0));
        compare(&memory, "prod", &versions[2]).await;
        tags::roll_back(&bucket, &tag("prod"), None).await.unwrap();
        compare(&memory, "prod", &versions[1]).await;

        // Without a tag, all of it goes, packs too; what others put there stays.
        memory.state().objects.remove("room/tags/prod");
        assert_eq!(swept(&bucket).await, (0, 7));
        pass(&memory, GRACE.as_secs());
        assert_eq!(swept(&bucket).await, (7, 0));
        let state = memory.state();
        assert_eq!(state.keys("room/packs"), [""; 0]);
        assert_eq!(state.keys("room/images"), ["room/images/readme.txt"]);
        assert_eq!(state.keys("other"), ["other/packs/readme.txt"]);
    });
}

#[test]
fn what_is_published_again_stays() {
    runtime().block_on(async {
        let memory = Memory::start();
        let bucket = memory.bucket(URL);
        let image = Image::drawn([1, 2, 3]);
        publish(&bucket, &image, "prod").await.unwrap();
        memory.state().objects.remove("room/tags/prod");
        assert_eq!(swept(&bucket).await, (0, 3));
        pass(&memory, GRACE.as_secs() * 2);
        publish(&bucket, &image, "prod").await.unwrap();
        assert_eq!(swept(&bucket).await, (0, 0));
        compare(&memory, "prod", &image).await;
        // Doomed anew, with a new grace.
        memory.state().objects.remove("room/tags/prod");
        assert_eq!(swept(&bucket).await, (0, 3));
        // A list that was lost makes the grace begin anew.
        pass(&memory, GRACE.as_secs());
        memory.state().put("room/doomed", b"x".to_vec());
        assert_eq!(swept(&bucket).await, (0, 3));
    });
}

#[test]
fn publishers_and_sweeps_keep_out_of_each_others_way() {
    runtime().block_on(async {
        let memory = Memory::start();
        let bucket = memory.bucket(URL);
        let image = Image::drawn([1, 2, 3]);
        publish(&bucket, &image, "prod").await.unwrap();

        // A publisher that died keeps sweeps away for a day.
        let claim = Claim::take(&bucket).await.unwrap();
        let busy = sweep(&bucket).await.unwrap_err();
        assert!(matches!(busy, BucketError::Writers(1)), "{busy}");
        publish(&bucket, &image, "test").await.unwrap();
        pass(&memory, CLAIM_LASTS.as_secs());
        assert_eq!(swept(&bucket).await, (0, 0));
        assert_eq!(memory.state().keys("room/writers/").len(), 0, "old claims are removed");
        drop(claim);

        // A sweep that died keeps publishers and sweeps away for an hour.
        memory.state().put("room/sweep", Vec::new());
        for _ in 0..2 {
            let refused = publish(&bucket, &image, "prod").await.unwrap_err();
            assert!(matches!(refused, BucketError::Sweeping), "{refused}");
            let refused = sweep(&bucket).await.unwrap_err();
            assert!(matches!(refused, BucketError::Sweeping), "{refused}");
            pass(&memory, SWEEP_LASTS.as_secs() - 1);
        }
        pass(&memory, 2);
        publish(&bucket, &image, "prod").await.unwrap();
        assert_eq!(swept(&bucket).await, (0, 0));
    });
}

/// A bucket in which all of an old version is due, and its pack has chunks of a new one.
async fn due(old: &Arc<Image>) -> (Memory, Arc<Bucket>) {
    let memory = Memory::start();
    let bucket = memory.bucket(URL);
    publish(&bucket, old, "old").await.unwrap();
    memory.state().objects.remove("room/tags/old");
    sweep(&bucket).await.unwrap();
    pass(&memory, GRACE.as_secs());
    (memory, bucket)
}

/// Holds the request after so many.
fn hold(memory: &Memory, after: u32) {
    let mut seen = 0;
    memory.hook(move |_, _, _| {
        seen += 1;
        if seen == after + 1 { Act::Hold } else { Act::Answer }
    });
}

/// True once a request is held; false if the task ends before.
async fn is_held<T>(memory: &Memory, task: &tokio::task::JoinHandle<T>) -> bool {
    loop {
        if task.is_finished() {
            return false;
        }
        if memory.state().is_holding {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Most requests of a publish, or of a sweep, in these tests.
const REQUESTS_MAX: u32 = 60;

#[test]
fn no_moment_of_a_publish_is_wrong_for_a_sweep() {
    let [old, image] = [[1, 2, 3], [1, 2, 4]].map(Image::drawn);
    for after in 0..REQUESTS_MAX {
        let was_held = runtime().block_on(async {
            let (memory, bucket) = due(&old).await;
            hold(&memory, after);
            let publishing = tokio::spawn({
                let (bucket, image) = (Arc::clone(&bucket), Arc::clone(&image));
                async move { publish(&bucket, &image, "prod").await }
            });
            let was_held = is_held(&memory, &publishing).await;
            if was_held {
                // It removes the old version, or finds the publisher.
                let swept = sweep(&bucket).await;
                assert!(matches!(swept, Ok(_) | Err(BucketError::Writers(1))), "{after}: {swept:?}");
                memory.release();
            }
            publishing.await.unwrap().unwrap();
            memory.no_hook();
            compare(&memory, "prod", &image).await;
            was_held
        });
        if !was_held {
            assert!(after > 8, "a publish has more requests");
            return;
        }
    }
    panic!("a publish has more requests than {REQUESTS_MAX}");
}

#[test]
fn no_moment_of_a_sweep_is_wrong_for_a_publish() {
    let [old, image] = [[1, 2, 3], [1, 2, 4]].map(Image::drawn);
    for after in 0..REQUESTS_MAX {
        let was_held = runtime().block_on(async {
            let (memory, bucket) = due(&old).await;
            hold(&memory, after);
            let sweeping = tokio::spawn({
                let bucket = Arc::clone(&bucket);
                async move { sweep(&bucket).await }
            });
            let was_held = is_held(&memory, &sweeping).await;
            if !was_held {
                memory.no_hook();
            }
            let published = publish(&bucket, &image, "prod").await;
            memory.release();
            let swept = sweeping.await.unwrap();
            assert!(matches!(swept, Ok(_) | Err(BucketError::Sweeping)), "{after}: {swept:?}");
            memory.no_hook();
            match published {
                Ok(_) => compare(&memory, "prod", &image).await,
                Err(refused) => assert!(matches!(refused, BucketError::Sweeping), "{after}: {refused}"),
            }
            was_held
        });
        if !was_held {
            assert!(after > 8, "a sweep has more requests");
            return;
        }
    }
    panic!("a sweep has more requests than {REQUESTS_MAX}");
}

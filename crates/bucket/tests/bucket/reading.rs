//! Packed images as objects: bytes, ranges, and packs and indexes that lie.

use crate::image::{CHUNK, Image};
use crate::memory::{Act, Memory};
use crate::{packed, publish, runtime};
use std::sync::Arc;
use vfield_block::extent::Extent;
use vfield_block::object::{Object, ObjectError, ObjectStore as _};
use vfield_bucket::Source as _;
use vfield_node::object_origin::publish::{ServeObject, publish as publish_object};

const URL: &str = "s3://images/room";
/// Bytes of a run, which an origin reads at once.
const RUN: usize = 4 << 20;

/// The image of a tag has these bytes, and its hashes beside it.
pub async fn compare(memory: &Memory, name: &str, image: &Image) {
    let packed = packed(memory, name);
    let object = packed.open("").await.unwrap();
    assert_eq!(object.length_bytes(), image.bytes.len() as u64);
    assert_eq!(packed.image(), Some(image.id().0));
    assert!(read(&*object, 0, image.bytes.len()).await == image.bytes, "other bytes");
    assert_eq!(object.changed(), None);
    let hashes = packed.open(".vfh").await.unwrap();
    let beginning = hashes.read(Extent::from(0..hashes.length_bytes())).await.unwrap();
    assert!(image.has_hashes(&beginning));
}

async fn read(object: &dyn Object, from: usize, to: usize) -> Vec<u8> {
    object.read(Extent::from(from as u64..to as u64)).await.unwrap().to_vec()
}

#[test]
fn ranges_are_read_and_each_part_of_a_pack_once() {
    runtime().block_on(async {
        let memory = Memory::start();
        let bucket = memory.bucket(URL);
        publish(&bucket, &Image::drawn(1..300), "prod").await.unwrap();
        let image = Image::drawn((1..300).map(|number| if number % 50 == 0 { 1000 + number } else { number }));
        publish(&bucket, &image, "prod").await.unwrap();
        let packed = packed(&memory, "prod");
        let object = packed.open("").await.unwrap();
        for (from, to) in [(0, 1), (CHUNK - 1, CHUNK + 1), (5, 3 * CHUNK), (image.bytes.len() - 1, image.bytes.len())] {
            assert!(read(&*object, from, to).await == image.bytes[from..to], "{from}..{to}");
        }
        memory.state().log.clear();
        let all = read(&*object, 0, 256 * CHUNK).await;
        assert!(all == image.bytes[..256 * CHUNK]);
        let log = std::mem::take(&mut memory.state().log);
        // The index's page was read before; the packs of both versions have a range each.
        assert_eq!(log.len(), 2, "{log:?}");
        assert!(log.iter().all(|(method, key)| method == "GET" && key.contains("/packs/")), "{log:?}");
    });
}

#[test]
fn an_object_tells_how_far_its_packs_compress_it() {
    runtime().block_on(async {
        let memory = Memory::start();
        let bucket = memory.bucket(URL);
        let compression = async |image: &Arc<Image>| {
            publish(&bucket, image, "prod").await.unwrap();
            packed(&memory, "prod").open("").await.unwrap().compression()
        };
        // A drawn chunk has a half of random bytes. Zeros lie in no pack.
        assert_eq!(compression(&Image::drawn([0; 50].into_iter().chain(1..50))).await, 1);
        let plain = Image::of((1..50).flat_map(|byte| [byte; CHUNK]).collect());
        assert!(compression(&plain).await > 100);
    });
}

#[test]
fn new_chunks_of_all_runs_come_at_once() {
    runtime().block_on(async {
        let memory = Memory::start();
        let bucket = memory.bucket(URL);
        publish(&bucket, &Image::drawn(1..1200), "prod").await.unwrap();
        let before = memory.state().keys("room/packs/");
        let image = Image::drawn((1..1200).map(|number| if number % 50 == 0 { 2000 + number } else { number }));
        publish(&bucket, &image, "prod").await.unwrap();
        let mut packs = memory.state().keys("room/packs/");
        packs.retain(|pack| !before.contains(pack));
        assert_eq!(packs.len(), 1);
        let packed = packed(&memory, "prod");
        let object: Arc<dyn Object> = packed.open("").await.unwrap().into();
        let run = |number: usize| number * RUN..((number + 1) * RUN).min(image.bytes.len());
        let compare = async |object: Arc<dyn Object>, number: usize| {
            let range = run(number);
            assert!(read(&*object, range.start, range.end).await == image.bytes[range], "run {number}");
        };
        // Two at a time, as origins read.
        for number in [0, 2] {
            tokio::join!(compare(Arc::clone(&object), number), compare(Arc::clone(&object), number + 1));
        }
        let asked =
            || memory.state().log.iter().filter(|(method, key)| method == "GET" && key.ends_with(&packs[0])).count();
        assert_eq!(asked(), 1, "{:?}", memory.state().log);
        // A second room.
        for number in 0..4 {
            compare(Arc::clone(&object), number).await;
        }
        assert_eq!(asked(), 2);
    });
}

/// A chunk of a kept block is given out once, so wrong bytes are not found in memory again.
#[test]
fn a_wrong_chunk_is_read_anew() {
    runtime().block_on(async {
        let memory = Memory::start();
        let image = Image::drawn(1..25);
        publish(&memory.bucket(URL), &image, "prod").await.unwrap();
        let pack = memory.state().keys("room/packs/").remove(0);
        let whole = memory.state().objects[&pack].bytes.clone();
        let mut wrong = whole.clone();
        wrong[4000..].fill(0xff);
        memory.state().put(&pack, wrong);
        let packed = packed(&memory, "prod");
        let object = packed.open("").await.unwrap();
        for (from, to) in [(3 * CHUNK, 5 * CHUNK), (0, image.bytes.len())] {
            assert!(read(&*object, from, to).await != image.bytes[from..to]);
        }
        memory.state().put(&pack, whole);
        for (from, to) in [(3 * CHUNK, 5 * CHUNK), (0, CHUNK), (0, image.bytes.len())] {
            assert!(read(&*object, from, to).await == image.bytes[from..to], "{from}..{to}");
        }
    });
}

#[test]
fn chunks_that_a_pack_does_not_have_are_told() {
    runtime().block_on(async {
        let memory = Memory::start();
        let image = Image::drawn(1..20);
        publish(&memory.bucket(URL), &image, "prod").await.unwrap();
        let pack = memory.state().keys("room/packs/").remove(0);
        let whole = memory.state().objects[&pack].bytes.clone();
        // The last chunk is cut off; the others stay.
        memory.state().put(&pack, whole[..whole.len() - 1].to_vec());
        let packed = packed(&memory, "prod");
        let object = packed.open("").await.unwrap();
        let bytes = read(&*object, 0, image.bytes.len()).await;
        let rest = 18 * CHUNK;
        assert!(bytes[..rest] == image.bytes[..rest] && bytes[rest..].iter().all(|byte| *byte == 0));
        let told = object.changed().unwrap();
        assert!(told.contains("does not have chunk #18"), "{told}");

        // Bytes that are no frame of zstd, for one chunk; others may be restored to wrong bytes.
        let mut other = whole.clone();
        let middle = whole.len() / 2;
        other[middle..middle + 4000].fill(0xff);
        memory.state().put(&pack, other);
        let bytes = read(&*object, 0, image.bytes.len()).await;
        let is_same = |number: usize| bytes[number * CHUNK..][..CHUNK] == image.bytes[number * CHUNK..][..CHUNK];
        assert!((0..18).filter(|number| !is_same(*number)).count() <= 2);

        memory.state().objects.remove(&pack);
        let gone = object.read(Extent::from(0..10)).await.unwrap_err();
        let words = gone.to_string();
        assert!(words.starts_with("packs/") && words.contains("404 Not Found"), "{words}");
        assert!(matches!(gone, ObjectError::Failed { lasting: true, .. }), "{gone:?}");
    });
}

#[test]
fn a_store_in_trouble_is_asked_once() {
    runtime().block_on(async {
        let memory = Memory::start();
        publish(&memory.bucket(URL), &Image::drawn(1..20), "prod").await.unwrap();
        let packed = packed(&memory, "prod");
        memory.state().log.clear();
        for key in ["/tags/prod", "/images/", "/packs/"] {
            memory
                .hook(move |_, _, asked| if asked.contains(key) { Act::Refuse(503, "SlowDown") } else { Act::Answer });
            let failure = match packed.open("").await {
                Err(failure) => failure,
                Ok(object) => object.read(Extent::from(0..10)).await.unwrap_err(),
            };
            assert!(failure.may_pass() && failure.to_string().contains("503"), "{key}: {failure}");
            let log = std::mem::take(&mut memory.state().log);
            let failed = log.iter().filter(|(_, asked)| asked.contains(key)).count();
            assert_eq!(failed, 1, "{key}: {log:?}");
            memory.no_hook();
        }
    });
}

#[test]
fn what_is_no_image_is_refused_in_words() {
    runtime().block_on(async {
        let memory = Memory::start();
        let image = Image::drawn(1..20);
        publish(&memory.bucket(URL), &image, "prod").await.unwrap();
        let refusal = async |name: &str| packed(&memory, name).open("").await.err().unwrap().to_string();
        assert_eq!(refusal("none").await, "it has no tag none");
        let (tag, index) = ("room/tags/prod".to_owned(), format!("room/images/{}", image.id()));
        let kept = memory.state().objects.clone();
        for (key, bytes, says) in [
            (&tag, b"hello".to_vec(), "tags/prod: not a tag of this version"),
            (&tag, vec![b'x'; 10_000], "more than 704 bytes"),
            (&index, b"hello".to_vec(), "ends after 5 bytes"),
            (&index, vec![0; 1000], "no index of this version"),
            (&index, kept[&index].bytes[..kept[&index].bytes.len() - 1].to_vec(), "cut short or damaged"),
            (&index, Vec::new(), "empty"),
        ] {
            memory.state().put(key, bytes);
            let words = refusal("prod").await;
            assert!(words.contains(says) && !words.contains('\n'), "{says}: {words}");
            memory.state().objects = kept.clone();
        }
        memory.state().objects.remove(&index);
        assert_eq!(refusal("prod").await, format!("it has no image {}", image.id().short()));
    });
}

/// The node takes the image of the id, with its hashes, or none.
#[test]
fn hashes_of_another_image_are_refused() {
    runtime().block_on(async {
        let memory = Memory::start();
        let [image, other] = [1, 2].map(|from| Image::drawn(from..from + 19));
        publish(&memory.bucket(URL), &image, "prod").await.unwrap();
        publish(&memory.bucket(URL), &other, "other").await.unwrap();
        let serve = async || {
            let store = Arc::new(packed(&memory, "prod"));
            let serve = ServeObject { store, chunk_size: None, rehash: true, cache_bytes: 0 };
            let published = publish_object(&serve, "image".to_owned(), &|_| {}, &|_| {}).await;
            published.map(|published| published.origin.id()).map_err(|error| error.to_string())
        };
        assert_eq!(serve().await, Ok(image.id()));
        let hashes = |image: &Image| format!("room/images/{}.vfh", image.id());
        let bytes = memory.state().objects[&hashes(&other)].bytes.clone();
        memory.state().put(&hashes(&image), bytes);
        let refused = serve().await.unwrap_err();
        assert!(refused.contains("its hashes"), "{refused}");
        memory.state().objects.remove(&hashes(&image));
        let refused = serve().await.unwrap_err();
        assert!(refused.contains("its hashes are not there"), "{refused}");
    });
}

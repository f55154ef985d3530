//! Images that are objects: one read for each run, whatever many readers want, and never a wrong
//! byte.

use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use tokio::runtime::{Builder, Runtime};
use vfield_block::extent::Extent;
use vfield_block::object::{Object, ObjectError, ObjectOpening, ObjectReading, ObjectStore};
use vfield_block::source::Piece;
use vfield_core::chunk::{Chunk, ChunkSize};
use vfield_node::object_origin::publish::{PublishedObject, ServeObject, publish};
use vfield_node::object_origin::{CACHE_BYTES, ObjectOrigin};
use vfield_node::origin::{OriginState, PublishError, kept_tree};
use vfield_node::source::Away;

const MIB: usize = 1 << 20;
/// Bytes that one request reads.
const RUN: usize = 4 * MIB;
const CHUNK: usize = 64 << 10;
/// Four runs and a part of one; the second run is a hole.
const IMAGE: usize = 4 * RUN + 12345;

/// A store in memory, whose mistakes can be switched on.
#[derive(Debug, Default)]
struct Memory {
    image: Mutex<Vec<u8>>,
    hashes: Vec<u8>,
    fails: AtomicBool,
    reads: AtomicUsize,
    read_bytes: AtomicUsize,
    starts: Mutex<BTreeSet<u64>>,
}

/// The image, or its hashes.
struct Opened {
    memory: Arc<Memory>,
    is_image: bool,
    length: u64,
}

#[derive(Debug)]
struct Shared(Arc<Memory>);

impl Memory {
    fn bytes(&self, is_image: bool) -> Vec<u8> {
        if is_image { self.image.lock().unwrap().clone() } else { self.hashes.clone() }
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }
}

impl ObjectStore for Shared {
    fn address(&self) -> &str {
        "memory://image"
    }

    fn open(&self, suffix: &str) -> ObjectOpening<'_> {
        let is_image = suffix.is_empty();
        let length = self.0.bytes(is_image).len() as u64;
        let opened = Opened { memory: Arc::clone(&self.0), is_image, length };
        Box::pin(async move {
            if length == 0 {
                Err(ObjectError::lasting("404 Not Found"))
            } else {
                Ok(Box::new(opened) as Box<dyn Object>)
            }
        })
    }
}

impl Object for Opened {
    fn length_bytes(&self) -> u64 {
        self.length
    }

    fn read(&self, extent: Extent) -> ObjectReading<'_> {
        Box::pin(async move {
            if self.is_image {
                self.memory.reads.fetch_add(1, Ordering::SeqCst);
                self.memory.read_bytes.fetch_add(extent.len() as usize, Ordering::SeqCst);
                self.memory.starts.lock().unwrap().insert(extent.start());
            }
            // Others get to ask for the same meanwhile.
            tokio::task::yield_now().await;
            if self.memory.fails.load(Ordering::SeqCst) {
                return Err(ObjectError::passing("503 Service Unavailable"));
            }
            let bytes = self.memory.bytes(self.is_image);
            let part = bytes.get(extent.start() as usize..extent.end() as usize);
            part.map(Bytes::copy_from_slice).ok_or_else(|| ObjectError::Changed("it is shorter".to_owned()))
        })
    }

    fn changed(&self) -> Option<String> {
        None
    }
}

fn image() -> Vec<u8> {
    static IMAGE_BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut bytes: Vec<u8> = (0..IMAGE).map(|at| (at / 7 + at / CHUNK) as u8 | 1).collect();
        bytes[RUN..2 * RUN].fill(0);
        bytes
    });
    IMAGE_BYTES.clone()
}

/// The hashes of an image, as they lie beside it.
fn hashes(image: &[u8]) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, image).unwrap();
    let one = std::num::NonZeroUsize::MIN;
    let origin = vfield_node::origin::Origin::publish(file.path(), Some("i"), ChunkSize::DEFAULT, one, &|_| {});
    let mut text = Vec::new();
    kept_tree::write(&origin.unwrap(), &mut text).unwrap();
    text
}

fn store(hashes: Vec<u8>) -> Arc<Memory> {
    Arc::new(Memory { image: Mutex::new(image()), hashes, ..Memory::default() })
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// With the remarks about it.
async fn published(memory: &Arc<Memory>) -> Result<(PublishedObject, Vec<String>), PublishError> {
    let (store, remarks) = (Arc::new(Shared(Arc::clone(memory))), Mutex::new(Vec::new()));
    let serve = ServeObject { store, chunk_size: None, rehash: false, cache_bytes: CACHE_BYTES };
    let remark = |remark| remarks.lock().unwrap().push(remark);
    let published = publish(&serve, "image".to_owned(), &|_| {}, &remark).await?;
    Ok((published, remarks.into_inner().unwrap()))
}

async fn origin(memory: &Arc<Memory>) -> Arc<ObjectOrigin> {
    published(memory).await.unwrap().0.origin
}

/// All chunks, one after the other.
async fn read_all(origin: &Arc<ObjectOrigin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..origin.tree().geometry().data_chunks() {
        origin.bring(Chunk(number)).await.unwrap();
        match origin.read(Chunk(number)).unwrap() {
            Piece::Zero(length) => bytes.resize(bytes.len() + length as usize, 0),
            Piece::Bytes(part) => bytes.extend_from_slice(&part),
            Piece::File(_) => panic!("an object is no file"),
        }
    }
    bytes
}

#[test]
fn many_readers_cost_one_read_of_each_run() {
    runtime().block_on(async {
        let memory = store(hashes(&image()));
        let origin = origin(&memory).await;
        assert_eq!(memory.reads(), 1, "nothing is read at the start but the first run");
        let readers: Vec<_> = (0..20)
            .map(|_| {
                let origin = Arc::clone(&origin);
                tokio::spawn(async move { read_all(&origin).await == image() })
            })
            .collect();
        for reader in readers {
            assert!(reader.await.unwrap(), "other bytes");
        }
        assert_eq!(memory.reads(), 4, "the hole is not read: {:?}", memory.starts.lock().unwrap());
    });
}

#[test]
fn who_reads_here_and_there_reads_short_pieces_and_who_stays_reads_runs() {
    runtime().block_on(async {
        let memory = store(hashes(&image()));
        let origin = origin(&memory).await;
        let chunks = (RUN / CHUNK) as u64;
        let (reads, bytes) = (|| memory.reads(), || memory.read_bytes.load(Ordering::SeqCst));
        let at_first = (reads(), bytes());
        for chunk in [3 * chunks + 20, 3 * chunks + 20, 3 * chunks + 21] {
            origin.bring(Chunk(chunk)).await.unwrap();
        }
        assert_eq!((reads() - at_first.0, bytes() - at_first.1), (1, RUN / 8));
        // Run 3 is read in growing parts, each chunk of it once; then all of the last run.
        for chunk in 3 * chunks..origin.tree().geometry().data_chunks() {
            origin.bring(Chunk(chunk)).await.unwrap();
        }
        assert_eq!(bytes() - at_first.1, RUN + IMAGE % RUN);
        assert!(reads() - at_first.0 <= 7, "{:?}", memory.starts.lock().unwrap());
    });
}

#[test]
fn without_hashes_all_is_read_and_the_id_is_the_same() {
    runtime().block_on(async {
        let (bare, with) = (store(Vec::new()), store(hashes(&image())));
        let (bare, remarks) = published(&bare).await.unwrap();
        assert_eq!((bare.tree, remarks), (None, Vec::new()));
        assert_eq!(bare.origin.id(), origin(&with).await.id());
        assert!(read_all(&bare.origin).await == image());
    });
}

#[test]
fn an_object_with_a_disk_in_it_is_served_and_a_remark_says_so() {
    runtime().block_on(async {
        let memory = store(Vec::new());
        memory.image.lock().unwrap().splice(..4, *b"QFI\xfb");
        let (published, remarks) = published(&memory).await.unwrap();
        let [remark] = &remarks[..] else { panic!("{remarks:?}") };
        assert!(remark.starts_with("image is in the format QCOW2"), "{remark}");
        assert!(read_all(&published.origin).await == *memory.image.lock().unwrap());
    });
}

#[test]
fn hashes_of_other_bytes_are_not_used() {
    runtime().block_on(async {
        let mut other = image();
        other[77] ^= 1;
        let mut cut = hashes(&image());
        cut.truncate(cut.len() - 1);
        let longer = hashes(&[image(), vec![1]].concat());
        for (hashes, says) in [
            (hashes(&other), "those of other bytes"),
            (cut, "cut short or damaged"),
            (longer, "an image of"),
            (b"none at all, but of some length".repeat(9), "no tree"),
        ] {
            let (published, remarks) = published(&store(hashes)).await.unwrap();
            let [remark] = &remarks[..] else { panic!("{remarks:?}") };
            assert!(remark.contains(says) && published.tree.is_none(), "{remark}");
            assert!(read_all(&published.origin).await == image());
        }
    });
}

#[test]
fn a_changed_chunk_is_never_given_out() {
    runtime().block_on(async {
        let memory = store(hashes(&image()));
        let origin = origin(&memory).await;
        let wrong = (3 * RUN / CHUNK) as u64 + 5;
        memory.image.lock().unwrap()[wrong as usize * CHUNK + 9] ^= 1;
        assert_eq!(origin.bring(Chunk(wrong)).await, Err(Away::Changed));
        assert!(matches!(origin.read(Chunk(wrong)), Err(Away::Changed)));
        assert_eq!(origin.bring(Chunk(wrong - 1)).await, Ok(()), "its neighbour is as it was");
        let OriginState::Changed { chunks, .. } = origin.state() else { panic!("{:?}", origin.state()) };
        let wrong_one = wrong..wrong + 1;
        assert_eq!(chunks, std::slice::from_ref(&wrong_one));

        // Shorter than it was.
        memory.image.lock().unwrap().truncate(2 * RUN);
        assert_eq!(origin.bring(Chunk((2 * RUN / CHUNK) as u64)).await, Err(Away::Changed));
    });
}

#[test]
fn a_failing_store_lets_waiters_go_and_delivers_later() {
    runtime().block_on(async {
        let memory = store(hashes(&image()));
        let origin = origin(&memory).await;
        memory.fails.store(true, Ordering::SeqCst);
        let last = Chunk(origin.tree().geometry().data_chunks() - 1);
        assert_eq!(origin.bring(last).await, Err(Away::Failing));
        assert_eq!(origin.state(), OriginState::Unreachable { why: "503 Service Unavailable".to_owned() });
        // A cached chunk is read all the same.
        assert_eq!(origin.bring(Chunk(0)).await, Ok(()));
        memory.fails.store(false, Ordering::SeqCst);
        while origin.bring(last).await.is_err() {}
        assert_eq!(origin.state(), OriginState::Checked);
    });
}

//! A base in memory whose bytes are available on demand, and the actions on an overlay of it.

use bytes::Bytes;
use proptest::prelude::*;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use tokio::sync::watch;
use vfield_block::device::{BlockDevice, WriteError};
use vfield_block::extent::Extent;
use vfield_block::source::{Allocating, Allocation, BlockSource, Piece, ReadError, Reading, Urgency};
use vfield_core::image::ImageId;
use vfield_overlay::{Overlay, Replacement, SaveError};

pub const ID: ImageId = ImageId([7; 32]);

/// More than two areas, an odd number of bytes long.
pub const LENGTH: usize = (5 << 19) + 4096 + 777;

/// Reads are answered in parts of this at most, so that callers have to come again.
const PART: u64 = 100_000;

/// Saves an overlay in the file at a path that may have one; the length.
pub fn save(overlay: &Overlay, path: &Path) -> Result<u64, SaveError> {
    let replacement = Replacement::begin(path).unwrap();
    let length = overlay.save(replacement.file())?;
    replacement.complete().unwrap();
    Ok(length)
}

/// Bytes with a run of zeros among them. While its gate is shut nothing is here.
pub struct Base {
    pub bytes: Bytes,
    gate: watch::Sender<bool>,
    error: watch::Sender<Option<ReadError>>,
    waiting: watch::Sender<usize>,
    /// The number of reads.
    pub reads: AtomicUsize,
}

impl Base {
    pub fn new() -> Arc<Self> {
        // Made once: every case of a property has a base.
        static BYTES: LazyLock<Bytes> = LazyLock::new(|| {
            let zero = |at: usize| (300_000..400_000).contains(&at);
            (0..LENGTH).map(|at| if zero(at) { 0 } else { (at * 7 + at / 251) as u8 | 1 }).collect()
        });
        Arc::new(Self {
            bytes: BYTES.clone(),
            gate: watch::Sender::new(true),
            error: watch::Sender::default(),
            waiting: watch::Sender::default(),
            reads: AtomicUsize::default(),
        })
    }

    pub fn shut(&self) {
        self.gate.send_replace(false);
    }

    pub fn open(&self) {
        self.gate.send_replace(true);
    }

    pub fn fail_with(&self, error: Option<ReadError>) {
        self.error.send_replace(error);
    }

    /// Returns when `count` reads wait.
    pub async fn until_waiting(&self, count: usize) {
        self.waiting.subscribe().wait_for(|waiting| *waiting == count).await.expect("the base lives");
    }

    fn piece(&self, extent: Extent) -> Piece {
        assert!(!extent.is_empty() && extent.end() <= LENGTH as u64, "the overlay asked for {extent:?}");
        self.reads.fetch_add(1, Ordering::Relaxed);
        Piece::Bytes(self.bytes.slice(extent.start() as usize..extent.end() as usize))
    }
}

impl BlockSource for Base {
    fn name(&self) -> &str {
        "base"
    }

    fn description(&self) -> String {
        "a test's base".into()
    }

    fn size_bytes(&self) -> u64 {
        LENGTH as u64
    }

    fn chunk_bytes(&self) -> u32 {
        64 << 10
    }

    fn try_read(&self, extent: Extent, pieces: &mut Vec<Piece>) -> bool {
        let here = *self.gate.borrow() && self.error.borrow().is_none();
        if here {
            pieces.push(self.piece(extent));
        }
        here
    }

    fn read(&self, extent: Extent) -> Reading<'_> {
        Box::pin(async move {
            if let Some(error) = self.error.borrow().clone() {
                return Err(error);
            }
            self.waiting.send_modify(|waiting| *waiting += 1);
            self.gate.subscribe().wait_for(|open| *open).await.expect("the base lives");
            self.waiting.send_modify(|waiting| *waiting -= 1);
            Ok(vec![self.piece(extent.take(PART))])
        })
    }

    fn prefetch(&self, _: Extent, _: Urgency) {}

    fn allocation(&self, extent: Extent) -> Allocating<'_> {
        let zeros = extent.clip(Extent::from(300_000..400_000));
        let run = |length_bytes, zero| Allocation { length_bytes, zero };
        let runs = match (zeros.len(), zeros.start() - extent.start()) {
            (0, _) => vec![run(extent.len(), false)],
            (length, 0) => vec![run(length, true)],
            (_, before) => vec![run(before, false)],
        };
        Box::pin(std::future::ready(Ok(runs)))
    }

    fn is_complete(&self) -> bool {
        true
    }
}

/// Something done to a device.
#[derive(Debug, Clone)]
pub enum Action {
    Write(u64, usize, u8),
    Zero(u64, u64),
    Discard(u64, u64),
    Read(u64, u64),
}

/// Extents of all lengths, often at the borders of granules and areas.
fn places() -> impl Strategy<Value = (u64, u64)> {
    let offset = prop_oneof![
        0..LENGTH as u64,
        (0..(LENGTH / 4096) as u64).prop_map(|granule| granule * 4096),
        (0..3_u64).prop_map(|area| area << 20),
        Just(LENGTH as u64 - 100),
    ];
    let length =
        prop_oneof![1..600_u64, 1..20_000_u64, 4095..4098_u64, 1..1_500_000_u64, (1..40_u64).prop_map(|n| n * 4096)];
    (offset, length).prop_map(|(offset, length)| (offset, length.min(device_bytes() - offset)))
}

pub fn actions() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (places(), any::<u8>()).prop_map(|((offset, length), seed)| Action::Write(offset, length as usize, seed)),
        1 => places().prop_map(|(offset, length)| Action::Zero(offset, length)),
        1 => places().prop_map(|(offset, length)| Action::Discard(offset, length)),
        2 => places().prop_map(|(offset, length)| Action::Read(offset, length)),
    ]
}

pub const fn device_bytes() -> u64 {
    (LENGTH as u64).next_multiple_of(512)
}

/// The device's bytes before any change.
pub fn model(base: &Base) -> Vec<u8> {
    let mut bytes = base.bytes.to_vec();
    bytes.resize(device_bytes() as usize, 0);
    bytes
}

pub fn noise(length: usize, seed: u8) -> Vec<u8> {
    // A prime, so that no two granules are the same.
    let period: Vec<u8> = (0..4093).map(|at| (at as u8).wrapping_mul(31) ^ (at / 256) as u8 ^ seed).collect();
    let mut bytes = period.repeat(length.div_ceil(period.len()));
    bytes.truncate(length);
    bytes
}

/// Does the same to both; the reads must be equal.
pub async fn act(overlay: &Overlay, model: &mut [u8], action: &Action) -> Result<(), WriteError> {
    match *action {
        Action::Write(offset, length, seed) => {
            let bytes = noise(length, seed);
            // Both ways in by turns.
            match if seed % 2 == 0 { overlay.try_write(offset, &bytes) } else { None } {
                Some(done) => done?,
                None => overlay.write(offset, bytes.clone().into()).await?,
            }
            model[offset as usize..][..length].copy_from_slice(&bytes);
        }
        Action::Zero(offset, length) => {
            overlay.zero(Extent::from(offset..offset + length)).await?;
            model[offset as usize..][..length as usize].fill(0);
        }
        Action::Discard(offset, length) => {
            overlay.discard(Extent::from(offset..offset + length))?;
            let end = offset + length;
            let whole_end = if end == device_bytes() { end } else { end / 4096 * 4096 };
            let start = offset.next_multiple_of(4096);
            if start < whole_end {
                model[start as usize..whole_end as usize].fill(0);
            }
        }
        Action::Read(offset, length) => {
            let found = read(overlay, Extent::from(offset..offset + length)).await;
            assert!(found == model[offset as usize..][..length as usize], "{action:?}");
        }
    }
    Ok(())
}

/// All bytes of an extent, by both ways of reading.
pub async fn read(source: &dyn BlockSource, extent: Extent) -> Vec<u8> {
    let mut found = Vec::new();
    let mut rest = extent;
    while !rest.is_empty() {
        let pieces = source.read(rest).await.expect("it can be read");
        assert!(!pieces.is_empty());
        rest = rest.skip(pieces.iter().map(Piece::len).sum());
        found.extend(bytes_of(&pieces));
    }
    let mut pieces = Vec::new();
    if source.try_read(extent, &mut pieces) {
        assert!(bytes_of(&pieces) == found, "two ways, two answers");
    }
    found
}

fn bytes_of(pieces: &[Piece]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Zero(length) => bytes.resize(bytes.len() + *length as usize, 0),
            Piece::Bytes(more) => bytes.extend_from_slice(more),
            Piece::File(file) => panic!("{file:?} would change in flight"),
        }
    }
    bytes
}

/// The device equals the model, and all announced zeros are zeros.
pub async fn check(overlay: &Overlay, model: &[u8]) {
    let all = Extent::from(0..overlay.size_bytes());
    assert_eq!(all.len(), model.len() as u64);
    let found = read(overlay, all).await;
    let differs = || found.iter().zip(model).position(|(found, wanted)| found != wanted);
    assert!(found == model, "the first wrong byte is at {:?}", differs());
    let mut rest = all;
    while !rest.is_empty() {
        let runs = overlay.allocation(rest).await.expect("it can be told");
        assert!(!runs.is_empty());
        for run in runs {
            let told = &found[rest.start() as usize..][..run.length_bytes as usize];
            assert!(!run.zero || told == &vec![0; told.len()][..], "{run:?} at {}", rest.start());
            rest = rest.skip(run.length_bytes);
        }
    }
}

pub fn in_memory(base: &Arc<Base>) -> Overlay {
    Overlay::in_memory(base.clone(), ID, 1 << 30).expect("there is memory")
}

/// Runs a future that needs nothing from a runtime but to be polled.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

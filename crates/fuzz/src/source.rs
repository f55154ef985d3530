//! Images for targets that need something to serve: small ones in memory.

use bytes::Bytes;
use std::sync::{Arc, LazyLock};
use vfield_block::extent::Extent;
use vfield_block::source::{Allocating, Allocation, BlockSource, Piece, Reading, Urgency};

/// Length of it: more than one area of an overlay, and no multiple of anything.
pub const LENGTH: usize = (1 << 20) + 4096 + 777;

/// A quarter of it is zeros that are known to be.
const ZEROS: std::ops::Range<u64> = 262_144..524_288;

static BYTES: LazyLock<Bytes> = LazyLock::new(|| {
    let zero = |at: usize| ZEROS.contains(&(at as u64));
    (0..LENGTH).map(|at| if zero(at) { 0 } else { (at * 7 + at / 251) as u8 | 1 }).collect()
});

/// An image whose bytes are all here.
#[derive(Debug)]
pub struct Image;

impl Image {
    /// As exports take it.
    pub fn shared() -> Arc<dyn BlockSource> {
        Arc::new(Self)
    }
}

/// The device's bytes: those of the image, then zeros.
pub fn byte(at: u64) -> u8 {
    BYTES.get(at as usize).copied().unwrap_or(0)
}

fn run(extent: Extent) -> Allocation {
    let at = extent.start();
    let zero = ZEROS.contains(&at);
    let end = if zero {
        ZEROS.end
    } else if at < ZEROS.start {
        ZEROS.start
    } else {
        LENGTH as u64
    };
    Allocation { length_bytes: end.min(extent.end()) - at, zero }
}

impl BlockSource for Image {
    fn name(&self) -> &str {
        "image"
    }

    fn description(&self) -> String {
        "an image in memory".to_owned()
    }

    fn size_bytes(&self) -> u64 {
        LENGTH as u64
    }

    fn chunk_bytes(&self) -> u32 {
        64 << 10
    }

    fn try_read(&self, extent: Extent, pieces: &mut Vec<Piece>) -> bool {
        assert!(!extent.is_empty() && extent.end() <= LENGTH as u64, "an export asked for {extent:?}");
        let mut rest = extent;
        while !rest.is_empty() {
            let Allocation { length_bytes, zero } = run(rest);
            let end = rest.start() + length_bytes;
            pieces.push(match zero {
                true => Piece::Zero(length_bytes),
                false => Piece::Bytes(BYTES.slice(rest.start() as usize..end as usize)),
            });
            rest = Extent::from(end..rest.end());
        }
        true
    }

    fn read(&self, extent: Extent) -> Reading<'_> {
        let mut pieces = Vec::new();
        self.try_read(extent, &mut pieces);
        Box::pin(async move { Ok(pieces) })
    }

    fn prefetch(&self, extent: Extent, _: Urgency) {
        assert!(extent.end() <= LENGTH as u64, "an export asked for {extent:?}");
    }

    fn allocation(&self, extent: Extent) -> Allocating<'_> {
        Box::pin(async move { Ok(vec![run(extent)]) })
    }

    fn is_complete(&self) -> bool {
        true
    }
}

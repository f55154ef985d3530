//! The runs of `vfield bench --matrix`: orders, blocks, and spans that end with the image.
//!
//! Pure: `lib.rs` makes the runs. One reader with one request at a time is usual, so a delay is
//! that of a read, not of a queue.

use crate::args::Pattern;

/// Streams of a run.
pub const STREAMS: [u64; 1] = [1];
/// Requests of each stream.
pub const DEPTH: u64 = 1;

const PATTERNS: [Pattern; 2] = [Pattern::Random, Pattern::Sequential];
/// A page, and the usual chunk.
const BLOCKS: [u64; 2] = [4 << 10, 64 << 10];
/// Bytes from the start of an image: what a memory holds, and what few hold. The small one is
/// first, since reads in it leave most of the large one as it was.
const SPANS: [u64; 2] = [256 << 20, 8 << 30];

/// Order, block and span of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// In which order.
    pub pattern: Pattern,
    /// Bytes of a request.
    pub block_bytes: u64,
    /// No byte behind this one is read.
    pub span_bytes: u64,
}

/// All runs on an image of `end_bytes`, in their order.
pub fn rows(end_bytes: u64) -> Vec<Row> {
    let spans = spans(end_bytes);
    let of_span = |span_bytes| {
        let of_block =
            move |block_bytes| PATTERNS.into_iter().map(move |pattern| Row { pattern, block_bytes, span_bytes });
        BLOCKS.into_iter().flat_map(of_block)
    };
    spans.into_iter().flat_map(of_span).collect()
}

/// Spans that end with the image, each once.
fn spans(end_bytes: u64) -> Vec<u64> {
    let mut spans = SPANS.map(|span| span.min(end_bytes)).to_vec();
    spans.dedup();
    spans
}

/// What an image of `end_bytes` is too short for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Short {
    /// The first span that it does not fill: its rows end with the image.
    pub wanted_bytes: u64,
    /// Spans that would be the same once more.
    pub left_out: usize,
}

/// Nothing if the image fills all spans.
pub fn short(end_bytes: u64) -> Option<Short> {
    let wanted_bytes = SPANS.into_iter().find(|span| *span > end_bytes)?;
    Some(Short { wanted_bytes, left_out: SPANS.len() - spans(end_bytes).len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_image_has_eight_runs() {
        let rows = rows(1 << 40);
        assert_eq!((rows.len(), short(8 << 30)), (8, None));
        let mut kinds: Vec<_> = rows.iter().map(|row| (row.pattern.name(), row.block_bytes, row.span_bytes)).collect();
        assert_eq!(kinds[0], ("random", 4096, 256 << 20));
        assert_eq!(kinds[7], ("sequential", 65536, 8 << 30));
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds.len(), 8);
    }

    #[test]
    fn spans_end_with_the_image_and_are_not_repeated() {
        let of = |end| spans(end);
        assert_eq!(of(300 << 20), [256 << 20, 300 << 20]);
        assert_eq!(short(300 << 20), Some(Short { wanted_bytes: 8 << 30, left_out: 0 }));
        assert_eq!(of(1000), [1000]);
        assert_eq!(short(1000), Some(Short { wanted_bytes: 256 << 20, left_out: 1 }));
        assert_eq!(of(256 << 20), [256 << 20]);
        assert_eq!(short(256 << 20), Some(Short { wanted_bytes: 8 << 30, left_out: 1 }));
        assert_eq!(rows(1000).len(), 4);
    }
}

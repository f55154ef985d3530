//! The reads of an object that are under way.

use std::collections::BTreeMap;
use std::ops::Range;
use tokio::sync::watch;
use vfield_core::chunk::Chunk;

/// Reads under way. Invariant: no chunk is in two of them.
#[derive(Debug, Default)]
pub struct UnderWay {
    /// By the first chunk.
    reads: BTreeMap<u64, Read>,
}

#[derive(Debug)]
struct Read {
    /// One past the last chunk.
    end: u64,
    /// True once it has ended.
    ended: watch::Sender<bool>,
}

impl UnderWay {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.reads.len()
    }

    /// The end of the read that brings a chunk.
    pub fn of(&self, chunk: Chunk) -> Option<watch::Receiver<bool>> {
        let (_, read) = self.reads.range(..=chunk.0).next_back()?;
        (chunk.0 < read.end).then(|| read.ended.subscribe())
    }

    /// The chunks around one that no read brings: up to those that others bring.
    pub fn gap(&self, chunk: Chunk) -> Range<u64> {
        let start = self.reads.range(..=chunk.0).next_back().map_or(0, |(_, read)| read.end);
        let end = self.reads.range(chunk.0..).next().map_or(u64::MAX, |(first, _)| *first);
        start..end
    }

    /// A read of these chunks begins; returns its end.
    pub fn begin(&mut self, chunks: Range<u64>) -> watch::Receiver<bool> {
        let (sender, ended) = watch::channel(false);
        self.reads.insert(chunks.start, Read { end: chunks.end, ended: sender });
        ended
    }

    /// True if somebody waits for the read that begins with this chunk.
    pub fn is_wanted(&self, first: u64) -> bool {
        self.reads.get(&first).is_some_and(|read| read.ended.receiver_count() > 0)
    }

    /// The read that begins with this chunk has ended.
    pub fn end(&mut self, first: u64) {
        if let Some(read) = self.reads.remove(&first) {
            read.ended.send_replace(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_found_by_each_of_their_chunks_and_leave_gaps() {
        let mut reads = UnderWay::default();
        assert_eq!(reads.gap(Chunk(7)), 0..u64::MAX);
        let ended = reads.begin(10..20);
        drop(reads.begin(30..31));
        let found: Vec<u64> = (0..40).filter(|number| reads.of(Chunk(*number)).is_some()).collect();
        assert_eq!(found, [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 30]);
        assert_eq!([9, 25, 31].map(|number| reads.gap(Chunk(number))), [0..10, 20..30, 31..u64::MAX]);
        assert!(reads.is_wanted(10) && !reads.is_wanted(30) && !reads.is_wanted(11));
        reads.end(10);
        assert!(*ended.borrow() && reads.of(Chunk(10)).is_none() && reads.count() == 1);
    }
}

//! A reader of one machine: reads chunk after chunk, as an export does, and notes how long it waited.

use std::ops::Range;
use std::time::Duration;
use vfield_core::read_ahead::ReadAhead;
use vfield_core::source::ReadError;
use vfield_core::time::Time;

/// So many chunks are asked for at once, as a client with requests of 128 KiB does.
pub const READ_CHUNKS: u64 = 8;

/// See the module.
#[derive(Debug)]
pub struct Reader {
    pub host: usize,
    pub image: usize,
    pub next: u64,
    pub end: u64,
    pub ahead: ReadAhead,
    /// Since when it waits for `next`.
    pub since: Time,
    pub longest_wait: Duration,
    pub waits: u32,
    pub failed: Option<ReadError>,
}

impl Reader {
    pub fn new(host: usize, image: usize, chunks: Range<u64>, total: u64, ahead_chunks: u64, now: Time) -> Self {
        Self {
            host,
            image,
            next: chunks.start,
            end: chunks.end,
            ahead: ReadAhead::new(total, ahead_chunks),
            since: now,
            longest_wait: Duration::ZERO,
            waits: 0,
            failed: None,
        }
    }

    pub fn is_done(&self) -> bool {
        self.next == self.end || self.failed.is_some()
    }

    /// What it asks for next.
    pub fn wanted(&self) -> Range<u64> {
        self.next..self.end.min(self.next + READ_CHUNKS)
    }

    pub fn waited(&mut self, now: Time) {
        self.waits += 1;
        self.longest_wait = self.longest_wait.max(now - self.since);
    }
}

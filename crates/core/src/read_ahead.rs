//! Read-ahead: recognises sequential readers and predicts their next chunks.
//!
//! It is beside the export, not in [`crate::node::Node`]: it sees every read, hits too, and
//! suggests a range only when there is something to fetch. Pure arithmetic over chunk numbers.

use std::ops::Range;

/// Sequential readers tracked at once; a new one replaces the least recently active.
const STREAMS: usize = 16;
/// Chunks that a reader may skip, or read out of order, and still count as sequential. Clients with
/// several connections or requests in flight do so (nbdcopy: 4 x 16 requests of 256 KiB).
const SLACK: u64 = 64;
/// Chunks up to the furthest read, of which more than half have to have been read. In an image of a
/// few thousand chunks the [`STREAMS`] with their slack cover nearly everything. Random reads then
/// fit one of them by chance, but leave gaps.
const DENSE: u64 = 64;
/// First window in chunks; it doubles as the reader goes on.
const WINDOW_MIN: u64 = 4;

#[derive(Debug, Clone, Default)]
struct Stream {
    /// The first chunk read.
    from: u64,
    /// One past the highest chunk read.
    next: u64,
    /// A bit set of the last [`DENSE`] chunks before `next` that were read; bit 0 is the one right
    /// before it.
    seen: u64,
    /// One past the last chunk suggested.
    suggested: u64,
    window: u64,
    /// Reads that fitted, and went further, so far.
    hits: u32,
    used: u64,
}

impl Stream {
    /// Notes which chunks were read.
    fn read(&mut self, read: Range<u64>) {
        if read.end > self.next {
            self.seen = u32::try_from(read.end - self.next).ok().and_then(|by| self.seen.checked_shl(by)).unwrap_or(0);
            self.next = read.end;
        }
        self.seen |= lowest(self.next - read.start) & !lowest(self.next - read.end);
    }

    /// True if the reads leave few gaps.
    fn is_dense(&self) -> bool {
        let span = self.next.saturating_sub(self.from).min(DENSE);
        u64::from((self.seen & lowest(span)).count_ones()) * 2 > span
    }
}

/// The lowest bits, at most 64.
fn lowest(bits: u64) -> u64 {
    u32::try_from(bits).ok().and_then(|bits| 1u64.checked_shl(bits)).map_or(u64::MAX, |above| above - 1)
}

/// The readers of one image.
#[derive(Debug)]
pub struct ReadAhead {
    streams: Vec<Stream>,
    window_max: u64,
    chunks: u64,
    clock: u64,
}

impl ReadAhead {
    /// Readers of an image of `chunks` data chunks; at most `window_max` chunks ahead, 0 for never.
    pub const fn new(chunks: u64, window_max: u64) -> Self {
        Self { streams: Vec::new(), window_max, chunks, clock: 0 }
    }

    /// Notes a read of `read` (data chunks) and returns what to fetch now because of it, often
    /// nothing.
    pub fn note(&mut self, read: Range<u64>) -> Range<u64> {
        let (window_max, chunks) = (self.window_max, self.chunks);
        let Some(stream) = self.see(read).filter(|stream| stream.hits >= 2 && stream.is_dense()) else { return 0..0 };
        stream.suggested = stream.suggested.max(stream.next);
        // Suggest in batches: only when half of the last suggestion has been read.
        if stream.suggested - stream.next > stream.window / 2 {
            return 0..0;
        }
        stream.window = (stream.window * 2).max(WINDOW_MIN).min(window_max);
        let from = stream.suggested.min(chunks);
        stream.suggested = (stream.next + stream.window).min(chunks).max(from);
        from..stream.suggested
    }

    /// Notes a read after which another knows what to fetch. So a reader is still known for a
    /// sequential one when the other knows no more.
    pub fn note_led(&mut self, read: Range<u64>) {
        self.see(read);
    }

    /// Notes a read, and returns the stream that goes on with it; none if it begins one.
    fn see(&mut self, read: Range<u64>) -> Option<&mut Stream> {
        self.clock += 1;
        if self.window_max == 0 || read.is_empty() {
            return None;
        }
        let follows = |stream: &Stream| read.start <= stream.next + SLACK && read.end + SLACK >= stream.next;
        let Some(at) = self.streams.iter().position(follows) else {
            self.begin(read);
            return None;
        };
        let stream = &mut self.streams[at];
        stream.used = self.clock;
        stream.hits += u32::from(read.end > stream.next);
        stream.read(read);
        Some(stream)
    }

    fn begin(&mut self, read: Range<u64>) {
        let mut stream = Stream { from: read.start, next: read.start, used: self.clock, ..Stream::default() };
        stream.read(read);
        stream.suggested = stream.next;
        if self.streams.len() < STREAMS {
            self.streams.push(stream);
        } else if let Some(oldest) = self.streams.iter_mut().min_by_key(|stream| stream.used) {
            *oldest = stream;
        }
    }
}

//! What the readers of a machine read first of an image, and in which order.

use super::{PrefetchList, RUNS_MAX, longest};
use crate::time::Time;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// Without a read for this long, a boot or a program's start is over. One read may wait longer on a
/// slow link, but not many do.
const QUIET: Duration = Duration::from_secs(10);
/// After this nothing is noted any more, so that a list tells a start, and not a day's work: a boot
/// over a link of 10 Mbit/s takes this long.
const WITHIN: Duration = Duration::from_secs(300);
/// Fewer chunks than this are no start: a mount reads some, and what runs from it may come an hour
/// later.
const START_MIN: usize = 16;
/// A chunk is in the list if at least this part of it is read: a reader of less asks for a slice
/// ([`crate::slicing`]), and the whole chunk would be several times its bytes.
const PART_MIN: u64 = 4;

/// Notes the first reads of an image.
#[derive(Debug)]
pub struct Recorder {
    chunks: u64,
    chunk_bytes: u64,
    /// The chunks that were read, in order.
    order: Vec<u64>,
    /// How much of each was read.
    bytes: BTreeMap<u64, u64>,
    /// How many of them are worth a fetch.
    worth: u64,
    /// When the first and the last read were noted.
    noted: Option<(Time, Time)>,
    over: bool,
}

impl Recorder {
    /// For an image of `chunks` data chunks of `chunk_bytes`, the last of which may be shorter.
    pub const fn new(chunks: u64, chunk_bytes: u64) -> Self {
        Self {
            chunks,
            chunk_bytes,
            order: Vec::new(),
            bytes: BTreeMap::new(),
            worth: 0,
            noted: None,
            over: chunks == 0,
        }
    }

    /// True before the first read.
    pub const fn is_new(&self) -> bool {
        self.noted.is_none()
    }

    /// Notes a read of these bytes.
    pub fn note(&mut self, read: Range<u64>, now: Time) {
        self.over = self.is_over(now);
        if self.over {
            return;
        }
        let first = self.noted.filter(|(_, last)| now - *last <= QUIET).map_or(now, |(first, _)| first);
        self.noted = Some((first, now));
        let chunks = read.start / self.chunk_bytes..read.end.div_ceil(self.chunk_bytes).min(self.chunks);
        for chunk in chunks {
            let all = chunk * self.chunk_bytes..(chunk + 1) * self.chunk_bytes;
            let bytes = read.end.min(all.end) - read.start.max(all.start);
            let known = self.bytes.get(&chunk).copied();
            if known.is_none() && self.order.len() as u64 >= longest(self.chunks) {
                self.over = true;
                return;
            }
            if known.is_none() {
                self.order.push(chunk);
            }
            let (before, now) = (known.unwrap_or(0), known.unwrap_or(0) + bytes);
            self.worth += u64::from(!self.is_worth(before) && self.is_worth(now));
            self.bytes.insert(chunk, now);
        }
    }

    /// True once nothing more is noted.
    pub fn is_over(&self, now: Time) -> bool {
        let (first, last) = self.noted.unwrap_or((now, now));
        self.over || (self.order.len() >= START_MIN && (now - last > QUIET || now - first > WITHIN))
    }

    /// True if a chunk is worth a fetch of which so many bytes are read.
    const fn is_worth(&self, bytes: u64) -> bool {
        bytes * PART_MIN >= self.chunk_bytes
    }

    /// How many chunks are worth a fetch, so far: it rises whenever the list does.
    pub const fn worth(&self) -> u64 {
        self.worth
    }

    /// The chunks that are worth a fetch, so far.
    pub fn list(&self) -> PrefetchList {
        let mut list = PrefetchList::default();
        for chunk in self.order.iter().filter(|chunk| self.is_worth(self.bytes[chunk])) {
            if list.runs().len() == RUNS_MAX {
                break;
            }
            list.push(*chunk);
        }
        list
    }
}

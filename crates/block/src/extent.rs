//! Extents: half-open ranges of an image's bytes.

use std::fmt;
use std::ops::Range;

/// A half-open range of bytes, `start..end`, with `start <= end`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    start: u64,
    end: u64,
}

impl Extent {
    /// `length` bytes from `offset`; `None` if the end does not fit into 64 bits.
    pub fn new(offset: u64, length: u64) -> Option<Self> {
        Some(Self { start: offset, end: offset.checked_add(length)? })
    }

    /// Offset of the first byte.
    pub const fn start(self) -> u64 {
        self.start
    }

    /// One past the last byte.
    pub const fn end(self) -> u64 {
        self.end
    }

    /// Length in bytes.
    pub const fn len(self) -> u64 {
        self.end - self.start
    }

    /// True if it holds no byte.
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// The part of it that lies within `other`; empty (at its own start) if they do not meet.
    pub fn clip(self, other: Extent) -> Extent {
        let start = self.start.max(other.start);
        let end = self.end.min(other.end);
        if start < end { Extent { start, end } } else { Extent { start: self.start, end: self.start } }
    }

    /// The rest of it after its first `bytes` (empty if that is all of it).
    pub fn skip(self, bytes: u64) -> Extent {
        Extent { start: self.start.saturating_add(bytes).min(self.end), end: self.end }
    }

    /// Its first `bytes`, or all of it.
    pub fn take(self, bytes: u64) -> Extent {
        Extent { start: self.start, end: self.end.min(self.start.saturating_add(bytes)) }
    }
}

impl From<Range<u64>> for Extent {
    /// An inverted range becomes empty at its start.
    fn from(range: Range<u64>) -> Self {
        Self { start: range.start, end: range.end.max(range.start) }
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

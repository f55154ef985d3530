//! The known defects of a published file.
//!
//! Invariant: the moment of the first failure is kept, and every failed chunk lies in a reported
//! range. Checked reads write it, `status` reads it.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;
use vfield_core::chunk::Chunk;

/// Most ranges; further ones are joined to adjacent ones. So a file that is rewritten in many
/// places costs at most 16 KiB.
const RANGES_MAX: usize = 1024;

/// The state of a published file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OriginState {
    /// Intact: a lease keeps writers out.
    Intact,
    /// Each chunk is hashed before it is sent; none was found changed.
    Checked,
    /// Its disk, or the store of an object, does not deliver now. Chunks that are in the stores of
    /// nodes are still read.
    Unreachable {
        /// The reason, in words.
        why: String,
    },
    /// Some chunks are unreadable or differ from the published ones. The others are still served.
    Changed {
        /// When the first failure was found.
        since: SystemTime,
        /// Data chunks that were found changed; with more than 1024 ranges also chunks between
        /// them.
        chunks: Vec<Range<u64>>,
    },
}

/// The failures found so far.
#[derive(Debug, Default)]
pub struct Health {
    failures: Mutex<Option<(SystemTime, Vec<Range<u64>>)>>,
}

impl Health {
    /// Notes that a data chunk is unreadable, or differs from the published one. True at the first
    /// time.
    pub fn mark_bad(&self, chunk: Chunk) -> bool {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, ranges) = failures.get_or_insert_with(|| (SystemTime::now(), Vec::new()));
        let is_new = !ranges.iter().any(|range| range.contains(&chunk.0));
        insert(ranges, chunk.0);
        is_new
    }

    /// The state "changed", if anything failed.
    pub fn changed(&self) -> Option<OriginState> {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.as_ref().map(|(since, chunks)| OriginState::Changed { since: *since, chunks: chunks.clone() })
    }
}

/// Adds a number to ascending, separate ranges.
fn insert(ranges: &mut Vec<Range<u64>>, number: u64) {
    let at = ranges.partition_point(|range| range.end < number);
    match ranges.get_mut(at) {
        Some(range) if range.start <= number => range.end = range.end.max(number + 1),
        Some(range) if range.start == number + 1 => range.start = number,
        _ => ranges.insert(at, number..number + 1),
    }
    let joins_next = ranges.get(at + 1).is_some_and(|next| next.start <= ranges[at].end);
    if joins_next || ranges.len() > RANGES_MAX {
        // The last range has no successor: it is joined to its predecessor.
        let at = at.min(ranges.len() - 2);
        let next = ranges.remove(at + 1);
        ranges[at].end = next.end;
    }
}

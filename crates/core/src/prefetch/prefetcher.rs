//! Prefetch along a list, shortly before the reader.

use super::{PrefetchList, append};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use vfield_block::gather::Gather as _;

/// Chunks that are fetched on trust: what a list costs that leads elsewhere.
const TRUST: u64 = 16;
/// Chunks more for each read of a fetched one. Along a right list, where most are read, this
/// grows to the whole window within a hundred reads. With fewer than half of them it ends: random
/// reads of a part of the image meet a list of it by chance.
const EARNED: u64 = 2;

/// Fetches ahead of the readers of one image, along one list.
#[derive(Debug)]
pub struct Prefetcher {
    order: Vec<u64>,
    /// The place of each chunk in the order, until it is read.
    unread: BTreeMap<u64, u32>,
    /// Chunks that were suggested and not read yet.
    awaited: BTreeSet<u64>,
    /// Most chunks ahead of the readers.
    window: u64,
    /// One past the last place that they have come to.
    front: usize,
    /// Up to here chunks have been suggested.
    suggested: usize,
    /// Chunks that may still be suggested.
    credit: u64,
}

impl Prefetcher {
    /// At most `window` chunks ahead of the readers.
    pub fn new(list: &PrefetchList, window: u64) -> Self {
        let order: Vec<u64> = list.chunks().collect();
        let unread = order.iter().copied().zip(0..).gathered();
        Self { order, unread, awaited: BTreeSet::new(), window, front: 0, suggested: 0, credit: TRUST }
    }

    /// True once there is nothing more to suggest.
    pub fn is_over(&self) -> bool {
        self.suggested == self.order.len() || self.window == 0
    }

    /// Notes a read of data chunks, and returns what to fetch now because of it, in order; often
    /// nothing.
    pub fn note(&mut self, read: Range<u64>) -> Vec<Range<u64>> {
        for chunk in read {
            if let Some(rank) = self.unread.remove(&chunk) {
                self.front = self.front.max(rank as usize + 1);
                self.credit += EARNED * u64::from(self.awaited.remove(&chunk));
            }
        }
        // Chunks before the place of the readers are on their way, or were skipped.
        self.suggested = self.suggested.max(self.front);
        let end = self.front.saturating_add(self.window as usize).min(self.order.len());
        let mut runs: Vec<Range<u64>> = Vec::new();
        while self.suggested < end && self.credit > 0 {
            let chunk = self.order[self.suggested];
            self.suggested += 1;
            if !self.unread.contains_key(&chunk) {
                continue;
            }
            self.credit -= 1;
            self.awaited.insert(chunk);
            append(&mut runs, chunk);
        }
        runs
    }
}

//! Prefetch along a list, shortly before the reader.

use super::{PrefetchList, append};
use std::collections::BTreeMap;
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
    listed: BTreeMap<u64, Listed>,
    /// Most chunks ahead of the readers.
    window: u64,
    /// One past the last place that they have come to.
    front: usize,
    /// Up to here chunks have been suggested.
    suggested: usize,
    /// Chunks that may still be suggested.
    credit: u64,
}

/// A chunk of the list.
#[derive(Debug)]
struct Listed {
    /// Its place in the order.
    place: usize,
    is_suggested: bool,
    is_read: bool,
}

impl Prefetcher {
    /// At most `window` chunks ahead of the readers.
    pub fn new(list: &PrefetchList, window: u64) -> Self {
        let order: Vec<u64> = list.chunks().collect();
        let listed = |place| Listed { place, is_suggested: false, is_read: false };
        let listed = order.iter().copied().zip((0..).map(listed)).gathered();
        Self { order, listed, window, front: 0, suggested: 0, credit: TRUST }
    }

    /// True once the readers have come to its end: it leads them no more.
    pub fn is_over(&self) -> bool {
        self.front == self.order.len() || self.window == 0
    }

    /// True if all these data chunks were fetched along the list, and it is still followed. Then it
    /// knows the reader's next chunks better than [`crate::read_ahead`]: earlier readers of these
    /// went on with them.
    pub fn leads(&self, read: Range<u64>) -> bool {
        let is_led = |chunk| self.listed.get(&chunk).is_some_and(|listed| listed.is_suggested);
        self.credit > 0 && read.into_iter().all(is_led)
    }

    /// Notes a read of data chunks, and returns what to fetch now because of it, in order; often
    /// nothing.
    pub fn note(&mut self, read: Range<u64>) -> Vec<Range<u64>> {
        for chunk in read {
            if let Some(listed) = self.listed.get_mut(&chunk).filter(|listed| !listed.is_read) {
                listed.is_read = true;
                self.front = self.front.max(listed.place + 1);
                self.credit += EARNED * u64::from(listed.is_suggested);
            }
        }
        // Chunks before the place of the readers are on their way, or were skipped.
        self.suggested = self.suggested.max(self.front);
        let end = self.front.saturating_add(self.window as usize).min(self.order.len());
        let mut runs: Vec<Range<u64>> = Vec::new();
        while self.suggested < end && self.credit > 0 {
            let chunk = self.order[self.suggested];
            self.suggested += 1;
            if let Some(listed) = self.listed.get_mut(&chunk).filter(|listed| !listed.is_read) {
                self.credit -= 1;
                listed.is_suggested = true;
                append(&mut runs, chunk);
            }
        }
        runs
    }
}

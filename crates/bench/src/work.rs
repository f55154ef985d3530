//! The blocks of a run by number, in order or at random, until its end.
//!
//! Shared by all streams of a run, so that a sequential run is sequential however many read.
//! Numbers mean what the stream that takes them makes of them: a place in a file, a chunk of a
//! list.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Requests under way at the end of a run may take so long to be answered: slower answers than this
/// waits for something else than the network.
const GRACE: Duration = Duration::from_secs(2);

/// In which order blocks are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// One after the other, from the start again after the last.
    Sequential,
    /// The same, but the first is any: runs on one image seldom find what the one before brought.
    Onward,
    /// Any; a block may come again.
    Random,
}

/// The blocks of one run.
#[derive(Debug)]
pub struct Work {
    order: Order,
    seed: u64,
    /// How many blocks there are, at least 1.
    blocks: u64,
    /// How many are to be taken.
    count: u64,
    taken: AtomicU64,
    /// No more is taken after this.
    end: Instant,
    /// True once somebody does not want to go on.
    stop: Arc<AtomicBool>,
}

impl Work {
    /// `count` of `blocks`, for at most `time` from now on, or until `stop` is true.
    pub fn new(order: Order, blocks: u64, count: u64, time: Duration, stop: Arc<AtomicBool>) -> Self {
        assert!(blocks > 0, "nothing to read");
        let seed = RandomState::new().build_hasher().finish();
        Self { order, seed, blocks, count, taken: AtomicU64::new(0), end: Instant::now() + time, stop }
    }

    /// The next block to read; `None` once it is enough.
    pub fn take(&self) -> Option<u64> {
        if self.stop.load(Ordering::Relaxed) || Instant::now() >= self.end {
            return None;
        }
        let turn = self.taken.fetch_add(1, Ordering::Relaxed);
        let block = match self.order {
            Order::Sequential => turn % self.blocks,
            Order::Onward => (self.seed % self.blocks + turn % self.blocks) % self.blocks,
            Order::Random => mixed(self.seed.wrapping_add(turn)) % self.blocks,
        };
        (turn < self.count).then_some(block)
    }

    /// True once nobody waits for answers any more.
    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || Instant::now() >= self.end + GRACE
    }
}

/// A number that has nothing to do with its neighbours' (splitmix64: Steele, Lea and Flood, 2014).
pub fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn all(work: &Work) -> Vec<u64> {
        std::iter::from_fn(|| work.take()).collect()
    }

    #[test]
    fn sequential_begins_again_after_the_last() {
        let work = Work::new(Order::Sequential, 3, 5, LONG, Arc::default());
        assert_eq!(all(&work), [0, 1, 2, 0, 1]);
        assert_eq!(work.take(), None);
        assert!(!work.is_over(), "answers are waited for");
    }

    #[test]
    fn onward_takes_each_block_once_from_any_on() {
        let work = Work::new(Order::Onward, 10, 10, LONG, Arc::default());
        let mut taken = all(&work);
        assert!(taken.windows(2).all(|pair| pair[1] == (pair[0] + 1) % 10), "{taken:?}");
        taken.sort_unstable();
        assert_eq!(taken, (0..10).collect::<Vec<_>>());
        let first = |_| Work::new(Order::Onward, 1 << 40, 1, LONG, Arc::default()).take();
        let firsts: std::collections::BTreeSet<_> = (0..4).map(first).collect();
        assert!(firsts.len() > 1, "{firsts:?}");
    }

    #[test]
    fn random_reaches_all_of_it() {
        let work = Work::new(Order::Random, 10, 1000, LONG, Arc::default());
        let mut taken = all(&work);
        assert_eq!(taken.len(), 1000);
        assert!(taken.windows(2).any(|pair| pair[1] != (pair[0] + 1) % 10));
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn time_and_a_word_end_it() {
        assert_eq!(Work::new(Order::Sequential, 1, 5, Duration::ZERO, Arc::default()).take(), None);
        let stop = Arc::new(AtomicBool::new(false));
        let work = Work::new(Order::Sequential, 1, 5, LONG, Arc::clone(&stop));
        assert_eq!(work.take(), Some(0));
        stop.store(true, Ordering::Relaxed);
        assert!(work.take().is_none() && work.is_over());
    }
}

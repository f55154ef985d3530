//! Bytes whose last change was refused.
//!
//! A writer may not hear of a refusal. The kernel's FUSE answers a partly written request with the
//! length of that part, and the loop driver takes such an answer for success. So refusals are kept
//! here, and while there is one, no flush succeeds. A byte is removed when it is written again,
//! zeroed, discarded or reset.
//!
//! Invariant: a byte whose last change failed is in here, or everything is. Only the overlay uses
//! it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use vfield_block::device::WriteError;
use vfield_block::extent::Extent;

/// Runs that are remembered one by one: 256 KiB of memory. A writer that is refused in more places
/// than that is helped by a reset only.
const RUNS_MAX: usize = 4096;

/// The refused bytes, as disjoint ranges.
#[derive(Debug, Default)]
pub struct Refused {
    /// True while there is a refusal: what writers and flushes look at without a lock.
    any: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Start and end of each run; runs neither overlap nor touch.
    runs: BTreeMap<u64, u64>,
    /// True after too many refusals: only [`Refused::clear`] helps.
    overflown: bool,
    /// Why the latest change was refused.
    cause: Option<WriteError>,
}

impl Refused {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A change of `extent` was refused. True if it is the first since there was none.
    pub fn add(&self, extent: Extent, cause: &WriteError) -> bool {
        let mut state = self.state();
        state.cut(extent);
        let (mut start, mut end) = (extent.start(), extent.end());
        if let Some((&before, _)) = state.runs.range(..start).next_back().filter(|(_, end)| **end == start) {
            start = before;
        }
        if let Some(after) = state.runs.remove(&end) {
            end = after;
        }
        state.runs.insert(start, end);
        if state.runs.len() > RUNS_MAX {
            state.runs.clear();
            state.overflown = true;
        }
        state.cause = Some(cause.clone());
        !self.any.swap(true, Ordering::AcqRel)
    }

    /// `extent` was changed after all. True if nothing is left that was refused, and something was.
    pub fn strike(&self, extent: Extent) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut state = self.state();
        state.cut(extent);
        let settled = state.runs.is_empty() && !state.overflown;
        settled && self.any.swap(false, Ordering::AcqRel)
    }

    /// Forgets all refusals, as all changes are dropped.
    pub fn clear(&self) {
        let mut state = self.state();
        *state = State::default();
        self.any.store(false, Ordering::Release);
    }

    /// The number of refused bytes; [`u64::MAX`] if it is no longer known.
    pub fn bytes(&self) -> u64 {
        let state = self.state();
        if state.overflown { u64::MAX } else { state.runs.iter().map(|(start, end)| end - start).sum() }
    }

    /// Why nothing can be made durable, if that is so.
    pub fn check(&self) -> Result<(), WriteError> {
        if !self.any.load(Ordering::Acquire) {
            return Ok(());
        }
        let state = self.state();
        let left = state.overflown || !state.runs.is_empty();
        state.cause.clone().filter(|_| left).map_or(Ok(()), Err)
    }
}

impl State {
    /// Takes `extent` out of the runs.
    fn cut(&mut self, extent: Extent) {
        let (start, end) = (extent.start(), extent.end());
        while let Some((&from, &to)) = self.runs.range(..end).next_back().filter(|(_, to)| **to > start) {
            self.runs.remove(&from);
            if from < start {
                self.runs.insert(from, start);
            }
            if to > end {
                self.runs.insert(end, to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_byte_is_in_it_if_its_last_change_was_refused(
            steps in prop::collection::vec((any::<bool>(), 0..200_u64, 1..60_u64), 0..60),
        ) {
            let (refused, mut model) = (Refused::default(), [false; 260]);
            for (bad, start, length) in steps {
                let (extent, before) = (Extent::from(start..start + length), model.contains(&true));
                model[start as usize..(start + length) as usize].fill(bad);
                let now = model.contains(&true);
                if bad {
                    prop_assert_eq!(refused.add(extent, &WriteError::Full), !before);
                } else {
                    prop_assert_eq!(refused.strike(extent), before && !now);
                }
                prop_assert_eq!(refused.bytes(), model.iter().filter(|bad| **bad).count() as u64);
                prop_assert_eq!(refused.check().is_err(), now);
                let runs: Vec<_> = refused.state().runs.clone().into_iter().collect();
                prop_assert!(runs.windows(2).all(|pair| pair[0].1 < pair[1].0), "{:?}", runs);
            }
        }
    }

    #[test]
    fn the_list_of_refused_areas_is_bounded_and_then_needs_a_reset() {
        let refused = Refused::default();
        for place in 0..=RUNS_MAX as u64 {
            refused.add(Extent::from(place * 1024..place * 1024 + 512), &WriteError::Full);
        }
        assert_eq!(refused.state().runs.len(), 0);
        assert!(!refused.strike(Extent::from(0..1 << 40)));
        assert_eq!((refused.check(), refused.bytes()), (Err(WriteError::Full), u64::MAX));
        refused.clear();
        assert_eq!((refused.check(), refused.bytes()), (Ok(()), 0));
    }
}

//! Waiting for states with a bound; the only place of the lab that sleeps.

use crate::LabError;
use std::time::{Duration, Instant};

/// Pause between two looks at a state: short against the measured times, long against the cost of a
/// look.
const POLL: Duration = Duration::from_millis(20);

/// A moment by which something must have happened.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    start: Instant,
    limit: Duration,
}

impl Deadline {
    /// `limit` from now.
    pub fn after(limit: Duration) -> Self {
        Self { start: Instant::now(), limit }
    }

    /// Time left, zero once it has passed.
    pub fn left(&self) -> Duration {
        self.limit.saturating_sub(self.start.elapsed())
    }

    /// Looks at a state again and again until it gives something, or until the deadline.
    pub fn poll<T>(&self, what: &str, mut look: impl FnMut() -> Result<Option<T>, LabError>) -> Result<T, LabError> {
        loop {
            let late = self.left().is_zero();
            if let Some(value) = look()? {
                return Ok(value);
            }
            if late {
                return Err(LabError::Late { what: what.to_owned(), limit: self.limit });
            }
            std::thread::sleep(POLL);
        }
    }
}

/// Waits until `cond` holds and says how long that took.
///
/// # Errors
/// [`LabError::Late`] with `what` if it does not within `limit`.
pub fn wait_until(what: &str, limit: Duration, mut cond: impl FnMut() -> bool) -> Result<Duration, LabError> {
    let start = Instant::now();
    Deadline::after(limit).poll(what, || Ok(cond().then(|| start.elapsed())))
}

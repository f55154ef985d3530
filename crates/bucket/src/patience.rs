//! Doing something again while its failures may pass.

use crate::BucketError;
use std::fmt::Display;
use std::time::Duration;
use vfield_block::object::ObjectError;
use vfield_core::doubling::Doubling;

/// Pauses after failures.
const PAUSES: Doubling = Doubling { first: Duration::from_millis(200), longest: Duration::from_secs(20) };
/// A step fails after so many failures, in about a minute. A publish of hours outlives the restart
/// of a store.
const FAILURES_MAX: u32 = 9;

/// An error that may pass by itself.
pub trait Passing: Display {
    /// How it may pass: at least this pause, if the store asks for one; `None` if it does not.
    fn pause(&self) -> Option<Duration>;
}

impl Passing for ObjectError {
    fn pause(&self) -> Option<Duration> {
        match self {
            Self::Failed { after, lasting: false, .. } => Some(after.unwrap_or_default()),
            Self::Failed { .. } | Self::Changed(_) => None,
        }
    }
}

impl Passing for BucketError {
    fn pause(&self) -> Option<Duration> {
        if let Self::Store { error, .. } = self { error.pause() } else { None }
    }
}

/// Waits for the next attempt after this failure, and `before` other ones in a row; false if it may
/// not pass, or if these are too many.
pub async fn waits(before: u32, error: &impl Passing) -> bool {
    let asked = error.pause().filter(|_| before + 1 < FAILURES_MAX);
    if let Some(asked) = asked {
        let pause = PAUSES.pause(before).max(asked);
        tracing::info!(%error, ?pause, "a store is asked again");
        tokio::time::sleep(pause).await;
    }
    asked.is_some()
}

/// Does something again after growing pauses, as long as its failures may pass.
pub async fn patiently<T, E: Passing, F>(mut attempt: impl FnMut() -> F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    let mut failures = 0;
    loop {
        match attempt().await {
            Err(error) if waits(failures, &error).await => failures += 1,
            outcome => return outcome,
        }
    }
}

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
pub const FAILURES_MAX: u32 = 9;

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

/// Does something again after growing pauses, as long as its failures may pass.
pub async fn patiently<T, E: Passing, F>(mut attempt: impl FnMut() -> F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    for failures in 0.. {
        let outcome = attempt().await;
        let asked = outcome.as_ref().err().and_then(Passing::pause).filter(|_| failures + 1 < FAILURES_MAX);
        let (Err(error), Some(asked)) = (&outcome, asked) else { return outcome };
        let pause = PAUSES.pause(failures).max(asked);
        tracing::info!(%error, ?pause, "a bucket is asked again");
        tokio::time::sleep(pause).await;
    }
    unreachable!("the attempts are counted")
}

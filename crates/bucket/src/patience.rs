//! Doing something again while its failures may pass.

use std::time::Duration;
use vfield_block::object::ObjectError;
use vfield_core::doubling::Doubling;

/// Pauses after failures.
const PAUSES: Doubling = Doubling { first: Duration::from_millis(200), longest: Duration::from_secs(20) };
/// A step fails after so many failures, in about a minute. A publish of hours outlives the restart
/// of a store.
const FAILURES_MAX: u32 = 9;

/// Does something again after growing pauses, as long as its failures may pass.
pub async fn patiently<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, ObjectError>
where
    F: Future<Output = Result<T, ObjectError>>,
{
    for failures in 0.. {
        match attempt().await {
            Err(error) if error.may_pass() && failures + 1 < FAILURES_MAX => {
                let after = if let ObjectError::Failed { after, .. } = &error { *after } else { None };
                let pause = PAUSES.pause(failures).max(after.unwrap_or_default());
                tracing::info!(%error, ?pause, "a bucket is asked again");
                tokio::time::sleep(pause).await;
            }
            outcome => return outcome,
        }
    }
    unreachable!("the attempts are counted")
}

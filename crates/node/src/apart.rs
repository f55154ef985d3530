//! Work that takes long, or that waits for a disk, apart from the tasks that answer others.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does some work on a thread that may wait. Once begun it goes on if the future is dropped. Needs
/// a Tokio runtime.
///
/// # Panics
/// If the work does.
pub async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Does something on this thread that may wait for a disk. Other tasks of the thread go on
/// elsewhere, if there are other threads.
pub fn here<T>(wait: impl FnOnce() -> T) -> T {
    let many = Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if many { tokio::task::block_in_place(wait) } else { wait() }
}

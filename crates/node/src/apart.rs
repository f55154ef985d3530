//! Work that takes long, or that waits for a disk, apart from the tasks that answer others.

use std::ops::Deref;
use std::pin::pin;
use std::time::Duration;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::timeout;

/// Does some work on a thread that may wait. Once begun it goes on if the future is dropped. Needs
/// a Tokio runtime.
///
/// # Panics
/// If the work does.
pub async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// The same, and tells if that takes longer than `long`, as it does while a disk stands still.
///
/// # Panics
/// If the work does.
pub async fn run_or_tell<T: Send + 'static>(
    long: Duration,
    tell: impl FnOnce(),
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let mut working = pin!(run(work));
    if let Ok(done) = timeout(long, &mut working).await {
        return done;
    }
    tell();
    working.await
}

/// Does something on this thread that may wait for a disk. Other tasks of the thread go on
/// elsewhere, if there are other threads.
pub fn here<T>(wait: impl FnOnce() -> T) -> T {
    let many = Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if many { tokio::task::block_in_place(wait) } else { wait() }
}

/// Something whose end may wait for a disk: it ends on a thread that may wait. Without a Tokio
/// runtime it ends where it is dropped.
pub struct EndsApart<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> EndsApart<T> {
    /// Has it end apart.
    pub const fn new(held: T) -> Self {
        Self(Some(held))
    }
}

impl<T: Send + 'static> Deref for EndsApart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is there until it ends")
    }
}

impl<T: Send + 'static> Drop for EndsApart<T> {
    fn drop(&mut self) {
        let held = self.0.take();
        if let Ok(runtime) = Handle::try_current() {
            drop(runtime.spawn_blocking(move || drop(held)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::{ThreadId, current};
    use tokio::sync::oneshot;

    /// Tells on which thread it ends.
    struct Held(Option<oneshot::Sender<ThreadId>>);

    impl Drop for Held {
        fn drop(&mut self) {
            let tell = self.0.take().expect("it ends once");
            let _ = tell.send(current().id());
        }
    }

    #[test]
    fn an_end_holds_up_no_thread_that_answers_others() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (tell, told) = oneshot::channel();
        let held = EndsApart::new(Held(Some(tell)));
        let ended_on = runtime.block_on(async move {
            drop(held);
            told.await.unwrap()
        });
        assert_ne!(ended_on, current().id());

        let (tell, mut told) = oneshot::channel();
        drop(EndsApart::new(Held(Some(tell))));
        assert_eq!(told.try_recv(), Ok(current().id()));
    }
}

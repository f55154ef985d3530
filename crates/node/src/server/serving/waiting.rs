//! The requests of one connection that wait for this node itself: for an object, or for the limit
//! of their image.
//!
//! Invariant: each request in the table has one task, and gets one answer: at the end of the task,
//! or at its cancellation. The peer hears signs of life meanwhile. The end of the connection ends
//! the tasks.

use std::collections::BTreeMap;
use std::pin::Pin;
use tokio::task::{AbortHandle, JoinSet};

/// The waiting requests of one connection.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    tasks: JoinSet<()>,
    requests: BTreeMap<u64, AbortHandle>,
}

impl Waiting {
    /// Begins to wait with a request that was taken in.
    pub fn begin(&mut self, request: u64, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        // Ended tasks are forgotten here, so that the set stays as small as the table.
        while self.tasks.try_join_next().is_some() {}
        let task = self.tasks.spawn(task);
        self.requests.insert(request, task);
    }

    /// The task of a request has ended. True if it is still to be answered.
    pub fn ended(&mut self, request: u64) -> bool {
        self.requests.remove(&request).is_some()
    }

    /// The asker wants it no more. True if it is still to be answered.
    pub fn cancel(&mut self, request: u64) -> bool {
        let task = self.requests.remove(&request);
        task.inspect(AbortHandle::abort).is_some()
    }
}

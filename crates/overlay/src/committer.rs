//! Flushes of an overlay in a folder: one thread writes changes to the disk, for all waiting
//! callers at once.
//!
//! Order of a commit: the granules, then the journal's record about them. So a journal never names
//! bytes that are not on the disk. The thread ends with the overlay. An overlay in memory has none.

use crate::granule::Area;
use crate::inner::{Inner, lock};
use crate::medium::is_full;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use vfield_block::device::WriteError;

/// Interval of commits without a flush, as in file systems (ext4's `commit`).
const COMMIT_EVERY: Duration = Duration::from_secs(5);

type Answer = oneshot::Sender<Result<(), WriteError>>;

/// The committing thread.
#[derive(Debug)]
pub struct Committer {
    /// Taken when it ends.
    orders: Option<Sender<Answer>>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    /// Starts the thread.
    pub fn start(inner: Arc<Inner>) -> io::Result<Self> {
        let (orders, waiting) = channel();
        let thread = std::thread::Builder::new().name("overlay".into()).spawn(move || work(&inner, &waiting))?;
        Ok(Self { orders: Some(orders), thread: Some(thread) })
    }

    /// Waits for a commit that begins after this call.
    pub async fn flush(&self) -> Result<(), WriteError> {
        let (tell, told) = oneshot::channel();
        let gone = || WriteError::Io("the overlay's thread has ended".into());
        self.orders.as_ref().and_then(|orders| orders.send(tell).ok()).ok_or_else(gone)?;
        told.await.map_err(|_| gone())?
    }
}

impl Drop for Committer {
    /// Commits the rest and releases the folder: when this returns, it can be opened again.
    fn drop(&mut self) {
        self.orders = None;
        // A panicked thread has reported it, and has released the folder too.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn work(inner: &Inner, waiting: &Receiver<Answer>) {
    loop {
        let first = match waiting.recv_timeout(COMMIT_EVERY) {
            Ok(first) => Some(first),
            Err(RecvTimeoutError::Timeout) if lock(&inner.uncommitted).is_empty() => continue,
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        // One commit serves all callers that wait by now.
        let others: Vec<Answer> = waiting.try_iter().collect();
        let result = commit(inner);
        for answer in first.into_iter().chain(others) {
            // The caller may have gone.
            let _ = answer.send(result.clone());
        }
    }
    // Nobody waits for this one; what went wrong is in the log.
    let _ = commit(inner);
}

fn commit(inner: &Inner) -> Result<(), WriteError> {
    inner.commit().inspect_err(|error| tracing::error!(%error, "writing changes to the disk failed"))
}

impl Inner {
    /// Puts all that was done before on the disk. Nothing to do in memory.
    pub fn commit(&self) -> Result<(), WriteError> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let mut journal = lock(journal);
        if let Some(why) = journal.broken() {
            return Err(WriteError::Io(why.to_owned()));
        }
        let areas = std::mem::take(&mut *lock(&self.uncommitted));
        let entries: Vec<(u64, Area)> = areas
            .iter()
            .map(|&area| {
                // A writer that is half done has its bytes there before its states.
                let _guard = self.lock_to_read(area);
                (area, self.map.load(area))
            })
            .collect();
        if let Err(error) = self.medium.sync() {
            journal.give_up(error.to_string());
            return Err(WriteError::Io(error.to_string()));
        }
        if entries.is_empty() {
            return Ok(());
        }
        journal.append(&entries).map_err(|error| {
            lock(&self.uncommitted).extend(areas);
            if is_full(&error) { WriteError::Full } else { WriteError::Io(error.to_string()) }
        })?;
        if let Err(error) = journal.shorten() {
            // The journal is complete, only long.
            tracing::warn!(%error, "shortening the index of an overlay failed");
        }
        Ok(())
    }
}

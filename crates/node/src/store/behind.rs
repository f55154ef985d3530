//! Work of a store for which no caller waits: chunks that settle on a disk or are compressed, and
//! for a disk punches and the label too.
//!
//! These come up while the core is locked, and in tasks that other peers wait for.
//! A disk that takes a second for a write would hold up the whole node, so a worker does them
//! later, in their order. As long as there is no worker, the callers do them at once.
//!
//! Invariant: a chunk that settles stays in its buffer until its slot is published. If it is
//! evicted meanwhile, its slot is not published.

use super::Store;
use super::label::Label;
use super::slot::Slot;
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use vfield_core::chunk::Chunk;

/// Bytes of chunks that may wait for the worker. Beyond that, tasks that bring more wait. It is
/// 80 ms of a disk that writes 100 MB/s. The chunks lie in buffers, so a longer queue costs memory.
const QUEUE_BYTES_MAX: u64 = 8 << 20;

/// The work that waits.
#[derive(Debug, Default)]
pub struct Behind {
    queue: Mutex<Queue>,
    came: Notify,
    /// Held by the thread that works: jobs are done in their order.
    work: Mutex<()>,
}

#[derive(Debug, Default)]
struct Queue {
    is_attended: bool,
    jobs: VecDeque<Job>,
    /// Chunks in their buffers that are to be published.
    settling: BTreeSet<Chunk>,
    /// The label that is to be written.
    label: Option<[u8; Label::BYTES]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Job {
    Settle(Chunk),
    /// Free the slot, which is `Dropping(0)`.
    Punch(Chunk),
    /// Write the latest label.
    Label,
}

/// A worker attends for as long as this lives.
struct Attendance(Arc<Store>);

impl Behind {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues what `add` adds, if a worker attends to it.
    fn add(&self, add: impl FnOnce(&mut Queue)) -> bool {
        let mut queue = self.queue();
        if queue.is_attended {
            add(&mut queue);
            self.came.notify_one();
        }
        queue.is_attended
    }

    /// False if the caller has to free the slot.
    pub(super) fn punches(&self, chunk: Chunk) -> bool {
        self.add(|queue| queue.jobs.push_back(Job::Punch(chunk)))
    }

    /// False if the caller has to write the label.
    pub(super) fn labels(&self, label: &[u8; Label::BYTES]) -> bool {
        self.add(|queue| {
            queue.label = Some(*label);
            queue.jobs.push_back(Job::Label);
        })
    }

    /// False if the caller has to write the chunk, which lies in a buffer.
    pub(super) fn settles(&self, chunk: Chunk) -> bool {
        self.add(|queue| {
            if queue.settling.insert(chunk) {
                queue.jobs.push_back(Job::Settle(chunk));
            }
        })
    }

    /// An evicted chunk is not published.
    pub(super) fn evict(&self, chunk: Chunk) {
        self.queue().settling.remove(&chunk);
    }

    /// True if a worker attends, and may get one more chunk of at most so many bytes.
    pub(super) fn has_room(&self, chunk_bytes: u64) -> bool {
        let queue = self.queue();
        queue.is_attended && (queue.settling.len() as u64 + 1) * chunk_bytes <= QUEUE_BYTES_MAX
    }
}

impl Store {
    /// Works for as long as it is polled. A store of plain chunks in memory has no such work.
    pub async fn work_behind(self: Arc<Self>) {
        if !self.has_slow_writes() {
            return;
        }
        self.behind.queue().is_attended = true;
        let attendance = Attendance(Arc::clone(&self));
        loop {
            attendance.0.behind.came.notified().await;
            let store = Arc::clone(&attendance.0);
            if let Err(error) = tokio::task::spawn_blocking(move || store.work_off()).await {
                tracing::error!(%error, "working for a store failed");
            }
        }
    }

    /// True if a chunk of data that is to be kept should lie in a buffer at first, because to write
    /// it takes long.
    pub fn writes_behind(&self) -> bool {
        self.has_slow_writes() && self.behind.has_room(self.geometry().chunk_bytes())
    }

    fn has_slow_writes(&self) -> bool {
        self.disk.is_some() || self.compressed.get().is_some()
    }

    /// True if a chunk is better written by the worker.
    pub(super) fn is_slow_to_write(&self, chunk: Chunk) -> bool {
        self.has_slow_writes() && self.geometry().is_data(chunk)
    }

    fn work_off(&self) {
        let _order = self.behind.work.lock().unwrap_or_else(PoisonError::into_inner);
        let next = || self.behind.queue().jobs.pop_front();
        while let Some(job) = next() {
            match job {
                Job::Settle(chunk) => self.settle_late(chunk),
                Job::Punch(chunk) => self.punch_now(chunk),
                Job::Label => {
                    let label = self.behind.queue().label.take();
                    if let Some(Err(error)) = label.map(|label| self.write_label(&label)) {
                        tracing::warn!(%error, "writing the label of a store failed");
                    }
                }
            }
        }
    }

    /// The bytes of a chunk that is still to settle. An evicted one may come again at any moment,
    /// and wait to settle once more, so both are looked at under one lock.
    fn settling(&self, chunk: Chunk) -> Option<Bytes> {
        let mut queue = self.behind.queue();
        let bytes = queue.settling.contains(&chunk).then(|| self.transients.get(chunk)).flatten();
        if bytes.is_none() {
            queue.settling.remove(&chunk);
        }
        bytes
    }

    fn settle_late(&self, chunk: Chunk) {
        let Some(bytes) = self.settling(chunk) else { return };
        let mended = self.mend(chunk, &bytes);
        let is_claimed = match mended {
            Ok(false) => self.slots.change(chunk, Slot::claim).is_some() || self.clear_found(chunk).unwrap_or(false),
            Ok(true) | Err(_) => false,
        };
        if !is_claimed {
            // It may have come once more in the moment in which its slot was published.
            let is_there = mended.is_ok() && self.slots.load(chunk).is_readable() && !self.is_spoiled(chunk);
            let mut queue = self.behind.queue();
            if queue.jobs.contains(&Job::Punch(chunk)) {
                // Its place is to be freed first.
                queue.jobs.push_back(Job::Settle(chunk));
                return;
            }
            if queue.settling.remove(&chunk) && is_there {
                self.transients.evict(chunk);
            }
            return;
        }
        let written = self.write_bytes(chunk, &bytes);
        let mut queue = self.behind.queue();
        let is_wanted = queue.settling.remove(&chunk);
        if let Some(form) = written.ok().filter(|_| is_wanted) {
            // Under the lock, or an eviction could come in between.
            self.publish(chunk, form);
            self.transients.evict(chunk);
            return;
        }
        drop(queue);
        self.abandon(chunk);
        self.punch_now(chunk);
    }
}

impl Drop for Attendance {
    fn drop(&mut self) {
        self.0.behind.queue().is_attended = false;
        self.0.work_off();
    }
}

//! Work of a store for which no caller waits: chunks that settle on a disk or are compressed, and
//! for a disk punches, copies of hash pages and the label too.
//!
//! These come up while the core is locked, and in tasks that other peers wait for.
//! A disk that takes a second for a write would hold up the whole node, so a worker does them
//! later, in their order. As long as there is no worker, the callers do them at once. If the disk
//! stands still, the store counts as full until it moves again.
//!
//! Invariant: a chunk that settles stays in its buffer until its slot is published. If it is
//! evicted meanwhile, its slot is not published.

use super::Store;
use super::label::Label;
use super::slot::Slot;
use crate::disk_reads::STILL;
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use vfield_core::chunk::Chunk;

/// Bytes of chunks that may wait for the worker. Beyond that, tasks that bring more wait. It is
/// 80 ms of a disk that writes 100 MB/s. The chunks lie in buffers, so a longer queue costs memory.
const QUEUE_BYTES_MAX: u64 = 8 << 20;
/// How often it is looked at a job that lasts. If this process was stopped meanwhile, that is one
/// look.
const LOOK: Duration = Duration::from_secs(1);

/// How long an ending store waits for each job under way: longer than a disk takes for a chunk.
const JOB_WITHIN: Duration = Duration::from_secs(1);
/// How often it looks meanwhile.
const END_LOOK: Duration = Duration::from_millis(5);

/// The work that waits.
#[derive(Debug, Default)]
pub struct Behind {
    queue: Mutex<Queue>,
    came: Notify,
    /// Told when a chunk has settled.
    settled: Notify,
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
    /// When the job under way was begun.
    since: Option<Instant>,
    stands_still: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Job {
    Settle(Chunk),
    /// Free the slot, which is `Dropping(0)`.
    Punch(Chunk),
    /// Write a copy of a hash page.
    Copy(Chunk),
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

    /// False if the caller has to write the copy of a hash page.
    pub(super) fn copies(&self, page: Chunk) -> bool {
        self.add(|queue| queue.jobs.push_back(Job::Copy(page)))
    }

    /// An evicted chunk is not published.
    pub(super) fn evict(&self, chunk: Chunk) {
        self.queue().settling.remove(&chunk);
    }

    /// True if its disk has stood still since a job was begun.
    pub(super) fn stands_still(&self) -> bool {
        self.queue().stands_still
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
            let mut work = tokio::task::spawn_blocking(move || store.work_off());
            let (mut watched, mut looks) = (None, 0);
            let worked = loop {
                if let Ok(worked) = tokio::time::timeout(LOOK, &mut work).await {
                    break worked;
                }
                let since = attendance.0.behind.queue().since;
                looks = if since == watched { looks + 1 } else { 0 };
                watched = since;
                if LOOK * looks == STILL {
                    attendance.0.behind.queue().stands_still = true;
                    attendance.0.tell_refused(&io::Error::other("no write has ended for some seconds"));
                }
            };
            self.behind.queue().stands_still = false;
            if let Err(error) = worked {
                tracing::error!(%error, "working for a store failed");
            }
        }
    }

    /// True if a chunk of data that is to be kept should lie in a buffer at first, because to write
    /// it takes long. In memory other threads compress too once the worker has enough to do.
    pub fn writes_behind(&self) -> bool {
        self.behind.queue().is_attended && (self.is_on_disk() || (self.has_slow_writes() && self.has_room()))
    }

    /// True if so much waits for the disk that tasks with more should wait for [`Store::room`].
    /// They do not wait for a disk that stands still: the core asks for nothing more to put there.
    pub fn is_crowded(&self) -> bool {
        let is_attended = || {
            let queue = self.behind.queue();
            queue.is_attended && !queue.stands_still
        };
        self.is_on_disk() && is_attended() && !self.has_room()
    }

    fn has_room(&self) -> bool {
        (self.behind.queue().settling.len() as u64 + 1) * self.geometry().chunk_bytes() <= QUEUE_BYTES_MAX
    }

    /// Returns once it is not crowded.
    pub async fn room(&self) {
        loop {
            let mut settled = pin!(self.behind.settled.notified());
            settled.as_mut().enable();
            if !self.is_crowded() {
                return;
            }
            settled.await;
        }
    }

    fn has_slow_writes(&self) -> bool {
        self.disk.is_some() || self.compressed.get().is_some()
    }

    /// True if a chunk is better written by the worker.
    pub(super) fn is_slow_to_write(&self, chunk: Chunk) -> bool {
        self.has_slow_writes() && self.geometry().is_data(chunk)
    }

    /// The same as [`Store::work_off`], unless a thread works; false then.
    fn try_work_off(&self) -> bool {
        let order = match self.behind.work.try_lock() {
            Ok(order) => order,
            Err(TryLockError::Poisoned(order)) => order.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        self.work_in(&order);
        true
    }

    fn work_off(&self) {
        let order = self.behind.work.lock().unwrap_or_else(PoisonError::into_inner);
        self.work_in(&order);
    }

    /// Does all jobs; the caller's lock keeps others from them.
    fn work_in(&self, _order: &MutexGuard<'_, ()>) {
        let next = || {
            let mut queue = self.behind.queue();
            let job = queue.jobs.pop_front();
            queue.since = job.map(|_| Instant::now());
            job
        };
        while let Some(job) = next() {
            match job {
                Job::Settle(chunk) => {
                    self.settle_late(chunk);
                    self.behind.settled.notify_waiters();
                }
                Job::Punch(chunk) => self.punch_now(chunk),
                Job::Copy(page) => self.copy_page(page),
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

    /// Writes the copy of a hash page to the disk, unless that was evicted meanwhile.
    pub(super) fn copy_page(&self, page: Chunk) {
        let Some(disk) = self.disk.as_ref().filter(|_| self.try_pin(page)) else { return };
        let place = self.slot_extent(page);
        let mut bytes = vec![0; place.len() as usize];
        let written = self.memory.read(place.start(), &mut bytes).and_then(|()| disk.write(place.start(), &bytes));
        self.unpin(page);
        if let Err(error) = written {
            self.tell_refused(&error);
        }
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
            let is_there = mended.is_ok() && self.is_in_slot(chunk);
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
        // A thread that waits for the disk is left to that: a node that ends does not wait for it.
        let waits = || self.0.behind.queue().since.is_some_and(|since| since.elapsed() >= JOB_WITHIN);
        while !self.0.try_work_off() && !waits() {
            std::thread::sleep(END_LOOK);
        }
    }
}

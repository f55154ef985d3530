//! Answers that have to be waited for, many at a time, within one task.
//!
//! Owns the futures and a list of those that asked to be polled again, so a wake-up costs the same
//! however many others wait. Futures run in the task that polls: nothing is spawned, and dropping
//! this cancels them all. Each comes with a key that stays readable while it waits. How many may
//! wait is the connection's to decide.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// A future that lives as long as it has to.
pub(super) type Waiting<T> = Pin<Box<dyn Future<Output = T> + Send>>;

struct Entry<K, T> {
    key: K,
    future: Waiting<T>,
    slot: Arc<Slot>,
    waker: Waker,
}

#[derive(Default)]
struct Ready {
    slots: VecDeque<usize>,
    task: Option<Waker>,
}

/// What a future's waker holds: its place, and the list to put it on.
struct Slot {
    index: usize,
    listed: AtomicBool,
    ready: Arc<Mutex<Ready>>,
}

/// A panic elsewhere cannot leave the list half changed.
fn lock(ready: &Mutex<Ready>) -> MutexGuard<'_, Ready> {
    ready.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wake for Slot {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.listed.swap(true, Ordering::AcqRel) {
            return;
        }
        let task = {
            let mut ready = lock(&self.ready);
            ready.slots.push_back(self.index);
            ready.task.take()
        };
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// Futures with a key each.
pub(super) struct Waits<K, T> {
    entries: Vec<Option<Entry<K, T>>>,
    free: Vec<usize>,
    ready: Arc<Mutex<Ready>>,
}

impl<K, T> Waits<K, T> {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), ready: Arc::default() }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Adds one; it is polled for the first time by the next [`Waits::poll_next`].
    pub(super) fn push(&mut self, key: K, future: Waiting<T>) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        let slot = Arc::new(Slot { index, listed: AtomicBool::new(true), ready: self.ready.clone() });
        let waker = Waker::from(slot.clone());
        self.entries[index] = Some(Entry { key, future, slot, waker });
        lock(&self.ready).slots.push_back(index);
    }

    /// The next finished read; pending also if no read waits.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<(K, T)> {
        if self.len() == 0 {
            return Poll::Pending;
        }
        // A future that wakes itself (as tokio's do when a task's budget is used up) must not keep
        // this loop going: each call polls only those that were listed when it began.
        let mut turns = lock(&self.ready).slots.len();
        loop {
            let index = {
                let mut ready = lock(&self.ready);
                if turns == 0 && !ready.slots.is_empty() {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                turns = turns.saturating_sub(1);
                let Some(index) = ready.slots.pop_front() else {
                    if !ready.task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
                        ready.task = Some(cx.waker().clone());
                    }
                    return Poll::Pending;
                };
                index
            };
            // An old waker of a slot may list it again: then it is empty, or polled once too often.
            let Some(Some(entry)) = self.entries.get_mut(index) else { continue };
            entry.slot.listed.store(false, Ordering::Release);
            let Poll::Ready(output) = entry.future.as_mut().poll(&mut Context::from_waker(&entry.waker)) else {
                continue;
            };
            if let Some(entry) = self.entries[index].take() {
                self.free.push(index);
                return Poll::Ready((entry.key, output));
            }
        }
    }

    /// Gives up on all of them and returns their keys, in no order.
    pub(super) fn cancel(&mut self) -> Vec<K> {
        let keys = self.entries.drain(..).flatten().map(|entry| entry.key).collect();
        self.free.clear();
        lock(&self.ready).slots.clear();
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future;

    fn context() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    #[test]
    fn whoever_is_ready_comes_first_and_places_are_used_again() {
        let mut waits = Waits::new();
        waits.push('a', Box::pin(future::pending()));
        waits.push('b', Box::pin(future::ready(1)));
        assert_eq!(waits.poll_next(&mut context()), Poll::Ready(('b', 1)));
        assert_eq!(waits.poll_next(&mut context()), Poll::Pending);
        waits.push('c', Box::pin(future::ready(2)));
        assert_eq!(waits.poll_next(&mut context()), Poll::Ready(('c', 2)));
        assert_eq!((waits.len(), waits.entries.len()), (1, 2));
        assert_eq!(waits.cancel(), ['a']);
        assert_eq!((waits.len(), waits.poll_next(&mut context())), (0, Poll::Pending));
    }

    #[test]
    fn only_a_woken_future_is_polled_again() {
        let (mut waits, (send, receive)) = (Waits::new(), tokio::sync::oneshot::channel::<u8>());
        let polls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = polls.clone();
        let mut receive = Box::pin(receive);
        waits.push(
            (),
            Box::pin(future::poll_fn(move |cx| {
                counted.fetch_add(1, Ordering::Relaxed);
                receive.as_mut().poll(cx)
            })),
        );
        for _ in 0..3 {
            assert_eq!(waits.poll_next(&mut context()), Poll::Pending);
        }
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        send.send(7).unwrap();
        assert_eq!(waits.poll_next(&mut context()), Poll::Ready(((), Ok(7))));
    }

    #[test]
    fn a_future_that_always_wakes_itself_does_not_hold_the_task() {
        let mut waits = Waits::<(), ()>::new();
        waits.push(
            (),
            Box::pin(future::poll_fn(|cx| {
                cx.waker().wake_by_ref();
                Poll::Pending
            })),
        );
        assert_eq!(waits.poll_next(&mut context()), Poll::Pending);
    }
}

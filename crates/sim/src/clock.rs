//! The one queue of what happens next, in a total order: by time, then by when it was put in.
//!
//! What is to happen at once needs no heap. Nothing is ever taken out but the next: what has become void by then
//! is recognised by whoever handles it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use vfield_core::time::Time;

/// See the module.
#[derive(Debug)]
pub struct Queue<E> {
    now: Time,
    sequence: u64,
    later: BinaryHeap<Reverse<Entry<E>>>,
    /// Due now; all that is due now in the heap was put in before.
    soon: VecDeque<E>,
}

#[derive(Debug)]
struct Entry<E> {
    at: Time,
    sequence: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl<E> Queue<E> {
    /// Nothing yet; it is `now`.
    pub const fn new(now: Time) -> Self {
        Self { now, sequence: 0, later: BinaryHeap::new(), soon: VecDeque::new() }
    }

    /// The time of what happened last.
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Puts something in; what should have happened before happens now.
    pub fn push(&mut self, at: Time, event: E) {
        if at <= self.now {
            self.soon.push_back(event);
        } else {
            self.sequence += 1;
            self.later.push(Reverse(Entry { at, sequence: self.sequence, event }));
        }
    }

    /// The next that happens until `end`, at which it is now; without one it is `end` now.
    pub fn pop(&mut self, end: Time) -> Option<E> {
        let next = self.later.peek().map(|entry| entry.0.at);
        if let Some(at) = next
            && (at <= self.now || (self.soon.is_empty() && at <= end))
        {
            self.now = self.now.max(at);
            return self.later.pop().map(|entry| entry.0.event);
        }
        let event = self.soon.pop_front();
        if event.is_none() {
            self.now = self.now.max(end);
        }
        event
    }

    /// How much is in it.
    pub fn len(&self) -> usize {
        self.later.len() + self.soon.len()
    }

    /// True if nothing will ever happen again.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(ms: u64) -> Time {
        Time::after_start(Duration::from_millis(ms))
    }

    #[test]
    fn what_is_due_at_one_time_happens_in_the_order_in_which_it_was_put_in() {
        let mut queue = Queue::new(at(0));
        queue.push(at(2), 'c');
        queue.push(at(1), 'a');
        queue.push(at(2), 'd');
        queue.push(at(1), 'b');
        assert_eq!(queue.pop(at(9)), Some('a'));
        queue.push(at(1), 'x');
        queue.push(at(0), 'y');
        let rest: String = std::iter::from_fn(|| queue.pop(at(9))).collect();
        assert_eq!((rest.as_str(), queue.now()), ("bxycd", at(9)));
    }

    #[test]
    fn nothing_happens_after_the_end() {
        let mut queue = Queue::new(at(0));
        queue.push(at(5), 'a');
        assert_eq!((queue.pop(at(4)), queue.now(), queue.len()), (None, at(4), 1));
        assert_eq!((queue.pop(at(5)), queue.now()), (Some('a'), at(5)));
    }
}

//! The order in which the answers of one connection leave: demand requests first, then the others
//! in the order of their arrival.
//!
//! A reader may begin to wait for a chunk that was requested earlier as read-ahead or fill. The
//! answering peer does not hear of that. So only [`OVERTAKEN_MAX`] later answers may overtake such
//! a request.

use crate::wire::Priority;
use std::collections::VecDeque;

/// Demand answers that may overtake one older answer of another class.
const OVERTAKEN_MAX: u64 = 16;

/// The queued answers of one connection.
#[derive(Debug)]
pub struct SendQueue<T> {
    /// Those that leave before all others, the last one first.
    first: Vec<T>,
    urgent: VecDeque<T>,
    /// Each with what `left` has to be for its turn to come.
    rest: VecDeque<(u64, T)>,
    /// Urgent ones that have left.
    left: u64,
}

impl<T> Default for SendQueue<T> {
    fn default() -> Self {
        Self { first: Vec::new(), urgent: VecDeque::new(), rest: VecDeque::new(), left: 0 }
    }
}

impl<T> SendQueue<T> {
    /// Queues an answer to a request of this priority.
    pub fn push(&mut self, priority: Priority, item: T) {
        if priority == Priority::Demand {
            self.urgent.push_back(item);
        } else {
            self.rest.push_back((self.left + self.urgent.len() as u64 + OVERTAKEN_MAX, item));
        }
    }

    /// Queues an answer that leaves before all others.
    pub fn push_first(&mut self, item: T) {
        self.first.push(item);
    }

    /// The answer that leaves next.
    pub fn front(&self) -> Option<&T> {
        self.first.last().or_else(|| match self.rest.front() {
            Some((_, item)) if self.is_turn_of_rest() => Some(item),
            _ => self.urgent.front(),
        })
    }

    /// Removes the answer that leaves next.
    pub fn pop(&mut self) -> Option<T> {
        if let Some(item) = self.first.pop() {
            return Some(item);
        }
        if self.is_turn_of_rest() {
            return self.rest.pop_front().map(|(_, item)| item);
        }
        self.left += 1;
        self.urgent.pop_front()
    }

    /// True if an answer to a request of another class comes before the demand answers.
    fn is_turn_of_rest(&self) -> bool {
        self.rest.front().is_some_and(|(at, _)| self.urgent.is_empty() || *at <= self.left)
    }

    /// All queued answers, in no particular order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.first.iter_mut().chain(&mut self.urgent).chain(self.rest.iter_mut().map(|(_, item)| item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all<T: Copy + PartialEq + std::fmt::Debug>(queue: &mut SendQueue<T>) -> Vec<T> {
        let pop = || {
            let front = queue.front().copied();
            assert_eq!(queue.pop(), front);
            front
        };
        std::iter::from_fn(pop).collect()
    }

    #[test]
    fn awaited_chunks_go_first_but_never_starve_the_rest() {
        let mut queue = SendQueue::default();
        (100..103).for_each(|item| queue.push(Priority::Fill, item));
        (0..20).for_each(|item| queue.push(Priority::Demand, item));
        queue.push(Priority::ReadAhead, 103);
        queue.push_first(99);
        let expected = [99].into_iter().chain(0..16).chain(100..103).chain(16..20).chain([103]);
        assert_eq!(all(&mut queue), expected.collect::<Vec<_>>());
    }

    #[test]
    fn repeated_requests_overtake_nothing() {
        let mut queue = SendQueue::default();
        let before = 2 * OVERTAKEN_MAX;
        (0..before).for_each(|item| queue.push(Priority::Demand, item));
        queue.push(Priority::Fill, u64::MAX);
        (0..before).for_each(|item| queue.push(Priority::Demand, before + item));
        let at = all(&mut queue).iter().position(|item| *item == u64::MAX);
        assert_eq!(at, Some((before + OVERTAKEN_MAX) as usize));
    }

    #[test]
    fn a_stream_of_demands_holds_nothing_up_for_long() {
        let mut queue = SendQueue::default();
        (0..30).for_each(|_| queue.push(Priority::ReadAhead, true));
        let left = (0..100).map(|_| {
            queue.push(Priority::Demand, false);
            queue.pop() == Some(true)
        });
        assert_eq!(left.filter(|rest| *rest).count(), 30, "all that was asked for ahead of the stream");
    }
}

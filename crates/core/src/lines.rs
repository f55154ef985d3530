//! In which order the answers of one connection leave: what a reader waits for first, the rest in the order in which it was
//! asked for.
//!
//! A reader may have come to wait for a chunk since it was asked for ahead of it or as a fill, which the one that answers
//! does not hear of. So the rest does not wait for ever while a reader elsewhere goes on: now and then it has a turn.

use crate::wire::Priority;
use std::collections::VecDeque;

/// After so many of what readers wait for the rest has a turn: it takes no more than a ninth of the link from them.
const IN_A_ROW: u32 = 8;

/// See the module.
#[derive(Debug)]
pub struct Lines<T> {
    urgent: VecDeque<T>,
    rest: VecDeque<T>,
    /// Urgent ones that left since the rest had a turn, or was empty.
    in_a_row: u32,
}

impl<T> Default for Lines<T> {
    fn default() -> Self {
        Self { urgent: VecDeque::new(), rest: VecDeque::new(), in_a_row: 0 }
    }
}

impl<T> Lines<T> {
    /// Lines up what was asked for with this priority.
    pub fn push(&mut self, priority: Priority, item: T) {
        if priority == Priority::Demand { self.urgent.push_back(item) } else { self.rest.push_back(item) }
    }

    /// Lines up what is to leave before all else.
    pub fn push_first(&mut self, item: T) {
        self.urgent.push_front(item);
    }

    /// What leaves next.
    pub fn pop(&mut self) -> Option<T> {
        let turn = self.in_a_row >= IN_A_ROW || self.urgent.is_empty();
        if turn && let Some(item) = self.rest.pop_front() {
            self.in_a_row = 0;
            return Some(item);
        }
        self.in_a_row = if self.rest.is_empty() { 0 } else { self.in_a_row + 1 };
        self.urgent.pop_front()
    }

    /// All of them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.urgent.iter_mut().chain(&mut self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_goes_first_and_the_rest_has_its_turn() {
        let mut lines = Lines::default();
        (100..103).for_each(|item| lines.push(Priority::Fill, item));
        (0..20).for_each(|item| lines.push(Priority::Demand, item));
        lines.push(Priority::ReadAhead, 103);
        lines.push_first(99);
        let order: Vec<u32> = std::iter::from_fn(|| lines.pop()).collect();
        let expected = [99].into_iter().chain(0..7).chain([100]).chain(7..15).chain([101]).chain(15..20);
        assert_eq!(order, expected.chain([102, 103]).collect::<Vec<_>>());
    }

    #[test]
    fn a_stream_of_demands_holds_nothing_up_for_ever() {
        let mut lines = Lines::default();
        lines.push(Priority::ReadAhead, true);
        let wait = (0..100).position(|_| {
            lines.push(Priority::Demand, false);
            lines.pop() == Some(true)
        });
        assert_eq!(wait, Some(IN_A_ROW as usize));
    }
}

//! The queue of future events, in a total order: by time, then by insertion.
//!
//! Immediate events need no order of their own. Events before long are in slots of a few
//! microseconds, each sorted when its time comes. A heap of the events of thousands of machines
//! would cost a cache miss at each of its levels; only later events are in a heap. Only the next
//! event is ever taken out: the handler recognises void ones.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use vfield_core::time::Time;

/// Length of a slot in nanoseconds, as a power of two: two microseconds, in which 100 000 busy
/// machines do a few hundred things.
const SLOT_BITS: u32 = 11;
/// Number of slots: 67 ms, beyond the time of a chunk on any link and the cores' check interval.
const SLOTS: u64 = 1 << 15;

/// A queue of events.
#[derive(Debug)]
pub struct Queue<E> {
    now: Time,
    sequence: u64,
    /// Due now; all that is due now elsewhere was put in before.
    soon: VecDeque<E>,
    /// The number of the present slot.
    slot: u64,
    /// Its events, the next one last.
    current: Vec<Entry<E>>,
    /// The slots after it, in turns, each in no order.
    slots: Vec<Vec<Entry<E>>>,
    /// A bit set of the slots with events.
    filled: Vec<u64>,
    /// All events after the slots.
    later: BinaryHeap<Reverse<Entry<E>>>,
    length: usize,
}

#[derive(Debug)]
struct Entry<E> {
    at: Time,
    sequence: u64,
    event: E,
}

impl<E> Entry<E> {
    const fn key(&self) -> (Time, u64) {
        (self.at, self.sequence)
    }
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
        self.key().cmp(&other.key())
    }
}

/// The slot of a moment.
const fn slot_of(at: Time) -> u64 {
    at.since_start().as_nanos() as u64 >> SLOT_BITS
}

impl<E> Queue<E> {
    /// Nothing yet; it is `now`.
    pub fn new(now: Time) -> Self {
        Self {
            now,
            sequence: 0,
            soon: VecDeque::new(),
            slot: slot_of(now),
            current: Vec::new(),
            slots: std::iter::repeat_with(Vec::new).take(SLOTS as usize).collect(),
            filled: vec![0; SLOTS as usize / 64],
            later: BinaryHeap::new(),
            length: 0,
        }
    }

    /// The time of what happened last.
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Adds an event; one in the past happens now.
    pub fn push(&mut self, at: Time, event: E) {
        self.length += 1;
        if at <= self.now {
            return self.soon.push_back(event);
        }
        self.sequence += 1;
        let entry = Entry { at, sequence: self.sequence, event };
        let slot = slot_of(at);
        if slot <= self.slot {
            let place = self.current.partition_point(|other| other.key() > entry.key());
            self.current.insert(place, entry);
        } else if slot - self.slot < SLOTS {
            self.put(slot, entry);
        } else {
            self.later.push(Reverse(entry));
        }
    }

    fn put(&mut self, slot: u64, entry: Entry<E>) {
        let place = (slot % SLOTS) as usize;
        self.slots[place].push(entry);
        self.filled[place / 64] |= 1 << (place % 64);
    }

    /// The next that happens until `end`, at which it is now; without one it is `end` now.
    pub fn pop(&mut self, end: Time) -> Option<E> {
        if self.current.is_empty() && self.soon.is_empty() {
            self.advance(end);
        }
        let next = self.current.last().map(|entry| entry.at);
        if let Some(at) = next
            && (at <= self.now || (self.soon.is_empty() && at <= end))
        {
            self.now = self.now.max(at);
            self.length -= 1;
            return self.current.pop().map(|entry| entry.event);
        }
        let event = self.soon.pop_front();
        match event {
            Some(_) => self.length -= 1,
            None => self.now = self.now.max(end),
        }
        event
    }

    /// Goes on to the next slot that has anything, unless that comes after `end`.
    fn advance(&mut self, end: Time) {
        let filled = self.next_filled();
        let beyond = self.later.peek().map(|entry| slot_of(entry.0.at));
        let Some(next) = filled.into_iter().chain(beyond).min().filter(|slot| *slot <= slot_of(end)) else { return };
        self.slot = next;
        while let Some(entry) = self.later.peek()
            && slot_of(entry.0.at) - next < SLOTS
        {
            let Some(Reverse(entry)) = self.later.pop() else { break };
            self.put(slot_of(entry.at), entry);
        }
        let place = (next % SLOTS) as usize;
        self.filled[place / 64] &= !(1 << (place % 64));
        // The buffer of the last slot is freed: if all slots kept their largest size, that would be
        // a lot.
        self.current = std::mem::take(&mut self.slots[place]);
        self.current.sort_unstable_by_key(|entry| Reverse(entry.key()));
    }

    /// The next slot after this one with events.
    fn next_filled(&self) -> Option<u64> {
        let from = (self.slot + 1) % SLOTS;
        let words = self.filled.len();
        let (first, bit) = (from as usize / 64, from % 64);
        let masked = |turn: usize| {
            let word = self.filled[(first + turn) % words];
            // The first word is checked twice: from the slot on, and at the end up to it.
            match turn {
                0 => word & (u64::MAX << bit),
                turn if turn == words => word & !(u64::MAX << bit),
                _ => word,
            }
        };
        let turn = (0..=words).find(|turn| masked(*turn) != 0)?;
        let place = ((first + turn) % words * 64) as u64 + u64::from(masked(turn).trailing_zeros());
        Some(self.slot + 1 + (place + SLOTS - from) % SLOTS)
    }

    /// The number of events in it.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// True if nothing will ever happen again.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;
    use std::time::Duration;

    fn at(ms: u64) -> Time {
        Time::after_start(Duration::from_millis(ms))
    }

    #[test]
    fn events_come_out_in_order_however_far_ahead() {
        let (mut queue, mut dice) = (Queue::new(at(3)), Dice::new(1));
        let mut expected = Vec::new();
        let mut came = Vec::new();
        for number in 0..20_000u64 {
            let ahead = dice.roll() % [1, 3000, 1_000_000, 70_000_000, 900_000_000][number as usize % 5];
            let at = queue.now() + Duration::from_nanos(ahead);
            queue.push(at, (at, number));
            expected.push((at, number));
            if number % 3 == 0 {
                let end = queue.now() + Duration::from_nanos(dice.roll() % 100_000);
                came.extend(queue.pop(end));
            }
        }
        came.extend(std::iter::from_fn(|| queue.pop(at(10_000))));
        expected.sort_unstable();
        assert_eq!((came == expected, queue.len()), (true, 0));
    }

    #[test]
    fn simultaneous_events_keep_their_order() {
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

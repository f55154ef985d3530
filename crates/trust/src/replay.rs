//! Replay protection for one sender (RFC 4303, section 3.4.3). It accepts each number once, none
//! that is long past, and none that the sender cannot have reached yet.
//!
//! Any member can seal under any sender's salt. A number far ahead would make all later ones of the
//! sender look old. So the highest accepted number grows with the time since the sender was first
//! heard.

use std::time::Duration;

/// Datagrams by which one may be overtaken.
const WINDOW: u64 = 64;
/// Most datagrams that a process sends in a second, on average: a hundred times what a member of a
/// quiet room of 1 000 sends. Above it an honest sender is not heard until it is suspected, denies
/// that, and speaks under another salt.
const RATE: u64 = 1 << 10;
/// Numbers accepted beyond the rate: a member of 1 000 that come together greets each of them some
/// times.
const BURST: u64 = 1 << 13;
/// The highest number of a sender that was not heard before: 34 years at [`RATE`].
const FIRST_MAX: u64 = 1 << 40;

/// The accepted numbers of one sender.
#[derive(Debug, Default, Clone, Copy)]
pub struct Window {
    /// The first number heard, and when.
    first: Option<(u64, Duration)>,
    /// The highest number heard, plus one.
    next: u64,
    /// Bit `n`: the number `next - 1 - n` was heard.
    heard: u64,
}

/// Why a number is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotTaken {
    /// It was accepted before, or is too old to tell.
    Old,
    /// The sender cannot have come so far.
    Ahead,
}

impl Window {
    /// Takes note of a number that comes at `now`, a time since some fixed moment.
    pub fn take(&mut self, number: u64, now: Duration) -> Result<(), NotTaken> {
        if number == u64::MAX || number > self.last(now) {
            return Err(NotTaken::Ahead);
        }
        self.first.get_or_insert((number, now));
        if number >= self.next {
            let ahead = number + 1 - self.next;
            self.heard = if ahead < WINDOW { self.heard << ahead } else { 0 } | 1;
            self.next = number + 1;
            return Ok(());
        }
        let behind = self.next - 1 - number;
        if behind >= WINDOW || self.heard & 1 << behind != 0 {
            return Err(NotTaken::Old);
        }
        self.heard |= 1 << behind;
        Ok(())
    }

    /// The highest number that the sender can have reached.
    fn last(&self, now: Duration) -> u64 {
        let Some((number, at)) = self.first else { return FIRST_MAX };
        number.saturating_add(BURST).saturating_add(RATE.saturating_mul(now.saturating_sub(at).as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const NOW: Duration = Duration::from_secs(7);

    #[test]
    fn each_number_counts_once_and_old_ones_never() {
        let mut window = Window::default();
        let mut takes = |number| window.take(number, NOW).is_ok();
        assert!(takes(5) && takes(3) && takes(6));
        assert!(!takes(5) && !takes(3) && !takes(6));
        assert!(takes(1000) && takes(937) && !takes(936) && !takes(7));
    }

    #[test]
    fn numbers_grow_no_faster_than_they_are_sent() {
        for number in [FIRST_MAX + 1, u64::MAX - 1, u64::MAX] {
            assert_eq!(Window::default().take(number, NOW), Err(NotTaken::Ahead));
        }
        for first in [0, 17, FIRST_MAX] {
            let mut window = Window::default();
            assert_eq!(window.take(first, NOW), Ok(()));
            let last = first + BURST;
            for number in [last + 1, last + RATE, u64::MAX - 1, u64::MAX] {
                assert_eq!(window.take(number, NOW), Err(NotTaken::Ahead), "{number}");
            }
            // A refused number leaves no trace.
            assert_eq!(window.take(first + 1, NOW), Ok(()));
            assert_eq!(window.take(last, NOW), Ok(()));
            assert_eq!(window.take(last + RATE, NOW), Err(NotTaken::Ahead));
            assert_eq!(window.take(last + RATE, NOW + Duration::from_secs(1)), Ok(()));
            assert_eq!(window.take(u64::MAX - 1, Duration::MAX), Ok(()), "after ages any number may come");
            assert_eq!(window.take(u64::MAX, Duration::MAX), Err(NotTaken::Ahead), "but the one without a successor");
        }
    }

    proptest! {
        #[test]
        fn no_number_counts_twice(numbers in prop::collection::vec(0_u64..300, 0..500)) {
            let (mut window, mut taken) = (Window::default(), BTreeSet::new());
            for number in numbers {
                let highest = taken.last().copied();
                let new = !taken.contains(&number) && highest.is_none_or(|highest: u64| number + WINDOW > highest);
                prop_assert_eq!(window.take(number, NOW).is_ok(), new);
                if new {
                    taken.insert(number);
                }
            }
        }
    }
}

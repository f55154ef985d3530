//! What was heard of one sender: each number once, none that is long past (RFC 4303, section 3.4.3).

/// Datagrams may overtake each other by so many.
const WINDOW: u64 = 64;

/// See the module.
#[derive(Debug, Default, Clone, Copy)]
pub struct Window {
    /// The highest number heard, plus one.
    next: u64,
    /// Bit `n`: the number `next - 1 - n` was heard.
    heard: u64,
}

impl Window {
    /// Takes note of a number; false if it was heard before, or is too old to tell.
    pub fn take(&mut self, number: u64) -> bool {
        if number == u64::MAX {
            return false;
        }
        if number >= self.next {
            let ahead = number + 1 - self.next;
            self.heard = if ahead < WINDOW { self.heard << ahead } else { 0 } | 1;
            self.next = number + 1;
            return true;
        }
        let behind = self.next - 1 - number;
        if behind >= WINDOW || self.heard & 1 << behind != 0 {
            return false;
        }
        self.heard |= 1 << behind;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_number_counts_once_and_old_ones_never() {
        let mut window = Window::default();
        assert!(window.take(5) && window.take(3) && window.take(6));
        assert!(!window.take(5) && !window.take(3) && !window.take(6));
        assert!(window.take(1000) && window.take(937) && !window.take(936) && !window.take(7));
        assert!(!window.take(u64::MAX));
    }

    proptest! {
        #[test]
        fn no_number_counts_twice(numbers in prop::collection::vec(0_u64..300, 0..500)) {
            let (mut window, mut taken) = (Window::default(), BTreeSet::new());
            for number in numbers {
                let highest = taken.last().copied();
                let new = !taken.contains(&number) && highest.is_none_or(|highest: u64| number + WINDOW > highest);
                prop_assert_eq!(window.take(number), new);
                if new {
                    taken.insert(number);
                }
            }
        }
    }
}

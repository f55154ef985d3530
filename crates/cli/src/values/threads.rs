//! How many threads do a daemon's work.

use std::num::NonZeroUsize;
use std::str::FromStr;
use vfield_console::failure::BadValue;

/// A number of threads, from 1 to [`Threads::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threads(NonZeroUsize);

impl Threads {
    /// Most threads of one kind. Threads beyond the processors only take turns, and the largest
    /// machines have a few hundred processors; each thread costs a stack, and thousands the
    /// system's patience.
    pub const MAX: usize = 256;
}

impl From<Threads> for NonZeroUsize {
    fn from(threads: Threads) -> Self {
        threads.0
    }
}

impl FromStr for Threads {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let count = text.parse().ok().filter(|count: &NonZeroUsize| count.get() <= Self::MAX);
        count.map(Self).ok_or_else(|| {
            let hint = format!("give 1 to {}; more threads than processors do not help", Self::MAX);
            BadValue::new(format!("{text:?} is no number of threads"), hint)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_threads_and_not_thousands() {
        for (text, count) in [("1", Some(1)), ("256", Some(256)), ("257", None), ("3000", None), ("0", None)] {
            assert_eq!(text.parse::<Threads>().ok().map(|threads| threads.0.get()), count, "{text}");
        }
        for text in ["", "-1", "two", "1.5"] {
            assert!(text.parse::<Threads>().is_err(), "{text}");
        }
    }
}

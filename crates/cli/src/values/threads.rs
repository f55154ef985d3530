//! How many threads do a daemon's work.

use serde::Deserialize;
use std::num::NonZeroUsize;
use std::str::FromStr;
use vfield_console::failure::BadValue;

/// A number of threads, from 1 to [`Threads::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "usize")]
pub struct Threads(NonZeroUsize);

impl Threads {
    /// Most threads of one kind. Threads beyond the processors only take turns, and the largest machines
    /// have a few hundred processors; each thread costs a stack, and thousands the system's patience.
    pub const MAX: usize = 256;
}

impl From<Threads> for NonZeroUsize {
    fn from(threads: Threads) -> Self {
        threads.0
    }
}

impl TryFrom<usize> for Threads {
    type Error = BadValue;

    fn try_from(count: usize) -> Result<Self, BadValue> {
        let bounded = NonZeroUsize::new(count).filter(|count| count.get() <= Self::MAX);
        bounded.map(Self).ok_or_else(|| refusal(count))
    }
}

impl FromStr for Threads {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let count: usize = text.parse().map_err(|_| refusal(format!("{text:?}")))?;
        Self::try_from(count)
    }
}

fn refusal(what: impl std::fmt::Display) -> BadValue {
    let hint = format!("give 1 to {}; more threads than processors bring nothing", Threads::MAX);
    BadValue::new(format!("{what} is no number of threads"), hint)
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

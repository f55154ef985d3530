//! `--join-boost`: how eagerly a joining node fills its store.

use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;
use vfield_console::failure::BadValue;
use vfield_node::config::JoinBoost;

const HINT: &str = "give 0 (slow) to 9 (full speed), or random where many machines start at once";

/// A level, or the wish for any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boost {
    /// A fixed level.
    Level(JoinBoost),
    /// A different one on each machine, so that a whole room does not fill at once.
    Random,
}

impl Boost {
    /// The level to use; drawn anew at each call for [`Boost::Random`].
    pub fn level(self) -> JoinBoost {
        match self {
            Self::Level(level) => level,
            Self::Random => {
                let drawn = RandomState::new().hash_one(std::process::id()) % 10;
                JoinBoost::new(drawn as u8).unwrap_or(JoinBoost::DEFAULT)
            }
        }
    }
}

impl FromStr for Boost {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        if text == "random" {
            return Ok(Self::Random);
        }
        let level = text.parse().ok().and_then(JoinBoost::new);
        level.map(Self::Level).ok_or_else(|| BadValue::new(format!("{text:?} is not a join boost"), HINT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_one_digit() {
        assert_eq!("9".parse(), Ok(Boost::Level(JoinBoost::new(9).unwrap())));
        assert_eq!("random".parse(), Ok(Boost::Random));
        for text in ["", "10", "-1", "fast", "3.5"] {
            assert!(text.parse::<Boost>().is_err(), "{text}");
        }
        assert!((0..100).all(|_| Boost::Random.level().level() <= 9));
    }
}

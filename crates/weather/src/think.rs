//! Readers that work on what they have read: `250ms@3` holds each block for a quarter of a second.

use crate::each::{Each, Trait};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The think times of readers; a list such as `10ms,250ms@3`.
pub type Thinks = Each<Think>;

/// The time that a reader works on a block before it takes the next one. Its place among those in
/// flight is free only then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Think(Duration);

impl Think {
    /// The time for each block.
    pub const fn time(self) -> Duration {
        self.0
    }
}

impl Trait for Think {
    const NAME: &'static str = "think time";
    const EXAMPLE: &'static str = "think times such as 250ms@3";
}

impl fmt::Display for Think {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0.as_secs_f64())
    }
}

impl FromStr for Think {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        crate::time(text).map(Self).ok_or_else(|| format!("{text:?} is no time such as 250ms"))
    }
}

//! Readers that work on what they have read: `250ms@3` holds each block for a quarter of a second.

use crate::each::{Each, Trait};
use std::time::Duration;

/// The times that readers work on a block before they take the next one; a list such as
/// `10ms,250ms@3`. A block's place among those in flight is free only then.
pub type Thinks = Each<Duration>;

impl Trait for Duration {
    const NAME: &'static str = "think time";
    const EXAMPLE: &'static str = "think times such as 250ms@3";

    fn read(text: &str) -> Result<Self, String> {
        crate::time(text).ok_or_else(|| format!("{text:?} is no time such as 250ms"))
    }

    fn text(self) -> String {
        format!("{}s", self.as_secs_f64())
    }
}

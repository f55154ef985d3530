//! The small parts that a node is made of, each against a naive model.

mod bits;
mod directory;
mod fill;
mod inventory;
mod pacing;
mod peers;
mod reach;
mod read_ahead;
mod standing;

use std::time::Duration;
use vfield_core::time::Time;

fn at(milliseconds: u64) -> Time {
    Time::after_start(Duration::from_millis(milliseconds))
}

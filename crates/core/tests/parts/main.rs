//! The parts that a node is made of, most of them against a naive model, and the bytes on the wire.

mod bits;
mod directory;
mod fetches;
mod fill;
mod hash_tree;
mod header_proof;
mod image;
mod inventory;
mod pacing;
mod peers;
mod placement;
mod prefetch;
mod reach;
mod read_ahead;
#[path = "../support/signed.rs"]
mod signed;
mod slice;
mod standing;
mod wire;

use std::time::Duration;
use vfield_core::time::Time;

fn at(milliseconds: u64) -> Time {
    Time::after_start(Duration::from_millis(milliseconds))
}

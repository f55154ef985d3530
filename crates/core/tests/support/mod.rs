//! A field of cores with a virtual clock: a small deterministic event loop that plays the shells' part.
//!
//! Start with [`field::Field`]. Later to grow into the simulator.

pub mod checker;
mod faults;
pub mod field;
pub mod host;
pub mod original;
pub mod reader;

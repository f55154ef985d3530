//! The simulator: many cores on a modelled network and a virtual clock, from one seed, repeatable to the byte.
//!
//! [`field::Field`] is the harness: machines, links, readers, one queue of events. Tests drive it directly.

pub mod checks;
pub mod clock;
pub mod dice;
pub mod explain;
pub mod field;
pub mod machine;
pub mod network;
pub mod original;
pub mod reader;
pub mod trace;

//! The simulator: many cores on a modelled network and a virtual clock, from one seed, repeatable
//! to the byte.
//!
//! [`field::Field`] is the harness: machines, links, readers, one queue of events; tests drive it
//! directly. [`scenario`] is the plan of a run as plain data; [`commands`] is the command line that
//! runs it.

pub mod checks;
pub mod clock;
pub mod commands;
pub mod dice;
pub mod explain;
pub mod faults;
pub mod field;
pub mod machine;
pub mod malicious;
pub mod network;
pub mod original;
pub mod reader;
pub mod report;
pub mod scenario;
pub mod trace;
pub mod trial;

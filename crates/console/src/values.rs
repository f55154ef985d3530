//! The kinds of values that all commands share, each in a file of its own.
//!
//! A value that exists is valid: parsing is the only way to make one.

pub mod address;
pub mod duration;
pub mod size;

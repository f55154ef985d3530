//! The kinds of values that are asked of a daemon, each in a file of its own.
//!
//! A value that exists is valid: parsing is the only way to make one.

pub mod until;

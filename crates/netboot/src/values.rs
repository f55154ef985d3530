//! The kinds of values that say how machines start, each in a file of its own.
//!
//! A value that exists is valid: parsing is the only way to make one.

pub mod dhcp;
pub mod machine;

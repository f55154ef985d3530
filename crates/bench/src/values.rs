//! The kinds of values that name a measurement, each in a file of its own.
//!
//! A value that exists is valid: parsing is the only way to make one.

pub mod count;
pub mod nbd_uri;
pub mod rate;

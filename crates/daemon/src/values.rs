//! The kinds of values that say what a daemon is to do, each in a file of its own.
//!
//! A value that exists is valid: parsing is the only way to make one.

pub mod device;
pub mod image;
pub mod overlay;
pub mod sandbox;
pub mod store;
pub mod user;

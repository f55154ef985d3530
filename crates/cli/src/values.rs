//! The kinds of values that command lines and configuration files hold, each in a file of its own.
//!
//! A value that exists is valid: parsing is the only way to make one. None of them looks at the machine
//! or the network; that is done in [`crate::plan`].

pub mod access;
pub mod boost;
pub mod endpoint;
pub mod threads;
pub mod zone;

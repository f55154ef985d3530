//! The V-FIELD protocol, without sockets, clocks, threads or randomness.

pub mod chunk;
pub mod extent;
pub mod image;
pub mod source;

//! The V-FIELD protocol, without sockets, clocks, threads or randomness.

pub mod chunk;
pub mod extent;
pub mod hash_tree;
pub mod image;
pub mod source;

//! The V-FIELD protocol, without sockets, clocks, threads or randomness.

pub mod chunk;
pub mod extent;
pub mod hash_tree;
pub mod identity;
pub mod image;
pub mod membership;
pub mod placement;
pub mod record;
pub mod source;
pub mod time;
pub mod wire;

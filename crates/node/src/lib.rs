//! The daemon: sockets, connection pool, hashing, store memory; drives core.

pub mod config;
pub mod event;
pub mod node;
pub mod origin;
pub mod status;
pub mod store;

pub use node::Node;

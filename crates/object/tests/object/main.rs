//! Objects, against servers in memory.

mod credentials;
mod mirrors;
mod registry;
mod server;

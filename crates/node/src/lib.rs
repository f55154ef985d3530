//! The daemon: sockets, connection pool, hashing, store memory; drives core.
//!
//! [`node::Node`] is the way in. [`driver`] gives the core its events and does what it asks for; [`links`]
//! asks peers, [`server`] answers them, [`store`] and [`origin`] hold the bytes, [`reader`] is what exports see.

pub mod bootstrap;
mod changed;
pub mod config;
mod connection;
pub mod driver;
mod entry;
pub mod event;
pub mod field_keys;
mod gossip;
pub mod greet;
pub mod image;
mod incoming;
mod interview;
pub mod keeper;
pub mod links;
mod lobby;
mod low_water;
pub mod misdeeds;
mod namesakes;
pub mod naming;
pub mod node;
pub mod origin;
mod page;
pub mod proofs;
pub mod reader;
mod reading;
pub mod server;
pub mod status;
pub mod store;
mod survey;
mod told;
pub mod traffic;
mod waits;
pub mod whereabouts;

pub use node::Node;

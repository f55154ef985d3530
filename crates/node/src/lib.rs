//! The daemon: sockets, connection pool, hashing, store memory; drives core.
//!
//! [`node::Node`] is the way in. [`driver`] feeds the core with events and carries out its outputs.
//! [`links`] asks peers, [`server`] answers them, [`store`] holds chunks, [`source`] has whole
//! images, [`reader`] serves exports.

mod admissions;
pub mod apart;
pub mod bootstrap;
mod bootstrap_addrs;
pub mod buffers;
mod cache;
mod changed;
mod codec;
pub mod compression;
pub mod config;
mod connection;
pub mod delays;
pub mod disk;
mod disk_reads;
pub mod driver;
mod entry;
pub mod event;
pub mod explained;
pub mod field_keys;
mod gossip;
pub mod greet;
mod header;
pub mod image;
mod incoming;
mod interview;
pub mod keeper;
pub mod learned;
pub mod limits;
pub mod links;
mod lobby;
mod log_limit;
mod low_water;
mod mending;
pub mod misdeeds;
mod namesakes;
pub mod naming;
pub mod node;
pub mod object_origin;
pub mod origin;
mod pieces;
pub mod proofs;
mod pursued;
pub mod reader;
mod reading;
pub mod route;
pub mod segments;
pub mod server;
mod slices;
pub mod sockets;
pub mod source;
pub mod status;
pub mod store;
mod survey;
pub mod trace;
pub mod traffic;
mod turns;
mod twins;
mod waits;
pub mod whereabouts;

pub use node::Node;

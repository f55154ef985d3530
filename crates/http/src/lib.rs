//! HTTP for those who look at a node or boot from it: clients bounded in number, time and bytes.
//!
//! Owns the connections ([`visitors`]), the bounds of a request ([`server`]) and the names that a
//! client may call the server by ([`host`]). It knows no path: what an address answers is its
//! caller's. Nothing can be changed through it, since every method but GET and HEAD is refused.

pub mod answer;
pub mod host;
pub mod server;
pub mod visitors;

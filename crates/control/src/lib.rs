//! How commands speak to a running daemon: a socket in the file system, JSON lines, a version.
//!
//! A client connects, sends one [`message::Request`] line and reads [`message::Reply`] lines until
//! the daemon closes. Owns the socket's place, its life and its wire form; what the orders do is
//! decided by whoever implements [`server::Daemon`].

pub mod args;
pub mod client;
pub mod events;
pub mod fd_message;
mod impostor;
pub mod limits;
pub mod message;
pub mod offer;
mod order;
pub mod place;
pub mod recording;
#[cfg(feature = "reference")]
pub mod reference;
pub mod selection;
pub mod server;
pub mod shares;
pub mod slow_links;
pub mod values;

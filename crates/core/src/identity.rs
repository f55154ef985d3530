//! Who a node is: an id for its lifetime, an address, and a generation that settles who is newer.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;

/// A node for as long as its process lives: 64 random bits, drawn by the shell at start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0 >> 32)
    }
}

/// A member of the field, as membership gossip names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Where it is reached, TCP and UDP.
    pub addr: SocketAddr,
    /// The process.
    pub node: NodeId,
    /// Milliseconds since 1970 at its start; of two processes at one address the later one is real.
    pub generation: u64,
}

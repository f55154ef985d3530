//! Effects: the work that a call of [`super::Membership`] leaves to its caller.

use super::member::Departed;
use crate::identity::{Identity, NodeId};
use crate::tags::SignedTag;
use std::net::SocketAddr;

/// The effects of a call, for the caller to carry out.
#[derive(Debug, Default)]
pub struct Effects {
    /// Datagrams to send.
    pub datagrams: Vec<(SocketAddr, Vec<u8>)>,
    /// Messages to send over connections, which have to be made if there are none.
    pub by_connection: Vec<(Identity, Vec<u8>)>,
    /// Members that are new, or back.
    pub up: Vec<Identity>,
    /// Members that have another address now.
    pub moved: Vec<Identity>,
    /// Members that died or left.
    pub down: Vec<Departed>,
    /// True if the set of suspects changed, or a member's arrival.
    pub doubt: bool,
    /// True if this node had to deny its death: others may have stopped accepting its messages.
    pub denied: bool,
    /// Another process that uses this node's key.
    pub rival: Option<Rival>,
    /// What others said of tags.
    pub tags: Vec<TagNews>,
}

/// What another node says of tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TagNews {
    /// A tag, from the node with this id, as it says, at this address.
    Tag(SignedTag, NodeId, SocketAddr),
    /// A member tells which tags it knows.
    Known {
        /// The live member.
        of: NodeId,
        /// The digests of the tags.
        digests: Vec<u32>,
        /// True if it can be asked for others.
        offer: bool,
    },
}

/// Another process with this node's key, which so has its identity too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rival {
    /// The address in its last statement, at which it may be found.
    pub addr: SocketAddr,
    /// True if this node is a member no more, since the other process goes on.
    pub yields: bool,
}

impl Effects {
    /// Appends the effects of a later call.
    pub fn add(&mut self, other: Self) {
        self.datagrams.extend(other.datagrams);
        self.by_connection.extend(other.by_connection);
        self.up.extend(other.up);
        self.moved.extend(other.moved);
        self.down.extend(other.down);
        self.doubt |= other.doubt;
        self.denied |= other.denied;
        self.rival = other.rival.or(self.rival);
        self.tags.extend(other.tags);
    }
}

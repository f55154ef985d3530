//! Messages on the network, and the table of all packets on their way.

use crate::machine::lane::Way;
use std::net::SocketAddr;
use std::time::Duration;
use vfield_core::chunk::Chunk;
use vfield_core::fetch::RequestId;
use vfield_core::identity::NodeId;
use vfield_core::reach::Reach;
use vfield_core::slice::Slice;
use vfield_core::speed::Speed;
use vfield_core::time::Time;
use vfield_core::wire::{Priority, Refusal};

/// One message, as the shells understand it.
#[derive(Debug)]
pub enum Message {
    /// A request for a chunk.
    Get {
        /// The asker's number for it.
        request: RequestId,
        /// The index of the image.
        image: u16,
        /// The chunk, data or page.
        chunk: Chunk,
        /// The priority of the request.
        priority: Priority,
        /// The reach of the request.
        reach: Reach,
        /// The asker does not want to be sent elsewhere.
        insists: bool,
        /// The wanted part of the chunk; `None` for all of it.
        slice: Option<Slice>,
    },
    /// The asker wants it no more.
    Cancel(RequestId),
    /// A chunk as an answer.
    Data {
        /// The asker's number for it.
        request: RequestId,
        /// For how long its sender waited for it.
        waited: Duration,
        /// True if its bytes are wrong.
        wrong: bool,
    },
    /// A refusal of a request.
    Refuse(RequestId, Refusal),
    /// Ask that one.
    Redirect(RequestId, NodeId),
    /// A snapshot in wire format, with a request for the other's.
    Sync(Vec<u8>),
    /// The snapshot in answer.
    Synced(Vec<u8>),
    /// A sign of life: the answer will come.
    Patience,
    /// The speed at which the receiver's answers come.
    Speed(Speed),
    /// Gossip over a connection.
    Gossip(Vec<u8>),
    /// Gossip, on no connection.
    Datagram(Vec<u8>),
    /// The same, from a source that its sender may have forged.
    Forged {
        /// The source that the receiver sees.
        source: SocketAddr,
        /// The bytes of the datagram.
        bytes: Vec<u8>,
    },
}

impl Message {
    /// The direction on its lane; `None` for messages without a lane.
    pub const fn way(&self) -> Option<Way> {
        match self {
            Self::Get { .. } | Self::Cancel(_) | Self::Sync(_) | Self::Speed(_) | Self::Gossip(_) => Some(Way::Forward),
            Self::Data { .. } | Self::Refuse(..) | Self::Redirect(..) | Self::Synced(_) | Self::Patience => {
                Some(Way::Back)
            }
            Self::Datagram(_) | Self::Forged { .. } => None,
        }
    }
}

/// A message on its way.
#[derive(Debug)]
pub struct Packet {
    /// From this machine.
    pub from: u32,
    /// To this one.
    pub to: u32,
    /// On the lane as it was opened this time.
    pub epoch: u32,
    /// Its place in the order of its lane and way.
    pub number: u32,
    /// The next link on its way.
    pub hop: Hop,
    /// Bytes on the wire.
    pub bytes: u32,
    /// When its last byte reaches that link.
    pub last: Time,
    /// When its first byte reached the receiver's link, and the bytes that had come then: from all,
    /// and from its sender.
    pub first: (Time, (u64, u64)),
    /// The content of the packet.
    pub message: Message,
}

/// The links on a message's way, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hop {
    /// Out of its zone.
    ZoneOut,
    /// Into the other's zone.
    ZoneIn,
    /// Into the machine.
    Down,
}

/// All packets on their way; places are reused.
#[derive(Debug, Default)]
pub struct Packets {
    table: Vec<Option<Packet>>,
    free: Vec<u32>,
}

impl Packets {
    /// Puts one in and returns its place.
    pub fn insert(&mut self, packet: Packet) -> u32 {
        if let Some(at) = self.free.pop() {
            self.table[at as usize] = Some(packet);
            return at;
        }
        self.table.push(Some(packet));
        u32::try_from(self.table.len() - 1).expect("fewer than four thousand million messages")
    }

    /// The packet at a place in use.
    pub fn at(&mut self, at: u32) -> &mut Packet {
        self.table[at as usize].as_mut().expect("a packet on its way")
    }

    /// Takes one out.
    pub fn remove(&mut self, at: u32) -> Packet {
        self.free.push(at);
        self.table[at as usize].take().expect("a packet on its way")
    }

    /// The number of packets on their way.
    pub fn len(&self) -> usize {
        self.table.len() - self.free.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

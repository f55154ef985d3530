//! What travels on the network, and the table of all that is on its way.

use crate::machine::lane::Way;
use std::time::Duration;
use vfield_core::chunk::Chunk;
use vfield_core::fetch::RequestId;
use vfield_core::identity::NodeId;
use vfield_core::reach::Reach;
use vfield_core::time::Time;
use vfield_core::wire::{Priority, Refusal};

/// One message, as the shells understand it.
#[derive(Debug)]
pub enum Message {
    /// A request for a chunk.
    Get {
        /// The asker's number for it.
        request: RequestId,
        /// Of this image of the field.
        image: u16,
        /// Which.
        chunk: Chunk,
        /// How urgently.
        priority: Priority,
        /// How far it may be passed on.
        reach: Reach,
        /// The asker does not want to be sent elsewhere.
        insists: bool,
    },
    /// The asker wants it no more.
    Cancel(RequestId),
    /// A chunk.
    Data {
        /// The asker's number for it.
        request: RequestId,
        /// For how long its sender waited for it.
        waited: Duration,
        /// Its bytes are not those of the image.
        wrong: bool,
    },
    /// No.
    Refuse(RequestId, Refusal),
    /// Ask that one.
    Redirect(RequestId, NodeId),
    /// Notes to compare, as they are on the wire: who sends them, and wants an answer.
    Sync(Vec<u8>),
    /// The answer.
    Synced(Vec<u8>),
    /// It will come.
    Patience,
    /// Gossip, on no connection.
    Datagram(Vec<u8>),
}

impl Message {
    /// Which way it goes on its lane; `None` for what needs none.
    pub const fn way(&self) -> Option<Way> {
        match self {
            Self::Get { .. } | Self::Cancel(_) | Self::Sync(_) => Some(Way::Forward),
            Self::Data { .. } | Self::Refuse(..) | Self::Redirect(..) | Self::Synced(_) | Self::Patience => {
                Some(Way::Back)
            }
            Self::Datagram(_) => None,
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
    /// Which link it comes to next.
    pub hop: Hop,
    /// Bytes on the wire.
    pub bytes: u32,
    /// When its last byte comes to that link.
    pub last: Time,
    /// What it says.
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

/// All that is on its way; places are used again.
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

    /// Looks at one that is there.
    pub fn at(&mut self, at: u32) -> &mut Packet {
        self.table[at as usize].as_mut().expect("a packet on its way")
    }

    /// Takes one out.
    pub fn remove(&mut self, at: u32) -> Packet {
        self.free.push(at);
        self.table[at as usize].take().expect("a packet on its way")
    }

    /// How many are on their way.
    pub fn len(&self) -> usize {
        self.table.len() - self.free.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

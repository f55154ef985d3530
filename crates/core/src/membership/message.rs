//! Gossip datagrams: a head, then as many items of news as fit. Parsing only; docs/reference/protocol.md has
//! the format.

use super::roster::Member;
use crate::identity::{Identity, NodeId};
use crate::record::Record;
use serde::{Deserialize, Serialize};

/// Largest gossip datagram, in bytes: an Ethernet frame with room for IPv6 and tunnels.
pub const DATAGRAM_MAX: usize = 1400;
/// First bytes of each datagram; a sender without them gets no answer. The last byte is the
/// version.
const MAGIC: [u8; 4] = *b"VFG\x02";

/// The group of members that a datagram belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    /// The nodes of one zone.
    Zone,
    /// The gateways of all zones.
    Backbone,
}

impl Level {
    /// Factor by which idle members of this level talk less. Gateways are members of their zone
    /// too, where others watch them and replace a dead one. Two of its connected peers notice a
    /// death at once.
    pub const fn slowness(self) -> u32 {
        match self {
            Self::Zone => 1,
            Self::Backbone => 3,
        }
    }
}

/// Sender, receiver and purpose of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The group of members.
    pub level: Level,
    /// The member that sends it.
    pub from: Identity,
    /// The sender's incarnation.
    pub incarnation: u32,
    /// The intended receiver; another process may have its address by now.
    pub to: NodeId,
    /// Its purpose besides news.
    pub purpose: Purpose,
}

/// The purpose of a datagram, besides its news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// Nothing besides its news.
    News,
    /// To be answered at once.
    Ping(u32),
    /// The answer to a ping with this number.
    Ack(u32),
    /// Please ping this member for me.
    Relay(Identity, u32),
    /// A ping for another's sake: to be answered with the same.
    PingFor(Identity, u32),
    /// The answer to that.
    AckFor(Identity, u32),
    /// The member that you asked about lives.
    Vouch(NodeId, u32),
}

/// A piece of news.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Item {
    /// A statement about a member.
    Member(Member),
    /// A statement about what a member has.
    Record(Record),
}

/// A datagram in the making.
pub struct Draft(Vec<u8>);

impl Draft {
    /// A datagram without news.
    pub fn new(head: &Head) -> Self {
        Self(append(MAGIC.to_vec(), head))
    }

    /// Adds an item, or gives it up and says so if it does not fit any more.
    pub fn add(&mut self, item: &Item) -> bool {
        let length = self.0.len();
        self.0 = append(std::mem::take(&mut self.0), item);
        let fits = self.0.len() <= DATAGRAM_MAX;
        if !fits {
            self.0.truncate(length);
        }
        fits
    }

    /// The bytes of the datagram.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

fn append<T: Serialize>(bytes: Vec<u8>, value: &T) -> Vec<u8> {
    postcard::to_extend(value, bytes).expect("plain data without maps or unsized sequences always encodes")
}

/// The level in the head of a datagram; `None` if the head is malformed.
pub fn level(bytes: &[u8]) -> Option<Level> {
    let body = bytes.strip_prefix(&MAGIC)?;
    postcard::take_from_bytes(body).ok().map(|(level, _)| level)
}

/// Reads a datagram: its head and an iterator over the news that can be read.
pub fn parse(bytes: &[u8]) -> Option<(Head, impl Iterator<Item = Item> + '_)> {
    let body = bytes.strip_prefix(&MAGIC)?;
    let (head, mut rest): (Head, &[u8]) = postcard::take_from_bytes(body).ok()?;
    let items = std::iter::from_fn(move || {
        let (item, after): (Item, &[u8]) = postcard::take_from_bytes(rest).ok()?;
        rest = after;
        let sound = !matches!(&item, Item::Record(record) if !record.is_sound());
        sound.then_some(item)
    });
    Some((head, items))
}

#[cfg(test)]
mod tests {
    use super::super::roster::State;
    use super::*;
    use crate::identity::Zone;

    #[test]
    fn messages_survive_a_round_trip() {
        let addr = ([198, 18, 0, 1], 4000).into();
        let identity =
            |node| Identity { addr, node: NodeId(node), generation: 1_700_000_000_000, zone: Zone::default() };
        let head = Head {
            level: Level::Backbone,
            from: identity(1),
            incarnation: 2,
            to: NodeId(3),
            purpose: Purpose::Relay(identity(4), 5),
        };
        let mut draft = Draft::new(&head);
        let item = |node| Item::Member(Member { identity: identity(node), incarnation: 7, state: State::Suspect });
        let fitted = (0..).take_while(|node| draft.add(&item(*node))).count();
        let bytes = draft.finish();
        assert!(bytes.len() <= DATAGRAM_MAX && fitted > 40, "{fitted} items in {} bytes", bytes.len());
        let (read, items) = parse(&bytes).expect("sound");
        assert_eq!((read, level(&bytes)), (head, Some(Level::Backbone)));
        assert!(items.eq((0..fitted as u64).map(item)));
        assert!((0..bytes.len()).all(|length| parse(&bytes[..length]).is_none_or(|(read, _)| read == head)));
        assert!(parse(b"VFG\x01 and more").is_none());
    }
}

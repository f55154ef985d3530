//! Gossip datagrams: a head, then as many items of news as fit. Parsing only; the format is in
//! docs/reference/protocol.md.

use super::member::Member;
use super::progress::Progress;
use crate::identity::NodeId;
use crate::record::Record;
use crate::tag::TEXT_MAX;
use crate::tags::{DIGESTS_MAX, SIGNATURE_MAX, SIGNER_LENGTH, SignedTag};
use serde::{Deserialize, Serialize};

/// Largest gossip datagram, in bytes: an Ethernet frame with room for IPv6 and tunnels.
pub const DATAGRAM_MAX: usize = 1400;

const _: () = assert!(DATAGRAM_MAX < 1500, "a datagram fits an Ethernet frame");

/// Bytes of the longest head, and of the lengths of an item and its parts.
const HEAD_MAX: usize = 64;

const _: () = assert!(HEAD_MAX + SIGNER_LENGTH + TEXT_MAX + SIGNATURE_MAX <= DATAGRAM_MAX, "a tag fits a datagram");
const _: () = assert!(HEAD_MAX + 5 * DIGESTS_MAX <= DATAGRAM_MAX, "the digests of all tags fit a datagram");

/// First bytes of each datagram; a sender without them gets no answer. The last byte is the
/// version.
const MAGIC: [u8; 4] = *b"VFG\x03";

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
    /// The node that sends it, as it says.
    pub from: NodeId,
    /// The generation and incarnation of the sender.
    pub life: (u64, u32),
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
    Relay(NodeId, u32),
    /// A ping for another's sake: to be answered with the same.
    PingFor(NodeId, u32),
    /// The answer to that.
    AckFor(NodeId, u32),
    /// The member that you asked about lives.
    Vouch(NodeId, u32),
    /// To be answered with the receiver's statement about itself.
    Introduce,
    /// For this member, to which the sender has no way: please pass it on.
    Through(NodeId, Relayed),
    /// Passed on by this member, which has a way to both.
    Passed(NodeId, Relayed),
}

/// The purpose of a message that another member passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Relayed {
    /// [`Purpose::News`] for its receiver.
    News,
    /// [`Purpose::Ping`]: the answer goes the same way.
    Ping(u32),
    /// [`Purpose::Ack`]: the answer to that.
    Ack(u32),
    /// [`Purpose::Introduce`]: its answer is news, and goes the same way.
    Introduce,
}

impl Purpose {
    /// The same for a message that is passed on; `None` if it is of no use there.
    pub(super) const fn relayed(self) -> Option<Relayed> {
        match self {
            Self::News => Some(Relayed::News),
            Self::Ping(number) => Some(Relayed::Ping(number)),
            Self::Ack(number) => Some(Relayed::Ack(number)),
            Self::Introduce => Some(Relayed::Introduce),
            _ => None,
        }
    }
}

impl From<Relayed> for Purpose {
    fn from(relayed: Relayed) -> Self {
        match relayed {
            Relayed::News => Self::News,
            Relayed::Ping(number) => Self::Ping(number),
            Relayed::Ack(number) => Self::Ack(number),
            Relayed::Introduce => Self::Introduce,
        }
    }
}

/// A piece of news.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Item {
    /// A statement about a member.
    Member(Member),
    /// A statement about what a member has.
    Record(Record),
    /// A tag of an operator.
    Tag(SignedTag),
    /// Digests of the tags that are known to the sender, or of no use to it. The receiver sends the
    /// tags that it lacks.
    KnownTags {
        /// The digests, see [`SignedTag::digest`].
        digests: Vec<u32>,
        /// True if the receiver may ask for tags that it lacks in turn.
        offer: bool,
    },
    /// The progress of a record that the receiver probably has.
    Progress(Progress),
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
        let bytes = append(Vec::new(), item);
        self.0 = append(std::mem::take(&mut self.0), &bytes.len());
        self.0.extend_from_slice(&bytes);
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

/// The same message with another head; `None` if it is longer than a datagram may be.
pub fn passed_on(head: &Head, bytes: &[u8]) -> Option<Vec<u8>> {
    let (_, news) = split(bytes).filter(|_| bytes.len() <= DATAGRAM_MAX)?;
    let mut passed = append(MAGIC.to_vec(), head);
    passed.extend_from_slice(news);
    Some(passed)
}

/// The head of a datagram, and its news as it is written; `None` if the head is malformed.
fn split(bytes: &[u8]) -> Option<(Head, &[u8])> {
    postcard::take_from_bytes(bytes.strip_prefix(&MAGIC)?).ok()
}

/// Reads a datagram: its head and an iterator over the news that can be read. Items of unknown
/// kinds are skipped: a later version may send them.
pub fn parse(bytes: &[u8]) -> Option<(Head, impl Iterator<Item = Item> + '_)> {
    let (head, mut rest) = split(bytes)?;
    let pieces = std::iter::from_fn(move || {
        let (length, after): (usize, &[u8]) = postcard::take_from_bytes(rest).ok()?;
        let (piece, after) = after.split_at_checked(length)?;
        rest = after;
        Some(piece)
    });
    let items = pieces.filter_map(|piece| match postcard::take_from_bytes(piece).ok()? {
        (Item::Record(record), _) if !record.is_sound() => None,
        (Item::Tag(tag), _) if !tag.is_bounded() => None,
        (Item::KnownTags { digests, .. }, _) if digests.len() > DIGESTS_MAX => None,
        (item, _) => Some(item),
    });
    Some((head, items))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Identity, Zone};
    use crate::signing::Simulated;

    fn item(node: u64) -> Item {
        let addr = ([198, 18, 0, 1], 4000).into();
        let node = NodeId(node);
        let identity = Identity { addr, node, generation: 1_700_000_000_000, zone: Zone::default() };
        Item::Member(Member::signed(identity, 7, false, &Simulated(node)))
    }

    fn head() -> Head {
        let purpose = Purpose::Relay(NodeId(4), 5);
        Head { level: Level::Backbone, from: NodeId(1), life: (1_700_000_000_000, 2), to: NodeId(3), purpose }
    }

    #[test]
    fn messages_survive_a_round_trip() {
        let (head, mut draft) = (head(), Draft::new(&head()));
        let fitted = (0..).take_while(|node| draft.add(&item(*node))).count();
        let bytes = draft.finish();
        assert!(bytes.len() <= DATAGRAM_MAX && fitted > 9, "{fitted} items in {} bytes", bytes.len());
        let (read, items) = parse(&bytes).expect("sound");
        assert_eq!((read, level(&bytes)), (head, Some(Level::Backbone)));
        assert!(items.eq((0..fitted as u64).map(item)));
        assert!((0..bytes.len()).all(|length| parse(&bytes[..length]).is_none_or(|(read, _)| read == head)));
        assert!(parse(b"VFG\x02 and more").is_none());
    }

    #[test]
    fn items_of_a_later_version_are_skipped() {
        let mut draft = Draft::new(&head());
        assert!(draft.add(&item(1)));
        let mut bytes = draft.finish();
        bytes.extend_from_slice(&[4, 200, 1, 2, 3]);
        bytes.extend_from_slice(&{
            let mut next = Draft(Vec::new());
            assert!(next.add(&item(2)));
            next.finish()
        });
        let (_, items) = parse(&bytes).expect("sound");
        assert!(items.eq([item(1), item(2)]));
    }
}

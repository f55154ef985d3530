//! The identity of a node: an id for its lifetime, an address, a generation that orders its lives,
//! a zone.

use crate::placement::map::mix;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::SocketAddr;

/// A node for as long as its process lives: 64 bits of a hash of its public key. Each process draws
/// a key at its start, unless it was given one.
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
    /// Its address, TCP and UDP.
    pub addr: SocketAddr,
    /// The id of the process.
    pub node: NodeId,
    /// Milliseconds since 1970 at its start, or more than every generation that its introducer knew
    /// then. Of two processes at one address the one with the higher generation is real.
    pub generation: u64,
    /// Its zone: the nodes with which it shares what it holds.
    pub zone: Zone,
}

impl Identity {
    /// A total order of nodes by start; the older node has the lower value.
    pub const fn age(&self) -> (u64, NodeId) {
        (self.generation, self.node)
    }

    /// Its place in the order of joins.
    pub const fn arrival(&self) -> Arrival {
        let drawn = self.node.0 >> (u64::BITS - Arrival::DRAWN_BITS);
        Arrival((self.generation << Arrival::DRAWN_BITS | drawn) & Arrival::MASK)
    }
}

/// A place in the order in which nodes joined. The order is a circle of 34 years. Nodes that joined
/// in the same millisecond follow the order of their ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arrival(pub u64);

impl Arrival {
    /// The number of bits that are used.
    pub const BITS: u32 = 57;
    /// Bits taken from an id. Of 10 000 nodes that join within a second, two share a place once in
    /// three times; one of them then asks the next upstream node instead.
    const DRAWN_BITS: u32 = 17;
    const MASK: u64 = (1 << Self::BITS) - 1;

    /// Before all others.
    pub const FIRST: Self = Self(0);

    /// The distance around the circle from `start` to here.
    pub const fn since(self, start: Self) -> u64 {
        self.0.wrapping_sub(start.0) & Self::MASK
    }
}

/// A zone: nodes that are near each other, such as those of a rack. A node knows every node of its
/// own zone, and a few of each other zone. A node without a configured zone is in the zone without
/// a name.
///
/// The name is kept inline, since a node knows many identities. It is no longer than an IPv4
/// network's usual notation.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Zone([u8; Zone::LENGTH_MAX]);

impl Zone {
    /// Longest name, in bytes: `198.18.255.255/32`, as a subnet is written, has 17.
    pub const LENGTH_MAX: usize = 20;

    /// The zone of this name: letters, digits and `-_.:/`, at most [`Zone::LENGTH_MAX`] of them, or
    /// none.
    pub fn named(name: &str) -> Option<Self> {
        let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
        let mut bytes = [0; Self::LENGTH_MAX];
        bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        name.bytes().all(sound).then_some(Self(bytes))
    }

    /// Its name; empty for the zone without one.
    pub fn name(&self) -> &str {
        let length = self.0.iter().position(|byte| *byte == 0).unwrap_or(Self::LENGTH_MAX);
        std::str::from_utf8(&self.0[..length]).expect("ASCII, as it was checked")
    }

    /// Its place in the order of zones, which is the same everywhere: 64 bits of a hash of the
    /// name.
    pub fn place(&self) -> u64 {
        self.0.chunks(8).fold(0, |place, part| {
            let mut bytes = [0; 8];
            bytes[..part.len()].copy_from_slice(part);
            mix(place ^ u64::from_le_bytes(bytes))
        })
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.name())
    }
}

impl Serialize for Zone {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Zone {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = <&str>::deserialize(deserializer)?;
        Self::named(name).ok_or_else(|| D::Error::custom("no name of a zone"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_has_a_short_plain_name() {
        for name in ["", "rack-17", "198.18.255.255/32", "abcdefghijklmnopqrst"] {
            assert_eq!(Zone::named(name).expect("a name").name(), name);
        }
        for name in ["abcdefghijklmnopqrstu", "a b", "a\0b", "r\u{e4}ck"] {
            assert_eq!(Zone::named(name), None, "{name:?}");
        }
        assert_ne!(Zone::named("a").map(|zone| zone.place()), Zone::named("b").map(|zone| zone.place()));
    }
}

//! Reach: how far a request for a chunk may be passed on. It keeps nodes from waiting for each
//! other in a circle.
//!
//! A node that is asked with some reach may wait for, or send, only a request of less reach for
//! that asker. So the reach falls along every sequence of nodes that wait for each other, whatever
//! each of them believes of the field, and no circle can close. All requests share one scale. From
//! the last step of the longest way to its first:
//!
//! - to a believed holder ([`Reach::HOLDER`]),
//! - from zone to zone: how low the asked zone is in the chunk's tree
//!   ([`crate::placement::zones`]),
//! - to the gateway where a chunk enters a zone ([`Reach::GATEWAY`]),
//! - within a zone: how far the asked node is from the chain's beginning
//!   ([`crate::placement::Chain`]),
//! - to a home that relays it.

use crate::placement::chain::Distance;

/// A rank that falls along every sequence of nodes that wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reach(pub u64);

impl Reach {
    /// Only a holder is to answer.
    pub const HOLDER: Self = Self(0);
    /// From a node of a zone to a gateway of it.
    pub const GATEWAY: Self = Self(1 << Distance::BITS);
    /// The longest way along a chain.
    pub const CHAIN_MAX: Self = Self(u64::MAX - 2);
    /// From one home to the first home.
    pub const HOME: Self = Self(u64::MAX - 1);
    /// From a reader to a home.
    pub const READER: Self = Self(u64::MAX);

    /// Along the chain of a zone, to a node at this distance from the source.
    pub fn in_zone(distance: Distance) -> Self {
        Self(Self::GATEWAY.0.saturating_add(1).saturating_add(distance.0)).min(Self::CHAIN_MAX)
    }

    /// From zone to zone, to a gateway of a zone at this distance.
    pub fn outside(distance: Distance) -> Self {
        Self(distance.0.saturating_add(1)).min(Self(Self::GATEWAY.0 - 1))
    }

    /// The reach that is left for the asked node.
    pub fn less(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// True if the asked node is to relay as a home, whether it wants the chunk itself or not.
    pub fn is_relay(self) -> bool {
        self > Self::CHAIN_MAX
    }

    /// True if the asked node is to get it from outside its zone if it is a gateway, whether it
    /// wants it itself or not.
    pub fn is_gateway(self) -> bool {
        self == Self::GATEWAY
    }

    /// True if the asked node is to pass the chunk on only if it comes by there anyway.
    pub fn is_chain(self) -> bool {
        self > Self::HOLDER && self <= Self::CHAIN_MAX
    }

    /// True if it comes from another zone.
    pub fn is_outside(self) -> bool {
        self > Self::HOLDER && self < Self::GATEWAY
    }
}

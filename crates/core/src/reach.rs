//! Reach: how far a request for a chunk may be passed on, which is what keeps nodes from waiting for each
//! other in a circle.
//!
//! A node that is asked with some reach may wait for, or send, only a request of less reach on the asker's
//! behalf. So along any line of nodes that wait for each other the reach falls, whatever each of them
//! believes of the field, and no line can close. All kinds of requests share the one scale, from the last step of the
//! longest way to its first: to a node that is believed to have the chunk ([`Reach::HOLDER`]); from zone to zone, where
//! the reach is how low the asked zone stands in the chunk's tree ([`crate::placement::zones`]); within a zone, along the crowd
//! ([`crate::placement::Crowd`]), where it is how far the asked node stands from the chain's
//! beginning; to the gateway where it enters a zone ([`Reach::GATEWAY`]), between those two; and to a home that is to relay it.

use crate::placement::crowd::Distance;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reach(pub u64);

impl Reach {
    /// Only who has the chunk is to answer.
    pub const HOLDER: Self = Self(0);
    /// From a node of a zone to a gateway of it.
    pub const GATEWAY: Self = Self(1 << Distance::BITS);
    /// The longest way through a crowd.
    pub const CROWD_MAX: Self = Self(u64::MAX - 2);
    /// From one home to the first home.
    pub const HOME: Self = Self(u64::MAX - 1);
    /// From a reader to a home.
    pub const READER: Self = Self(u64::MAX);

    /// Along the crowd of a zone, to a node at this distance from the source.
    pub fn in_zone(distance: Distance) -> Self {
        Self(Self::GATEWAY.0.saturating_add(1).saturating_add(distance.0)).min(Self::CROWD_MAX)
    }

    /// From zone to zone, to a gateway of one that stands so low.
    pub fn outside(distance: Distance) -> Self {
        Self(distance.0.saturating_add(1)).min(Self(Self::GATEWAY.0 - 1))
    }

    /// What is left for the node that was asked.
    pub fn less(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// True if the asked node is to relay as a home, whether it wants the chunk itself or not.
    pub fn is_relay(self) -> bool {
        self > Self::CROWD_MAX
    }

    /// True if the asked node is to get it from outside its zone if it is a gateway, whether it wants it itself or not.
    pub fn is_gateway(self) -> bool {
        self == Self::GATEWAY
    }

    /// True if the asked node is to pass the chunk on only if it comes by there anyway.
    pub fn is_crowd(self) -> bool {
        self > Self::HOLDER && self <= Self::CROWD_MAX
    }

    /// True if it comes from another zone.
    pub fn is_outside(self) -> bool {
        self > Self::HOLDER && self < Self::GATEWAY
    }
}

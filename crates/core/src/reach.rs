//! Reach: how far a request for a chunk may be passed on, which is what keeps nodes from waiting for each
//! other in a circle.
//!
//! A node that is asked with some reach may wait for, or send, only a request of less reach on the asker's
//! behalf. So along any line of nodes that wait for each other the reach falls, whatever each of them
//! believes of the field, and no line can close. Three kinds of requests share the one scale: to a node
//! that is believed to have the chunk ([`Reach::HOLDER`]), along the chain ([`crate::placement::Chain`]), where
//! the reach is the distance of the asked node from where the chunk comes from, and to a home that is to relay it.

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reach(pub u32);

impl Reach {
    /// Only who has the chunk is to answer.
    pub const HOLDER: Self = Self(0);
    /// All around the chain.
    pub const CHAIN_MAX: Self = Self(u32::MAX - 2);
    /// From one home to the first home.
    pub const HOME: Self = Self(u32::MAX - 1);
    /// From a reader to a home.
    pub const READER: Self = Self(u32::MAX);

    /// Along the chain, to a node at this distance ([`crate::placement::chain::distance`]) from the source.
    pub fn of_chain(distance: u64) -> Self {
        Self((distance >> 32) as u32).min(Self::CHAIN_MAX)
    }

    /// What is left for the node that was asked.
    pub fn less(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// True if the asked node is to relay as a home, whether it wants the chunk itself or not.
    pub fn is_relay(self) -> bool {
        self > Self::CHAIN_MAX
    }

    /// True if the asked node is to pass the chunk on only if it comes by there anyway.
    pub fn is_chain(self) -> bool {
        self > Self::HOLDER && self <= Self::CHAIN_MAX
    }
}

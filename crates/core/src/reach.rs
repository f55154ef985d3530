//! Reach: how far a request for a chunk may be passed on, which is what keeps nodes from waiting for each
//! other in a circle.
//!
//! A node that is asked with some reach may wait for, or send, only a request of less reach on the asker's
//! behalf. So along any line of nodes that wait for each other the reach falls, whatever each of them
//! believes of the field, and no line can close. Three kinds of requests share the one scale: to a node
//! that is believed to have the chunk ([`Reach::HOLDER`]), along the chain ([`crate::placement::Chain`]), where
//! the reach is the number of nodes still before the next holder, and to a home that is to relay it.

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reach(pub u16);

impl Reach {
    /// Only who has the chunk is to answer.
    pub const HOLDER: Self = Self(0);
    /// The longest chain: far more nodes than a zone has.
    pub const CHAIN_MAX: Self = Self(u16::MAX - 2);
    /// From one home to the first home.
    pub const HOME: Self = Self(u16::MAX - 1);
    /// From a reader to a home.
    pub const READER: Self = Self(u16::MAX);

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

//! The sizes of a node's tables and queues. Each has a bound, which a driver of many nodes can
//! check.

use super::Node;
use super::claims::OUTSIDE_MAX;
use crate::membership::{Membership, Sizes};

/// Numbers of entries, out-of-date ones included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Chunks that are on their way, or are to be.
    pub fetches: usize,
    /// Peers that wait for one of them.
    pub askers: usize,
    /// Readers of this machine that wait.
    pub readers: usize,
    /// Requests that have not ended.
    pub requests: usize,
    /// Chunks queued for the window.
    pub lines: usize,
    /// Number of parked chunks.
    pub parked: usize,
    /// Timers that are set.
    pub timers: usize,
    /// Nodes of other zones that are remembered.
    pub contacts: usize,
    /// Outputs not yet taken.
    pub outputs: usize,
    /// Statements of other zones about images; at most [`OUTSIDE_MAX`].
    pub outside: usize,
    /// The tables of the zone's membership.
    pub zone: Sizes,
    /// The same of the backbone's.
    pub backbone: Sizes,
}

impl Load {
    /// The bound of [`Load::outside`], whatever others say.
    pub const OUTSIDE_MAX: usize = OUTSIDE_MAX;
}

impl Node {
    /// See [`Load`]; looks at each fetch.
    pub fn load(&self) -> Load {
        let (lines, parked) = self.fetches.entries();
        Load {
            fetches: self.fetches.iter().count(),
            askers: self.fetches.iter().map(|fetch| fetch.askers.len()).sum(),
            readers: self.reads.len(),
            requests: self.requests.len(),
            lines,
            parked,
            timers: self.timers.len(),
            contacts: self.outside.contacts.len(),
            outputs: self.outputs.len(),
            outside: self.outside.images.len(),
            zone: self.membership.sizes(),
            backbone: self.outside.backbone.as_ref().map(Membership::sizes).unwrap_or_default(),
        }
    }
}

//! Chunks that an origin has in memory for a moment: those that are to store them come for them.
//!
//! An origin reads its object by runs, and cannot keep them all. Before a chunk leaves its memory,
//! it tells a home of the chunk. So nobody has to read the chunk from the network's store again.
//! Invariant: a node believes only an origin of the image, and asks that origin alone. It keeps
//! chunks that it would have fetched for its store anyway. The origin's shell decides which chunks,
//! and when.

use super::{Node, Output};
use crate::chunk::Chunk;
use crate::fetch::{Beneficiary, Stage};
use crate::identity::{Identity, NodeId};
use crate::image::ImageId;
use crate::plan::Source;
use crate::wire::Priority;

/// Bytes that a home may have under way from an origin for chunks that were entrusted to it, beside
/// its windows. Readers that ask for all that the windows allow would otherwise hold these chunks
/// up until they are gone. It is a sixteenth of the smallest window, so readers hardly notice.
pub const ENTRUSTED_BYTES: u64 = 512 << 10;

/// The node that keeps a chunk, as far as this one knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeper {
    /// A home announces that it has it.
    Has,
    /// This home is to store it.
    ToBe(Identity),
    /// No store is to hold it.
    Nobody,
}

impl Node {
    /// The keeper of a chunk of data. Of several homes without it, the one whose turn it is at this
    /// attempt: first the home that relays the chunk.
    pub fn keeper(&self, id: ImageId, chunk: Chunk, attempt: usize) -> Keeper {
        let Some(image) = self.images.get(&id) else { return Keeper::Nobody };
        let mut homes = image.map.homes_in_turn(chunk);
        homes.retain(|home| home.is_sure() && !image.map.is_leaving(home.node));
        if homes.iter().any(|home| image.map.has(home, chunk)) {
            return Keeper::Has;
        }
        let known: Vec<Identity> = homes.iter().filter_map(|home| self.identity_of(home.node)).copied().collect();
        known.get(attempt % known.len().max(1)).map_or(Keeper::Nobody, |home| Keeper::ToBe(*home))
    }

    /// True if a node is to store a chunk.
    pub fn is_home(&self, id: ImageId, chunk: Chunk, node: NodeId) -> bool {
        self.images.get(&id).is_some_and(|image| image.map.homes(chunk).any(|home| home.node == node))
    }

    /// An origin has these chunks now. Those that this node is to store and lacks, it asks for at
    /// once; it says which ones it has.
    pub(super) fn entrusted(&mut self, from: NodeId, id: ImageId, chunks: &[Chunk]) {
        let (goes, may_store) = (self.goes(), self.budget.is_open(self.now));
        let Some(image) = self.images.get_mut(&id) else { return };
        if goes || !may_store || image.surveying || !image.map.origins().contains(&from) {
            return;
        }
        let mut here = Vec::new();
        for &chunk in chunks {
            let Some(image) = self.images.get_mut(&id) else { return };
            if !image.inventory.geometry().is_data(chunk) || !image.stores(chunk) {
                continue;
            }
            if image.inventory.promote(chunk) {
                image.fill.arrived(chunk);
                here.push(chunk);
            } else if !self.fetch_from(from, id, chunk) {
                break;
            }
        }
        self.settle(id);
        self.after_fill(id);
        if !here.is_empty() {
            self.out(Output::Here(from, id, here));
        }
    }

    /// Asks an origin for a chunk of this node's store; false if enough is under way from it.
    fn fetch_from(&mut self, origin: NodeId, id: ImageId, chunk: Chunk) -> bool {
        let Some(image) = self.images.get(&id) else { return false };
        let (flow, bytes) = ((origin, image.number), image.inventory.geometry().length(chunk));
        let has_room = self.peers.owed(flow) < ENTRUSTED_BYTES || self.peers.has_room(flow, bytes, Priority::Fill);
        if !has_room || !self.has_room(id) {
            return false;
        }
        self.want(id, chunk, Priority::Fill, Beneficiary::Store);
        let Some(fetch) = self.fetch_mut(id, chunk) else { return true };
        // It is there: advice to ask another would be of no use.
        fetch.insist = true;
        if matches!(fetch.stage(), Stage::Queued | Stage::Parked(_)) {
            self.ask(id, chunk, Source::origin(origin), false);
        }
        true
    }
}

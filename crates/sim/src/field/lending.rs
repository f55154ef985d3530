//! Chunks that a machine has of another version of an image: it takes them from there, as the shell
//! does.
//!
//! A chunk is compared by its hash, so the page above it has to be here. Pages of versions differ.

use super::Field;
use crate::original::Original;
use std::time::Duration;
use vfield_core::chunk::Chunk;
use vfield_core::node::{Commitment, Input};

impl Field {
    /// The share that a machine's store of another version holds.
    pub(super) fn share_of_a_version(&self, machine: usize, image: usize) -> Option<Commitment> {
        let host = &self.machines[machine];
        let versions = (0..self.images.len()).filter(|other| *other != image && !host.is_origin(*other));
        let shape = |image: &Original| (image.geometry.header().length_bytes(), image.geometry.chunk_bytes());
        let mut versions = versions.filter(|other| shape(&self.images[*other]) == shape(&self.images[image]));
        versions.find_map(|other| host.node.commitment(self.images[other].id))
    }

    /// True if the store of another version on this machine has the chunk, and its hash is known.
    pub(super) fn is_lent(&self, machine: usize, image: usize, chunk: Chunk) -> bool {
        let host = &self.machines[machine];
        let known = self.images[image].geometry.parent(chunk).is_some_and(|(page, _)| host.has(image, page));
        let has = |other: usize| {
            let shelf = host.shelf(other).filter(|shelf| !shelf.origin && shelf.held.contains(chunk));
            shelf.is_some() && self.images[image].shares(&self.images[other], chunk)
        };
        known && (0..self.images.len()).filter(|other| *other != image).any(has)
    }

    /// A page has come: what other versions have of the chunks below it, and the store wants, is
    /// found.
    pub(super) fn survey(&mut self, machine: usize, image: usize, page: Chunk) {
        if self.images.len() == 1 {
            return;
        }
        let (id, children) = (self.images[image].id, self.images[image].geometry.children(page));
        let wanted = |chunk: &Chunk| {
            self.machines[machine].node.stores(id, *chunk)
                && !self.machines[machine].has(image, *chunk)
                && self.is_lent(machine, image, *chunk)
        };
        let chunks: Vec<Chunk> = children.map(Chunk).filter(wanted).collect();
        if !chunks.is_empty() {
            self.tell(Duration::ZERO, machine, Input::Found { image: id, chunks, zeros: Vec::new() });
        }
    }

    /// Puts found chunks on the shelf: those that are still lent, and did not come meanwhile.
    pub(super) fn take_found(&mut self, machine: usize, input: &mut Input) {
        let Input::Found { image: id, chunks, .. } = input else { return };
        let image = self.image(*id);
        chunks.retain(|chunk| !self.machines[machine].has(image, *chunk) && self.is_lent(machine, image, *chunk));
        for chunk in chunks.iter() {
            self.note(machine, "finds", [image as u64, chunk.0]);
            if let Some(shelf) = self.machines[machine].shelf_mut(image) {
                shelf.held.insert(*chunk);
            }
        }
    }
}

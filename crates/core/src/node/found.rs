//! Chunks that are here before any peer is asked: those in the store of an earlier process of this
//! node, and those of another version of the image. The same share is taken up, and valid chunks
//! count.
//!
//! The shell surveys it ([`super::Input::Found`]) and reports the end ([`super::Input::Surveyed`]).
//! Until then the fill only passes over found chunks and fetches nothing, since most missing chunks
//! are about to be found. Readers do not wait for the end.

use super::images::arc_length;
use super::{Node, Output};
use crate::chunk::Chunk;
use crate::image::ImageId;
use crate::placement::Arc;
use std::ops::Range;

/// The store's share of an image, as far as it does not follow from the store's size. A later
/// process that begins with the same value holds the same chunks, and so does the store of another
/// image of the same length and chunk size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commitment {
    /// First place of its arc.
    pub start: u64,
    /// Number of the chunk at which its fill began.
    pub from: u64,
}

impl Commitment {
    /// True if it can be about an image of `size` chunks.
    pub const fn fits(&self, size: u64) -> bool {
        self.start < size && self.from < size
    }
}

impl Node {
    /// Tells the shell what the store is to hold from now on.
    pub(super) fn commit(&mut self, id: ImageId) {
        let Some(image) = self.images.get(&id).filter(|image| !image.origin) else { return };
        let commitment = image.commitment();
        self.out(Output::Committed(id, commitment));
    }

    /// The share of an image that its store holds; `None` if it holds none.
    pub fn commitment(&self, id: ImageId) -> Option<Commitment> {
        let image = self.images.get(&id).filter(|image| image.fill.arc().length > 0)?;
        Some(image.commitment())
    }

    /// True if this node's store of an image is to hold the chunk.
    pub fn stores(&self, id: ImageId, chunk: Chunk) -> bool {
        self.images.get(&id).is_some_and(|image| image.stores(chunk))
    }

    pub(super) fn found(&mut self, id: ImageId, chunks: &[Chunk], zeros: &[Range<u64>]) {
        let Some(image) = self.images.get_mut(&id) else { return };
        image.inventory.mark_zero(zeros);
        // These are written already.
        let budget = self.budget;
        for chunk in chunks {
            self.take_in(id, *chunk, true);
        }
        self.budget = budget;
        self.set_fill(id);
        self.announce_soon(id);
    }

    /// The fill goes once more around the image, from behind a lost chunk. So that chunk alone is
    /// missing in the announced progress while it is on its way. Chunks that are here are passed
    /// over before that is announced; in a large image it takes several goes.
    pub(super) fn spoiled(&mut self, id: ImageId, chunks: &[Chunk]) {
        let Some(image) = self.images.get_mut(&id) else { return };
        let lost: Vec<Chunk> = chunks.iter().copied().filter(|chunk| image.inventory.lose(*chunk)).collect();
        let Some(last) = lost.iter().max().filter(|_| image.fill.arc().length > 0) else { return };
        let (arc, size) = (image.fill.arc(), image.map.ring().size());
        self.begin_fill(id, arc, (last.0 + 1) % size);
        self.fill(id);
        let passed = self.images.get(&id).is_some_and(|image| !image.fill_set);
        if passed { self.announce(id) } else { self.announce_soon(id) }
    }

    /// The share of the store stays, and is announced as before: a disk may be back in a moment.
    pub(super) fn withheld(&mut self, id: ImageId, chunks: &[Chunk]) {
        let Some(image) = self.images.get_mut(&id) else { return };
        let inventory = &mut image.inventory;
        let dropped: Vec<Chunk> = chunks.iter().copied().filter(|chunk| !inventory.withhold(*chunk)).collect();
        // Others of them are not to be stored, and need no place on that disk.
        self.outputs.extend(dropped.into_iter().map(|chunk| Output::Evict(id, chunk)));
    }

    /// Readers and peers that wait for these chunks have them.
    pub(super) fn released(&mut self, id: ImageId, chunks: &[Chunk]) {
        for chunk in chunks {
            let Some(image) = self.images.get_mut(&id) else { return };
            if image.inventory.release(*chunk) {
                self.complete(id, *chunk);
            } else if !image.inventory.is_here(*chunk) {
                // Its share went elsewhere meanwhile.
                self.out(Output::Evict(id, *chunk));
            }
        }
    }

    /// The fill finds no room from now on, and shortens the arc to what fits.
    pub(super) fn full(&mut self, id: ImageId) {
        let Some(image) = self.images.get_mut(&id) else { return };
        image.inventory.close();
        self.set_fill(id);
    }

    /// True if a store that was full may grow. While its arc is filled anew, members count on less
    /// than it has, so an origin has to be there.
    pub fn may_grow(&self, id: ImageId) -> bool {
        self.stays() && self.images.get(&id).is_some_and(|image| !image.care.gives_up() && !self.lacks_origins(image))
    }

    /// There is room again: the arc is as long as at first, and is filled.
    pub(super) fn roomy(&mut self, id: ImageId) {
        let Some(image) = self.images.get_mut(&id) else { return };
        if image.inventory.reopen() {
            let length = arc_length(image.inventory.geometry(), image.inventory.capacity());
            let arc = Arc { length, ..image.fill.arc() };
            self.take_arc(id, arc);
        }
    }

    pub(super) fn surveyed(&mut self, id: ImageId) {
        let Some(image) = self.images.get_mut(&id) else { return };
        image.surveying = false;
        self.set_fill(id);
        self.repair_soon(id);
    }
}

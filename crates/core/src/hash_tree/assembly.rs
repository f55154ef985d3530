//! A hash tree, put together again from pages that were kept somewhere.
//!
//! Invariant: the result is the tree of the given id, whatever the pages were. Each page is
//! compared with the hash in the page above it, and the top page with the id. So pages come from
//! the top down, in descending order of their numbers. Whoever keeps a published tree calls it. It
//! knows no files, and says nothing about the data: only the bytes of a chunk show that they have
//! its hash.

use super::{Hash, HashTree, ZeroHashes, zero_children};
use crate::chunk::Chunk;
use crate::image::{Geometry, Header, ImageId};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Pages that do not make the tree of the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotTheTree {
    /// Not a page of the image, or out of its turn.
    #[error("{0} is no page that comes next")]
    NoPage(u64),
    /// The page has another hash than the page above it, or the id, says.
    #[error("page {0} has the wrong hash")]
    WrongPage(Chunk),
    /// A page over data is missing.
    #[error("page {0} is missing")]
    Missing(Chunk),
    /// The header counts other chunks with data than the pages.
    #[error("the header tells of {0} chunks with data, the pages of {1}")]
    Populated(u64, u64),
}

/// The pages so far.
#[derive(Debug)]
pub struct Assembly {
    id: ImageId,
    zeros: ZeroHashes,
    pages: BTreeMap<u64, Bytes>,
    /// The number that the next page is below.
    below: u64,
    populated: u64,
}

impl Assembly {
    /// No page yet, of the image with this id and header.
    pub fn new(id: ImageId, header: Header) -> Self {
        let geometry = Geometry::new(header);
        let zeros = ZeroHashes::new(&geometry);
        Self { id, zeros, pages: BTreeMap::new(), below: geometry.chunks(), populated: 0 }
    }

    /// The length of page `number` in bytes, if that page can come next.
    ///
    /// # Errors
    /// [`NotTheTree::NoPage`]: a caller makes no room for other numbers.
    pub fn length_of_next(&self, number: u64) -> Result<u64, NotTheTree> {
        let geometry = self.zeros.geometry();
        if number >= self.below || number < geometry.data_chunks() {
            return Err(NotTheTree::NoPage(number));
        }
        Ok(geometry.length(Chunk(number)))
    }

    /// Adds the page `number`. Hashes it on the calling thread.
    ///
    /// # Errors
    /// If it is not the page of the id, or no page can come next that has this number.
    pub fn add(&mut self, number: u64, bytes: Bytes) -> Result<(), NotTheTree> {
        let long = self.length_of_next(number)?;
        let (geometry, page) = (*self.zeros.geometry(), Chunk(number));
        let right = bytes.len() as u64 == long
            && match geometry.parent(page) {
                None => ImageId::of(geometry.header(), &bytes) == self.id,
                Some((parent, index)) => {
                    let above = self.pages.get(&parent.0).and_then(|above| Hash::in_page(above, index));
                    above.is_some_and(|hash| super::verify(&hash, &bytes))
                }
            };
        if !right {
            return Err(NotTheTree::WrongPage(page));
        }
        if geometry.level(page) == Some(0) {
            let zeros = zero_children(&geometry, &self.zeros, page, &bytes);
            let zeros: u64 = zeros.iter().map(|run| run.end - run.start).sum();
            let children = geometry.children(page);
            self.populated += children.end - children.start - zeros;
        }
        self.pages.insert(number, bytes);
        self.below = number;
        Ok(())
    }

    /// The tree, if each page is here that has data below it.
    ///
    /// # Errors
    /// If a page is missing, or the header does not count what the pages say.
    pub fn finish(self) -> Result<HashTree, NotTheTree> {
        let Self { zeros, pages, populated, .. } = self;
        let geometry = *zeros.geometry();
        if !pages.contains_key(&geometry.top().0) {
            return Err(NotTheTree::Missing(geometry.top()));
        }
        let tree = HashTree { zeros, pages };
        for page in tree.pages().filter(|(page, _)| geometry.level(*page) > Some(0)).map(|(page, _)| page) {
            let missing = |child: &Chunk| tree.page(*child).is_none() && !tree.is_zero(*child);
            if let Some(child) = geometry.children(page).map(Chunk).find(missing) {
                return Err(NotTheTree::Missing(child));
            }
        }
        let told = geometry.header().populated();
        if told == populated { Ok(tree) } else { Err(NotTheTree::Populated(told, populated)) }
    }
}

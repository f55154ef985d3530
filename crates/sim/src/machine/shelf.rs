//! The state of one image on a machine: held chunks, known zeros, chunks sent.

use crate::original::Original;
use std::collections::{BTreeMap, VecDeque};
use vfield_core::chunk::Chunk;
use vfield_core::directory::Directory;
use vfield_core::identity::NodeId;
use vfield_core::slice::Groups;
use vfield_core::sliced::Sliced;
use vfield_core::time::Time;

/// Slices kept for readers, as by a shell with a megabyte for them.
const SLICES_KEPT: usize = 256;

/// A set of chunk numbers, a bit each; an untouched part takes no memory.
#[derive(Debug, Default, Clone)]
pub struct Set {
    words: Vec<u64>,
    count: u64,
}

impl Set {
    /// True if the chunk is in it.
    pub fn contains(&self, chunk: Chunk) -> bool {
        self.words.get((chunk.0 / 64) as usize).is_some_and(|word| word >> (chunk.0 % 64) & 1 == 1)
    }

    /// Puts a chunk in; true if it was not there.
    pub fn insert(&mut self, chunk: Chunk) -> bool {
        let (at, bit) = ((chunk.0 / 64) as usize, 1 << (chunk.0 % 64));
        if at >= self.words.len() {
            self.words.resize(at + 1, 0);
        }
        let new = self.words[at] & bit == 0;
        self.words[at] |= bit;
        self.count += u64::from(new);
        new
    }

    /// Takes a chunk out; true if it was there.
    pub fn remove(&mut self, chunk: Chunk) -> bool {
        let was = self.contains(chunk);
        if was {
            self.words[(chunk.0 / 64) as usize] &= !(1 << (chunk.0 % 64));
            self.count -= 1;
        }
        was
    }

    /// The number of chunks in it.
    pub const fn len(&self) -> u64 {
        self.count
    }

    /// True if there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// The state of one image on a machine.
#[derive(Debug, Default)]
pub struct Shelf {
    /// True if it is an origin of the image.
    pub origin: bool,
    /// True if the machine has it for a tag only.
    pub unwished: bool,
    /// Since when the machine's core has known that somebody needs it there.
    pub needed_since: Option<Time>,
    /// Present chunks, transient ones too.
    pub held: Set,
    /// Chunks known to be zero.
    pub zero: Set,
    /// As an origin: the receivers of its chunks.
    pub directory: Directory,
    /// How much of each chunk went out in slices lately.
    pub sliced: Sliced,
    /// Chunks of which slices came, the latest last.
    pub slices: VecDeque<(Chunk, Groups)>,
    /// Number of chunks sent.
    pub sent: u64,
    /// Of these, as an origin, chunks that others of the asker's zone had; counted where
    /// [`crate::checks::Checks::copies`] is on.
    pub sent_again: u64,
    /// How often each chunk was sent, if the field keeps that.
    pub times_sent: BTreeMap<Chunk, u32>,
}

impl Shelf {
    /// True if a read of the chunk needs no peer.
    pub fn has(&self, chunk: Chunk) -> bool {
        self.origin || self.held.contains(chunk) || self.zero.contains(chunk)
    }

    /// Keeps a chunk that has been verified; a page tells which chunks below it are zero.
    pub fn keep(&mut self, original: &Original, chunk: Chunk) {
        self.held.insert(chunk);
        if original.is_sparse() && !original.geometry.is_data(chunk) {
            for child in original.geometry.children(chunk).map(Chunk).filter(|child| original.is_zero(*child)) {
                self.know_zero(original, child);
            }
        }
    }

    fn know_zero(&mut self, original: &Original, chunk: Chunk) {
        self.zero.insert(chunk);
        for child in original.geometry.children(chunk) {
            self.know_zero(original, Chunk(child));
        }
    }

    /// Keeps a slice that has been verified, for its reader.
    pub fn keep_slice(&mut self, chunk: Chunk, groups: Groups) {
        self.slices.push_back((chunk, groups));
        if self.slices.len() > SLICES_KEPT {
            self.slices.pop_front();
        }
    }

    /// True if a slice that came has these groups.
    pub fn has_slice(&self, chunk: Chunk, wanted: Groups) -> bool {
        self.slices.iter().any(|(known, groups)| *known == chunk && groups.contains(wanted))
    }

    /// As an origin: the node to which `asker` is redirected.
    pub fn instead(&mut self, chunk: Chunk, asker: NodeId, insists: bool, now: Time) -> Option<NodeId> {
        if !self.origin {
            return None;
        }
        if insists {
            self.directory.sent_to(chunk, asker, now);
            return None;
        }
        self.directory.instead(chunk, asker, now)
    }

    /// A node is gone: no asker is redirected to it any more.
    pub fn forget(&mut self, gone: NodeId) {
        if self.origin {
            self.directory.forget(gone);
        }
    }
}

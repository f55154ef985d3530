//! Former members: who left or died, when, and what it had.
//!
//! Kept by a node for [`super::seeking`], which calls their addresses, and for people. One for each address, the latest;
//! at most [`FORMER_MAX`], of which those make room first that had nothing.

use crate::chunk::Chunk;
use crate::identity::Identity;
use crate::image::ImageId;
use crate::membership::{Departed, Departure};
use crate::placement::Ring;
use crate::record::Record;
use crate::time::Time;
use std::time::Duration;

/// A rack's worth. Of a room that is switched off at once any one that comes back knows the others.
const FORMER_MAX: usize = 32;
/// For so long a former member is remembered in any case: as long as a machine may be repaired.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// A member that went.
#[derive(Debug, Clone)]
pub struct Former {
    /// Who, and where it was.
    pub identity: Identity,
    /// How it went: it left or died.
    pub how: Departure,
    /// When.
    pub at: Time,
    had: Vec<Record>,
}

impl Former {
    /// True if it had a chunk when it went.
    fn had(&self, image: ImageId, ring: &Ring, chunk: Chunk) -> bool {
        self.had.iter().filter(|record| record.image() == image).any(|record| {
            let on_arc = record.arc.contains(ring.place(chunk), ring.size());
            record.origin || (on_arc && record.filled.contains(chunk, ring.size()))
        })
    }
}

/// See the module. The latest is the last.
#[derive(Debug, Default)]
pub(super) struct FormerMembers(Vec<Former>);

impl FormerMembers {
    /// A member went, and had this. Whoever was replaced is still there, as another.
    pub fn went(&mut self, departed: Departed, at: Time, had: &[Record]) {
        let Departed { identity, how } = departed;
        self.0.retain(|former| former.identity.addr != identity.addr);
        if how == Departure::Replaced {
            return;
        }
        if self.0.len() == FORMER_MAX {
            let idle = self.0.iter().position(|former| former.had.is_empty());
            self.0.remove(idle.unwrap_or(0));
        }
        self.0.push(Former { identity, how, at, had: had.to_vec() });
    }

    /// Forgets who went long ago.
    pub fn forget(&mut self, now: Time) {
        self.0.retain(|former| now - former.at < REMEMBERED);
    }

    /// All of them, in the order in which they went.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Former> {
        self.0.iter()
    }

    /// True if there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Who went last of those that had a chunk.
    pub fn last_holder(&self, image: ImageId, ring: &Ring, chunk: Chunk) -> Option<&Former> {
        self.0.iter().rev().find(|former| former.had(image, ring, chunk))
    }
}

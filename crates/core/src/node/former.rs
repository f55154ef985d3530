//! Former members: those that left or died, when, and what they had.
//!
//! A node keeps them for [`super::seeking`], which calls their addresses, and for status. One for
//! each address, the latest; at most [`FORMER_MAX`]. Those that held nothing make room first.

use crate::chunk::Chunk;
use crate::config::SYNC_EVERY;
use crate::identity::Identity;
use crate::image::ImageId;
use crate::membership::{Departed, Departure};
use crate::placement::Ring;
use crate::record::Record;
use crate::time::Time;
use std::time::Duration;

/// Most former members: a rack's worth. Any node that returns to a room knows the others.
const FORMER_MAX: usize = 32;
/// How long a former member is remembered in any case: as long as a machine may be in repair.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// As a rule, a member that is wrongly taken for dead has denied it by then.
const RETURNS_WITHIN: Duration = SYNC_EVERY;

/// A member that went.
#[derive(Debug, Clone)]
pub struct Former {
    /// Its identity, with its last address.
    pub identity: Identity,
    /// How it departed: it left or died.
    pub how: Departure,
    /// When it departed.
    pub at: Time,
    had: Vec<Record>,
}

impl Former {
    /// What it had when it went.
    pub(super) fn records(&self) -> &[Record] {
        &self.had
    }

    /// True if it had a chunk when it went.
    fn had(&self, image: ImageId, ring: &Ring, chunk: Chunk) -> bool {
        let size = ring.size();
        self.had.iter().filter(|record| record.image() == image).any(|record| {
            let fits = record.arc.fits(size) && record.filled.fits(size);
            let holds = || record.arc.contains(ring.place(chunk), size) && record.filled.contains(chunk, size);
            record.origin || (fits && holds())
        })
    }
}

/// All former members; the latest departure is the last.
#[derive(Debug, Default)]
pub(super) struct FormerMembers(Vec<Former>);

impl FormerMembers {
    /// Notes the departure of a member that had these records. A replaced member is still there
    /// under another id, and an excluded one is not to be called.
    pub fn went(&mut self, departed: Departed, at: Time, had: &[Record]) {
        let Departed { identity, how } = departed;
        self.0.retain(|former| former.identity.addr != identity.addr);
        if matches!(how, Departure::Replaced | Departure::Excluded) {
            return;
        }
        if self.0.len() == FORMER_MAX {
            let idle = self.0.iter().position(|former| former.had.is_empty());
            self.0.remove(idle.unwrap_or(0));
        }
        self.0.push(Former { identity, how, at, had: had.to_vec() });
    }

    /// Forgets departures that are too long ago.
    pub fn forget(&mut self, now: Time) {
        self.0.retain(|former| now - former.at < REMEMBERED);
    }

    /// All former members, in the order of their departure.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Former> {
        self.0.iter()
    }

    /// True if there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if a holder of a chunk died less than [`RETURNS_WITHIN`] ago. It may only seem so: a
    /// node on a busy machine, or behind a cable that was pulled, is back before long.
    pub fn has_lost(&self, image: ImageId, ring: &Ring, chunk: Chunk, now: Time) -> bool {
        let died = |former: &Former| former.how == Departure::Died && now - former.at < RETURNS_WITHIN;
        self.0.iter().any(|former| died(former) && former.had(image, ring, chunk))
    }

    /// The holder of a chunk that departed last.
    pub fn last_holder(&self, image: ImageId, ring: &Ring, chunk: Chunk) -> Option<&Former> {
        self.0.iter().rev().find(|former| former.had(image, ring, chunk))
    }
}

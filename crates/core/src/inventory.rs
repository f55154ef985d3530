//! The inventory of a node for one image: the chunks of its store, and those of the transient
//! cache.
//!
//! Every chunk here is in one class.
//!
//! - *Stored*: committed to, counted against the capacity. One that its disk does not deliver is
//!   *withheld*: it is not here, though its room is taken. Its bytes may pass through meanwhile.
//! - *Transient*: relayed or read recently, within a bound of its own, evicted least recently used
//!   first.
//! - *Zero*: known to be all zeros, without cost.
//!
//! Invariant: once [`Inventory::overflow`] is empty, stored <= capacity and transient <= its bound.
//! It holds no bytes: the shell's store does, in step with it.

use crate::bits::Bits;
use crate::chunk::Chunk;
use crate::image::Geometry;
use std::collections::BTreeMap;
use std::ops::Range;

/// The chunks of one image that are on this node.
#[derive(Debug)]
pub struct Inventory {
    geometry: Geometry,
    stored: Bits,
    /// Stored chunks that a disk does not deliver now.
    withheld: Bits,
    zero: Bits,
    /// Transient chunks by when they were used last, and the inverse.
    by_use: BTreeMap<u64, Chunk>,
    transient: BTreeMap<Chunk, u64>,
    uses: u64,
    capacity: u64,
    /// The capacity at first.
    wanted: u64,
    transient_max: u64,
    /// Chunks that became stored; see [`Inventory::newly_stored`].
    newly_stored: Vec<Chunk>,
}

impl Inventory {
    /// Nothing yet; both bounds in chunks. An origin has capacity 0: it reads its file.
    pub fn new(geometry: Geometry, capacity: u64, transient_max: u64) -> Self {
        Self {
            geometry,
            stored: Bits::default(),
            withheld: Bits::default(),
            zero: Bits::default(),
            by_use: BTreeMap::new(),
            transient: BTreeMap::new(),
            uses: 0,
            capacity,
            wanted: capacity,
            transient_max: transient_max.max(1),
            newly_stored: Vec::new(),
        }
    }

    /// The numbering of the image.
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Most chunks it may store.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The number of stored chunks.
    pub const fn stored(&self) -> u64 {
        self.stored.count()
    }

    /// Number of transient chunks.
    pub fn transient(&self) -> u64 {
        self.transient.len() as u64
    }

    /// True if a read of `chunk` needs no peer.
    pub fn is_here(&self, chunk: Chunk) -> bool {
        let is_delivered = self.stored.contains(chunk) && !self.withheld.contains(chunk);
        is_delivered || self.transient.contains_key(&chunk) || self.is_zero(chunk)
    }

    /// True if the store has it, though it may be withheld.
    pub fn is_stored(&self, chunk: Chunk) -> bool {
        self.stored.contains(chunk)
    }

    /// True if it is known to be all zeros, or below a page known to cover only zeros.
    pub fn is_zero(&self, chunk: Chunk) -> bool {
        self.zero_above(chunk).is_some()
    }

    /// The highest-numbered chunk that is zero along with `chunk`: for data below a zero page, the
    /// last of that page. Lets a walk over a sparse image skip the page at once.
    pub fn zero_through(&self, chunk: Chunk) -> Option<Chunk> {
        let mut last = self.zero_above(chunk)?;
        while self.geometry.level(last) != self.geometry.level(chunk) {
            last = Chunk(self.geometry.children(last).end - 1);
        }
        Some(last)
    }

    fn zero_above(&self, chunk: Chunk) -> Option<Chunk> {
        let mut at = Some(chunk);
        while let Some(chunk) = at {
            if self.zero.contains(chunk) {
                return Some(chunk);
            }
            at = self.geometry.parent(chunk).map(|(page, _)| page);
        }
        None
    }

    /// Notes that runs of chunks are all zeros.
    pub fn mark_zero(&mut self, runs: &[Range<u64>]) {
        for run in runs {
            self.zero.insert_range(run.start..run.end.min(self.geometry.chunks()));
        }
    }

    /// Takes in a chunk that has arrived: to the store if `keep` and the capacity allows, else as
    /// transient.
    pub fn insert(&mut self, chunk: Chunk, keep: bool) {
        if self.stored.contains(chunk) {
            if self.withheld.contains(chunk) {
                self.used(chunk, true);
            }
            return;
        }
        if keep && self.has_room() {
            self.forget_use(chunk);
            self.stored.insert(chunk);
            self.newly_stored.push(chunk);
        } else {
            self.used(chunk, true);
        }
    }

    /// Forgets a chunk whose bytes the shell has lost; false if it was not here.
    pub fn lose(&mut self, chunk: Chunk) -> bool {
        let was_transient = self.transient.contains_key(&chunk);
        self.forget_use(chunk);
        self.withheld.remove(chunk);
        self.stored.remove(chunk) || was_transient
    }

    /// Notes that the disk does not deliver a stored chunk; false if it is not stored, and then it
    /// is not here any more.
    pub fn withhold(&mut self, chunk: Chunk) -> bool {
        let is_stored = self.stored.contains(chunk);
        if is_stored {
            self.withheld.insert(chunk);
        } else {
            self.forget_use(chunk);
        }
        is_stored
    }

    /// The disk delivers a chunk again; false if it was not withheld.
    pub fn release(&mut self, chunk: Chunk) -> bool {
        let was_withheld = self.withheld.remove(chunk);
        if was_withheld {
            self.forget_use(chunk);
        }
        was_withheld
    }

    /// The store takes no more than it has now.
    pub fn close(&mut self) {
        self.capacity = self.capacity.min(self.stored.count());
    }

    /// True if the store takes one more chunk.
    pub const fn has_room(&self) -> bool {
        self.stored.count() < self.capacity
    }

    /// The store takes as much as at first again; false if it has done so all the time.
    pub const fn reopen(&mut self) -> bool {
        let was_closed = self.capacity < self.wanted;
        self.capacity = self.wanted;
        was_closed
    }

    /// Notes that a transient chunk was used.
    pub fn touch(&mut self, chunk: Chunk) {
        self.used(chunk, false);
    }

    /// Moves a chunk that is transient to the store; false if it is not here or there is no room.
    pub fn promote(&mut self, chunk: Chunk) -> bool {
        if self.stored.contains(chunk) {
            return true;
        }
        let fits = self.has_room() && self.transient.contains_key(&chunk);
        if fits {
            self.insert(chunk, true);
        }
        fits
    }

    /// Takes a chunk out of the store; it stays transient, as if it had just been used.
    pub fn demote(&mut self, chunk: Chunk) {
        if self.stored.remove(chunk) {
            self.withheld.remove(chunk);
            self.used(chunk, true);
        }
    }

    /// A transient chunk that has to go, least recently used first, if there are too many. `busy`
    /// says which must stay for now.
    pub fn overflow(&mut self, busy: impl Fn(Chunk) -> bool) -> Option<Chunk> {
        if self.transient.len() as u64 <= self.transient_max {
            return None;
        }
        let victim = self.by_use.values().copied().find(|&chunk| !busy(chunk))?;
        self.forget_use(victim);
        Some(victim)
    }

    /// The chunks that became stored since the last call, in whatever way. The shell keeps them
    /// where they outlive the process; transient ones may lie elsewhere.
    pub fn newly_stored(&mut self) -> Vec<Chunk> {
        std::mem::take(&mut self.newly_stored)
    }

    /// All stored chunks, ascending.
    pub fn iter_stored(&self) -> impl Iterator<Item = Chunk> + '_ {
        self.stored.iter()
    }

    fn used(&mut self, chunk: Chunk, insert: bool) {
        if !insert && !self.transient.contains_key(&chunk) {
            return;
        }
        self.forget_use(chunk);
        self.uses += 1;
        self.by_use.insert(self.uses, chunk);
        self.transient.insert(chunk, self.uses);
    }

    fn forget_use(&mut self, chunk: Chunk) {
        if let Some(used) = self.transient.remove(&chunk) {
            self.by_use.remove(&used);
        }
    }
}

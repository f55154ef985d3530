//! Families: stores of images of equal length and chunk size, mostly versions of one image. A chunk
//! that two of them have in common lies once in memory.
//!
//! The later store borrows: its slot names the lender, and a loan is a pin of the lender's slot.
//! So an evicted chunk of the lender stays in memory until all loans are back, and its memory is
//! counted once. Chunks have the same place in both memory files, since their numbers are equal.
//!
//! Invariant: a chunk is lent once its hash in this image's page equals that of the lender's bytes.
//! Only data is lent: hashes of pages are read with each chunk below. The node decides which stores
//! are related ([`Store::relate`]), and the survey makes the loans.

use super::found::Adopted;
use super::slot::Slot;
use super::{Pin, Store};
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};
use vfield_core::chunk::Chunk;
use vfield_core::hash_tree::{Hash, verify};
use vfield_core::image::ImageId;

/// The stores from which a store borrows, at most [`Slot::LENDERS_MAX`], in the order in which they
/// came. Readers take no lock.
#[derive(Debug, Default)]
pub struct Lenders {
    stores: [OnceLock<Weak<Store>>; Slot::LENDERS_MAX],
}

/// Whether a store lends. Each loan is made under this lock, so that none is made after the end.
#[derive(Debug)]
pub struct Lends {
    is_open: RwLock<bool>,
}

impl Default for Lends {
    fn default() -> Self {
        Self { is_open: RwLock::new(true) }
    }
}

impl Lenders {
    /// The number that `lender` gets; `None` if there are too many.
    fn add(&self, lender: &Arc<Store>) -> Option<usize> {
        let mut lender = Arc::downgrade(lender);
        for (number, place) in self.stores.iter().enumerate() {
            match place.set(lender) {
                Ok(()) => return Some(number),
                Err(back) => lender = back,
            }
        }
        None
    }

    /// The store of this number, if it is still there.
    fn get(&self, number: usize) -> Option<Arc<Store>> {
        self.stores.get(number)?.get()?.upgrade()
    }

    /// Those that are still there, with their numbers.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, Arc<Store>)> {
        let added = self.stores.iter().map_while(OnceLock::get).enumerate();
        added.filter_map(|(number, store)| Some((number, store.upgrade()?)))
    }
}

impl Store {
    /// True for the store of another image of the same length and chunk size.
    pub fn is_relative(&self, other: &Self) -> bool {
        let shape = |store: &Self| (store.geometry().header().length_bytes(), store.geometry().chunk_bytes());
        self.id != other.id && shape(self) == shape(other)
    }

    /// May borrow from `lender` from now on: what that has of the `wanted` data counts as found
    /// here. Returns the runs of such chunks, in order; none if there are too many lenders.
    ///
    /// # Panics
    /// If the two are no relatives.
    pub fn relate(&self, lender: &Arc<Self>, wanted: impl Fn(Chunk) -> bool) -> Vec<Range<u64>> {
        assert!(self.is_relative(lender), "{self:?} and {lender:?}");
        let Some(number) = self.lenders.add(lender) else { return Vec::new() };
        let mut runs: Vec<Range<u64>> = Vec::new();
        for chunk in lender.slots.matching(may_lend).filter(|chunk| self.geometry().is_data(*chunk) && wanted(*chunk)) {
            if !self.take_offer(chunk, number) {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.end == chunk.0 => run.end += 1,
                _ => runs.push(chunk.0..chunk.0 + 1),
            }
        }
        runs
    }

    /// Counts a chunk as found if a lender may have it.
    pub(super) fn look_at_lenders(&self, chunk: Chunk) {
        if !self.geometry().is_data(chunk) || !self.has_lenders() || !self.slots.load(chunk).is_absent() {
            return;
        }
        let lender = self.lenders.all().find(|(_, lender)| may_lend(lender.slots.load(chunk)));
        if let Some((number, _)) = lender {
            self.take_offer(chunk, number);
        }
    }

    fn take_offer(&self, chunk: Chunk, lender: usize) -> bool {
        let offered = self.slots.change(chunk, |slot| slot.offer(lender)).is_some();
        if offered {
            self.found.one_more();
        }
        offered
    }

    /// True if it may borrow from other stores.
    pub fn has_lenders(&self) -> bool {
        self.lenders.stores[0].get().is_some()
    }

    /// The images of the stores that it may borrow from.
    pub fn lenders(&self) -> Vec<ImageId> {
        self.lenders.all().map(|(_, lender)| lender.id).collect()
    }

    /// Bytes of chunks that are read here and lie in the memory of relatives.
    pub fn lent_bytes(&self) -> u64 {
        self.lent_bytes.load(Ordering::Relaxed)
    }

    /// Borrows a chunk if a lender has the same one now; true if it did.
    pub(super) fn borrow_now(&self, chunk: Chunk) -> bool {
        self.look_at_lenders(chunk);
        let offered = |slot: Slot| slot.lender().filter(|_| slot.is_found()).and_then(|_| slot.take());
        if self.slots.change(chunk, offered).is_none() {
            return false;
        }
        let mut adopted = Adopted::default();
        self.borrow(chunk, self.read_hash(chunk), &mut adopted);
        !adopted.chunks.is_empty()
    }

    /// Borrows an offered chunk whose slot the caller has taken, if it is the right one; `expected`
    /// is its hash here, if known.
    pub(super) fn borrow(&self, chunk: Chunk, expected: Option<Hash>, adopted: &mut Adopted) {
        let Some(expected) = expected else {
            self.slots.change(chunk, |slot| Some(slot.put_back()));
            return;
        };
        let lenders: Vec<_> = if self.is_zero(chunk) { Vec::new() } else { self.lenders.all().collect() };
        let slots: Vec<_> = lenders.iter().map(|(_, lender)| lender.slots.load(chunk)).collect();
        let in_the_making = slots.iter().any(|slot| slot.is_in_the_making());
        adopted.postponed |= in_the_making;
        if in_the_making || slots.iter().any(|slot| slot.is_found()) {
            // Its own survey verifies it first.
            self.slots.change(chunk, |slot| Some(slot.put_back()));
            return;
        }
        let lent = lenders.into_iter().any(|(number, lender)| {
            let open = lender.lends.is_open.read().unwrap_or_else(PoisonError::into_inner);
            *open && lender.lend(chunk, &expected) && self.slots.change(chunk, |slot| Some(slot.lend(number))).is_some()
        });
        self.found.one_less();
        if !lent {
            self.slots.change(chunk, |slot| Some(slot.decline()));
        } else {
            self.lent_bytes.fetch_add(self.geometry().length(chunk), Ordering::Relaxed);
            adopted.chunks.push(chunk);
        }
    }

    /// Pins a chunk for a relative if its hash is `expected`.
    fn lend(&self, chunk: Chunk, expected: &Hash) -> bool {
        if self.is_spoiled(chunk) || self.is_withheld(chunk) || !self.try_pin(chunk) {
            return false;
        }
        let is_right = match self.read_hash(chunk).or_else(|| self.disk_hash(chunk)) {
            Some(hash) => hash == *expected,
            None => self.copy(chunk).is_ok_and(|bytes| verify(expected, &bytes)),
        };
        if !is_right {
            self.unpin(chunk);
        }
        is_right
    }

    /// Keeps a chunk where it is, here or at its lender; `None` if it is at neither.
    pub(super) fn hold(self: &Arc<Self>, chunk: Chunk) -> Option<Pin> {
        if self.is_withheld(chunk) {
            return None;
        }
        // A loan may come home in between, but once only.
        for _ in 0..2 {
            if self.try_pin(chunk) {
                if self.is_spoiled(chunk) {
                    self.unpin(chunk);
                    return None;
                }
                return Some(Pin::new(self, chunk.0..chunk.0 + 1));
            }
            let lender = self.lenders.get(self.slots.load(chunk).lent_by()?);
            if let Some(lender) = lender.filter(|lender| lender.slots.change(chunk, Slot::pin_kept).is_some()) {
                let pin = Pin::new(&lender, chunk.0..chunk.0 + 1);
                if lender.is_spoiled(chunk) {
                    self.drop_spoiled_loan(chunk);
                    return None;
                }
                return Some(pin);
            }
        }
        None
    }

    /// Gives a loan back; false if the chunk is not lent.
    pub(super) fn end_loan(&self, chunk: Chunk) -> bool {
        let Some(number) = self.slots.load(chunk).lent_by() else { return false };
        if self.slots.change(chunk, Slot::give_back).is_none() {
            return false;
        }
        self.lent_bytes.fetch_sub(self.geometry().length(chunk), Ordering::Relaxed);
        if let Some(lender) = self.lenders.get(number) {
            lender.unpin(chunk);
        }
        true
    }

    /// The chunks that `lender` has lent to this store.
    pub fn lent_by(&self, lender: ImageId) -> Vec<Chunk> {
        let numbers: Vec<usize> =
            self.lenders.all().filter(|(_, store)| store.id == lender).map(|(number, _)| number).collect();
        self.slots.matching(|slot| slot.lent_by().is_some_and(|number| numbers.contains(&number))).collect()
    }

    /// Copies a lent chunk into its own slot, since the lender ends. Nobody may evict it meanwhile.
    ///
    /// # Errors
    /// If the kernel has no memory for it; the chunk stays lent.
    pub fn come_home(self: &Arc<Self>, chunk: Chunk) -> io::Result<()> {
        let Some(number) = self.slots.load(chunk).lent_by() else { return Ok(()) };
        if self.is_withheld(chunk) {
            self.drop_spoiled_loan(chunk);
        }
        let (Some(lender), Some(_pin)) = (self.lenders.get(number), self.hold(chunk)) else { return Ok(()) };
        let place = self.slot_extent(chunk);
        let bytes = lender.copy(chunk)?;
        let form = match self.write_bytes(chunk, &bytes) {
            Ok(form) => form,
            Err(error) => {
                // It was a hole, and nobody reads it.
                self.found_file().punch(place.start(), self.geometry().chunk_bytes())?;
                return Err(error);
            }
        };
        self.take(chunk, self.taken_bytes(chunk, form));
        let is_home = self.slots.change(chunk, |slot| slot.come_home(form)).is_some();
        assert!(is_home, "{chunk} was evicted on its way home");
        self.lent_bytes.fetch_sub(place.len(), Ordering::Relaxed);
        lender.unpin(chunk);
        Ok(())
    }

    /// Evicts all chunks, since the image has ended. Memory that is neither read nor lent is free
    /// at once, and nothing more is lent. The store's own loans last as long as its readers.
    pub fn evict_all(&self) {
        *self.lends.is_open.write().unwrap_or_else(PoisonError::into_inner) = false;
        for chunk in self.slots.matching(Slot::is_resident) {
            self.evict(chunk);
        }
    }
}

/// True if the slot of a lender has bytes, verified or not.
const fn may_lend(slot: Slot) -> bool {
    slot.is_resident() || slot.is_found()
}

impl Drop for Store {
    fn drop(&mut self) {
        for chunk in self.slots.matching(|slot| slot.lent_by().is_some()) {
            self.end_loan(chunk);
        }
    }
}

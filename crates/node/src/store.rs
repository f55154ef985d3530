//! The store: the chunks of one image that this machine holds, in memory.
//!
//! It owns one sparse memory file, in which chunk number `i`, data or hash page, lies at offset `i`
//! times the chunk size. One word for each chunk says whether it is there ([`slot`]). The file may
//! outlive the process ([`label`], [`found`]). It may lie on a disk instead, and outlive a reboot
//! ([`on_disk`]). Chunks may lie compressed in their slots ([`compressed`]). Versions of an image
//! lend each other what they have in common ([`family`]). Data that only passes through lies in
//! buffers instead ([`transient`]).
//!
//! Invariant: resident bytes are right, since every caller of insert has asked [`Store::check`]
//! first. They stay in place while a [`Pin`] lives. A slot is never overwritten: its pages go back
//! to the kernel before it is used again. The driver calls it (insert, pass, settle, evict), and so
//! do exports and senders to peers (pieces). Readers of slots take no lock, and no operation waits.
//! The protocol core decides what to hold.

mod behind;
pub mod compressed;
pub mod family;
pub mod found;
pub mod label;
pub mod large_pages;
mod marked;
pub mod on_disk;
mod pin;
mod read;
pub mod slot;
mod slots;
mod sparse_file;
mod transient;
pub mod withheld;

pub use found::Kept;
pub use pin::Pin;
pub(crate) use sparse_file::free_bytes;
pub use sparse_file::pages_are_small;

use crate::buffers::Buffer;
use behind::Behind;
use compressed::Compressed;
use family::{Lenders, Lends};
use found::Tally;
use label::Label;
use marked::Marked;
use on_disk::{OnDisk, Troubles};
use slot::{Form, Slot};
use slots::Slots;
use sparse_file::SparseFile;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use transient::Transients;
use vfield_block::extent::Extent;
use vfield_core::chunk::{Chunk, HASH_BYTES};
use vfield_core::hash_tree::{self, Hash, ZeroHashes};
use vfield_core::image::{Geometry, ImageId};
use vfield_core::names::Names;
use vfield_core::node::Commitment;
use withheld::Wait;

/// Why a store cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Beyond what a store's table of chunks or a memory file can have.
    #[error("an image of {0} chunks is too large to be held")]
    TooLarge(u64),
    /// The kernel gave no memory file.
    #[error("creating a memory file: {0}")]
    MemoryFile(#[from] io::Error),
}

/// The result of [`Store::insert`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// The chunk was not here and now is; also if it was evicted while a reader still holds it.
    New,
    /// It was here, or is known to be zero; the store is unchanged.
    Already,
    /// Another thread writes the slot, or gives its pages back, this very moment; nothing was done.
    /// The bytes can be used as they are; inserting again succeeds soon.
    Busy,
}

/// The result of [`Store::check`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// These are the chunk's bytes.
    Good,
    /// They are not: of the wrong length or with the wrong hash.
    Bad,
    /// Unknown: the page with its hash is not here.
    Unknown,
}

/// The chunks of one image that are held on this machine.
pub struct Store {
    id: ImageId,
    zeros: ZeroHashes,
    /// All chunks, or the pages of hashes if there is a disk.
    memory: SparseFile,
    disk: Option<OnDisk>,
    compressed: OnceLock<Compressed>,
    troubles: Troubles,
    withheld: Marked<Wait>,
    behind: Behind,
    slots: Slots,
    transients: Arc<Transients>,
    resident_bytes: AtomicU64,
    found: Tally,
    lenders: Lenders,
    lends: Lends,
    lent_bytes: AtomicU64,
    /// See [`sparse_file::pages_are_small`]; if not, pieces are copies.
    sends_pages: bool,
}

impl Store {
    /// An empty store for the image `id` with this geometry. Missing chunks cost nothing: 2 ms and
    /// 20 KiB for 1 TiB.
    pub fn new(id: ImageId, geometry: &Geometry) -> Result<Arc<Self>, StoreError> {
        let length_bytes = Self::file_bytes(geometry).ok_or(StoreError::TooLarge(geometry.chunks()))?;
        Ok(Arc::new(Self::of(id, geometry, SparseFile::new(length_bytes)?)))
    }

    /// The same in large pages, for the whole image. Its memory goes back to the kernel with the
    /// last share of it, and not with an evicted chunk.
    pub fn in_large_pages(id: ImageId, geometry: &Geometry) -> Result<Arc<Self>, StoreError> {
        let length_bytes = Self::file_bytes(geometry).ok_or(StoreError::TooLarge(geometry.chunks()))?;
        Ok(Arc::new(Self::of(id, geometry, SparseFile::in_large_pages(length_bytes)?)))
    }

    /// True if its memory is in large pages.
    pub const fn is_in_large_pages(&self) -> bool {
        self.memory.is_in_large_pages()
    }

    /// A store in which nothing is known of the bytes in `memory`.
    fn of(id: ImageId, geometry: &Geometry, memory: SparseFile) -> Self {
        // Bytes that are not punched do not change under way.
        let sends_pages = memory.is_in_large_pages() || sparse_file::pages_are_small();
        Self {
            id,
            zeros: ZeroHashes::new(geometry),
            memory,
            disk: None,
            compressed: OnceLock::new(),
            troubles: Troubles::default(),
            withheld: Marked::default(),
            behind: Behind::default(),
            slots: Slots::new(geometry.chunks(), Slot::default()),
            transients: Arc::default(),
            resident_bytes: AtomicU64::new(0),
            found: Tally::default(),
            lenders: Lenders::default(),
            lends: Lends::default(),
            lent_bytes: AtomicU64::new(0),
            sends_pages,
        }
    }

    /// Length of the memory file, the chunks and the label; `None` if they are more than can be
    /// held.
    fn file_bytes(geometry: &Geometry) -> Option<u64> {
        let chunks = geometry.chunks();
        let bytes = chunks.checked_mul(geometry.chunk_bytes())?.checked_add(Label::BYTES as u64)?;
        (chunks <= Slots::CHUNKS_MAX && bytes <= i64::MAX as u64).then_some(bytes)
    }

    /// Writes the label at the end of the file: the image, its names, and the committed
    /// share.
    pub fn commit(&self, names: &Names, commitment: Commitment) -> io::Result<()> {
        let label = Label { id: self.id, header: *self.geometry().header(), names: names.clone(), commitment }.encode();
        match &self.disk {
            Some(_) if self.behind.labels(&label) => Ok(()),
            _ => self.write_label(&label),
        }
    }

    fn write_label(&self, label: &[u8]) -> io::Result<()> {
        self.found_file().write(self.geometry().chunks() * self.geometry().chunk_bytes(), label)
    }

    /// The id of the image.
    pub const fn id(&self) -> ImageId {
        self.id
    }

    /// The numbering of its chunks.
    pub const fn geometry(&self) -> &Geometry {
        self.zeros.geometry()
    }

    /// The hashes of the image's zero chunks.
    pub const fn zeros(&self) -> &ZeroHashes {
        &self.zeros
    }

    /// Memory taken by chunks that do not lie on a disk, in bytes: readable ones, and evicted ones
    /// that are still read or lent. Not those that a relative has lent to this store.
    pub fn resident_bytes(&self) -> u64 {
        self.resident_bytes.load(Ordering::Relaxed) + self.transients.bytes()
    }

    /// True if the bytes of `chunk` are here.
    pub fn is_resident(&self, chunk: Chunk) -> bool {
        // It may settle between the first look and the second.
        self.is_in_slot(chunk) || self.transients.has(chunk) || self.is_in_slot(chunk)
    }

    /// True if a slot has the bytes of `chunk`, and can be read.
    fn is_in_slot(&self, chunk: Chunk) -> bool {
        self.slots.load(chunk).is_readable() && !self.is_spoiled(chunk) && !self.is_withheld(chunk)
    }

    /// True if `chunk` is known to be zero (for a page: all below it), by its own mark or by that
    /// of any page above it.
    pub fn is_zero(&self, chunk: Chunk) -> bool {
        let above = |chunk: &Chunk| self.geometry().parent(*chunk).map(|(page, _)| page);
        std::iter::successors(Some(chunk), above).any(|chunk| self.slots.load(chunk).is_zero())
    }

    /// Remembers that these chunks, data or pages, are zero. [`Store::insert`] does it by itself
    /// for the children of the pages it gets.
    pub fn mark_zero(&self, chunks: Range<u64>) {
        for number in chunks {
            self.slots.change(Chunk(number), |slot| Some(slot.mark_zero()));
        }
    }

    /// Keeps `chunk` where it is; `None` if it is not here.
    pub fn pin(self: &Arc<Self>, chunk: Chunk) -> Option<Pin> {
        self.hold(chunk)
    }

    /// Checks whether `bytes`, from any source, are those of `chunk`. Hashes them on the calling
    /// thread.
    pub fn check(&self, chunk: Chunk, bytes: &[u8]) -> Check {
        let good = if bytes.len() as u64 != self.geometry().length(chunk) {
            false
        } else if chunk == self.geometry().top() {
            ImageId::of(self.geometry().header(), bytes) == self.id
        } else {
            match self.read_hash(chunk) {
                Some(expected) => hash_tree::verify(&expected, bytes),
                None => return Check::Unknown,
            }
        };
        if good { Check::Good } else { Check::Bad }
    }

    /// The hash of `chunk` in its parent page. `None` if that is not here, and for the top page,
    /// whose bytes are checked against the image id instead.
    pub fn read_hash(&self, chunk: Chunk) -> Option<Hash> {
        let (page, index) = self.geometry().parent(chunk)?;
        if self.is_zero(chunk) {
            return Some(self.zeros.of(chunk));
        }
        if !self.try_pin(page) {
            return None;
        }
        let mut hash = [0; HASH_BYTES];
        let read = self.memory.read(self.slot_extent(page).start() + (index * HASH_BYTES) as u64, &mut hash);
        self.unpin(page);
        read.ok().map(|()| Hash(hash))
    }

    /// Puts a chunk that is to be kept into its slot, or borrows the same bytes. `bytes` must be
    /// its bytes: ask [`Store::check`] before. For a page, its zero children are marked first.
    ///
    /// # Errors
    /// If the kernel has no memory for it; the chunk is then not here.
    ///
    /// # Panics
    /// If `bytes` do not have the chunk's length.
    pub fn insert(&self, chunk: Chunk, bytes: &[u8]) -> io::Result<Inserted> {
        assert_eq!(bytes.len() as u64, self.geometry().length(chunk), "length of {chunk}");
        if self.is_zero(chunk) || self.is_resident(chunk) {
            return Ok(Inserted::Already);
        }
        if self.mend(chunk, bytes)? || self.borrow_now(chunk) {
            return Ok(Inserted::New);
        }
        if self.slots.change(chunk, Slot::claim).is_none() && !self.clear_found(chunk)? {
            return Ok(match self.revive(chunk) {
                true => Inserted::New,
                false if self.is_resident(chunk) => Inserted::Already,
                false => Inserted::Busy,
            });
        }
        for zero in hash_tree::zero_children(self.geometry(), &self.zeros, chunk, bytes) {
            self.mark_zero(zero);
        }
        self.write(chunk, bytes)?;
        Ok(Inserted::New)
    }

    /// Writes a claimed slot and publishes it, or abandons it.
    fn write(&self, chunk: Chunk, bytes: &[u8]) -> io::Result<()> {
        match self.write_bytes(chunk, bytes) {
            Ok(form) => self.publish(chunk, form),
            Err(error) => {
                self.abandon(chunk);
                self.punch(chunk);
                return Err(error);
            }
        }
        if self.is_on_disk() && !self.geometry().is_data(chunk) && !self.behind.copies(chunk) {
            self.copy_page(chunk);
        }
        Ok(())
    }

    /// The bytes of a claimed slot lie there in this form.
    fn publish(&self, chunk: Chunk, form: Form) {
        self.take(chunk, self.taken_bytes(chunk, form));
        self.slots.change(chunk, |slot| Some(slot.publish(form)));
    }

    /// Gives up a claimed slot, which the caller punches.
    fn abandon(&self, chunk: Chunk) {
        // The punch takes them off.
        self.take(chunk, self.taken_bytes(chunk, Form::Plain));
        self.slots.change(chunk, |slot| Some(slot.abandon()));
    }

    /// Bytes that a chunk takes in its slot.
    fn taken_bytes(&self, chunk: Chunk, form: Form) -> u64 {
        match form {
            Form::Plain => self.geometry().length(chunk),
            Form::Compressed => self.compressed_bytes(chunk),
        }
    }

    /// Takes in a chunk of data that is not to be kept. `buffer` must have its bytes: ask
    /// [`Store::check`] before.
    ///
    /// # Panics
    /// If it does not have the chunk's length.
    pub fn pass(&self, chunk: Chunk, buffer: Buffer) -> Inserted {
        assert_eq!(buffer.as_ref().len() as u64, self.geometry().length(chunk), "length of {chunk}");
        if self.is_zero(chunk) || self.is_in_slot(chunk) {
            return Inserted::Already;
        }
        // A slot that is still read has the same bytes.
        if (!self.is_spoiled(chunk) && self.slots.change(chunk, Slot::revive).is_some())
            || self.transients.insert(chunk, buffer)
        {
            Inserted::New
        } else {
            Inserted::Already
        }
    }

    /// Moves a transient chunk into its slot, since it is to be kept; all others stay as they are.
    /// If a worker attends to the disk, it does that later.
    ///
    /// # Errors
    /// If the kernel has no memory for it; the chunk is then still here.
    pub fn settle(&self, chunk: Chunk) -> io::Result<()> {
        let Some(bytes) = self.transients.get(chunk) else { return Ok(()) };
        if self.borrow_now(chunk) {
            self.transients.evict(chunk);
        } else if self.is_slow_to_write(chunk) && self.behind.settles(chunk) {
            // A worker writes it.
        } else if self.mend(chunk, &bytes)? {
            self.transients.evict(chunk);
        } else if self.slots.change(chunk, Slot::claim).is_some() || self.clear_found(chunk)? {
            self.write(chunk, &bytes)?;
            self.transients.evict(chunk);
        }
        Ok(())
    }

    /// Evicts a chunk: no new reader sees it. Its memory goes back to the kernel with the last pin,
    /// at once without any. Of a withheld chunk only bytes that passed through go, if there are
    /// some. False if it was not here.
    pub fn evict(&self, chunk: Chunk) -> bool {
        if self.is_withheld(chunk) && self.transients.evict(chunk) {
            // It passed through, while its place on the disk stays.
            return true;
        }
        self.forget_on_disk(chunk);
        let passed = self.transients.evict(chunk) | self.end_loan(chunk);
        match self.slots.change(chunk, Slot::evict) {
            None => passed,
            Some(slot) => {
                if slot.is_to_punch() {
                    self.punch(chunk);
                }
                true
            }
        }
    }

    /// Takes back an evicted chunk that is still read; false if its bytes are gone, or were never
    /// here.
    pub fn revive(&self, chunk: Chunk) -> bool {
        (!self.is_spoiled(chunk) && self.slots.change(chunk, Slot::revive).is_some()) || self.transients.revive(chunk)
    }

    fn try_pin(&self, chunk: Chunk) -> bool {
        self.slots.change(chunk, Slot::pin).is_some()
    }

    fn unpin(&self, chunk: Chunk) {
        if self.slots.change(chunk, |slot| Some(slot.unpin())).is_some_and(Slot::is_to_punch) {
            self.punch(chunk);
        }
    }

    /// Frees the pages of a slot, or has its disk's worker do it. The caller's transition emptied
    /// it.
    fn punch(&self, chunk: Chunk) {
        if self.disk_of(chunk).is_none() || !self.behind.punches(chunk) {
            self.punch_now(chunk);
        }
    }

    fn punch_now(&self, chunk: Chunk) {
        let place = self.slot_extent(chunk);
        let taken_bytes = self.taken_bytes(chunk, self.slots.load(chunk).form());
        let file = self.disk_of(chunk).map_or(&self.memory, OnDisk::file);
        if let Err(error) = file.punch(place.start(), self.geometry().chunk_bytes()) {
            // The slot stays `Dropping` for good: unused memory, but never overwritten in flight.
            tracing::error!(%chunk, %error, "freeing the memory of an evicted chunk failed");
            return;
        }
        self.free(chunk, taken_bytes);
        self.slots.change(chunk, |slot| Some(slot.punched()));
    }

    /// The extent of a chunk in the memory file.
    fn slot_extent(&self, chunk: Chunk) -> Extent {
        let start = chunk.0 * self.geometry().chunk_bytes();
        Extent::from(start..start + self.geometry().length(chunk))
    }

    /// Memory that its file takes, in bytes; also of chunks that are not verified.
    pub fn file_bytes_now(&self) -> u64 {
        self.memory.taken_bytes()
    }

    /// The memory file: to send from, and to be kept beyond the process's end.
    pub fn file(&self) -> Arc<OwnedFd> {
        self.memory.fd()
    }

    fn read_slot(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.memory.read(offset, bytes)
    }

    fn sends_pages(&self) -> bool {
        self.sends_pages
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "store of {:?} with {} bytes", self.id, self.resident_bytes())
    }
}

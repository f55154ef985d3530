//! The file of an earlier process, taken up as a store. Nothing in it counts before it is
//! verified.
//!
//! Invariant: found bytes are neither read nor sent until [`Store::adopt`] has compared them with
//! their hash. Wrong ones go back to the kernel like an evicted chunk. The process may have been
//! killed in the midst of a write, and others may have had the file: nothing in it is believed.
//! Chunks that another version's store offers ([`super::family`]) are found in the same way. The
//! survey calls it for all chunks, and so do tasks that want a certain chunk before that.

use super::label::{BadLabel, Label};
use super::on_disk::OnDisk;
use super::slot::{Form, Slot};
use super::sparse_file::SparseFile;
use super::{Check, Store};
use crate::disk_reads::DiskReads;
use std::io;
use std::iter::successors;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vfield_core::chunk::Chunk;
use vfield_core::hash_tree;
use vfield_core::image::Geometry;
use vfield_core::node::Commitment;

/// Why a file is not taken up.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// Not a memory file, or not one of a store.
    #[error("it is no store's memory")]
    Foreign,
    /// The label is unusable; see [`BadLabel`].
    #[error(transparent)]
    Label(#[from] BadLabel),
    /// Not as long as a store of that image.
    #[error("{0} bytes are not the length of a store of its image")]
    Length(u64),
    /// The kernel does not report the file's holes.
    #[error("reading it: {0}")]
    Io(#[from] io::Error),
}

/// A file that was kept, with a label that makes sense.
#[derive(Debug)]
pub struct Kept {
    file: SparseFile,
    is_on_disk: bool,
    label: Label,
}

impl Kept {
    /// Reads the label of a memory file.
    pub fn read(file: OwnedFd) -> Result<Self, Unfit> {
        let (file, length_bytes) = SparseFile::made_before(file)?.ok_or(Unfit::Foreign)?;
        Self::with(file, length_bytes, false)
    }

    /// Reads the label of a file on a disk.
    pub fn read_on_disk(file: OwnedFd) -> Result<Self, Unfit> {
        let (file, length_bytes) = SparseFile::left_on_disk(file)?;
        Self::with(file, length_bytes, true)
    }

    fn with(file: SparseFile, length_bytes: u64, is_on_disk: bool) -> Result<Self, Unfit> {
        let mut bytes = [0; Label::BYTES];
        let at = length_bytes.checked_sub(Label::BYTES as u64).ok_or(Unfit::Length(length_bytes))?;
        file.read(at, &mut bytes)?;
        let label = Label::decode(&bytes)?;
        if Store::file_bytes(&Geometry::new(label.header)) != Some(length_bytes) {
            return Err(Unfit::Length(length_bytes));
        }
        Ok(Self { file, is_on_disk, label })
    }

    /// True if its memory is in large pages.
    pub const fn is_in_large_pages(&self) -> bool {
        self.file.is_in_large_pages()
    }

    /// The label of the file.
    pub const fn label(&self) -> &Label {
        &self.label
    }
}

/// The content of the file.
#[derive(Debug)]
pub struct Found {
    /// Runs of chunks that may be there, in order.
    pub runs: Vec<Range<u64>>,
    /// The share that its store was to hold.
    pub commitment: Commitment,
}

/// From where the bytes of found chunks are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// From memory: chunks for which a disk has to be waited for stay found.
    Memory,
    /// From a disk too, for as long as that takes.
    Disk,
}

/// Counts of the found chunks so far, by result.
#[derive(Debug, Default)]
pub struct Tally {
    /// Found chunks that are not checked yet.
    left: AtomicU64,
    adopted_bytes: AtomicU64,
    spoiled: AtomicU64,
}

/// Chunks that the store has adopted, to be reported to the core.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// The adopted chunks.
    pub chunks: Vec<Chunk>,
    /// For the hash pages among them: the runs of their children that are all zeros.
    pub zeros: Vec<Range<u64>>,
    /// A lender's survey was at the same chunk as this one: that stays found, for another look.
    pub postponed: bool,
    /// Bytes were read, or turned out to be a hole.
    pub delivered: bool,
}

impl Tally {
    /// One more chunk to check.
    pub(super) fn one_more(&self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    /// So many chunks to check.
    pub(super) fn of(chunks: u64) -> Self {
        Self { left: AtomicU64::new(chunks), ..Self::default() }
    }

    /// A chunk was not right.
    pub(super) fn one_spoiled(&self) {
        self.spoiled.fetch_add(1, Ordering::Relaxed);
    }

    /// A chunk was checked.
    pub(super) fn one_less(&self) {
        self.left.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Store {
    /// A store in a kept file, and the chunks found in it.
    pub fn take_over(kept: Kept) -> Result<(Arc<Self>, Found), Unfit> {
        let geometry = Geometry::new(kept.label.header);
        let commitment = kept.label.commitment;
        if kept.is_on_disk {
            // To look for all holes takes seconds in a large file: each is found in its turn.
            let store = Self::of_disk(kept.label.id, &geometry, kept.file, Slot::FOUND)?;
            let runs = std::iter::once(0..geometry.chunks()).collect();
            return Ok((Arc::new(store), Found { runs, commitment }));
        }
        let (size, chunks) = (geometry.chunk_bytes(), geometry.chunks());
        let mut runs: Vec<Range<u64>> = Vec::new();
        for bytes in kept.file.ranges()? {
            // Two parts of one chunk may have a hole between them, and the label is not one.
            let from = runs.last().map_or(0, |run| run.end).max(bytes.start / size);
            let run = from..bytes.end.div_ceil(size).min(chunks);
            match runs.last_mut() {
                _ if run.is_empty() => {}
                Some(last) if last.end == run.start => last.end = run.end,
                _ => runs.push(run),
            }
        }
        let store = Self::of(kept.label.id, &geometry, kept.file);
        for number in runs.iter().cloned().flatten() {
            store.slots.change(Chunk(number), Slot::find);
            store.found.one_more();
        }
        Ok((Arc::new(store), Found { runs, commitment }))
    }

    /// The number of found chunks that are not checked yet.
    pub fn found(&self) -> u64 {
        self.found.left.load(Ordering::Relaxed)
    }

    /// Bytes of found chunks that were right.
    pub fn adopted_bytes(&self) -> u64 {
        self.found.adopted_bytes.load(Ordering::Relaxed)
    }

    /// Chunks that were not, found or read later, and are gone.
    pub fn spoiled(&self) -> u64 {
        self.found.spoiled.load(Ordering::Relaxed)
    }

    /// True if bytes of `chunk` were found and are not checked yet.
    pub fn is_found(&self, chunk: Chunk) -> bool {
        self.found() > 0 && self.slots.load(chunk).is_found()
    }

    /// The reads of the disk that has to deliver one of these found chunks before they are checked.
    /// Pages above them count too, and the same chunks of a lender.
    pub fn awaited(&self, chunks: Range<u64>) -> Option<Arc<DiskReads>> {
        let of_lenders = || self.lenders.all().find_map(|(_, lender)| lender.awaited_here(chunks.clone()));
        self.awaited_here(chunks.clone()).or_else(of_lenders)
    }

    fn awaited_here(&self, chunks: Range<u64>) -> Option<Arc<DiskReads>> {
        let disk = self.disk.as_ref().filter(|_| self.found() > 0)?;
        let above = |chunk: &Chunk| self.geometry().parent(*chunk).map(|(page, _)| page);
        let found = chunks.map(Chunk).filter(|chunk| self.is_found(*chunk));
        let mut checked = found.flat_map(|chunk| successors(Some(chunk), above)).filter(|chunk| self.is_found(*chunk));
        let is_awaited = checked.any(|chunk| !disk.is_in_memory(self.slot_extent(chunk)));
        is_awaited.then(|| Arc::clone(disk.reads()))
    }

    /// Checks the found `chunk`, after the pages above it, and adds it to `adopted` if it is right.
    /// Hashes on the calling thread. A chunk without its page here stays found.
    pub fn adopt(&self, chunk: Chunk, from: Place, adopted: &mut Adopted) {
        self.look_at_lenders(chunk);
        if !self.is_found(chunk) {
            return;
        }
        if let Some((page, _)) = self.geometry().parent(chunk) {
            self.adopt(page, from, adopted);
        }
        let is_in_file = self.slots.load(chunk).lender().is_none();
        let may_wait = from == Place::Disk || !self.disk.as_ref().is_some_and(OnDisk::waits);
        let cached = if is_in_file && !may_wait { self.cached(chunk) } else { None };
        if is_in_file && !may_wait && cached.is_none() {
            return;
        }
        let Some(looked) = self.slots.change(chunk, Slot::look) else { return };
        let is_own = looked.lender().is_none();
        // A large page has zeros where no chunk was written, and so has a hole in a cache.
        let may_be_hole = cached.is_some() || self.found_file().is_in_large_pages();
        let bytes = if is_own { cached.or_else(|| self.lying(chunk)) } else { None };
        adopted.delivered |= is_own;
        // Another task may have brought the chunk by then.
        if self.slots.change(chunk, Slot::judge).is_none() {
            return;
        }
        match bytes {
            _ if !is_own => self.borrow(chunk, self.read_hash(chunk), adopted),
            Some(bytes) => self.judge(chunk, bytes, may_be_hole, adopted),
            None => {
                self.slots.change(chunk, |slot| Some(slot.decline()));
                self.found.one_less();
                // There is nothing in it, but a lender may have the chunk.
                self.look_at_lenders(chunk);
                if self.is_found(chunk) {
                    self.adopt(chunk, from, adopted);
                }
            }
        }
    }

    /// The bytes in the place of a found chunk on a disk, if that need not be waited for.
    fn cached(&self, chunk: Chunk) -> Option<Vec<u8>> {
        let disk = self.disk.as_ref()?;
        let place = self.slot_extent(chunk);
        let mut bytes = vec![0; place.len() as usize];
        disk.file().read_cached(place.start(), &mut bytes).then_some(bytes)
    }

    /// The bytes in the place of a found chunk: none of a hole, and an empty vector if they cannot
    /// be read. Waits for a disk, and for tasks that write to its file.
    fn lying(&self, chunk: Chunk) -> Option<Vec<u8>> {
        let (place, file) = (self.slot_extent(chunk), self.found_file());
        if self.is_on_disk() && !file.has_bytes(place.start()..place.end()).unwrap_or(true) {
            return None;
        }
        let mut bytes = vec![0; place.len() as usize];
        Some(file.read(place.start(), &mut bytes).map_or_else(|_| Vec::new(), |()| bytes))
    }

    /// Publishes the bytes of a found chunk if they are right, or frees its slot, which is the
    /// caller's. Zeros that may be those of a hole are not a spoiled chunk.
    fn judge(&self, chunk: Chunk, mut bytes: Vec<u8>, may_be_hole: bool, adopted: &mut Adopted) {
        let (mut checked, mut form) = (self.check(chunk, &bytes), Form::Plain);
        if let Some(unpacked) = (checked == Check::Bad).then(|| self.unpack_found(chunk, &bytes)).flatten() {
            (bytes, form) = (unpacked, Form::Compressed);
            checked = self.check(chunk, &bytes);
        }
        if checked == Check::Good && !self.is_zero(chunk) {
            match self.adopt_bytes(chunk, &bytes, form) {
                Ok(now) => form = now,
                Err(_) => checked = Check::Bad,
            }
        }
        match checked {
            Check::Unknown => {
                self.slots.change(chunk, |slot| Some(slot.put_back()));
            }
            // A chunk known to be zero takes no room.
            Check::Good if !self.is_zero(chunk) => {
                let zeros = hash_tree::zero_children(self.geometry(), &self.zeros, chunk, &bytes);
                zeros.iter().cloned().for_each(|run| self.mark_zero(run));
                self.publish(chunk, form);
                self.transients.evict(chunk);
                self.found.one_less();
                self.found.adopted_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                adopted.chunks.push(chunk);
                adopted.zeros.extend(zeros);
            }
            Check::Good | Check::Bad => {
                self.give_back(chunk);
                let is_blank = !bytes.is_empty() && bytes.iter().all(|byte| *byte == 0);
                if !(may_be_hole && is_blank) {
                    self.found.one_spoiled();
                }
            }
        }
    }

    /// Drops the found chunks of this range that could not be verified.
    pub fn drop_found(&self, chunks: Range<u64>) {
        for chunk in chunks.map(Chunk) {
            match self.slots.change(chunk, Slot::take) {
                Some(taken) if taken.lender().is_some() => {
                    self.slots.change(chunk, |slot| Some(slot.decline()));
                    self.found.one_less();
                }
                Some(_) => self.give_back(chunk),
                None => {}
            }
        }
    }

    /// Frees a found chunk's slot for verified bytes; true if the slot is the caller's to write.
    /// Its pages may still be under way from the earlier process.
    pub(super) fn clear_found(&self, chunk: Chunk) -> io::Result<bool> {
        let taken = if self.found() == 0 { None } else { self.slots.change(chunk, Slot::take) };
        let Some(taken) = taken else { return Ok(false) };
        self.found.one_less();
        if taken.lender().is_some() {
            self.slots.change(chunk, |slot| Some(slot.write_here()));
            return Ok(true);
        }
        if self.is_on_disk() {
            // Nobody reads the pages there but through copies: they can be overwritten.
            return Ok(true);
        }
        let punched = self.memory.punch(self.slot_extent(chunk).start(), self.geometry().chunk_bytes());
        if let Err(error) = punched {
            // As in `punch`: the slot is lost.
            return Err(error.into());
        }
        Ok(true)
    }

    /// Empties a slot of found bytes, which is the caller's.
    fn give_back(&self, chunk: Chunk) {
        self.found.one_less();
        self.abandon(chunk);
        self.punch(chunk);
    }
}

//! A store on a disk: its chunks of data lie in a file that outlives a reboot.
//!
//! The file has the form of a memory file, with the same label. Nothing in it is ever believed:
//! each read compares whole chunks with their hashes, 20 µs for 64 KiB. So torn, flipped and lost
//! pages are found whenever they come about, and there is no journal: the file's holes are the
//! missing chunks. Pages of hashes are read from memory, and the file has copies for the next
//! process. The hashes of held chunks lie in memory too, since their page may be evicted first.
//!
//! Invariant: bytes that differ from their hash leave the store by no way. Their chunk is spoiled:
//! it is not resident until the right bytes were written over it. Readers get copies of the file's
//! pages, so a slot may be overwritten.

use super::found::Tally;
use super::label::Label;
use super::marked::Marked;
use super::slot::{Form, Slot};
use super::slots::Slots;
use super::sparse_file::SparseFile;
use super::{Pin, Store, StoreError};
use crate::apart::{self, EndsApart};
use crate::cache::{Cache, out_of_whole_chunks};
use crate::disk_reads::{self, DiskReads};
use bytes::Bytes;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::Notify;
use vfield_block::extent::Extent;
use vfield_block::source::Piece;
use vfield_core::chunk::{Chunk, HASH_BYTES};
use vfield_core::hash_tree::{Hash, hash_chunk, verify};
use vfield_core::image::{Geometry, ImageId};

/// The part of a store that lies on a disk.
pub struct OnDisk {
    /// A removed file's room is freed when it is closed, which takes long for a large one.
    file: EndsApart<SparseFile>,
    /// The hash of each chunk of data in the file, by its number.
    hashes: SparseFile,
    cache: Cache,
    /// True if no disk is ever waited for.
    in_memory: bool,
    /// The reads that wait for the disk: those of all stores on it.
    reads: OnceLock<Arc<DiskReads>>,
    spoiled: Marked<()>,
    /// Bytes of chunks in the file.
    pub(super) bytes: AtomicU64,
}

/// What happened to a store, and what the protocol core has to know of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Chunks that were resident, and are not any more.
    pub spoiled: Vec<Chunk>,
    /// Chunks that were withheld or released: [`Store::is_withheld`] says which of both holds now.
    pub turned: Vec<Chunk>,
    /// Why the disk took a chunk no more.
    pub refused: Option<String>,
}

/// Trouble that nobody has taken yet.
#[derive(Debug, Default)]
pub struct Troubles {
    all: Mutex<Trouble>,
    came: Notify,
}

impl Troubles {
    fn tell(&self, tell: impl FnOnce(&mut Trouble)) {
        tell(&mut self.all.lock().unwrap_or_else(PoisonError::into_inner));
        self.came.notify_one();
    }
}

impl OnDisk {
    pub(super) fn new(file: SparseFile, geometry: &Geometry) -> io::Result<Self> {
        Ok(Self {
            in_memory: disk_reads::is_on_tmpfs(file.fd()),
            reads: OnceLock::new(),
            file: EndsApart::new(file),
            hashes: SparseFile::new(geometry.data_chunks() * HASH_BYTES as u64)?,
            cache: Cache::new(geometry.header().chunk_size()),
            spoiled: Marked::default(),
            bytes: AtomicU64::new(0),
        })
    }

    pub(super) fn file(&self) -> &SparseFile {
        &self.file
    }

    /// The reads that wait for the disk.
    pub(super) fn reads(&self) -> &Arc<DiskReads> {
        self.reads.get_or_init(Arc::default)
    }

    /// True if the bytes of a part of a chunk are kept, because that was read lately.
    pub(super) fn has(&self, geometry: &Geometry, part: Extent) -> bool {
        let chunk = Chunk(geometry.covering(part).start);
        let (whole, is_within) = (geometry.extent(chunk), geometry.whole(part) == geometry.extent(chunk));
        is_within && part != whole && self.cache.find(chunk).is_some()
    }

    /// True if a disk may have to be waited for.
    pub(super) const fn waits(&self) -> bool {
        !self.in_memory
    }

    /// True if a place can be read without a wait for the disk.
    pub(super) fn is_in_memory(&self, place: Extent) -> bool {
        self.in_memory || (!self.reads().is_jammed() && disk_reads::is_in_memory(self.file.fd(), place))
    }

    fn note_hash(&self, chunk: Chunk, hash: &Hash) -> io::Result<()> {
        self.hashes.write(chunk.0 * HASH_BYTES as u64, &hash.0)
    }

    fn hash(&self, chunk: Chunk) -> io::Result<Hash> {
        let mut hash = [0; HASH_BYTES];
        self.hashes.read(chunk.0 * HASH_BYTES as u64, &mut hash)?;
        Ok(Hash(hash))
    }

    fn fill(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        if self.file.read_cached(offset, bytes) { Ok(()) } else { apart::here(|| self.file.read(offset, bytes)) }
    }

    /// Writes bytes into the file, and waits for the disk.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        apart::here(|| self.file.write(offset, bytes))
    }

    /// The bytes of an extent of data, compared with the hashes of its chunks; else the chunk with
    /// other ones.
    fn checked(&self, geometry: &Geometry, extent: Extent) -> Result<Bytes, Chunk> {
        // A reader of a whole chunk does not come back to it.
        let first = geometry.extent(Chunk(geometry.covering(extent).start));
        let cache = (extent != first).then_some(&self.cache);
        out_of_whole_chunks(geometry, extent, cache, |whole, bytes| {
            let is_read = self.fill(whole.start(), bytes).is_ok();
            let mut wrong = geometry.covering(whole).map(Chunk).filter(|chunk| {
                let place = geometry.extent(*chunk);
                let at = (place.start() - whole.start()) as usize;
                let part = &mut bytes[at..at + place.len() as usize];
                // One bad sector is that of one chunk.
                let read = if is_read { Ok(()) } else { self.fill(place.start(), part) };
                !read.and_then(|()| self.hash(*chunk)).is_ok_and(|hash| verify(&hash, part))
            });
            wrong.next().map_or(Ok(()), Err)
        })
    }
}

impl Store {
    /// An empty store whose chunks will lie in this empty file.
    pub fn on_disk(id: ImageId, geometry: &Geometry, file: OwnedFd) -> Result<Arc<Self>, StoreError> {
        let length_bytes = Self::file_bytes(geometry).ok_or(StoreError::TooLarge(geometry.chunks()))?;
        let file = SparseFile::on_disk(file, length_bytes)?;
        Ok(Arc::new(Self::of_disk(id, geometry, file, Slot::default())?))
    }

    /// A store in a file on a disk, with slots as they are at first.
    pub(super) fn of_disk(id: ImageId, geometry: &Geometry, file: SparseFile, slot: Slot) -> io::Result<Self> {
        let pages = SparseFile::new(geometry.chunks() * geometry.chunk_bytes() + Label::BYTES as u64)?;
        let mut store = Self::of(id, geometry, pages);
        store.disk = Some(OnDisk::new(file, geometry)?);
        store.slots = Slots::new(geometry.chunks(), slot);
        store.found = Tally::of(if slot.is_found() { geometry.chunks() } else { 0 });
        Ok(store)
    }

    /// True if its chunks lie on a disk.
    pub const fn is_on_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// Has it wait for its disk together with other stores there: at first, each store waits for
    /// itself.
    pub fn share_reads(&self, reads: &Arc<DiskReads>) {
        if let Some(disk) = &self.disk {
            let _ = disk.reads.set(Arc::clone(reads));
        }
    }

    /// Bytes of its chunks on the disk.
    pub fn disk_bytes(&self) -> u64 {
        self.disk.as_ref().map_or(0, |disk| disk.bytes.load(Ordering::Relaxed))
    }

    /// Its trouble since the last call; waits until there is any.
    pub async fn trouble(&self) -> Trouble {
        loop {
            let came = self.troubles.came.notified();
            let trouble = std::mem::take(&mut *self.troubles.all.lock().unwrap_or_else(PoisonError::into_inner));
            if trouble != Trouble::default() {
                return trouble;
            }
            came.await;
        }
    }

    /// The disk, if the bytes of a chunk lie there.
    pub(super) fn disk_of(&self, chunk: Chunk) -> Option<&OnDisk> {
        self.disk.as_ref().filter(|_| self.geometry().is_data(chunk))
    }

    /// The file in which an earlier process may have left a chunk.
    pub(super) fn found_file(&self) -> &SparseFile {
        self.disk.as_ref().map_or(&self.memory, OnDisk::file)
    }

    /// The count of the bytes that chunks of this kind take.
    pub(super) fn taken(&self, chunk: Chunk) -> &AtomicU64 {
        self.disk_of(chunk).map_or(&self.resident_bytes, |disk| &disk.bytes)
    }

    /// True if the bytes of a resident chunk are other ones on the disk.
    pub(super) fn is_spoiled(&self, chunk: Chunk) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.spoiled.has(chunk))
    }

    /// An evicted chunk has nothing to mend, and does not settle.
    pub(super) fn forget_on_disk(&self, chunk: Chunk) {
        if let Some(disk) = &self.disk {
            disk.spoiled.remove(chunk);
        }
        self.withheld.remove(chunk);
        if self.is_slow_to_write(chunk) {
            self.behind.evict(chunk);
        }
    }

    /// The core has to hear that a chunk is here no more.
    pub(super) fn tell_spoiled(&self, chunk: Chunk) {
        self.found.one_spoiled();
        self.troubles.tell(|trouble| trouble.spoiled.push(chunk));
    }

    /// The core has to hear whether these chunks are withheld now.
    pub(super) fn tell_turned(&self, chunks: impl IntoIterator<Item = Chunk>) {
        self.troubles.tell(|trouble| trouble.turned.extend(chunks));
    }

    /// Writes the bytes of a chunk where it lies, and says in which form.
    pub(super) fn write_bytes(&self, chunk: Chunk, bytes: &[u8]) -> io::Result<Form> {
        let at = self.slot_extent(chunk).start();
        let Some(disk) = &self.disk else { return self.write_memory(chunk, bytes) };
        if self.geometry().is_data(chunk) {
            let hash = self.read_hash(chunk).unwrap_or_else(|| hash_chunk(bytes));
            disk.note_hash(chunk, &hash)?;
            disk.write(at, bytes).inspect_err(|error| self.tell_refused(error))?;
        } else {
            // Its copy on the disk is for the next process only, and follows.
            self.memory.write(at, bytes)?;
        }
        Ok(Form::Plain)
    }

    /// Tells the core that the fill finds no room.
    pub(super) fn tell_refused(&self, error: &io::Error) {
        self.troubles.tell(|trouble| trouble.refused = Some(error.to_string()));
    }

    /// A found chunk was right. From a disk its hash, or the page that it is, is put into memory.
    /// In memory it gets the form of this store's chunks.
    pub(super) fn adopt_bytes(&self, chunk: Chunk, bytes: &[u8], found: Form) -> io::Result<Form> {
        match (&self.disk, self.geometry().is_data(chunk)) {
            (None, _) => return self.reform(chunk, bytes, found),
            (Some(disk), true) => disk.note_hash(chunk, &hash_chunk(bytes))?,
            (Some(_), false) => self.memory.write(self.slot_extent(chunk).start(), bytes)?,
        }
        Ok(Form::Plain)
    }

    /// Writes the right bytes over those of a spoiled chunk; false if it is not one.
    pub(super) fn mend(&self, chunk: Chunk, bytes: &[u8]) -> io::Result<bool> {
        let Some(disk) = self.disk.as_ref().filter(|disk| disk.spoiled.has(chunk)) else { return Ok(false) };
        if !self.try_pin(chunk) {
            return Ok(false);
        }
        let written = self.write_bytes(chunk, bytes);
        if written.is_ok() {
            disk.spoiled.remove(chunk);
        }
        self.unpin(chunk);
        written.map(|_| true)
    }

    /// A copy of a held chunk of data; of one on a disk, compared with its hash.
    pub(super) fn copy(&self, chunk: Chunk) -> io::Result<Bytes> {
        let place = self.slot_extent(chunk);
        if self.compressed_of(chunk).is_some() {
            return self.unpacked(place).map_err(|_| io::Error::other("a compressed chunk does not unpack"));
        }
        if let Some(disk) = self.disk_of(chunk) {
            return disk.checked(self.geometry(), place).map_err(|wrong| {
                self.spoil(wrong);
                io::Error::other("its disk gave back other bytes")
            });
        }
        let mut bytes = vec![0; place.len() as usize];
        self.memory.read(place.start(), &mut bytes)?;
        Ok(bytes.into())
    }

    /// The hash of a chunk on the disk.
    pub(super) fn disk_hash(&self, chunk: Chunk) -> Option<Hash> {
        self.disk_of(chunk)?.hash(chunk).ok()
    }

    pub(super) fn spoil(&self, chunk: Chunk) {
        if self.disk.as_ref().is_some_and(|disk| disk.spoiled.change(|spoiled| spoiled.insert(chunk, ())).is_none()) {
            self.tell_spoiled(chunk);
        }
    }

    /// The bytes of pinned slots of data on a disk, of this store or of a lender; `None` if they
    /// are other ones.
    pub(super) fn disk_piece(self: &Arc<Self>, place: Extent, pin: &Pin) -> Option<Piece> {
        let holder = pin.store();
        let disk = holder.disk.as_ref()?;
        match disk.checked(holder.geometry(), place) {
            Ok(bytes) => Some(Piece::Bytes(bytes)),
            Err(chunk) => {
                holder.spoil(chunk);
                self.drop_spoiled_loan(chunk);
                None
            }
        }
    }

    /// A lender's chunk is spoiled: it is not here any more either.
    pub(super) fn drop_spoiled_loan(&self, chunk: Chunk) {
        if self.end_loan(chunk) {
            self.tell_spoiled(chunk);
        }
    }
}

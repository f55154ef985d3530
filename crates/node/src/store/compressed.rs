//! A store in memory whose chunks of data lie compressed.
//!
//! A chunk keeps its place: its compressed bytes lie at the beginning of its slot, after one word
//! that says how many they are and of which codec. The rest of the slot is a hole. So nothing is
//! moved or collected when chunks come and go, the memory file has the form of any other, and half
//! a page is lost on average. A chunk that saves no page lies plain. Pages of hashes are plain:
//! each chunk below them reads them.
//!
//! Readers and peers get unpacked copies. A chunk that comes lies in its buffer until the store's
//! worker has compressed it (see [`super::behind`]), or has stored it as it came.
//!
//! Invariant: the chunks of all such stores take no more memory than their [`Room`] has. Beyond
//! that a store is full, like a disk: the core hears of it, and shortens its arc.

use super::slot::Form;
use super::{Pin, Store};
use crate::cache::{Cache, out_of_whole_chunks};
use crate::codec;
use crate::compression::{self, Compression};
use bytes::Bytes;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use vfield_block::extent::Extent;
use vfield_block::source::Piece;
use vfield_core::chunk::Chunk;
use vfield_core::image::Geometry;
use vfield_core::wire::Codec;

/// What a memory file gives and takes back.
const PAGE_BYTES: u64 = 4 << 10;
/// Unpacked chunks that are kept for further small reads, of which each saves 80 µs. Beside the
/// transient chunks of an image it is little.
const CACHE_BYTES: u64 = 8 << 20;
/// Chunks at least, for which a full store begins to grow again.
const GROWS_BY_CHUNKS: u64 = 16;
/// Length of the word in front of a compressed chunk.
const WORD: usize = 4;
/// The codec, in the bits of the word above those of the length.
const CODEC_AT: u32 = 28;

/// The memory for the chunks of all compressed stores of a node.
#[derive(Debug)]
pub struct Room {
    bytes: AtomicU64,
    taken: AtomicU64,
}

impl Room {
    /// Room for so many bytes.
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { bytes: AtomicU64::new(bytes), taken: AtomicU64::new(0) })
    }

    /// An earlier process has left a store that takes so many bytes already.
    pub fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn has(&self, bytes: u64) -> bool {
        self.taken.load(Ordering::Relaxed).saturating_add(bytes) <= self.bytes.load(Ordering::Relaxed)
    }
}

/// What a store has beside compressed chunks.
pub struct Compressed {
    codec: Codec,
    cache: Cache,
    room: Arc<Room>,
    /// Chunks that came compressed lately.
    came: OnceLock<Arc<Compression>>,
}

impl Compressed {
    fn new(geometry: &Geometry, room: &Arc<Room>) -> Self {
        let cache = Cache::of(geometry.header().chunk_size(), CACHE_BYTES);
        Self { codec: codec::BEST, cache, room: Arc::clone(room), came: OnceLock::new() }
    }

    /// The content of the slot of a chunk with these bytes; `None` if that saves no page.
    fn content(&self, chunk: Chunk, plain: &[u8]) -> Option<Vec<u8>> {
        let came = self.came.get().and_then(|came| came.find(chunk));
        let compressed = match came.filter(|came| came.codec == self.codec || came.codec == Codec::Zstd) {
            Some(came) => came,
            None => compression::Compressed { codec: self.codec, bytes: codec::compress(self.codec, plain)?.into() },
        };
        let length = (WORD + compressed.bytes.len()) as u64;
        if length.next_multiple_of(PAGE_BYTES) >= (plain.len() as u64).next_multiple_of(PAGE_BYTES) {
            return None;
        }
        let word = Word { codec: compressed.codec, length: compressed.bytes.len() as u32 };
        Some([&word.encode()[..], &compressed.bytes].concat())
    }
}

/// The word in front of a compressed chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Word {
    codec: Codec,
    /// Of the bytes that follow.
    length: u32,
}

impl Word {
    fn encode(self) -> [u8; WORD] {
        let codec = match self.codec {
            Codec::Lz4 => 1,
            Codec::Zstd => 2,
        };
        (codec << CODEC_AT | self.length).to_le_bytes()
    }

    /// `None` for what no store has written in front of a chunk of `plain` bytes.
    fn decode(word: [u8; WORD], plain: u64) -> Option<Self> {
        let word = u32::from_le_bytes(word);
        let codec = match word >> CODEC_AT {
            1 => Codec::Lz4,
            2 => Codec::Zstd,
            _ => return None,
        };
        let length = word & ((1 << CODEC_AT) - 1);
        (u64::from(length) + WORD as u64 <= plain).then_some(Self { codec, length })
    }

    /// Unpacks a chunk from the bytes that follow the word; false if they are others.
    fn unpack(self, following: &[u8], plain: &mut [u8]) -> bool {
        following.get(..self.length as usize).is_some_and(|compressed| codec::unpack(self.codec, compressed, plain))
    }
}

impl Store {
    /// Compresses its chunks, for which there is this room. To be said before any chunk comes.
    ///
    /// # Panics
    /// For a store on a disk, or in large pages.
    pub fn compress(&self, room: &Arc<Room>) {
        assert!(!self.is_on_disk() && !self.is_in_large_pages(), "{self:?} cannot be compressed");
        self.compressed.get_or_init(|| Compressed::new(self.geometry(), room));
    }

    /// Chunks that come compressed are kept there for a while, and need not be compressed again.
    pub fn take_as_it_came(&self, came: &Arc<Compression>) {
        if let Some(compressed) = self.compressed.get() {
            compressed.came.get_or_init(|| Arc::clone(came));
        }
    }

    /// True if its chunks lie compressed.
    pub fn is_compressed(&self) -> bool {
        self.compressed.get().is_some()
    }

    /// The memory of its chunks if they lie compressed, without those in buffers.
    pub fn compressed_memory_bytes(&self) -> Option<u64> {
        self.is_compressed().then(|| self.resident_bytes.load(Ordering::Relaxed))
    }

    /// True if it may find no room for a chunk, and readers go on without it.
    pub fn may_be_full(&self) -> bool {
        self.is_on_disk() || self.is_compressed()
    }

    /// True if there is room for an eighth more than it has. A store that finds out that it is full
    /// shortens its arc by eighths, so less than that may be lost again.
    pub fn may_grow(&self) -> bool {
        let least = GROWS_BY_CHUNKS * self.geometry().chunk_bytes();
        let more = |taken: &AtomicU64| (taken.load(Ordering::Relaxed) / 8).max(least);
        match (&self.disk, self.compressed.get()) {
            (Some(_), _) if self.behind.stands_still() => false,
            (Some(disk), _) => disk.file().free_bytes().is_ok_and(|free| free >= more(&disk.bytes)),
            (None, Some(compressed)) => compressed.room.has(more(&self.resident_bytes)),
            (None, None) => true,
        }
    }

    /// What there is beside a chunk that may lie compressed.
    pub(super) fn compressed_of(&self, chunk: Chunk) -> Option<&Compressed> {
        self.compressed.get().filter(|_| self.geometry().is_data(chunk))
    }

    /// Writes a chunk into its empty slot in memory, in the form that takes less.
    ///
    /// # Errors
    /// If it does not fit into the memory that the store may have, or if the kernel has none.
    pub(super) fn write_memory(&self, chunk: Chunk, bytes: &[u8]) -> io::Result<Form> {
        let content = self.compressed_of(chunk).and_then(|compressed| compressed.content(chunk, bytes));
        match content {
            Some(content) => self.put(chunk, &content).map(|()| Form::Compressed),
            None => self.put(chunk, bytes).map(|()| Form::Plain),
        }
    }

    /// Fills an empty slot from its beginning.
    fn put(&self, chunk: Chunk, content: &[u8]) -> io::Result<()> {
        let takes = (content.len() as u64).next_multiple_of(PAGE_BYTES);
        if self.compressed_of(chunk).is_some_and(|compressed| !compressed.room.has(takes)) {
            let error = io::Error::new(io::ErrorKind::OutOfMemory, "this process may have no more");
            self.tell_refused(&error);
            return Err(error);
        }
        self.memory.write(self.slot_extent(chunk).start(), content)
    }

    /// A chunk takes so many bytes of memory, or of the disk, from now on.
    pub(super) fn take(&self, chunk: Chunk, bytes: u64) {
        self.taken(chunk).fetch_add(bytes, Ordering::Relaxed);
        if let Some(compressed) = self.compressed_of(chunk) {
            compressed.room.taken.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// A chunk takes them no more.
    pub(super) fn free(&self, chunk: Chunk, bytes: u64) {
        // The word of a chunk may have been spoiled since it was counted.
        let lower = |count: &AtomicU64| {
            let lowered = |now: u64| Some(now.saturating_sub(bytes));
            let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lowered);
        };
        lower(self.taken(chunk));
        if let Some(compressed) = self.compressed_of(chunk) {
            lower(&compressed.room.taken);
        }
    }

    /// Memory that a compressed chunk takes.
    pub(super) fn compressed_bytes(&self, chunk: Chunk) -> u64 {
        let word = self.word(chunk);
        word.map_or(0, |word| (WORD as u64 + u64::from(word.length)).next_multiple_of(PAGE_BYTES))
    }

    fn word(&self, chunk: Chunk) -> Option<Word> {
        let place = self.slot_extent(chunk);
        let mut word = [0; WORD];
        self.memory.read(place.start(), &mut word).ok()?;
        Word::decode(word, place.len())
    }

    /// The bytes of a found slot, if it is one with a compressed chunk. They may be others.
    pub(super) fn unpack_found(&self, chunk: Chunk, slot: &[u8]) -> Option<Vec<u8>> {
        if self.is_on_disk() || !self.geometry().is_data(chunk) {
            return None;
        }
        let (word, following) = slot.split_first_chunk()?;
        let mut plain = vec![0; slot.len()];
        Word::decode(*word, slot.len() as u64)?.unpack(following, &mut plain).then_some(plain)
    }

    /// Gives a found chunk the form of this store's chunks, and says which that is.
    pub(super) fn reform(&self, chunk: Chunk, bytes: &[u8], found: Form) -> io::Result<Form> {
        let content = match (self.compressed_of(chunk), found) {
            (Some(_), Form::Compressed) | (None, Form::Plain) => return Ok(found),
            (None, Form::Compressed) => None,
            (Some(compressed), Form::Plain) => match compressed.content(chunk, bytes) {
                Some(content) => Some(content),
                None => return Ok(found),
            },
        };
        // Its pages may still be under way from the earlier process.
        self.memory.punch(self.slot_extent(chunk).start(), self.geometry().chunk_bytes())?;
        self.put(chunk, content.as_deref().unwrap_or(bytes))?;
        Ok(if content.is_some() { Form::Compressed } else { Form::Plain })
    }

    /// The bytes of an extent of the image whose slots are pinned. A chunk that does not unpack is
    /// evicted, and the core hears of it.
    pub(super) fn unpacked(&self, extent: Extent) -> Result<Bytes, Chunk> {
        self.unpack(extent).inspect_err(|chunk| {
            self.evict(*chunk);
            self.tell_spoiled(*chunk);
        })
    }

    fn unpack(&self, extent: Extent) -> Result<Bytes, Chunk> {
        let cache = self.compressed.get().map(|compressed| &compressed.cache);
        out_of_whole_chunks(self.geometry(), extent, cache, |whole, bytes| {
            let mut wrong = self.geometry().covering(whole).map(Chunk).filter(|chunk| {
                let place = self.geometry().extent(*chunk);
                let at = (place.start() - whole.start()) as usize;
                !self.read_form(*chunk, place, &mut bytes[at..at + place.len() as usize])
            });
            wrong.next().map_or(Ok(()), Err)
        })
    }

    /// Fills `plain` with the bytes of a pinned chunk of data, which lies at `place`.
    fn read_form(&self, chunk: Chunk, place: Extent, plain: &mut [u8]) -> bool {
        if self.slots.load(chunk).form() == Form::Plain {
            return self.memory.read(place.start(), plain).is_ok();
        }
        let Some(word) = self.word(chunk) else { return false };
        self.following(chunk, word).is_some_and(|compressed| word.unpack(&compressed, plain))
    }

    /// The bytes after the word of a pinned chunk.
    fn following(&self, chunk: Chunk, word: Word) -> Option<Vec<u8>> {
        let mut bytes = vec![0; word.length as usize];
        self.memory.read(self.slot_extent(chunk).start() + WORD as u64, &mut bytes).ok().map(|()| bytes)
    }

    /// A chunk as it lies here or at a lender, if it is compressed: for peers that take it so.
    pub fn find_compressed(self: &Arc<Self>, chunk: Chunk) -> Option<compression::Compressed> {
        let pin = self.hold(chunk)?;
        let holder = pin.store();
        let word = (holder.slots.load(chunk).form() == Form::Compressed).then(|| holder.word(chunk))??;
        let bytes = holder.following(chunk, word)?.into();
        Some(compression::Compressed { codec: word.codec, bytes })
    }

    /// The bytes of pinned slots of data, of this store or of a lender; `None` if they do not
    /// unpack.
    pub(super) fn unpacked_piece(&self, place: Extent, pin: &Pin) -> Option<Piece> {
        let unpacked = pin.store().unpacked(place).inspect_err(|chunk| self.drop_spoiled_loan(*chunk));
        unpacked.ok().map(Piece::Bytes)
    }
}

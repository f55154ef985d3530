//! Reads of extents from the store: as few pieces as possible, never waiting.
//!
//! Invariant: adjacent zero chunks become one zero piece and adjacent resident chunks one file
//! piece with one pin, so that one `sendfile` moves all of them. Exports (through the node) and the
//! senders of chunks to peers call it. It takes no lock.

use super::{Pin, Store};
use bytes::Bytes;
use std::sync::Arc;
use vfield_block::extent::Extent;
use vfield_block::source::{FilePiece, Piece};
use vfield_core::chunk::Chunk;

/// A piece in the making.
enum Run {
    Zero { length_bytes: u64 },
    Resident { extent: Extent, pin: Pin },
    Transient(Bytes),
}

impl Store {
    /// The piece of an extent that lies within one data chunk and is not empty; `None` if it is not
    /// here.
    pub fn piece(self: &Arc<Self>, extent: Extent) -> Option<Piece> {
        let mut pieces = Vec::with_capacity(1);
        self.pieces(extent, &mut pieces).then(|| pieces.pop())?
    }

    /// A whole chunk, data or hash page; `None` if it is not here. A page over nothing but zeros
    /// counts as here.
    pub fn chunk_piece(self: &Arc<Self>, chunk: Chunk) -> Option<Piece> {
        let length_bytes = self.geometry().length(chunk);
        if let Some(pin) = self.hold(chunk) {
            return self.resident_piece(self.slot_extent(chunk), pin);
        }
        if let Some(bytes) = self.transients.get(chunk) {
            return Some(Piece::Bytes(bytes));
        }
        if !self.is_zero(chunk) {
            return None;
        }
        Some(if self.geometry().is_data(chunk) {
            Piece::Zero(length_bytes)
        } else {
            Piece::Bytes(self.zeros().page(chunk))
        })
    }

    /// The bytes of a hash page; `None` if it is not here, or cannot be read.
    ///
    /// # Panics
    /// For a data chunk.
    pub fn page(self: &Arc<Self>, page: Chunk) -> Option<Bytes> {
        if self.is_zero(page) {
            return Some(self.zeros().page(page));
        }
        let _pin = self.pin(page)?;
        let mut bytes = vec![0; self.geometry().length(page) as usize];
        self.read_slot(self.slot_extent(page).start(), &mut bytes).ok()?;
        Some(bytes.into())
    }

    /// Appends the pieces of an extent of the image and returns true. If not all of it is here,
    /// leaves `pieces` unchanged and returns false.
    pub fn pieces(self: &Arc<Self>, extent: Extent, pieces: &mut Vec<Piece>) -> bool {
        let before = pieces.len();
        let complete = self.pieces_prefix(extent, pieces) == extent.len();
        if !complete {
            pieces.truncate(before);
        }
        complete
    }

    /// Appends the pieces of the longest available part of `extent`, from its start. Returns its
    /// length in bytes.
    ///
    /// # Panics
    /// If `extent` does not lie within the image.
    pub fn pieces_prefix(self: &Arc<Self>, extent: Extent, pieces: &mut Vec<Piece>) -> u64 {
        let mut done_bytes = 0;
        for run in self.runs(extent) {
            let Some(piece) = self.run_piece(run) else { break };
            done_bytes += piece.len();
            pieces.push(piece);
        }
        done_bytes
    }

    /// The available part of `extent`, from its start, in the longest possible runs.
    fn runs(self: &Arc<Self>, extent: Extent) -> Vec<Run> {
        assert!(extent.end() <= self.geometry().header().length_bytes(), "{extent:?} ends beyond the image");
        let mut runs: Vec<Run> = Vec::new();
        for number in self.geometry().covering(extent) {
            let part = self.geometry().extent(Chunk(number)).clip(extent);
            if let Some(next) = self.hold(Chunk(number)) {
                let apart = match runs.last_mut() {
                    Some(Run::Resident { extent, pin }) => {
                        let apart = pin.join(next);
                        if apart.is_none() {
                            *extent = Extent::from(extent.start()..part.end());
                        }
                        apart
                    }
                    _ => Some(next),
                };
                runs.extend(apart.map(|pin| Run::Resident { extent: part, pin }));
                continue;
            }
            match runs.last_mut() {
                last if self.is_zero(Chunk(number)) => match last {
                    Some(Run::Zero { length_bytes }) => *length_bytes += part.len(),
                    _ => runs.push(Run::Zero { length_bytes: part.len() }),
                },
                _ => match self.transients.get(Chunk(number)) {
                    Some(bytes) => {
                        let first = part.start() - self.geometry().extent(Chunk(number)).start();
                        runs.push(Run::Transient(bytes.slice(first as usize..(first + part.len()) as usize)));
                    }
                    None => break,
                },
            }
        }
        runs
    }

    /// The available parts of `extent`, from its start, that lie in a file on a disk: this store's
    /// or a lender's.
    pub(super) fn disk_runs(self: &Arc<Self>, extent: Extent) -> Vec<(Extent, Pin)> {
        let on_disk = |run| match run {
            Run::Resident { extent, pin } if pin.store().is_on_disk() => Some((extent, pin)),
            _ => None,
        };
        self.runs(extent).into_iter().filter_map(on_disk).collect()
    }

    fn run_piece(self: &Arc<Self>, run: Run) -> Option<Piece> {
        match run {
            Run::Zero { length_bytes } => Some(Piece::Zero(length_bytes)),
            Run::Transient(bytes) => Some(Piece::Bytes(bytes)),
            // A data chunk has the same offset in the memory file and in the image.
            Run::Resident { extent, pin } => self.resident_piece(extent, pin),
        }
    }

    /// The bytes of pinned slots; `None` if they cannot be read, or are other ones.
    fn resident_piece(self: &Arc<Self>, place: Extent, pin: Pin) -> Option<Piece> {
        let store = Arc::clone(pin.store());
        if store.compressed_of(Chunk(pin.chunks().start)).is_some() {
            return self.unpacked_piece(place, &pin);
        }
        if store.disk_of(Chunk(pin.chunks().start)).is_some() {
            return self.disk_piece(place, &pin);
        }
        if store.sends_pages() {
            let pin = Some(Box::new(pin) as Box<_>);
            return Some(Piece::File(FilePiece::new(store.file(), place.start(), place.len(), pin)));
        }
        let mut bytes = vec![0; place.len() as usize];
        store.read_slot(place.start(), &mut bytes).ok()?;
        Some(Piece::Bytes(bytes.into()))
    }
}

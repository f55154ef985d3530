//! Reading a published file: as pages while a lease keeps writers out, as checked copies otherwise.
//!
//! Invariant: a piece is handed out only under a [`super::guard::LeasePin`] or after its bytes were
//! compared with their hash. If the hashes of a leased file are kept ones, each chunk is compared
//! at its first read. Checked reads hash on the calling thread (0.3 ms a MiB); leased ones leave
//! that to the receiver of the bytes. Both may wait for a disk, unless the bytes were brought into
//! memory before.

use super::{Origin, SourceError};
use crate::disk_reads::{BadPlace, Unread};
use crate::source::{self, Away};
use bytes::Bytes;
use std::sync::Arc;
use vfield_block::extent::Extent;
use vfield_block::source::{FilePiece, Piece, ReadError};
use vfield_core::chunk::Chunk;
use vfield_core::hash_tree::verify;
use vfield_core::wire::Priority;

impl SourceError {
    /// The same, for a reader of `extent`.
    pub fn reading(&self, extent: Extent) -> ReadError {
        match self {
            Self::Changed { .. } => ReadError::SourceChanged(extent),
            Self::Io { error, .. } => ReadError::Io(extent, error.clone()),
        }
    }
}

impl Origin {
    /// A whole chunk, data or hash page.
    pub fn read(&self, chunk: Chunk) -> Result<Piece, SourceError> {
        if !self.geometry().is_data(chunk) {
            let page = self.tree.page(chunk).cloned();
            return Ok(Piece::Bytes(page.unwrap_or_else(|| self.tree.zeros().page(chunk))));
        }
        let mut pieces = Vec::with_capacity(1);
        self.read_extent(self.geometry().extent(chunk), &mut pieces)?;
        let Some(piece) = pieces.pop() else { unreachable!("a chunk is one piece") };
        Ok(piece)
    }

    /// True if an extent of the image can be read without a wait for the disk.
    pub fn is_in_memory(&self, extent: Extent) -> bool {
        let is_in_memory = |(part, zero): (Extent, bool)| zero || self.file.is_in_memory(part);
        !self.reads.is_jammed() && source::runs(&self.tree, extent).into_iter().all(is_in_memory)
    }

    /// True for a chunk that is to be brought first.
    pub fn is_away(&self, chunk: Chunk) -> bool {
        self.geometry().is_data(chunk) && !self.is_in_memory(self.geometry().extent(chunk))
    }

    /// Reads an extent of the image into memory, and says how much of it, from its start, was
    /// readable. Fails if that is nothing, or if the disk stands still.
    pub async fn bring(&self, extent: Extent, priority: Priority) -> Result<u64, Away> {
        for (part, zero) in source::runs(&self.tree, extent) {
            let read = if zero { Ok(()) } else { self.reads.read(self.file.fd(), part, priority).await };
            match read {
                Ok(()) => {}
                Err(Unread::Still(_)) => return Err(Away::Failing),
                Err(Unread::Failed(BadPlace { at, errno })) => {
                    let chunk = Chunk(at / self.geometry().chunk_bytes());
                    if self.health.mark_bad(chunk) {
                        tracing::warn!("{}: reading chunk {chunk}: {errno}", self.path().display());
                    }
                    let start = self.geometry().extent(chunk).start();
                    return if start > extent.start() { Ok(start - extent.start()) } else { Err(Away::Changed) };
                }
            }
        }
        Ok(extent.len())
    }

    /// Appends the pieces of an extent of the image, with adjacent chunks in as few pieces as
    /// possible. Leaves `pieces` unchanged if a part of it is unavailable.
    ///
    /// # Panics
    /// If `extent` does not lie within the image.
    pub fn read_extent(&self, extent: Extent, pieces: &mut Vec<Piece>) -> Result<(), SourceError> {
        assert!(extent.end() <= self.header().length_bytes(), "{extent:?} ends beyond the image");
        let before = pieces.len();
        let result = match self.guard.pin() {
            Some(pin) => {
                let pin = Arc::new(pin);
                self.runs(extent, |part, zero| {
                    if zero {
                        pieces.push(Piece::Zero(part.len()));
                        return Ok(());
                    }
                    self.compare(part)?;
                    pieces.push(self.pages(part, &pin));
                    Ok(())
                })
            }
            None => self.runs(extent, |part, zero| {
                if zero {
                    pieces.push(Piece::Zero(part.len()));
                    return Ok(());
                }
                self.geometry().covering(part).map(Chunk).try_for_each(|chunk| {
                    pieces.push(Piece::Bytes(self.checked_part(chunk, part)?));
                    Ok(())
                })
            }),
        };
        if result.is_err() {
            pieces.truncate(before);
        }
        result
    }

    /// Calls `each` with the longest parts of `extent` that are all zero or all not.
    fn runs(
        &self,
        extent: Extent,
        mut each: impl FnMut(Extent, bool) -> Result<(), SourceError>,
    ) -> Result<(), SourceError> {
        source::runs(&self.tree, extent).into_iter().try_for_each(|(part, zero)| each(part, zero))
    }

    /// Compares the chunks of a part with hashes of an earlier start, each once. The caller keeps
    /// writers out.
    fn compare(&self, part: Extent) -> Result<(), SourceError> {
        let Some(comparison) = self.comparison.as_ref().filter(|comparison| !comparison.is_done()) else {
            return Ok(());
        };
        for chunk in self.geometry().covering(part).map(Chunk).filter(|chunk| !comparison.has(*chunk)) {
            self.checked(chunk)?;
            comparison.note(chunk);
        }
        Ok(())
    }

    /// The file's own pages.
    fn pages(&self, part: Extent, pin: &Arc<super::guard::LeasePin>) -> Piece {
        let pin = Some(Box::new(Arc::clone(pin)) as Box<_>);
        Piece::File(FilePiece::new(Arc::clone(self.file.fd()), part.start(), part.len(), pin))
    }

    /// The part of a data chunk that lies in `extent`, compared with its hash.
    fn checked_part(&self, chunk: Chunk, extent: Extent) -> Result<Bytes, SourceError> {
        let bytes = self.checked(chunk)?;
        let whole = self.geometry().extent(chunk);
        let part = whole.clip(extent);
        Ok(bytes.slice((part.start() - whole.start()) as usize..(part.end() - whole.start()) as usize))
    }

    /// The bytes of a data chunk, compared with its hash.
    fn checked(&self, chunk: Chunk) -> Result<Bytes, SourceError> {
        if let Some(bytes) = self.cache.find(chunk) {
            return Ok(bytes);
        }
        let extent = self.geometry().extent(chunk);
        let mut bytes = vec![0; extent.len() as usize];
        let path = || self.path().to_owned();
        let failure = match self.file.read(extent.start(), &mut bytes) {
            Err(errno) => SourceError::Io { path: path(), chunk, error: std::io::Error::from(errno).to_string() },
            Ok(count) if count == bytes.len() && verify(&self.tree.hash(chunk), &bytes) => {
                let bytes = Bytes::from(bytes);
                self.cache.keep(chunk, bytes.clone());
                return Ok(bytes);
            }
            Ok(_) => {
                if let Some(comparison) = &self.comparison {
                    comparison.refute(&self.health);
                }
                SourceError::Changed { path: path(), chunk }
            }
        };
        self.health.mark_bad(chunk);
        Err(failure)
    }
}

//! Reads at an origin: from its file or object, else from others.
//!
//! Invariant: a read waits until the source or a peer has its bytes, and fails only if the source
//! changed and no peer holds them, or after the i/o timeout.

use super::{ImageReader, WANT_BYTES};
use crate::object_origin::ObjectOrigin;
use crate::origin::Origin;
use crate::source::Away;
use std::sync::Arc;
use std::time::Instant;
use vfield_block::extent::Extent;
use vfield_block::source::{Piece, ReadError};
use vfield_core::chunk::Chunk;
use vfield_core::wire::Priority;

impl ImageReader {
    /// Appends the pieces of as long a part of `extent` as is here once its first chunk is; returns
    /// its length.
    pub(super) async fn bring(
        &self,
        object: &Arc<ObjectOrigin>,
        extent: Extent,
        pieces: &mut Vec<Piece>,
    ) -> Result<u64, ReadError> {
        let chunks = self.image.geometry().covering(extent.take(WANT_BYTES));
        let deadline = self.deadline();
        object.prefetch(chunks.clone());
        let first = Chunk(chunks.start);
        loop {
            let here = self.image.pieces(extent, pieces);
            if here > 0 {
                return Ok(here);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(ReadError::TimedOut(extent));
            }
            let Err(why) = object.bring(first).await else { continue };
            self.ask_others(first, why).await?;
        }
    }

    /// Appends the pieces of as long a part of `extent` as can be read; returns its length.
    pub(super) async fn read_file(
        &self,
        origin: &Origin,
        extent: Extent,
        pieces: &mut Vec<Piece>,
    ) -> Result<u64, ReadError> {
        let deadline = self.deadline();
        let first = Chunk(self.image.geometry().covering(extent).start);
        loop {
            // The store has the bytes of a bad place, if a peer had them.
            let here = self.image.store().pieces_prefix(extent, pieces);
            if here > 0 {
                return Ok(here);
            }
            let bring = async {
                if origin.is_in_memory(extent) {
                    Ok(extent.len())
                } else {
                    origin.bring(extent, Priority::Demand).await
                }
            };
            let brought = match deadline {
                None => bring.await,
                Some(deadline) => {
                    let limited = tokio::time::timeout_at(deadline.into(), bring).await;
                    limited.map_err(|_| ReadError::TimedOut(extent))?
                }
            };
            let why = match brought {
                Ok(length) => {
                    let here = self.image.pieces(extent.take(length), pieces);
                    if here > 0 {
                        return Ok(here);
                    }
                    Away::Changed
                }
                Err(why) => why,
            };
            self.ask_others(first, why).await?;
        }
    }

    /// When a read that begins now is to fail.
    fn deadline(&self) -> Option<Instant> {
        self.driver.look(|core| core.io_timeout()).map(|timeout| Instant::now() + timeout)
    }

    /// Others may have a chunk that the source does not deliver. Without another source the core
    /// answers at once: then it is asked for again if it fails, and an error if it changed.
    async fn ask_others(&self, chunk: Chunk, why: Away) -> Result<(), ReadError> {
        match (self.wait(chunk.0..chunk.0 + 1, 0).await, why) {
            (Ok(()), _) | (Err(ReadError::SourceChanged(_)), Away::Failing) => Ok(()),
            (Err(error), _) => Err(error),
        }
    }
}

//! Reads of an object at its own origin: from the object, else from others.
//!
//! Invariant: a read waits until the object or a peer has its bytes, and fails only if the object
//! changed and no peer holds them, or after the i/o timeout.

use super::{ImageReader, WANT_BYTES};
use crate::object_origin::{Away, ObjectOrigin};
use std::sync::Arc;
use std::time::Instant;
use vfield_block::extent::Extent;
use vfield_block::source::{Piece, ReadError};
use vfield_core::chunk::Chunk;

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
        let deadline = self.driver.look(|core| core.io_timeout()).map(|timeout| Instant::now() + timeout);
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
            // Others may have it. Without another source the core answers at once.
            match (self.wait(first.0..first.0 + 1, 0).await, why) {
                (Ok(()), _) | (Err(ReadError::SourceChanged(_)), Away::Failing) => {}
                (Err(error), _) => return Err(error),
            }
        }
    }
}

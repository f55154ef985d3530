//! Waiting for all of a window.
//!
//! A window comes in parts, and its first parts are kept in place until the rest is here,
//! perhaps for ever. So that is bounded, over all connections: a window beyond the budget keeps
//! nothing, and is looked up again when all of it has been here. Within the budget nothing is
//! looked up twice. The answers call it.

use super::budget::Budget;
use std::sync::Arc;
use vfield_block::extent::Extent;
use vfield_block::source::{BlockSource, Piece, ReadError};

/// The outcome of a read.
pub(super) type Found = Result<Vec<Piece>, ReadError>;

/// Waits for all of `extent`.
pub(super) async fn collect(source: Arc<dyn BlockSource>, extent: Extent, held: Budget) -> Found {
    loop {
        let mut pieces = Vec::new();
        if gather(source.as_ref(), extent, &held, &mut pieces).await? || source.try_read(extent, &mut pieces) {
            return Ok(pieces);
        }
    }
}

/// Waits until each part of `extent` has been here; true if all of them are in `pieces`, which else
/// is empty.
async fn gather(
    source: &dyn BlockSource,
    extent: Extent,
    held: &Budget,
    pieces: &mut Vec<Piece>,
) -> Result<bool, ReadError> {
    let (mut rest, mut kept) = (extent, Some(Vec::new()));
    while !rest.is_empty() {
        let found = source.read(rest).await?;
        let length: u64 = found.iter().map(Piece::len).sum();
        if length == 0 || length > rest.len() {
            return Err(ReadError::Io(rest, format!("the source gave {length} bytes")));
        }
        rest = rest.skip(length);
        // The last part waits for nothing.
        let room = if rest.is_empty() { Some(None) } else { held.take(length).map(Some) };
        match (&mut kept, room) {
            (Some(kept), Some(permit)) => {
                kept.extend(permit);
                pieces.extend(found);
            }
            _ => {
                kept = None;
                pieces.clear();
            }
        }
    }
    Ok(kept.is_some())
}

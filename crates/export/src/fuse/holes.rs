//! Where data and holes are: `lseek` with `SEEK_DATA` and `SEEK_HOLE`.
//!
//! Owns the search through a source's allocation. Invariant: a hole has only zeros; data may be
//! zeros as well, which bounds the search. Called by [`super::directory`] on the runtime; sends
//! nothing.

use super::answer::ImageFile;
use std::sync::Arc;
use vfield_block::extent::Extent;
use vfield_block::source::ReadError;

/// How much of an image one look at its allocation covers: 16384 chunks of the default size, a few
/// hash pages.
const LOOK_BYTES: u64 = 1 << 30;

/// Looks for one call: 1 TiB of one kind in a row. Past it the search says "data" and the caller
/// asks again.
const LOOKS_MAX: u32 = 1024;

/// The thing to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The first byte that may be other than zero.
    Data,
    /// The first byte of a run of zeros; the file's end counts as one.
    Hole,
}

impl Wanted {
    /// From `lseek`'s `whence`; the kernel passes only these two on.
    pub fn from_whence(whence: i32) -> Option<Self> {
        match whence {
            libc::SEEK_DATA => Some(Self::Data),
            libc::SEEK_HOLE => Some(Self::Hole),
            _ => None,
        }
    }
}

/// The first wanted place at or after `from`, which lies within the file; `None` if there is no
/// more data.
pub(super) async fn search(file: Arc<ImageFile>, from: u64, wanted: Wanted) -> Result<Option<u64>, ReadError> {
    let mut at = from;
    for _ in 0..LOOKS_MAX {
        let rest = file.held(Extent::from(at..file.size_bytes));
        if rest.is_empty() {
            // What the file has beyond the source is zeros, and a hole to those who look for one.
            return Ok((wanted == Wanted::Hole).then_some(at));
        }
        let look = rest.take(LOOK_BYTES);
        let runs = file.source.allocation(look).await?;
        if runs.is_empty() {
            return Err(ReadError::Io(look, "the source answered nothing".into()));
        }
        for run in runs {
            if run.zero == (wanted == Wanted::Hole) {
                return Ok(Some(at));
            }
            at = at.saturating_add(run.length_bytes).min(look.end());
        }
    }
    Ok(Some(match wanted {
        Wanted::Data => at,
        Wanted::Hole => file.size_bytes,
    }))
}

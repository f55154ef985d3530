//! A packed image, in words.

use std::fmt;
use std::path::{Path, PathBuf};
use vfield_console::values::size::human as size;

/// What an image has in common with an earlier one, in chunks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shared {
    /// Chunks of the image.
    pub chunks: u64,
    /// Chunks that are not all zeros; the others cost a field nothing.
    pub with_data: u64,
    /// Those that the earlier image has at the same place.
    pub same: u64,
}

/// An image that was packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The image's file.
    pub output: PathBuf,
    /// The earlier image's file.
    pub like: Option<PathBuf>,
    /// Inodes in the image.
    pub inodes: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Chunks, and those that are shared.
    pub shared: Shared,
    /// Extended attributes that EROFS has no place for.
    pub left_out: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { output, inodes, chunk_bytes, shared, .. } = self;
        let Shared { chunks, with_data, same } = *shared;
        let (length, data) = (size(chunks * chunk_bytes), size(with_data * chunk_bytes));
        writeln!(f, "{}: {length}, {data} of it data, {inodes} inodes", shown(output))?;
        if let Some(like) = &self.like {
            let new = with_data - same;
            let percent = |part: u64| part as f64 * 100.0 / with_data.max(1) as f64;
            let (same_percent, new_percent) = (percent(same), percent(new));
            writeln!(f, "same as {}: {same} of {with_data} chunks with data, {same_percent:.1} %", shown(like))?;
            writeln!(f, "new: {new} chunks, {}, {new_percent:.1} %", size(new * chunk_bytes))?;
        }
        match self.left_out {
            0 => Ok(()),
            count => writeln!(f, "left out: {count} extended attributes that EROFS has no place for"),
        }
    }
}

fn shown(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

//! What kind of source a path is.

use crate::contents::{Archive, Sources};
use crate::error::PackError;
use crate::tree::Tree;
use crate::{directory, oci, tar};
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::path::Path;
use vfield_console::new_file::directory_of;
use vfield_core::chunk::ChunkSize;

/// A source that was listed.
#[derive(Debug)]
pub struct Source {
    /// All that it holds.
    pub tree: Tree,
    /// Where the contents are.
    pub sources: Sources,
    /// Extended attributes that EROFS has no place for.
    pub left_out: u64,
}

/// Lists a source whose image will be written to `output`. Unpacked archives need room there.
///
/// # Errors
/// If it is none, cannot be read, or does not fit into an image.
pub fn read(path: &Path, output: &Path, chunk_size: ChunkSize) -> Result<Source, PackError> {
    let failed = |error| PackError::Source(path.to_owned(), error);
    let metadata = fs::metadata(path).map_err(failed)?;
    if metadata.is_dir() && oci::is_layout(path) {
        return archives(oci::layers(path, directory_of(output))?);
    }
    if metadata.is_dir() {
        // An image that held its own last version would grow with each one.
        let (source, place) = (fs::canonicalize(path).map_err(failed)?, fs::canonicalize(directory_of(output)));
        let place = place.map_err(|error| PackError::Output(output.to_owned(), error))?;
        if place.starts_with(&source) {
            return Err(PackError::Inside(output.to_owned()));
        }
        let (tree, directory, left_out) = directory::read(path, chunk_size.bytes())?;
        return Ok(Source { tree, sources: Sources::Directory(directory), left_out });
    }
    let file = open(path)?;
    archives(vec![Archive::new(path.to_owned(), oci::unpacked(path, file, directory_of(output))?)?])
}

/// Opens a regular file, and nothing else: a named pipe would make the caller wait for a writer.
///
/// # Errors
/// If it is none, or cannot be read.
pub fn open(path: &Path) -> Result<fs::File, PackError> {
    let failed = |error| PackError::Source(path.to_owned(), error);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
    let file = fs::File::from(file);
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(PackError::NoSource(path.to_owned(), "neither a directory nor a regular file".into()));
    }
    Ok(file)
}

/// The tree of archives, each on top of those before it.
fn archives(archives: Vec<Archive>) -> Result<Source, PackError> {
    let (tree, left_out) = tar::read(&archives)?;
    Ok(Source { tree, sources: Sources::Archives(archives), left_out })
}

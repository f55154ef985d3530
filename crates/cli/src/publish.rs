//! The id of a file without serving it: `vfield id`.

use std::fs::File;
use std::io::BufWriter;
use std::num::NonZeroUsize;
use std::path::Path;
use vfield_console::bar::bar;
use vfield_console::failure::{Failure, plain};
use vfield_console::log::Console;
use vfield_core::chunk::ChunkSize;
use vfield_core::image::{Header, ImageId};
use vfield_node::origin::{Origin, Progress, PublishError, kept_tree};

/// Names are not part of an id, and a file's own need not be one that an image may have.
pub const ANY_NAME: &str = "image";
/// What to do about a file that cannot be hashed.
pub const UNREADABLE: &str = "the file must be readable and must not change while it is read";

/// The id and the header of `path` as an image of chunks of `chunk_size`. Takes as long as reading
/// and hashing its data.
pub fn id(path: &Path, chunk_size: ChunkSize, console: &Console) -> Result<(ImageId, Header), Failure> {
    hash(path, chunk_size, console).map(|origin| (origin.id(), *origin.header()))
}

/// The id of `path`, after its hashes were written to a new file: for the place beside an object.
pub fn id_and_hashes(path: &Path, chunk_size: ChunkSize, hashes: &Path, console: &Console) -> Result<ImageId, Failure> {
    let failed = |error: std::io::Error| {
        let hint = "choose a new file where you may write: nothing is overwritten";
        Failure::failed(format!("{}: {}", hashes.display(), plain(&error))).hint(hint)
    };
    // Before a large file is hashed in vain.
    let file = File::create_new(hashes).map_err(failed)?;
    let written = hash(path, chunk_size, console).and_then(|origin| {
        kept_tree::write(&origin, &mut BufWriter::new(&file)).map_err(failed)?;
        Ok(origin.id())
    });
    if written.is_err() {
        // Half of it would be no hashes of anything; the failure is told, whatever becomes of it.
        drop(std::fs::remove_file(hashes));
    }
    written
}

fn hash(path: &Path, chunk_size: ChunkSize, console: &Console) -> Result<Origin, Failure> {
    hashing(path, console, |threads, progress| Origin::publish(path, Some(ANY_NAME), chunk_size, threads, progress))
}

/// Lets `hash` hash the file at `path` with so many threads, and shows how far it is.
pub fn hashing(
    path: &Path,
    console: &Console,
    hash: impl FnOnce(NonZeroUsize, &(dyn Fn(Progress) + Sync)) -> Result<Origin, PublishError>,
) -> Result<Origin, Failure> {
    let bar = console.bars.add(bar("hashing", &path.display().to_string(), 0));
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let origin = hash(threads, &|progress| {
        bar.set_length(progress.length_bytes);
        bar.set_position(progress.position_bytes);
    });
    bar.finish_and_clear();
    origin.map_err(|error| Failure::failed(error.to_string()).hint(UNREADABLE))
}

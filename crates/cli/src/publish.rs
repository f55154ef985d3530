//! The id of a file without serving it: `vfield id`.

use std::num::NonZeroUsize;
use std::path::Path;
use vfield_console::bar::bar;
use vfield_console::failure::Failure;
use vfield_console::log::Console;
use vfield_core::chunk::ChunkSize;
use vfield_core::image::{Header, ImageId};
use vfield_node::origin::Origin;

/// The id and the header of `path` as an image of chunks of `chunk_size`. Takes as long as reading
/// and hashing its data.
pub fn id(path: &Path, chunk_size: ChunkSize, console: &Console) -> Result<(ImageId, Header), Failure> {
    let bar = console.bars.add(bar("hashing", &path.display().to_string(), 0));
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    // Names are not part of an id, and the file's own need not be one that an image may have.
    let origin = Origin::publish(path, Some("image"), chunk_size, threads, &|progress| {
        bar.set_length(progress.length_bytes);
        bar.set_position(progress.position_bytes);
    });
    bar.finish_and_clear();
    let hint = "the file must be readable and must not change while it is read";
    origin.map(|origin| (origin.id(), *origin.header())).map_err(|error| Failure::failed(error.to_string()).hint(hint))
}

//! `vfield pack`: a directory or a tar becomes an EROFS image whose chunks stay where they are.
//!
//! Rebuilt images share almost no chunk with their last version, since contents move by a few
//! bytes. Here each file of half a chunk and more begins at a chunk. An image that is packed like
//! an earlier one keeps the places of all equal contents. The image is plain EROFS: the kernel
//! mounts it, and `fsck.erofs` checks it.
//!
//! A source ([`directory`], [`tar`], [`oci`]) becomes a [`tree`]. [`layout`] decides where
//! everything lies, and knows no bytes. [`image`] makes the bytes, and [`stream`] writes them.
//! The same source makes the same bytes, on every machine.
//!
//! Contents are streamed. Memory grows with the number of files, not with their size.
//! Called by the command line; knows no field.

pub mod args;
pub mod chunks;
pub mod contents;
pub mod directory;
pub mod earlier;
pub mod erofs;
mod error;
pub mod image;
pub mod layers;
pub mod layout;
pub mod likeness;
pub mod listing;
pub mod marker;
pub mod need;
pub mod oci;
pub mod report;
pub mod slots;
mod source;
pub mod space;
pub mod stream;
pub mod tar;
pub mod tree;

pub use error::PackError;

use args::PackOptions;
use earlier::Earlier;
use image::Image;
use likeness::Likeness;
use listing::Listing;
use report::{Report, Shared};
use source::Source;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use stream::{BUFFERS, Comparison, Ended, Filler, Writer};
use vfield_console::bar::bar;
use vfield_console::failure::Failure;
use vfield_console::log::{self, Style};
use vfield_console::new_file::NewFile;
use vfield_console::output::put;
use vfield_console::volume::Volume;
use vfield_core::chunk::ChunkSize;

/// Runs `vfield pack`.
///
/// # Errors
/// Whatever [`pack`] says, for people.
pub fn run(options: &PackOptions, volume: Volume) -> Result<(), Failure> {
    let console = log::start(Style::choose(false, volume), volume);
    let bar = console.bars.add(bar("packing", &options.source.display().to_string(), 0));
    let progress = |written: Written| {
        bar.set_length(written.length_bytes);
        bar.set_position(written.position_bytes);
    };
    let chunk_size = options.chunk_size.like(options.like.as_deref());
    let said = match (&options.output, &options.layers) {
        (_, Some(directory)) => {
            layers::pack(&options.source, directory, chunk_size, &progress).map(|packed| packed.to_string())
        }
        (output, None) => {
            let output = output.as_deref().unwrap_or(Path::new(""));
            pack(&options.source, output, options.like.as_deref(), chunk_size, &progress)
                .map(|report| report.to_string())
        }
    };
    bar.finish_and_clear();
    put(said.map_err(PackError::explain)?.as_bytes())
}

/// How far an image is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Bytes from the start that are made.
    pub position_bytes: u64,
    /// Bytes of the image.
    pub length_bytes: u64,
}

/// Packs `source` into an image at `output`, like the image at `like` if there is one, for chunks
/// of `chunk_size`. Tells `progress` of each MiB.
///
/// # Errors
/// If the source is none, changes, or does not fit into an image. If `like` was not packed for such
/// chunks. If the image cannot be written. The file at `output` is then the one from before.
pub fn pack(
    source: &Path,
    output: &Path,
    like: Option<&Path>,
    chunk_size: ChunkSize,
    progress: &(dyn Fn(Written) + Sync),
) -> Result<Report, PackError> {
    let earlier = like.map(|like| Earlier::open(like, chunk_size)).transpose()?;
    let file = new_file(output)?;
    let source = source::read(source, output, chunk_size)?;
    let (inodes, shared) = make(&source, (file, output), earlier.as_ref(), chunk_size, progress)?;
    Ok(Report {
        output: output.to_owned(),
        like: like.map(PathBuf::from),
        inodes,
        chunk_bytes: chunk_size.bytes(),
        shared,
        left_out: source.left_out,
    })
}

/// The file of an image; before anything is read, since it may not be writable.
fn new_file(output: &Path) -> Result<NewFile, PackError> {
    NewFile::create(output).map_err(|error| PackError::Output(output.to_owned(), error))
}

/// Makes the image of a source; says how many inodes it has, and what it shares.
fn make(
    source: &Source,
    (file, output): (NewFile, &Path),
    earlier: Option<&Earlier>,
    chunk_size: ChunkSize,
    progress: &(dyn Fn(Written) + Sync),
) -> Result<(u64, Shared), PackError> {
    let listing = Listing::new(&source.tree);
    let likeness = earlier.map(|earlier| Likeness::new(&listing, earlier, &source.sources)).transpose()?;
    let layout = layout::lay(&listing, chunk_size, earlier.zip(likeness.as_ref()))?;
    drop(likeness);
    let image = Image { listing: &listing, layout: &layout, sources: &source.sources, chunk_size };
    let shared = write(&image, &file.file, output, earlier, progress)?;
    source.sources.finish()?;
    file.finish().map_err(|error| PackError::Output(output.to_owned(), error))?;
    Ok((listing.listed().len() as u64, shared))
}

/// Makes the bytes on one thread, and writes them on another.
fn write(
    image: &Image<'_>,
    file: &fs::File,
    path: &Path,
    earlier: Option<&Earlier>,
    progress: &(dyn Fn(Written) + Sync),
) -> Result<Shared, PackError> {
    let (to, filled) = mpsc::sync_channel(BUFFERS);
    let (emptied, empty) = mpsc::channel();
    let comparison = || Comparison::new(earlier, image.chunk_size.bytes(), image.layout.length_bytes);
    let writer = Writer::new(file, path, comparison());
    let superblock = image.superblock();
    std::thread::scope(|scope| {
        let written = scope.spawn(move || writer.run(&filled, &emptied, superblock, progress));
        let made = image.fill(Filler::new(comparison(), to, empty));
        let written = written.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match made {
            Err(Ended::Failed(error)) => Err(error),
            Ok(()) | Err(Ended::Stopped) => written,
        }
    })
}

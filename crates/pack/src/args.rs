//! The part of the command line about packing.

use crate::chunks::Chunks;
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Below the help of `vfield pack`.
pub const EXAMPLES: &str = "\
Examples:
  vfield pack ./root -o root-1.erofs                    pack a directory
  vfield pack ./root -o root-2.erofs --like root-1.erofs
  vfield pack root.tar -o root.erofs                    or a tar
  skopeo copy docker://debian:13 oci:debian             or an image of containers
  vfield pack debian -o debian.erofs
  vfield pack debian --layers layers                    or each of its layers, for containerd

The same source makes the same bytes. With --like, equal contents stay at their places: nodes that
hold the last version hold most of the next.";

/// Options of `vfield pack`.
#[derive(Debug, Args)]
pub struct PackOptions {
    /// Directory, tar (gzip and zstd too), or OCI layout of `skopeo copy ... oci:DIR`
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub source: PathBuf,
    /// File of the image; it appears when the image is complete
    #[arg(
        long, short, value_name = "FILE", value_hint = ValueHint::FilePath,
        required_unless_present = "layers", conflicts_with = "layers"
    )]
    pub output: Option<PathBuf>,
    /// Image of the last version, made by `vfield pack`: equal contents keep their place
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub like: Option<PathBuf>,
    /// Directory for the layers of an OCI layout, an image each: a layer cache of containerd
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "like")]
    pub layers: Option<PathBuf>,
    /// Chunk size that the image is served with, a power of two from 16K to 1M; auto is that of
    /// --like, else 64K
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    pub chunk_size: Chunks,
}

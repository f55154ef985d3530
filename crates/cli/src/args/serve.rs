//! Options of `vfield serve`.

use super::DaemonOptions;
use clap::{Args, ValueHint};
use std::path::PathBuf;
use vfield_console::values::address::Address;
use vfield_console::values::size::Size;
use vfield_daemon::values::image::ImageName;
use vfield_pack::chunks::Chunks;

/// Options of `vfield serve`.
#[derive(Debug, Args)]
pub struct ServeOptions {
    /// Image files or block devices, or objects: https://HOST/PATH, s3://BUCKET/KEY,
    /// gs://BUCKET/KEY, az://ACCOUNT/CONTAINER/BLOB, oci:HOST/REPOSITORY:TAG
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Vec<PathBuf>,
    /// Image name, one per FILE [default: the file's name]
    #[arg(long, value_name = "NAME")]
    pub name: Vec<ImageName>,
    /// Chunk size, a power of two from 16K to 1M; auto is the size for which `vfield pack` made the
    /// image, else 64K [default: auto]
    #[arg(long, value_name = "SIZE")]
    pub chunk_size: Option<Chunks>,
    /// Hash the files even if their kept hashes are still right, and keep them anew
    #[arg(long)]
    pub rehash: bool,
    /// Memory for parts of each object, 32M at least [default: 128M]
    #[arg(long, value_name = "SIZE")]
    pub object_cache: Option<Size>,
    /// Another place of the object, used while the first one fails or is slow
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub mirror: Vec<PathBuf>,
    /// Members of an existing field to join instead of starting a field
    #[arg(long, value_name = "ADDR", value_hint = ValueHint::Hostname)]
    pub join: Vec<Address>,
    /// Options of every daemon.
    #[command(flatten)]
    pub daemon: DaemonOptions,
}

//! Images of containers as a source: the layout of OCI in a directory, as `skopeo copy` makes it.
//!
//! The format is that of the OCI image specification, version 1. A layout has one image; each of
//! its layers is a tar, which may be packed by gzip. Layers are checked against their digests, so a
//! damaged download is found here. Gzip is unpacked into files without a name beside the output.

use crate::contents::Archive;
use crate::error::PackError;
use crate::source;
use flate2::read::MultiGzDecoder;
use ring::digest::{Context, SHA256};
use rustix::fs::{CWD, Mode, OFlags, openat};
use serde::Deserialize;
use std::fs;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Most bytes of an index or a manifest; those of registries are below 4 MiB.
const JSON_BYTES_MAX: u64 = 4 << 20;
/// Most indexes that name each other.
const DEPTH_MAX: usize = 4;
/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;
/// The first bytes of gzip, and of zstd.
const MAGICS: [&[u8]; 2] = [&[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd]];

/// A reference to a blob.
#[derive(Debug, Clone, Deserialize)]
struct Descriptor {
    digest: String,
}

/// An index, which names manifests, or a manifest, which names layers.
#[derive(Debug, Deserialize)]
struct Named {
    #[serde(default)]
    manifests: Vec<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
}

/// True if a directory is a layout.
pub fn is_layout(path: &Path) -> bool {
    ["oci-layout", "index.json"].iter().all(|name| path.join(name).is_file()) && path.join("blobs").is_dir()
}

/// The layers of the image in a layout, the lowest first. Layers that have to be unpacked need room
/// in `scratch`.
///
/// # Errors
/// If the layout has no image or several, or a part of it is missing or damaged.
pub fn layers(path: &Path, scratch: &Path) -> Result<Vec<Archive>, PackError> {
    let refuse = |why: &str| PackError::NoSource(path.to_owned(), why.to_owned());
    let mut named = named(&path.join("index.json"), None)?;
    for _ in 0..DEPTH_MAX {
        match &named.manifests[..] {
            [] => break,
            [one] => named = self::named(&blob(path, &one.digest)?, Some(&one.digest))?,
            _ => return Err(refuse("a layout of several images; copy one of them alone")),
        }
    }
    if named.layers.is_empty() || !named.manifests.is_empty() {
        return Err(refuse("a layout without an image of layers"));
    }
    let layer = |layer: &Descriptor| {
        let at = blob(path, &layer.digest)?;
        let file = source::open(&at)?;
        check(&at, &file, &layer.digest)?;
        let file = unpacked(&at, file, scratch)?;
        Archive::new(at, file)
    };
    named.layers.iter().map(layer).collect()
}

/// The file of a blob.
fn blob(layout: &Path, digest: &str) -> Result<std::path::PathBuf, PackError> {
    let hex =
        digest.strip_prefix("sha256:").filter(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()));
    let hex = hex.ok_or_else(|| {
        PackError::NoSource(layout.to_owned(), format!("a layout with the digest {digest:?}, which is no SHA-256"))
    })?;
    Ok(layout.join("blobs/sha256").join(hex))
}

/// The index or the manifest in a file.
fn named(path: &Path, digest: Option<&str>) -> Result<Named, PackError> {
    let failed = |error| PackError::Source(path.to_owned(), error);
    let file = source::open(path)?;
    if let Some(digest) = digest {
        check(path, &file, digest)?;
    }
    let mut text = Vec::new();
    (&file).take(JSON_BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
    serde_json::from_slice(&text)
        .map_err(|_| PackError::NoSource(path.to_owned(), "no index and no manifest of OCI".into()))
}

/// Fails if a file's contents have another digest.
fn check(path: &Path, file: &fs::File, digest: &str) -> Result<(), PackError> {
    let (mut context, mut buffer, mut at) = (Context::new(&SHA256), vec![0; READ_BYTES], 0);
    loop {
        match file.read_at(&mut buffer, at) {
            Ok(0) => break,
            Ok(read) => {
                context.update(&buffer[..read]);
                at += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(PackError::Source(path.to_owned(), error)),
        }
    }
    let found: String = context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    if digest.strip_prefix("sha256:").is_none_or(|says| !says.eq_ignore_ascii_case(&found)) {
        return Err(PackError::NoSource(path.to_owned(), "damaged: its contents have another digest".into()));
    }
    Ok(())
}

/// An archive as a plain tar: itself, or what gzip packed, in a file without a name in `scratch`.
///
/// # Errors
/// If it is packed by something else, or cannot be unpacked.
pub fn unpacked(path: &Path, file: fs::File, scratch: &Path) -> Result<fs::File, PackError> {
    let failed = |error| PackError::Source(path.to_owned(), error);
    let mut start = [0; 4];
    let read = file.read_at(&mut start, 0).map_err(failed)?;
    if start[..read].starts_with(MAGICS[1]) {
        let why = "packed by zstd, which is not read; unpack it, or copy it with gzip".to_owned();
        return Err(PackError::NoSource(path.to_owned(), why));
    }
    if !start[..read].starts_with(MAGICS[0]) {
        return Ok(file);
    }
    let full = |error| PackError::Output(scratch.to_owned(), error);
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::TMPFILE;
    let to = openat(CWD, scratch, flags, Mode::RUSR | Mode::WUSR).map_err(|error| full(error.into()))?;
    let mut to = fs::File::from(to);
    let mut from = MultiGzDecoder::new(BufReader::new(file));
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match from.read(&mut buffer).map_err(|error| {
            let why = format!("gzip that cannot be unpacked: {}", vfield_console::failure::plain(&error));
            PackError::NoSource(path.to_owned(), why)
        })? {
            0 => break,
            read => to.write_all(&buffer[..read]).map_err(full)?,
        }
    }
    to.seek(SeekFrom::Start(0)).map_err(full)?;
    Ok(to)
}

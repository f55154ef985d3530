//! Images of containers as a source: the layout of OCI in a directory, as `skopeo copy` makes it.
//!
//! The format is that of the OCI image specification, version 1. A layout has one image; each of
//! its layers is a tar, which may be packed by gzip or zstd. Layers are checked against their
//! digests, so a damaged download is found here. Packed ones are unpacked into files without a name
//! beside the output.

use crate::contents::Archive;
use crate::error::PackError;
use crate::source;
use flate2::read::MultiGzDecoder;
use ring::digest::{Context, SHA256};
use rustix::fs::{CWD, Mode, OFlags, openat};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fs;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use zstd::stream::read::Decoder;

/// Most bytes of an index or a manifest; those of registries are below 4 MiB.
const JSON_BYTES_MAX: u64 = 4 << 20;
/// Most indexes that name each other.
const DEPTH_MAX: usize = 4;
/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;
/// The first bytes of gzip.
const GZIP: &[u8] = &[0x1f, 0x8b];
/// The first bytes of a frame of zstd. Layers of `zstd:chunked` begin with it too.
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// A reference to a blob.
#[derive(Debug, Clone, Deserialize)]
struct Descriptor {
    digest: String,
    #[serde(default)]
    annotations: Annotations,
}

/// What an index says of an image besides.
#[derive(Debug, Clone, Default, Deserialize)]
struct Annotations {
    #[serde(rename = "org.opencontainers.image.ref.name")]
    name: Option<String>,
}

/// An index, which names manifests, or a manifest, which names layers.
#[derive(Debug, Deserialize)]
struct Named {
    #[serde(default)]
    manifests: Vec<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
    config: Option<Descriptor>,
}

/// The part of an image's configuration that says what its layers are when they are unpacked.
#[derive(Debug, Deserialize)]
struct Configuration {
    rootfs: Rootfs,
}

#[derive(Debug, Deserialize)]
struct Rootfs {
    diff_ids: Vec<String>,
}

/// The image of a layout, without the bytes of its layers.
#[derive(Debug)]
pub struct Image {
    layout: PathBuf,
    /// The name that it was copied under.
    pub name: Option<String>,
    /// All texts that name its layers, by their paths in the layout.
    pub texts: Vec<(String, Vec<u8>)>,
    layers: Vec<Descriptor>,
    config: Option<Descriptor>,
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
    let image = Image::open(path)?;
    (0..image.layers.len()).map(|number| image.layer(number, scratch)).collect()
}

impl Image {
    /// Reads the texts of a layout.
    ///
    /// # Errors
    /// If it has no image or several, or a text is missing or damaged.
    pub fn open(path: &Path) -> Result<Self, PackError> {
        let refuse = |why: &str| PackError::NoSource(path.to_owned(), why.to_owned());
        let (mut name, mut texts, mut at) = (None, Vec::new(), "index.json".to_owned());
        let mut digest = None;
        for _ in 0..=DEPTH_MAX {
            let text = text(&path.join(&at), digest.as_deref())?;
            let named: Named = parsed(&path.join(&at), &text)?;
            texts.push((at, text));
            match &named.manifests[..] {
                [] if named.layers.is_empty() => break,
                [] => {
                    let (layers, config) = (named.layers, named.config);
                    return Ok(Self { layout: path.to_owned(), name, texts, layers, config });
                }
                [one] if named.layers.is_empty() => {
                    at = blob(path, &one.digest)?;
                    name = name.or_else(|| one.annotations.name.clone());
                    digest = Some(one.digest.clone());
                }
                [_] => break,
                _ => return Err(refuse("a layout of several images; copy one of them alone")),
            }
        }
        Err(refuse("a layout without an image of layers"))
    }

    /// The layer with this number, as a plain tar.
    ///
    /// # Errors
    /// If it is missing or damaged, or there is no room in `scratch` to unpack it.
    ///
    /// # Panics
    /// If there is none.
    pub fn layer(&self, number: usize, scratch: &Path) -> Result<Archive, PackError> {
        let digest = &self.layers[number].digest;
        let at = self.layout.join(blob(&self.layout, digest)?);
        let file = source::open(&at)?;
        check(&at, &file, digest)?;
        let file = unpacked(&at, file, scratch)?;
        Archive::new(at, file)
    }

    /// The digest of each layer's plain tar, by the image's configuration, which becomes one of the
    /// texts.
    ///
    /// # Errors
    /// If the configuration is missing or damaged, or speaks of other layers.
    pub fn diff_ids(&mut self) -> Result<Vec<String>, PackError> {
        let refuse = |why: &str| PackError::NoSource(self.layout.clone(), why.to_owned());
        let config = self.config.as_ref().ok_or_else(|| refuse("an image without a configuration"))?;
        let at = blob(&self.layout, &config.digest)?;
        let text = text(&self.layout.join(&at), Some(&config.digest))?;
        let Configuration { rootfs } = parsed(&self.layout.join(&at), &text)?;
        if rootfs.diff_ids.len() != self.layers.len() {
            return Err(refuse("an image whose configuration speaks of other layers"));
        }
        self.texts.push((at, text));
        Ok(rootfs.diff_ids)
    }
}

/// The 64 digits of a digest.
pub fn digits(digest: &str) -> Option<&str> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
    digest.strip_prefix("sha256:").filter(|digits| digits.len() == 64 && digits.bytes().all(is_digit))
}

/// The path of a blob in a layout.
fn blob(layout: &Path, digest: &str) -> Result<String, PackError> {
    let digits = digits(digest).ok_or_else(|| {
        PackError::NoSource(layout.to_owned(), format!("a layout with the digest {digest:?}, which is no SHA-256"))
    })?;
    Ok(format!("blobs/sha256/{digits}"))
}

/// The text in a file; it has this digest, if there is one.
fn text(path: &Path, digest: Option<&str>) -> Result<Vec<u8>, PackError> {
    let file = source::open(path)?;
    if let Some(digest) = digest {
        check(path, &file, digest)?;
    }
    let mut text = Vec::new();
    let read = (&file).take(JSON_BYTES_MAX).read_to_end(&mut text);
    read.map_err(|error| PackError::Source(path.to_owned(), error))?;
    Ok(text)
}

fn parsed<T: DeserializeOwned>(path: &Path, text: &[u8]) -> Result<T, PackError> {
    let why = "no index, no manifest and no configuration of OCI";
    serde_json::from_slice(text).map_err(|_| PackError::NoSource(path.to_owned(), why.into()))
}

/// Fails if a file's contents have another digest.
pub fn check(path: &Path, file: &fs::File, digest: &str) -> Result<(), PackError> {
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

/// An archive as a plain tar: itself, or what gzip or zstd packed, in a file without a name in
/// `scratch`.
///
/// # Errors
/// If it cannot be unpacked.
pub fn unpacked(path: &Path, file: fs::File, scratch: &Path) -> Result<fs::File, PackError> {
    let failed = |error| PackError::Source(path.to_owned(), error);
    let mut start = [0; 4];
    let read = file.read_at(&mut start, 0).map_err(failed)?;
    let (packed_by, mut from): (_, Box<dyn Read>) = if start[..read].starts_with(GZIP) {
        ("gzip", Box::new(MultiGzDecoder::new(BufReader::new(file))))
    } else if start[..read].starts_with(ZSTD) {
        // A frame that wants more than 128 MiB of memory is refused.
        ("zstd", Box::new(Decoder::new(file).map_err(failed)?))
    } else {
        return Ok(file);
    };
    let full = |error| PackError::Output(scratch.to_owned(), error);
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::TMPFILE;
    let to = openat(CWD, scratch, flags, Mode::RUSR | Mode::WUSR).map_err(|error| full(error.into()))?;
    let mut to = fs::File::from(to);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match from.read(&mut buffer).map_err(|error| {
            let why = format!("{packed_by} that cannot be unpacked: {}", vfield_console::failure::plain(&error));
            PackError::NoSource(path.to_owned(), why)
        })? {
            0 => break,
            read => to.write_all(&buffer[..read]).map_err(full)?,
        }
    }
    to.seek(SeekFrom::Start(0)).map_err(full)?;
    Ok(to)
}

//! `vfield pack --layers`: each layer of an image of containers becomes an EROFS image of its own.
//!
//! The directory is one that containerd's EROFS snapshotter looks layers up in:
//! `sha256/XX/DIGITS.erofs`, by the digest of the layer's plain tar, XX being its first two digits.
//! Beside them lies a tar with all texts that name the layers, for `ctr images import`. Layers of
//! several images lie in one directory. No layer is packed again that is there already.
//! Invariant: a layer has its name only if its tar has that digest.

use crate::contents::Sources;
use crate::error::PackError;
use crate::oci::{self, Image};
use crate::source::Source;
use crate::{Written, make, new_file, tar};
use std::fmt;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use vfield_core::chunk::ChunkSize;

/// The version of layouts that there is.
const OCI_LAYOUT: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;

/// Layers that were packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// Layers of the image.
    pub layers: usize,
    /// Those that were not there before.
    pub new: usize,
    /// The tar that names them.
    pub names: PathBuf,
    /// Extended attributes that EROFS has no place for.
    pub left_out: u64,
}

/// Packs each layer of the image in a layout into `directory`, which is made if there is none.
/// Tells `progress` of each MiB of each layer.
///
/// # Errors
/// If the source is no layout of one image, is damaged or changes, or if the directory cannot be
/// written. Layers that were packed before stay.
pub fn pack(
    source: &Path,
    directory: &Path,
    chunk_size: ChunkSize,
    progress: &(dyn Fn(Written) + Sync),
) -> Result<Packed, PackError> {
    if !oci::is_layout(source) {
        let why = "no OCI layout, whose layers could be packed alone".to_owned();
        return Err(PackError::NoSource(source.to_owned(), why));
    }
    let mut image = Image::open(source)?;
    let names = directory.join(format!("{}.tar", file_name(image.name.as_deref(), source)));
    let digests = image.diff_ids()?;
    let mut packed = Packed { layers: digests.len(), new: 0, names, left_out: 0 };
    for (number, digest) in digests.iter().enumerate() {
        let digits = oci::digits(digest).ok_or_else(|| {
            PackError::NoSource(source.to_owned(), format!("a layer with the digest {digest:?}, which is no SHA-256"))
        })?;
        let place = directory.join("sha256").join(&digits[..2]);
        let output = place.join(format!("{digits}.erofs"));
        if output.exists() {
            continue;
        }
        fs::create_dir_all(&place).map_err(|error| PackError::Output(place.clone(), error))?;
        let file = new_file(&output)?;
        let archive = image.layer(number, directory)?;
        oci::check(&archive.path, &archive.file, digest)?;
        let (tree, left_out) = tar::read_layer(&archive)?;
        let source = Source { tree, sources: Sources::Archives(vec![archive]), left_out };
        make(&source, (file, &output), None, chunk_size, progress)?;
        packed.new += 1;
        packed.left_out += left_out;
    }
    let mut texts = vec![("oci-layout", OCI_LAYOUT)];
    texts.extend(image.texts.iter().map(|(path, text)| (path.as_str(), text.as_slice())));
    let mut file = new_file(&packed.names)?;
    let written = file.file.write_all(&tar::of_texts(&texts)).and_then(|()| file.finish());
    written.map_err(|error| PackError::Output(packed.names.clone(), error))?;
    Ok(packed)
}

/// A name for a file, like that of the image; else the layout's.
fn file_name(name: Option<&str>, layout: &Path) -> String {
    let of_layout = || layout.canonicalize().ok()?.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.map(str::to_owned).or_else(of_layout).unwrap_or_else(|| "image".to_owned());
    let kept = |letter: char| if letter.is_ascii_alphanumeric() || "-.".contains(letter) { letter } else { '_' };
    // A name of a file has at most 255 bytes, and a temporary one is longer.
    let name: String = name.trim_start_matches('.').chars().map(kept).take(200).collect();
    if name.is_empty() { "image".to_owned() } else { name }
}

impl fmt::Display for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layers, new, names, left_out } = self;
        writeln!(f, "{layers} layers, {new} of them new")?;
        writeln!(f, "{} names them for `ctr images import`", names.display())?;
        match left_out {
            0 => Ok(()),
            count => writeln!(f, "left out: {count} extended attributes that EROFS has no place for"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images_become_names_of_files() {
        let long = "x".repeat(300);
        for (name, file) in [
            (Some("registry.example:5000/app:1"), "registry.example_5000_app_1".to_owned()),
            (Some("../../etc/passwd"), "_.._etc_passwd".to_owned()),
            (Some("\u{e4}\n"), "__".to_owned()),
            (Some(&long), "x".repeat(200)),
            (Some("."), "image".to_owned()),
            (None, "tmp".to_owned()),
        ] {
            assert_eq!(file_name(name, Path::new("/tmp")), file, "{name:?}");
        }
    }
}

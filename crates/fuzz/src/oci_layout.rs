//! Images of containers in a directory, as `skopeo copy` makes it: index, manifest and layers.
//!
//! Promises: a layout is refused in one line, or gives layers whose digests are right; layers are
//! read or refused as tars. The blobs of an input get their right names, and texts their digests,
//! since no fuzzer finds those.

use arbitrary::{Result, Unstructured};
use ring::digest::{SHA256, digest};
use std::path::Path;
use vfield_core::hex::hex;
use vfield_pack::{oci, tar};

/// Most blobs of an input.
const BLOBS_MAX: u8 = 4;
/// Longest line of a refusal, with the path of the directory.
const LINE_MAX: usize = 600;

/// The blobs, each with its length in front, then the index. `@0` in a text is the digest of the
/// first blob.
pub fn target(bytes: &[u8]) {
    // A missing part was not to be read.
    let _ = lay_out(&mut Unstructured::new(bytes));
}

fn lay_out(input: &mut Unstructured<'_>) -> Result<()> {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let layout = dir.path().join("layout");
    let blobs = layout.join("blobs/sha256");
    let write = |path: &Path, bytes: &[u8]| std::fs::write(path, bytes).expect("memory");
    std::fs::create_dir_all(&blobs).expect("memory");
    write(&layout.join("oci-layout"), b"{}");
    let mut digests: Vec<String> = Vec::new();
    for _ in 0..input.int_in_range(0..=BLOBS_MAX)? {
        let length = usize::from(input.arbitrary::<u16>()?).min(input.len());
        let blob = with_digests(input.bytes(length)?, &digests);
        let name = hex(digest(&SHA256, &blob).as_ref());
        write(&blobs.join(&name), &blob);
        digests.push(format!("sha256:{name}"));
    }
    let index = input.bytes(input.len())?;
    write(&layout.join("index.json"), &with_digests(index, &digests));
    assert!(oci::is_layout(&layout));
    let said = |error: vfield_pack::PackError| {
        let line = error.to_string();
        assert!(!line.contains('\n') && line.len() <= LINE_MAX, "{} bytes: {line:?}", line.len());
    };
    match oci::layers(&layout, dir.path()) {
        Ok(layers) => {
            assert!(!layers.is_empty() && layers.iter().all(|layer| layer.path.starts_with(&blobs)));
            drop(tar::read(&layers).map_err(said));
        }
        Err(error) => said(error),
    }
    let left = std::fs::read_dir(dir.path()).expect("it is there").count();
    assert_eq!(left, 1, "something is left beside the layout");
    Ok(())
}

/// A blob in which `@N` stands for a digest.
fn with_digests(blob: &[u8], digests: &[String]) -> Vec<u8> {
    let mut out = Vec::with_capacity(blob.len());
    let mut rest = blob;
    while let Some((first, after)) = rest.split_first() {
        let number = after.first().filter(|_| *first == b'@').and_then(|digit| digit.checked_sub(b'0'));
        match number.and_then(|number| digests.get(usize::from(number))) {
            Some(digest) => {
                out.extend(digest.as_bytes());
                rest = &after[1..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

/// An image of one layer, of two, one behind another index, and layouts without an image.
pub fn seeds() -> Vec<Vec<u8>> {
    let layer = crate::tar::entry(b'0', "f", "", b"x");
    let gone = crate::tar::entry(b'0', ".wh.f", "", b"");
    let manifest = |layers: &str| format!("{{\"layers\":[{layers}]}}").into_bytes();
    let index = |number: u8| format!("{{\"manifests\":[{{\"digest\":\"@{number}\"}}]}}").into_bytes();
    let named = |number: u8| format!("{{\"digest\":\"@{number}\"}}");
    // `gzip -n` and `zstd` of nothing.
    let gzip = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x03\0\0\0\0\0\0\0\0\0".to_vec();
    let zstd = b"\x28\xb5\x2f\xfd\x24\x00\x01\x00\x00\x99\xe9\xd8\x51".to_vec();
    let input = |blobs: &[Vec<u8>], index: &[u8]| {
        let mut bytes = vec![blobs.len() as u8];
        for blob in blobs {
            bytes.extend((blob.len() as u16).to_le_bytes());
            bytes.extend(blob);
        }
        bytes.extend(index);
        bytes
    };
    let two = manifest(&format!("{},{}", named(0), named(1)));
    vec![
        input(&[layer.clone(), manifest(&named(0))], &index(1)),
        input(&[layer.clone(), gone, two], &index(2)),
        input(&[layer, manifest(&named(0)), index(1)], &index(2)),
        input(&[gzip, manifest(&named(0))], &index(1)),
        input(&[zstd, manifest(&named(0))], &index(1)),
        input(&[index(0)], &index(0)),
        input(&[], b"{\"manifests\":[{\"digest\":\"sha256:../x\"}]}"),
        input(&[], b"{}"),
    ]
}

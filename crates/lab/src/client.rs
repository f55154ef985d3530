//! Readers of an export: the programs that people use.

use crate::lab::Host;
use crate::process::run;
use crate::{Daemon, LabError};
use std::path::Path;
use std::time::Duration;

/// A read of a whole image in the lab takes a second or two; beyond this it hangs.
pub const READ_LIMIT: Duration = Duration::from_secs(60);

/// Compares every byte of an exported file with an image. Exports are rounded up to whole sectors
/// with zeros.
///
/// # Errors
/// With the first difference, or if the file cannot be read within [`READ_LIMIT`].
///
/// # Panics
/// If the file's length is not the image's, rounded up.
pub fn compare_file(host: &Host, file: &Path, image: &Path) -> Result<(), LabError> {
    let length = |path: &Path| Ok(std::fs::metadata(path).map_err(LabError::at(path))?.len());
    let (exported, exact) = (length(file)?, length(image)?);
    assert_eq!(exported, exact.next_multiple_of(512), "length of {}", file.display());
    run(host.client(READ_LIMIT, "cmp").args(["-n", &exact.to_string()]).arg(file).arg(image)).map(drop)
}

/// Reads an NBD export over four connections and compares every byte of it with an image.
///
/// # Errors
/// Those of [`compare_file`].
pub fn compare_nbd(host: &Host, uri: &str, image: &Path) -> Result<(), LabError> {
    let copy = host.dir().join(format!("copy-{:?}", std::thread::current().id()));
    nbdcopy(host, uri, &copy)?;
    let outcome = compare_file(host, &copy, image);
    std::fs::remove_file(&copy).map_err(LabError::at(&copy))?;
    outcome
}

/// Compares an image with what a daemon exports: over NBD, and through FUSE where it is mounted.
///
/// # Errors
/// Those of [`compare_file`].
pub fn compare_all(host: &Host, daemon: &Daemon, image: &Path) -> Result<(), LabError> {
    let name = image.file_name().and_then(|name| name.to_str()).expect("images in the lab have plain names");
    compare_nbd(host, &daemon.uri(name), image)?;
    match daemon.mount() {
        Some(mount) => {
            let file = mount.join(name);
            forget(&file)?;
            compare_file(host, &file, image)
        }
        None => Ok(()),
    }
}

/// Copies an NBD export into a file.
///
/// # Errors
/// If any byte could not be read within [`READ_LIMIT`].
pub fn nbdcopy(host: &Host, uri: &str, to: &Path) -> Result<(), LabError> {
    run(host.client(READ_LIMIT, "nbdcopy").args(["--connections=4", uri]).arg(to)).map(drop)
}

/// Runs lines of Python with a libnbd handle `h` that is connected to `uri`; strict checks are off.
///
/// # Errors
/// If a line raises an exception, an `assert` included.
pub fn nbdsh(host: &Host, limit: Duration, uri: &str, script: &str) -> Result<String, LabError> {
    let connect = format!("h.set_strict_mode(0)\nh.connect_uri({uri:?})");
    // `nbdsh` is this line, but takes whichever python3 comes first in the path.
    run(host.client(limit, "/usr/bin/python3").args(["-m", "nbd", "-c", &connect, "-c", script]))
}

/// Makes the kernel forget what it has read of a file, so that the next read asks the file system
/// again.
///
/// # Errors
/// If the file cannot be opened.
pub fn forget(file: &Path) -> Result<(), LabError> {
    let open = std::fs::File::open(file).map_err(LabError::at(file))?;
    let whole = rustix::fs::fadvise(&open, 0, None, rustix::fs::Advice::DontNeed);
    whole.map_err(|error| LabError::at(file)(error.into()))
}

/// BLAKE3 of a file, in hexadecimal, by `b3sum`.
///
/// # Errors
/// If it cannot be read within [`READ_LIMIT`].
pub fn checksum_file(host: &Host, file: &Path) -> Result<String, LabError> {
    // Not mapped: page faults would make thousands of small requests of one large one.
    run(host.client(READ_LIMIT, "b3sum").args(["--no-names", "--no-mmap"]).arg(file))
}

/// BLAKE3 of an NBD export, in hexadecimal, by `nbdcopy` and `b3sum`.
///
/// # Errors
/// If it cannot be read within [`READ_LIMIT`].
pub fn checksum_nbd(host: &Host, uri: &str) -> Result<String, LabError> {
    let pipe = "set -o pipefail; nbdcopy \"$1\" - | b3sum --no-names";
    run(host.client(READ_LIMIT, "bash").args(["-c", pipe, "bash", uri]))
}

//! Files that only their owner may read: opened and checked before a byte is believed.
//!
//! A file that systemd gives to a service as a credential is private by an access list. So its
//! group bits mean nothing there; the bits of all others count everywhere.

use rustix::process::geteuid;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Longer files are something else.
const LENGTH_MAX: u64 = 16 << 10;
/// Permissions of `group` and all others.
const NOT_THE_OWNER: u32 = 0o077;
/// The same for files with an access list, whose group bits mean nothing.
const EVERYBODY: u32 = 0o007;

/// Why a file is not read. None of its bytes is named.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// The system's error.
    #[error(transparent)]
    Io(#[from] Error),
    /// A directory, a device, far too long, or no text.
    #[error("not a file of text, or too long")]
    NotText,
    /// Others may read or change it: its permission bits.
    #[error("open to others (mode {0:03o})")]
    Open(u32),
    /// It belongs to another user than this one or root: to this user id.
    #[error("it belongs to user {0}")]
    Foreign(u32),
}

/// The text of a private file, and the file itself.
pub fn read(path: &Path) -> Result<(Zeroizing<String>, File), Unfit> {
    // Check the open file, since the path may be replaced meanwhile. Do not wait for a pipe.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > LENGTH_MAX {
        return Err(Unfit::NotText);
    }
    let mode = metadata.mode() & 0o7777;
    let credential = credentials().is_some_and(|dir| path.starts_with(dir));
    if mode & if credential { EVERYBODY } else { NOT_THE_OWNER } != 0 {
        return Err(Unfit::Open(mode));
    }
    let owner = metadata.uid();
    if owner != 0 && owner != geteuid().as_raw() {
        return Err(Unfit::Foreign(owner));
    }
    let mut text = Zeroizing::new(String::with_capacity(LENGTH_MAX as usize));
    // Longer than it was a moment ago is no reason to read without end.
    (&file).take(LENGTH_MAX).read_to_string(&mut text).map_err(|error| match error.kind() {
        ErrorKind::InvalidData => Unfit::NotText,
        _ => Unfit::Io(error),
    })?;
    Ok((text, file))
}

/// Makes a file with two lines that only its owner can read; never replaces one.
pub fn create(path: &Path, head: &str, line: &str) -> Result<(), Error> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = writeln!(file, "{head}\n{line}").and_then(|()| file.sync_all());
    written.inspect_err(|_| {
        // Half a key is none.
        let _ = std::fs::remove_file(path);
    })
}

/// A credential that the service manager gives to this service under this name, if it gives one.
pub fn credential(name: &str) -> Option<PathBuf> {
    credentials().and_then(|dir| given(&dir, name))
}

/// A file of a folder, unless it is missing. If it cannot be looked at, it counts as there: its
/// reader then says why, and does not go on without a key.
fn given(dir: &Path, name: &str) -> Option<PathBuf> {
    Some(dir.join(name)).filter(|path| path.try_exists().unwrap_or(true))
}

/// The service manager's folder of credentials (systemd.exec(5)).
fn credentials() -> Option<PathBuf> {
    std::env::var_os("CREDENTIALS_DIRECTORY").filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_that_cannot_be_read_is_not_taken_for_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(given(dir.path(), "none"), None);
        std::os::unix::fs::symlink("loop", dir.path().join("loop")).unwrap();
        let path = given(dir.path(), "loop").expect("it is there");
        assert!(matches!(read(&path), Err(Unfit::Io(_))));
    }
}

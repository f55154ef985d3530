//! Files with field keys: made readable by their owner only, refused if others can read them.
//!
//! A line has one key; `#` begins a comment. A file that systemd gives to a service as a credential
//! is private by an access list. So its group bits mean nothing there; the bits of all others count
//! everywhere.

use crate::field_key::{BadKey, FieldKey};
use rustix::process::geteuid;
use std::fs::OpenOptions;
use std::io::{Error, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Longer files are something else.
const LENGTH_MAX: u64 = 16 << 10;
/// Permissions of `group` and all others.
const NOT_THE_OWNER: u32 = 0o077;
/// The same for files with an access list, whose group bits mean nothing.
const EVERYBODY: u32 = 0o007;

/// Name of the credential with the key.
pub const CREDENTIAL: &str = "vfield-field-key";

/// Why a file gives no keys. Each names the file, and none of its bytes.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It cannot be read, or written.
    #[error("field key {}: {source}", path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        source: Error,
    },
    /// A directory, a device, or far too long.
    #[error("field key {}: not a key file", path.display())]
    NotAKeyFile {
        /// The path of the file.
        path: PathBuf,
    },
    /// Others may read or change it.
    #[error("field key {}: open to others (mode {mode:03o})", path.display())]
    Open {
        /// The path of the file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It belongs to another user than this one or root.
    #[error("field key {}: it belongs to user {owner}", path.display())]
    Foreign {
        /// The path of the file.
        path: PathBuf,
        /// The owner's user id.
        owner: u32,
    },
    /// A line that is no key.
    #[error("field key {} line {line}: {why}", path.display())]
    Bad {
        /// The path of the file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The error in it.
        why: BadKey,
    },
    /// Nothing but comments.
    #[error("field key {}: no key in it", path.display())]
    Empty {
        /// The path of the file.
        path: PathBuf,
    },
}

/// Reads all keys of a file, in their order; never none.
pub fn read(path: &Path) -> Result<Vec<FieldKey>, KeyFileError> {
    let failed = |source| KeyFileError::Io { path: path.to_owned(), source };
    // Check the open file, since the path may be replaced meanwhile. Do not wait for a pipe.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() || metadata.len() > LENGTH_MAX {
        return Err(KeyFileError::NotAKeyFile { path: path.to_owned() });
    }
    let mode = metadata.mode() & 0o7777;
    let credential = credentials().is_some_and(|dir| path.starts_with(dir));
    if mode & if credential { EVERYBODY } else { NOT_THE_OWNER } != 0 {
        return Err(KeyFileError::Open { path: path.to_owned(), mode });
    }
    let owner = metadata.uid();
    if owner != 0 && owner != geteuid().as_raw() {
        return Err(KeyFileError::Foreign { path: path.to_owned(), owner });
    }
    let mut text = Zeroizing::new(String::with_capacity(LENGTH_MAX as usize));
    // Longer than it was a moment ago is no reason to read without end.
    let read = file.take(LENGTH_MAX).read_to_string(&mut text);
    read.map_err(|_| KeyFileError::NotAKeyFile { path: path.to_owned() })?;
    parse(path, &text)
}

/// All keys in the text of a file, in their order; never none.
pub fn parse(path: &Path, text: &str) -> Result<Vec<FieldKey>, KeyFileError> {
    let mut keys = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            let bad = |why| KeyFileError::Bad { path: path.to_owned(), line: index + 1, why };
            keys.push(FieldKey::parse(line).map_err(bad)?);
        }
    }
    if keys.is_empty() { Err(KeyFileError::Empty { path: path.to_owned() }) } else { Ok(keys) }
}

/// Makes a file with a new key that only its owner can read; never replaces one.
pub fn create(path: &Path) -> Result<FieldKey, KeyFileError> {
    let failed = |source| KeyFileError::Io { path: path.to_owned(), source };
    let mut secret = Zeroizing::new([0; 32]);
    rustix::rand::getrandom(&mut secret[..], rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| failed(errno.into()))?;
    let key = FieldKey::new(*secret);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    let head =
        "# A key of a V-FIELD field: its holders are members. One line a key; the first one is used for sending.";
    let written = writeln!(file, "{head}\n{}", *key.line()).and_then(|()| file.sync_all());
    written.map_err(|source| {
        // Half a key is none.
        let _ = std::fs::remove_file(path);
        failed(source)
    })?;
    Ok(key)
}

/// The key that the service manager gives to this service, if it gives one.
pub fn credential() -> Option<PathBuf> {
    credentials().map(|dir| dir.join(CREDENTIAL)).filter(|path| path.exists())
}

/// The service manager's folder of credentials (systemd.exec(5)).
fn credentials() -> Option<PathBuf> {
    std::env::var_os("CREDENTIALS_DIRECTORY").filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_new_key_is_private_and_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("field.key");
        let key = create(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read(&path).unwrap(), [key]);
        assert!(create(&path).is_err(), "a key was overwritten");
        assert_ne!(create(&dir.path().join("other.key")).unwrap(), read(&path).unwrap()[0]);
    }

    #[test]
    fn key_files_that_others_can_read_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("field.key");
        create(&path).unwrap();
        for mode in [0o644, 0o640, 0o602, 0o604] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.ends_with(&format!("open to others (mode {mode:03o})")), "{error}");
        }
        std::fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        assert!(read(&path).is_ok());
    }

    #[test]
    fn garbage_is_named_with_its_line_and_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("field.key");
        let says = |text: &[u8]| {
            let _ = std::fs::remove_file(&path);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
            file.write_all(text).unwrap();
            let error = read(&path).unwrap_err().to_string();
            error.split_once(": ").map(|(_, why)| why.to_owned()).unwrap()
        };
        assert_eq!(says(b""), "no key in it");
        assert_eq!(says(b"# nothing\n\n"), "no key in it");
        assert_eq!(says(b"\xff\xfe"), "not a key file");
        assert_eq!(says(&vec![b'a'; 20_000]), "not a key file");
        assert_eq!(says(b"# x\nhunter2\n"), "not a field key");
        assert!(read(dir.path()).unwrap_err().to_string().ends_with("not a key file"));
        assert!(matches!(read(&dir.path().join("none")), Err(KeyFileError::Io { .. })));
    }
}

//! Files with field keys: made readable by their owner only, refused if others can read them.
//!
//! A line has one key; `#` begins a comment.

use crate::field_key::{BadKey, FieldKey};
use crate::private_file::{self, Unfit};
use std::io::Error;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

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
    let (text, _) = private_file::read(path).map_err(|why| {
        let path = path.to_owned();
        match why {
            Unfit::Io(source) => KeyFileError::Io { path, source },
            Unfit::NotText => KeyFileError::NotAKeyFile { path },
            Unfit::Open(mode) => KeyFileError::Open { path, mode },
            Unfit::Foreign(owner) => KeyFileError::Foreign { path, owner },
        }
    })?;
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
    let head =
        "# A key of a V-FIELD field: its holders are members. One line a key; the first one is used for sending.";
    private_file::create(path, head, &key.line()).map_err(failed)?;
    Ok(key)
}

/// The key that the service manager gives to this service, if it gives one.
pub fn credential() -> Option<PathBuf> {
    private_file::credential(CREDENTIAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{OpenOptions, Permissions};
    use std::io::Write;
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

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

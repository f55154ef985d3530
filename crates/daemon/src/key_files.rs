//! The files that field keys are read from, and the failures of files that have none.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use vfield_console::failure::{Failure, plain};
use vfield_trust::key_file::{self, KeyFileError};
use vfield_trust::{FieldKey, KeyRing};

/// Where a daemon has its keys from, to be read again when it is told to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyFiles(Vec<PathBuf>);

impl KeyFiles {
    /// The files given, or else the service manager's credential; none for an open field.
    pub fn choose(given: Vec<PathBuf>) -> Self {
        if given.is_empty() { Self(key_file::credential().into_iter().collect()) } else { Self(given) }
    }

    /// Where they are.
    pub fn paths(&self) -> &[PathBuf] {
        &self.0
    }

    /// All keys in all of them, in order; `None` without files.
    pub fn read(&self) -> Result<Option<KeyRing>, Failure> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let keys: Result<Vec<Vec<FieldKey>>, KeyFileError> = self.0.iter().map(|path| key_file::read(path)).collect();
        let keys = keys.map_err(explain)?;
        let many = || Failure::failed(format!("more than {} field keys", KeyRing::KEYS_MAX));
        let ring = KeyRing::new(keys.into_iter().flatten());
        ring.map(Some).ok_or_else(|| many().hint("take out those that no node speaks any more"))
    }
}

/// `error` for people.
pub fn explain(error: KeyFileError) -> Failure {
    let path = |path: &Path| path.display().to_string();
    let (fact, hint) = match &error {
        KeyFileError::Io { path: file, source } => {
            let hint = match source.kind() {
                ErrorKind::NotFound => "make one with `vfield key new FILE`, or copy that of the field",
                ErrorKind::PermissionDenied => {
                    "check the file and its directory; a running daemon that is to see a changed file directly \
                     below /etc or /root wants it written in place (cat NEW >FILE), not replaced"
                }
                ErrorKind::AlreadyExists => {
                    "keys are not overwritten: choose a new file, or append its line to the other"
                }
                _ => "check the file and its directory",
            };
            (format!("field key {}: {}", path(file), plain(source)), hint.to_owned())
        }
        KeyFileError::NotAKeyFile { .. } | KeyFileError::Empty { .. } => {
            (error.to_string(), "a key file is what `vfield key new FILE` makes".to_owned())
        }
        KeyFileError::Open { path: file, .. } => {
            let hint = format!("chmod 600 {}; if others may have read it, make a new key", path(file));
            (error.to_string(), hint)
        }
        KeyFileError::Foreign { .. } => {
            (error.to_string(), "give a file that belongs to the user whom the daemon runs as".to_owned())
        }
        KeyFileError::Bad { .. } => {
            (error.to_string(), "copy the file again from another node of the field".to_owned())
        }
    };
    Failure::failed(fact).hint(hint)
}

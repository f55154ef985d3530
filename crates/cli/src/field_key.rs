//! Field keys on the command line: files read for a daemon, and `vfield key`.

use crate::args::KeyAction;
use crate::control::client::Client;
use crate::control::message::{Reply, Request};
use crate::failure::{Failure, plain};
use crate::output;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
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

/// Runs `vfield key`.
pub fn run(action: &KeyAction) -> Result<(), Failure> {
    match action {
        KeyAction::New { file } => {
            let key = key_file::create(file).map_err(|error| explain_new(file, error))?;
            output::put(format!("made the field key {} in {}\n", key.id(), file.display()).as_bytes())
        }
        KeyAction::Id { file } => {
            let keys = key_file::read(file).map_err(explain)?;
            let lines: String = keys.iter().map(|key| format!("{}\n", key.id())).collect();
            output::put(lines.as_bytes())
        }
        KeyAction::Reload { control } => reload(control.control.as_deref()),
    }
}

fn reload(control: Option<&Path>) -> Result<(), Failure> {
    let mut client = Client::connect(control)?;
    client.send(&Request::ReloadKeys)?;
    let Reply::Keys { ids } = client.reply()? else { return Err(client.unexpected()) };
    let lines: String = ids.iter().map(|id| format!("{id}\n")).collect();
    output::put(lines.as_bytes())
}

/// Why no key could be made, for people.
fn explain_new(file: &Path, error: KeyFileError) -> Failure {
    let failure = match &error {
        KeyFileError::Io { source, .. } if source.kind() == ErrorKind::NotFound => explain(error),
        _ => return explain(error),
    };
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    failure.hint(format!("its directory must exist: mkdir -p {}", dir.display()))
}

/// `error` for people.
fn explain(error: KeyFileError) -> Failure {
    let path = |path: &Path| path.display().to_string();
    let (fact, hint) = match &error {
        KeyFileError::Io { path: file, source } => {
            let hint = match source.kind() {
                ErrorKind::NotFound => "make one with `vfield key new FILE`, or copy that of the field",
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

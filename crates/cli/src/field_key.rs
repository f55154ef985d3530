//! `vfield key`: field keys on the command line.

use crate::args::KeyAction;
use std::io::ErrorKind;
use std::path::Path;
use vfield_console::failure::Failure;
use vfield_console::output;
use vfield_control::client::Client;
use vfield_control::message::{Reply, Request};
use vfield_daemon::key_files::explain;
use vfield_trust::key_file::{self, KeyFileError};

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

//! `vfield key`: field keys and identities on the command line.

use crate::admission_list;
use crate::args::KeyAction;
use crate::plan::explain_identity;
use std::io::ErrorKind;
use std::path::Path;
use vfield_console::failure::Failure;
use vfield_console::output;
use vfield_control::client::Client;
use vfield_control::message::{Reply, Request};
use vfield_core::hex::hex;
use vfield_core::signing::Signatures as _;
use vfield_daemon::key_files::explain;
use vfield_trust::identity_file::{self, IdentityFault::Unfit};
use vfield_trust::key_file::{self, KeyFileError};
use vfield_trust::private_file::Unfit::Io;

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
        KeyAction::Identity { file } => {
            let key = identity_file::create(file).map_err(|error| {
                let missing = matches!(&error.why, Unfit(Io(source)) if source.kind() == ErrorKind::NotFound);
                let failure = explain_identity(error);
                if missing { failure.hint(directory_hint(file)) } else { failure }
            })?;
            let (public, node) = (hex(&key.key().0), key.node());
            output::put(format!("made an identity in {}\nkey {public}\nnode {node}\n", file.display()).as_bytes())
        }
        KeyAction::Allow { list, key, name, signer } => admission_list::allow(list, key, name, signer),
        KeyAction::Revoke { list, node, signer, control } => {
            admission_list::revoke(list, node, signer, control.control.as_deref())
        }
        KeyAction::Reload { control } => reload(control.control.as_deref()),
    }
}

fn reload(control: Option<&Path>) -> Result<(), Failure> {
    let mut client = Client::connect(control)?;
    client.send(&Request::ReloadKeys)?;
    let Reply::Keys { ids, admission } = client.reply()? else { return Err(client.unexpected()) };
    let lines: String = ids.iter().chain(&admission).map(|id| format!("{id}\n")).collect();
    output::put(lines.as_bytes())
}

/// Why no key could be made, for people.
fn explain_new(file: &Path, error: KeyFileError) -> Failure {
    let failure = match &error {
        KeyFileError::Io { source, .. } if source.kind() == ErrorKind::NotFound => explain(error),
        _ => return explain(error),
    };
    failure.hint(directory_hint(file))
}

fn directory_hint(file: &Path) -> String {
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    format!("its directory must exist: mkdir -p {}", dir.display())
}

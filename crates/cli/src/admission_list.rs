//! Admission lists on the command line: `vfield key allow` and `vfield key revoke` edit a list and
//! sign it again.

use crate::args::SignerOptions;
use crate::signature;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use vfield_console::failure::{Failure, plain};
use vfield_console::output;
use vfield_control::client::Client;
use vfield_control::message::{Reply, Request};
use vfield_core::admission::{self, Admission, Line, Rule};
use vfield_core::hex::hex;
use vfield_core::signing::PublicKey;
use vfield_daemon::admission::{beside, read_text};
use vfield_trust::NodeKey;

/// Runs `vfield key allow`.
pub fn allow(list: &Path, key: &str, name: &str, signer: &SignerOptions) -> Result<(), Failure> {
    let hint = "give the 64 hexadecimal digits that `vfield key identity FILE` printed";
    let key = admission::key(key).ok_or_else(|| Failure::usage(format!("{key:?} is no key of a node")).hint(hint))?;
    if !admission::is_name(name) {
        let failure = Failure::usage(format!("{name:?} is no name of a machine"));
        return Err(failure.hint("letters, digits and -_.:@, at most 64 of them"));
    }
    edit(list, &Line { rule: Rule::Allow, key, name: name.to_owned() }, signer)
}

/// Runs `vfield key revoke`.
pub fn revoke(list: &Path, node: &str, signer: &SignerOptions, control: Option<&Path>) -> Result<(), Failure> {
    let text = read(list)?;
    let lines = text.as_deref().map(|text| parse(list, text)).transpose()?.unwrap_or_default();
    let (key, name) = find(&lines, node)?.map_or_else(|| of_daemon(node, control), Ok)?;
    edit(list, &Line { rule: Rule::Revoke, key, name }, signer)
}

/// The key of a node that is in the list, or a key itself, and its name in the list.
fn find(lines: &[Line], node: &str) -> Result<Option<(PublicKey, String)>, Failure> {
    let key = admission::key(node);
    let is_meant = |line: &&Line| {
        Some(line.key) == key
            || (!line.name.is_empty() && line.name == node)
            || NodeKey::id(&line.key).to_string() == node
    };
    let found: Vec<&Line> = lines.iter().filter(is_meant).collect();
    let Some(first) = found.first() else { return Ok(key.map(|key| (key, String::new()))) };
    if found.iter().any(|other| other.key != first.key) {
        let keys: Vec<String> = found.iter().map(|line| hex(&line.key.0)).collect();
        let failure = Failure::usage(format!("{node:?} is the name of several nodes"));
        return Err(failure.hint(format!("give one of their keys: {}", keys.join(", "))));
    }
    Ok(Some((first.key, first.name.clone())))
}

/// The key of a member that the running daemon knows by this id.
fn of_daemon(node: &str, control: Option<&Path>) -> Result<(PublicKey, String), Failure> {
    let unknown = || {
        let failure = Failure::failed(format!("{node:?} is neither in the list nor the id of a member"));
        failure.hint("give the node's public key: `vfield status --json` of any member shows those of live members")
    };
    let is_id = node.len() == 16 && node.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_id {
        return Err(unknown());
    }
    let mut client = Client::connect(control)?;
    client.send(&Request::Status)?;
    let Reply::Status { status } = client.reply()? else { return Err(client.unexpected()) };
    let found = status.node.nodes.iter().find(|member| member.id == node);
    let key = found.and_then(|member| admission::key(&member.key)).ok_or_else(unknown)?;
    Ok((key, String::new()))
}

fn read(list: &Path) -> Result<Option<String>, Failure> {
    match read_text(list) {
        Ok(Some(text)) => Ok(Some(text)),
        Ok(None) => Err(refused(list, "not an admission list")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(refused(list, &plain(&error))),
    }
}

fn parse(list: &Path, text: &str) -> Result<Vec<Line>, Failure> {
    admission::parse(text).map_err(|why| refused(list, &why.to_string()))
}

/// Adds a line, signs the list, and replaces both files.
fn edit(list: &Path, line: &Line, signer: &SignerOptions) -> Result<(), Failure> {
    let text = admission::add(read(list)?.as_deref(), line).map_err(|why| refused(list, &why.to_string()))?;
    let secret = signer.secret_key.as_deref().map(signature::secret).transpose()?;
    let signed = secret.map(|key| signature::of(&key, &text, list, signature::later_than(&beside(list))));
    let signed = signed.transpose()?;
    replace(list, &text)?;
    if let Some(signed) = &signed {
        replace(&beside(list), signed)?;
    }
    let lines = parse(list, &text)?;
    let admission = Admission::new(&lines, NodeKey::id);
    let (allowed, revoked) = (admission.allowed(), admission.revoked());
    let mut said = format!("{}: {allowed} allowed, {revoked} revoked\n", list.display());
    if allowed == 0 {
        said += "all other nodes are admitted, also a revoked machine with a new identity; `vfield key allow` admits \
                 only those listed\n";
    }
    said += if signed.is_some() {
        "signed; `vfield key reload` on a machine with this list tells the field\n"
    } else {
        "not signed yet: sign it with `minisign -Sm`\n"
    };
    output::put(said.as_bytes())
}

/// Replaces the content of a file, in place: a daemon in its sandbox may read this file, and no
/// other one in its place. The new content is on the disk before.
fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        if !path.exists() {
            return std::fs::rename(&new, path);
        }
        overwrite(path, text.as_bytes())?;
        std::fs::remove_file(&new)
    });
    written.map_err(|error| {
        // The old content stands, and the command can be given again.
        drop(std::fs::remove_file(&new));
        refused(path, &plain(&error))
    })
}

/// Room is taken before a byte changes: on a full disk the old content stays.
fn overwrite(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    match fallocate(&file, FallocateFlags::KEEP_SIZE, 0, bytes.len().max(1) as u64) {
        // Some file systems cannot take room before.
        Ok(()) | Err(Errno::OPNOTSUPP) => {}
        Err(error) => return Err(error.into()),
    }
    file.write_all_at(bytes, 0)?;
    file.set_len(bytes.len() as u64)?;
    file.sync_all()
}

fn refused(list: &Path, why: &str) -> Failure {
    Failure::failed(format!("admission list {}: {why}", list.display())).hint("check the list and its directory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_replaced_in_place_by_a_longer_and_by_a_shorter_one() {
        use std::os::unix::fs::MetadataExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list");
        replace(&path, "one\n").unwrap();
        let inode = std::fs::metadata(&path).unwrap().ino();
        for text in ["one\ntwo\nthree\n", "two\n", ""] {
            replace(&path, text).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            assert_eq!(std::fs::metadata(&path).unwrap().ino(), inode, "a sandbox has lost it");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}

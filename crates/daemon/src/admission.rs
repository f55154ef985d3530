//! The admission list of this machine: its file, and the latest list that was in force here.
//!
//! The file is the operator's and is only read. Lists that came from other nodes are kept in this
//! machine's place for lasting state, one for each signer. So a machine that starts again does not
//! go back to an older list. A machine without a disk of its own starts with its file.

use crate::lasting;
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfield_console::failure::{Failure, plain};
use vfield_core::admission::TEXT_MAX;
use vfield_core::wire::SignedList;
use vfield_node::{Node, apart};
use vfield_trust::admission::{BadAdmission, Verified, verify};
use vfield_trust::signature::{TrustedKeys, digest, read_short};

/// Behind the name of a list: its signature, as `minisign -Sm` names it.
pub const SIGNATURE: &str = ".minisig";

/// Where a daemon has its admission list from, to be read again when it is told to.
#[derive(Debug, Clone, Default)]
pub struct AdmissionFiles {
    /// The operator's list.
    pub list: Option<PathBuf>,
    /// The signers of lists; without one every node is admitted.
    pub signers: Option<TrustedKeys>,
}

/// A list as it is kept.
#[derive(Serialize, Deserialize)]
struct Kept {
    list: String,
    signature: String,
}

impl AdmissionFiles {
    /// The operator's list; `None` without a file.
    pub fn read(&self) -> Result<Option<Verified>, Failure> {
        let (Some(path), Some(signers)) = (&self.list, &self.signers) else { return Ok(None) };
        let refused = |why: &str| Failure::failed(format!("admission list {}: {why}", path.display()));
        let text = read_text(path).map_err(|error| {
            let hint = "make one with `vfield key allow` or `vfield key revoke`";
            refused(&plain(&error)).hint(if error.kind() == ErrorKind::NotFound { hint } else { "check the file" })
        })?;
        let text = text.ok_or_else(|| refused("not an admission list").hint("check --admission"))?;
        let signed = "sign it with `minisign -Sm LIST`, or edit it with `vfield key` and --secret-key";
        let beside = beside(path);
        let signature = match read_short(&beside) {
            Ok(Some(signature)) => signature,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(refused("it is not signed").hint(signed)),
            Ok(None) => return Err(refused("its signature is damaged").hint(signed)),
            Err(error) => return Err(refused(&format!("its signature: {}", plain(&error))).hint("check the file")),
        };
        verify(SignedList { text, signature }, signers).map(Some).map_err(|why| {
            let hint = match why {
                BadAdmission::Signature(_) => "sign it again with a key that --admission-trust names",
                BadAdmission::List { .. } => "mend the line, and sign the list again",
            };
            refused(&why.to_string()).hint(hint)
        })
    }

    /// The list of a start: the operator's, or a later one of an earlier start; and warnings for
    /// people.
    pub fn start(&self) -> Result<(Option<Verified>, Vec<String>), Failure> {
        let read = self.read()?;
        let (kept, warnings) =
            self.signers.as_ref().map(|signers| kept(&lasting::usual_dir(), signers)).unwrap_or_default();
        Ok((read.into_iter().chain(kept).max_by_key(|list| list.version), warnings))
    }
}

/// The latest kept list, and warnings about the others.
fn kept(dir: &Path, signers: &TrustedKeys) -> (Option<Verified>, Vec<String>) {
    let (mut lists, mut warnings) = (Vec::new(), Vec::new());
    for signer in signers.digests() {
        let path = dir.join(name(signer));
        let found = match read_text(&path) {
            Ok(Some(text)) => serde_json::from_str::<Kept>(&text).ok(),
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            _ => None,
        };
        let list = found.map(|Kept { list, signature }| SignedList { text: list, signature });
        match list.map(|list| verify(list, signers)) {
            Some(Ok(list)) => lists.push(list),
            _ => warnings.push(format!("{}: damaged; a later admission list may be unknown here", path.display())),
        }
    }
    (lists.into_iter().max_by_key(|list| list.version), warnings)
}

/// Keeps each later list, while it is polled.
pub async fn keep(node: Arc<Node>) {
    let mut lists = node.admission_lists();
    lists.mark_changed();
    while lists.changed().await.is_ok() {
        let list = lists.borrow_and_update().clone();
        let Some(list) = list else { continue };
        if let Err(error) = apart::run(move || write(&lasting::usual_dir(), &list)).await {
            tracing::warn!(
                "the admission list cannot be kept in {}: {}",
                lasting::usual_dir().display(),
                plain(&error)
            );
        }
    }
}

fn write(dir: &Path, list: &Verified) -> std::io::Result<()> {
    let name = name(digest(&list.signed.key));
    let SignedList { text, signature } = list.list.clone();
    let text = serde_json::to_string(&Kept { list: text, signature })?;
    // Another daemon of this machine may have kept it already.
    if read_text(&dir.join(&name)).is_ok_and(|before| before.as_ref() == Some(&text)) {
        return Ok(());
    }
    lasting::replace(dir, &name, text.as_bytes())
}

/// The name of the file with the last list of a signer.
fn name(signer: u64) -> String {
    format!("admission-{signer:016x}.json")
}

/// The file of a list's signature.
pub fn beside(list: &Path) -> PathBuf {
    let mut name = list.as_os_str().to_owned();
    name.push(SIGNATURE);
    name.into()
}

/// The text of a file; `None` if it is none, or too long for a list.
pub fn read_text(path: &Path) -> std::io::Result<Option<String>> {
    // Do not wait for a pipe.
    if !std::fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    // As JSON a list takes some bytes more for each line.
    std::fs::File::open(path)?.take(2 * TEXT_MAX as u64).read_to_end(&mut bytes)?;
    Ok(String::from_utf8(bytes).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: PathBuf) -> AdmissionFiles {
        let key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3".to_owned();
        AdmissionFiles { list: Some(list), signers: TrustedKeys::read(&[key]).unwrap() }
    }

    #[test]
    fn what_is_wrong_with_a_list_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list");
        let says = || files(path.clone()).read().unwrap_err().fact().split_once(": ").unwrap().1.to_owned();
        assert_eq!(says(), "no such file or directory");
        std::fs::write(&path, b"\xff").unwrap();
        assert_eq!(says(), "not an admission list");
        std::fs::write(&path, "vfield-admission 1\n").unwrap();
        assert_eq!(says(), "it is not signed");
        std::fs::write(beside(&path), "x").unwrap();
        assert_eq!(says(), "its signature is damaged");
        assert!(AdmissionFiles::default().read().unwrap().is_none());
    }

    #[test]
    fn a_damaged_memory_is_told_and_does_not_stop_a_start() {
        let dir = tempfile::tempdir().unwrap();
        let AdmissionFiles { signers, .. } = files(dir.path().join("list"));
        let signers = signers.unwrap();
        assert_eq!(kept(dir.path(), &signers), (None, Vec::new()));
        lasting::replace(dir.path(), &name(signers.digests()[0]), b"{").unwrap();
        let (list, warnings) = kept(dir.path(), &signers);
        assert!(list.is_none() && warnings[0].contains("damaged"), "{warnings:?}");
    }
}

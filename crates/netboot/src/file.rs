//! Boot files: files of this machine, or images of the field, read through the daemon.

use super::pinned::Pinned;
use bytes::Bytes;
use ring::digest::{Context, SHA256};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;
use vfield_console::failure::{Failure, plain};
use vfield_control::client::{self, Client};
use vfield_control::message::{DaemonStatus, Request};
use vfield_control::selection;
use vfield_core::hex::hex;

/// Bytes read at a time, and kept for a machine that reads more slowly: four of them.
const PART_BYTES: usize = 256 << 10;
/// Parts that wait for a machine.
const PARTS_MAX: usize = 4;

/// A boot file with its length.
#[derive(Debug, Clone)]
pub struct File {
    source: Source,
    /// Length in bytes.
    pub size_bytes: u64,
}

/// The time at which a file of this machine was changed last, as the system has it.
type Modified = std::time::SystemTime;

#[derive(Debug, Clone)]
enum Source {
    Path { path: PathBuf, modified: Option<Modified> },
    Image { image: Pinned, control: Option<PathBuf> },
}

/// A stream of a file's bytes, in order; an error ends it.
pub type Parts = mpsc::Receiver<Result<Bytes, Failure>>;
/// Its other end.
type Sending = mpsc::Sender<Result<Bytes, Failure>>;

impl File {
    /// What `name` means: with a slash a file here, without one an image of the daemon.
    pub fn choose(name: &str, status: &DaemonStatus, control: Option<&Path>) -> Result<Self, Failure> {
        if name.contains('/') {
            return Self::at(Path::new(name));
        }
        let image = selection::choose(name, &status.node.images).map_err(|undecided| {
            let (fact, hint) = undecided.words(name, "the daemon");
            Failure::usage(fact).hint(format!("{hint}; a file is named with a slash: ./{name}"))
        })?;
        let source = Source::Image { image: Pinned::of(image), control: control.map(Path::to_owned) };
        Ok(Self { source, size_bytes: image.size_bytes })
    }

    /// A file of this machine.
    pub fn at(path: &Path) -> Result<Self, Failure> {
        let failed = |why: &str| Failure::failed(format!("{}: {why}", path.display()));
        let metadata = std::fs::metadata(path).map_err(|error| failed(&plain(&error)))?;
        if !metadata.is_file() {
            return Err(failed("not a file"));
        }
        let source = Source::Path { path: path.to_owned(), modified: metadata.modified().ok() };
        Ok(Self { source, size_bytes: metadata.len() })
    }

    /// Refuses if the daemon does not have the image any more, or if the file was changed.
    pub fn check(&self) -> Result<(), Failure> {
        match &self.source {
            Source::Path { path, modified } => {
                let now = Self::at(path)?;
                let same = matches!(&now.source, Source::Path { modified: later, .. } if later == modified);
                if same && now.size_bytes == self.size_bytes {
                    return Ok(());
                }
                let failure = Failure::failed(format!("{} was changed", path.display()));
                Err(failure.hint("start `vfield netboot` again to hand out what it is now"))
            }
            Source::Image { image, control } => image.check(&client::status(control.as_deref())?),
        }
    }

    /// What it is, for people: its name, and the id if it has one.
    pub fn label(&self) -> String {
        match &self.source {
            Source::Path { path, .. } => path.display().to_string(),
            Source::Image { image, .. } => format!("{} (id {})", image.name, image.id),
        }
    }

    /// SHA-256 of all bytes, in hexadecimal, as `sha256sum` prints it. Reads all of them, so it may
    /// wait for the field.
    pub async fn sha256(&self) -> Result<String, Failure> {
        let (mut parts, mut sum, mut length_bytes) = (self.read(), Context::new(&SHA256), 0);
        while let Some(part) = parts.recv().await {
            let part = part?;
            sum.update(&part);
            length_bytes += part.len() as u64;
        }
        if length_bytes != self.size_bytes {
            let fact = format!("{}: {length_bytes} of {} bytes could be read", self.label(), self.size_bytes);
            return Err(Failure::failed(fact));
        }
        Ok(hex(sum.finish().as_ref()))
    }

    /// Reads all of it, on a thread of its own, no faster than it is taken.
    pub fn read(&self) -> Parts {
        let (parts, taken) = mpsc::channel(PARTS_MAX);
        let file = self.clone();
        tokio::task::spawn_blocking(move || {
            if let Err(failure) = file.send(&parts) {
                tracing::warn!("{}", failure.fact());
                // Who asked may have gone.
                let _ = parts.blocking_send(Err(failure));
            }
        });
        taken
    }

    fn send(&self, parts: &Sending) -> Result<(), Failure> {
        match &self.source {
            Source::Path { path, .. } => {
                let failed = |error: std::io::Error| Failure::failed(format!("{}: {}", path.display(), plain(&error)));
                let mut file = std::fs::File::open(path).map_err(failed)?.take(self.size_bytes);
                send(parts, |part| file.read(part).map_err(failed))
            }
            Source::Image { image, control } => {
                let mut client = Client::connect(control.as_deref())?;
                client.send(&Request::Cat { image: image.id.clone(), offset: 0, length: None })?;
                send(parts, |part| client.read(part))
            }
        }
    }
}

/// Sends all that can be read, or as much as is taken.
fn send(parts: &Sending, mut read: impl FnMut(&mut [u8]) -> Result<usize, Failure>) -> Result<(), Failure> {
    loop {
        let mut part = vec![0; PART_BYTES];
        let length = read(&mut part)?;
        part.truncate(length);
        if length == 0 || parts.blocking_send(Ok(part.into())).is_err() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_files_sum_is_that_of_the_usual_tool_and_a_changed_file_is_not_handed_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kernel");
        std::fs::write(&path, "abc").unwrap();
        let file = File::at(&path).unwrap();
        let sum = file.sha256().await.unwrap();
        assert_eq!(sum, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert!(file.check().is_ok());
        std::fs::write(&path, "abcd").unwrap();
        let refused = file.check().unwrap_err();
        assert!(refused.fact().ends_with("kernel was changed"), "{}", refused.fact());
        std::fs::write(&path, "ab").unwrap();
        assert!(file.sha256().await.unwrap_err().fact().ends_with("2 of 3 bytes could be read"));
        std::fs::remove_file(&path).unwrap();
        assert!(file.check().is_err());
    }
}

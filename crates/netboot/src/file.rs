//! Boot files: files of this machine, or images of the field, read through the daemon.

use super::pinned::Pinned;
use bytes::Bytes;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;
use vfield_console::failure::{Failure, plain};
use vfield_control::client::{self, Client};
use vfield_control::message::{DaemonStatus, Request};
use vfield_control::selection;

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

#[derive(Debug, Clone)]
enum Source {
    Path(PathBuf),
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
        Ok(Self { source: Source::Path(path.to_owned()), size_bytes: metadata.len() })
    }

    /// Refuses if the daemon has another image of that name by now.
    pub fn check(&self) -> Result<(), Failure> {
        match &self.source {
            Source::Path(_) => Ok(()),
            Source::Image { image, control } => image.check(&client::status(control.as_deref())?),
        }
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
            Source::Path(path) => {
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

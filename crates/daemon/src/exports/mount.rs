//! The mount of `--mount`: each image is a file of a directory, through FUSE.

use super::{Export, Job, Kind, Offer, Starting, counted, explain};
use crate::plan::Places;
use rustix::io::Errno;
use std::fs::OpenOptions;
use std::future::ready;
use std::io::{Error, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Handle;
use vfield_block::source::BlockSource;
use vfield_console::failure::Failure;
use vfield_console::log::Console;
use vfield_control::offer::{ExportKind, ExportStatus};
use vfield_export::fuse::{self, MountError, Mounted, Removed, Unmounted};

pub(super) const KIND: Kind = Kind { check, start };

fn check(places: &Places) -> Result<(), Failure> {
    places.mount.as_deref().map_or(Ok(()), check_directory)
}

fn check_directory(dir: &Path) -> Result<(), Failure> {
    let path = dir.to_owned();
    let dead = |error: &Error| matches!(Errno::from_io_error(error), Some(Errno::NOTCONN | Errno::CONNABORTED));
    let entries = std::fs::read_dir(dir).map(|mut entries| entries.next().is_some());
    match entries {
        Ok(false) => {}
        Ok(true) => return Err(explain::mount(&MountError::NotEmpty(path))),
        // The mount of a dead daemon, which mounting clears away.
        Err(error) if dead(&error) => {}
        Err(error) => {
            return Err(explain::mount(&match error.kind() {
                ErrorKind::NotFound => MountError::Missing(path),
                ErrorKind::NotADirectory => MountError::NotADirectory(path),
                _ => MountError::Unusable { path, source: error },
            }));
        }
    }
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    device.map(drop).map_err(|error| explain::mount(&MountError::FuseUnavailable(error)))
}

fn start(offer: Offer<'_>) -> Starting<'_> {
    let dir = offer.places.mount.as_deref();
    let mounted = dir.map(|dir| fuse::mount(dir, offer.sources, fuse::Options::new(Handle::current())));
    let mounted = mounted.transpose().map_err(|error| explain::mount(&error));
    Box::pin(ready(mounted.map(|mounted| mounted.map(|mounted| Box::new(mounted) as Box<dyn Export>))))
}

impl Export for Mounted {
    fn places(&self) -> Vec<ExportStatus> {
        vec![ExportStatus::of_all(ExportKind::Fuse, self.directory().display().to_string())]
    }

    fn add(&self, source: &Arc<dyn BlockSource>) -> Result<(), Failure> {
        Mounted::add(self, Arc::clone(source)).map_err(|error| explain::mount(&error))
    }

    fn remove<'a>(&'a mut self, name: &'a str, _: &'a Console) -> Job<'a, Option<Removed>> {
        Box::pin(ready(Mounted::remove(self, name)))
    }

    fn take_back(&self, name: &str) {
        // No client has it open yet, so the kernel need not be told.
        drop(Mounted::remove(self, name));
    }

    fn lead(&self, tag: &str, image: &str) {
        Mounted::lead(self, tag, image);
    }

    fn users(&self, name: &str) -> Vec<String> {
        counted(self.opens(name), "open file").into_iter().collect()
    }

    fn stop<'a>(self: Box<Self>, console: &'a Console) -> Job<'a, ()> {
        let dir = self.directory().display().to_string();
        Box::pin(async move {
            match tokio::task::spawn_blocking(|| self.unmount()).await {
                Ok(Ok(Unmounted::Idle)) => {}
                Ok(Ok(Unmounted::Forced)) => console.warn(&format!("{dir} was in use; its readers were disconnected")),
                Ok(Ok(Unmounted::Held)) => console.warn(&format!("{dir} is still held by a reader")),
                Ok(Err(error)) => console.warn(&error.to_string()),
                Err(error) => console.warn(&format!("unmounting {dir}: {error}")),
            }
        })
    }
}

//! The mount of `--mount`: each image is a file of a directory, through FUSE.

use super::{Export, Job, Kind, Made, Offer, Starting, counted, explain};
use crate::estate::{Estate, MOUNT};
use crate::plan::Places;
use rustix::io::Errno;
use std::fs::OpenOptions;
use std::future::ready;
use std::io::{Error, ErrorKind};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Handle;
use vfield_block::source::BlockSource;
use vfield_console::failure::Failure;
use vfield_console::log::Console;
use vfield_control::offer::{ExportKind, ExportStatus};
use vfield_export::fuse::{self, Kept, MountError, Mounted, Removed, Unmounted};
use vfield_export::nbd::Handed;
use vfield_node::keeper::Keeper as _;

pub(super) const KIND: Kind = Kind { check, start };

/// A directory and its mount, which is with the keeper too.
#[derive(Debug)]
struct Mount {
    mounted: Mounted,
    estate: Arc<Estate>,
}

fn check(places: &Places, estate: &Estate) -> Result<(), Failure> {
    // A mount without its process would not answer.
    let kept = MOUNT.iter().all(|name| estate.has(name));
    places.mount.as_deref().filter(|_| !kept).map_or(Ok(()), check_directory)
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
    let Offer { places, sources, estate, .. } = offer;
    let mounted = places.mount.as_deref().map(|dir| mount(dir, sources, estate)).transpose();
    Box::pin(ready(mounted.map(|mounted| mounted.map(|mounted| Box::new(mounted) as Box<dyn Export>))))
}

/// Goes on with the mount that an earlier daemon has left, or mounts.
fn mount(dir: &Path, sources: Vec<Arc<dyn BlockSource>>, estate: &Arc<Estate>) -> Result<Mount, Failure> {
    let options = || fuse::Options::new(Handle::current());
    let mount = |mounted| Mount { mounted, estate: Arc::clone(estate) };
    if let [Some(connection), Some(table)] = MOUNT.map(|name| estate.pick(name)) {
        match fuse::take_over(dir, sources.clone(), Kept { connection, table }, options()) {
            Ok(mounted) => return Ok(mount(mounted)),
            Err(error) => {
                tracing::warn!("the mount of the daemon before is not used: {error}");
                MOUNT.iter().for_each(|name| estate.forget(name));
            }
        }
    }
    let mounted = fuse::mount(dir, sources, options()).map_err(|error| explain::mount(&error))?;
    if let Some(kept) = mounted.kept() {
        estate.keep(MOUNT[0], kept.connection.as_fd());
        estate.keep(MOUNT[1], kept.table.as_fd());
    }
    Ok(mount(mounted))
}

impl Export for Mount {
    fn places(&self) -> Vec<ExportStatus> {
        vec![ExportStatus::of_all(ExportKind::Fuse, self.mounted.directory().display().to_string())]
    }

    fn add(&mut self, source: Arc<dyn BlockSource>, _: Made) -> Result<(), Failure> {
        self.mounted.add(source).map_err(|error| explain::mount(&error))
    }

    fn remove<'a>(&'a mut self, name: &'a str, _: &'a Console) -> Job<'a, Option<Removed>> {
        Box::pin(ready(self.mounted.remove(name)))
    }

    fn take_back(&mut self, name: &str) {
        // No client has it open yet, so the kernel need not be told.
        drop(self.mounted.remove(name));
    }

    fn shut(&self, is_shut: bool) {
        self.mounted.shut(is_shut);
    }

    fn lead(&self, tag: &str, image: &str) {
        self.mounted.lead(tag, image);
    }

    fn users(&self, name: &str) -> Vec<String> {
        counted(self.mounted.opens(name), "open file").into_iter().collect()
    }

    fn is_bound(&self) -> Option<String> {
        let reason = "a mount is handed over by Linux 6.9 or later, and if its files cannot be written";
        self.mounted.kept().is_none().then(|| reason.to_owned())
    }

    fn hand_over(self: Box<Self>) -> Job<'static, Vec<Vec<Handed>>> {
        // What it has not answered when the process ends the kernel asks again.
        std::mem::forget(self);
        Box::pin(ready(Vec::new()))
    }

    fn stop<'a>(self: Box<Self>, console: &'a Console) -> Job<'a, ()> {
        let dir = self.mounted.directory().display().to_string();
        MOUNT.iter().for_each(|name| self.estate.forget(name));
        Box::pin(async move {
            match tokio::task::spawn_blocking(|| self.mounted.unmount()).await {
                Ok(Ok(Unmounted::Idle)) => {}
                Ok(Ok(Unmounted::Forced)) => console.warn(&format!("{dir} was in use; its readers were disconnected")),
                Ok(Ok(Unmounted::Held)) => console.warn(&format!("{dir} is still held by a reader")),
                Ok(Err(error)) => console.warn(&error.to_string()),
                Err(error) => console.warn(&format!("unmounting {dir}: {error}")),
            }
        })
    }
}

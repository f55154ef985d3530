//! The exports of a daemon together: NBD servers, the mount and block devices; checked early, started late, ended in order.

pub mod access;
mod devices;
mod explain;

use crate::control::offer::{ExportKind, ExportStatus};
use crate::control::place::Occupant;
use crate::failure::Failure;
use crate::log::Voice;
use crate::plan::Places;
use devices::Device;
use rustix::io::Errno;
use std::fs::OpenOptions;
use std::io::{Error, ErrorKind};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Handle;
use vfield_core::source::BlockSource;
use vfield_export::fuse::{self, MountError, Mounted, Unmounted};
use vfield_export::nbd::access::Rule;
use vfield_export::nbd::{self, BindError, Server, Serving};

/// What is exported now.
#[derive(Debug)]
pub struct Exports {
    nbd: Vec<Serving>,
    mount: Option<Mounted>,
    devices: Vec<Device>,
}

/// Refuses places that cannot be had, without taking them: the images cannot be read yet.
pub fn check(places: &Places) -> Result<(), Failure> {
    for place in &places.nbd {
        match place {
            nbd::Address::Unix(path) => check_socket(path)?,
            nbd::Address::Tcp(addr) => {
                TcpListener::bind(addr).map_err(|error| explain::bind(&BindError::Tcp(*addr, error)))?;
            }
        }
    }
    if let Some(kind) = places.device {
        devices::choose(kind)?;
    }
    places.mount.as_deref().map_or(Ok(()), check_mount)
}

fn check_socket(path: &Path) -> Result<(), Failure> {
    let failed = |cause| explain::bind(&BindError::Unix { path: path.to_owned(), cause });
    match Occupant::at(path).map_err(failed)? {
        Occupant::Live => return Err(explain::bind(&BindError::InUse(path.to_owned()))),
        Occupant::NotASocket => return Err(explain::bind(&BindError::NotASocket(path.to_owned()))),
        Occupant::Dead | Occupant::Nobody => {}
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match std::fs::metadata(parent) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(failed(Error::from(ErrorKind::NotADirectory))),
        Err(error) => Err(failed(error)),
    }
}

fn check_mount(dir: &Path) -> Result<(), Failure> {
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

impl Exports {
    /// Takes all places and serves `sources` there, over TCP as `access` allows; none is kept if one cannot be had. Within a
    /// runtime.
    pub async fn start(
        places: &Places,
        access: Vec<Rule>,
        sources: Vec<Arc<dyn BlockSource>>,
        voice: &Voice,
    ) -> Result<Self, Failure> {
        let bound: Result<Vec<Server>, BindError> = places
            .nbd
            .iter()
            .map(|place| {
                Ok(Server::bind(place, sources.clone())?.with_tls(places.tls.clone()).with_access(access.clone()))
            })
            .collect();
        let bound = bound.map_err(|error| explain::bind(&error))?;
        let dir = places.mount.as_deref();
        let mounted = dir.map(|dir| fuse::mount(dir, sources.clone(), fuse::Options::new(Handle::current())));
        let mount = mounted.transpose().map_err(|error| explain::mount(&error))?;
        let devices = match places.device {
            None => Vec::new(),
            Some(kind) => {
                let (driver, instead) = devices::choose(kind)?;
                if let Some(why) = instead {
                    voice.say(&format!("the kernel's NBD client makes block devices: {why}"));
                }
                devices::make(driver, sources).await?
            }
        };
        Ok(Self { nbd: bound.into_iter().map(Server::start).collect(), mount, devices })
    }

    /// Where the images can be attached.
    pub fn places(&self) -> Vec<ExportStatus> {
        let nbd = self.nbd.iter().map(|serving| ExportStatus::of_all(ExportKind::Nbd, serving.address().uri("")));
        let dir = |mount: &Mounted| mount.directory().display().to_string();
        let mount = self.mount.iter().map(|mount| ExportStatus::of_all(ExportKind::Fuse, dir(mount)));
        nbd.chain(mount).chain(self.devices.iter().map(Device::place)).collect()
    }

    /// The block devices, with the names of their images.
    pub fn devices(&self) -> Vec<(String, PathBuf)> {
        self.devices.iter().map(|device| (device.image().to_owned(), device.path())).collect()
    }

    /// Ends all of them: the mount and the devices first, since their readers are most likely to be in the way.
    pub async fn stop(self, voice: &Voice) {
        for device in self.devices {
            device.stop(voice).await;
        }
        if let Some(mount) = self.mount {
            let dir = mount.directory().display().to_string();
            match tokio::task::spawn_blocking(|| mount.unmount()).await {
                Ok(Ok(Unmounted::Idle)) => {}
                Ok(Ok(Unmounted::Forced)) => voice.warn(&format!("{dir} was in use; its readers were cut off")),
                Ok(Ok(Unmounted::Held)) => voice.warn(&format!("{dir} is still held by a reader")),
                Ok(Err(error)) => voice.warn(&error.to_string()),
                Err(error) => voice.warn(&format!("unmounting {dir}: {error}")),
            }
        }
        let stopping: Vec<_> = self.nbd.into_iter().map(|serving| tokio::spawn(serving.shutdown())).collect();
        for stopped in stopping {
            // A failure in there is logged by the server itself.
            let _ = stopped.await;
        }
    }
}

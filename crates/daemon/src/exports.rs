//! The exports of a daemon together: NBD servers, the mount and block devices; checked early, started late, ended in order.

pub mod access;
mod devices;
mod explain;

use crate::plan::Places;
use devices::Device;
use rustix::io::Errno;
use std::fs::OpenOptions;
use std::io::{Error, ErrorKind};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Handle;
use vfield_block::source::BlockSource;
use vfield_console::failure::Failure;
use vfield_console::log::Voice;
use vfield_control::offer::{ExportKind, ExportStatus};
use vfield_control::place::Occupant;
use vfield_export::fuse::{self, MountError, Mounted, Removed, Unmounted};
use vfield_export::nbd::access::Rule;
use vfield_export::nbd::{self, BindError, Server, Serving};

/// What is exported now.
#[derive(Debug)]
pub struct Exports {
    nbd: Vec<Serving>,
    mount: Option<Mounted>,
    devices: Vec<Device>,
    access: Vec<Rule>,
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
        Ok(Self { nbd: bound.into_iter().map(Server::start).collect(), mount, devices, access })
    }

    /// Exports one more image; all of the exports have it, or none.
    pub fn add(&self, source: &Arc<dyn BlockSource>, voice: &Voice) -> Result<(), Failure> {
        let mounted = self.mount.as_ref().map_or(Ok(()), |mount| mount.add(Arc::clone(source)));
        mounted.map_err(|error| explain::mount(&error))?;
        // All servers have the same names: what one takes, all take.
        let added = self.nbd.iter().try_for_each(|serving| serving.add(Arc::clone(source)));
        added.map_err(|error| {
            // Nobody has it open yet, so there is nobody to be told.
            drop(self.mount.as_ref().and_then(|mount| mount.remove(source.name())));
            explain::bind(&error)
        })?;
        if self.nbd.iter().any(|serving| matches!(serving.address(), nbd::Address::Tcp(_))) {
            access::warn_closed(&self.access, std::iter::once(source.name()), voice);
        }
        Ok(())
    }

    /// True if each image is a block device.
    pub fn makes_devices(&self) -> bool {
        !self.devices.is_empty()
    }

    /// Who has the image of this name open on this machine, in words; empty if nobody has.
    pub fn users(&self, name: &str) -> String {
        let clients = self.nbd.iter().map(|serving| serving.users(name)).sum();
        let opens = self.mount.as_ref().map_or(0, |mount| mount.opens(name));
        let claimed = |device: &&Device| device.image() == name && vfield_export::is_claimed(&device.path());
        let devices =
            self.devices.iter().filter(claimed).map(|device| format!("{} is in use", device.path().display()));
        let count = |count: usize, what: &str| match count {
            0 => None,
            1 => Some(format!("1 {what}")),
            _ => Some(format!("{count} {what}s")),
        };
        let counted = [count(clients, "NBD client"), count(opens, "open file")];
        counted.into_iter().flatten().chain(devices).collect::<Vec<_>>().join(", ")
    }

    /// Takes the image of this name out of all exports; whoever uses it gets errors. Of its file the kernel is to be told, when
    /// nobody waits for a read of it any more.
    pub async fn remove(&mut self, name: &str, voice: &Voice) -> Option<Removed> {
        let devices = std::mem::take(&mut self.devices);
        let (gone, left): (Vec<Device>, _) = devices.into_iter().partition(|device| device.image() == name);
        self.devices = left;
        for device in gone {
            device.stop(voice).await;
        }
        self.nbd.iter().for_each(|serving| serving.remove(name));
        self.mount.as_ref().and_then(|mount| mount.remove(name))
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

//! The exports of a daemon together: NBD servers and the mount, checked early, started late, ended in order.

use crate::control::place::Occupant;
use crate::failure::{Failure, plain};
use crate::log::Voice;
use rustix::io::Errno;
use std::fs::OpenOptions;
use std::io::{Error, ErrorKind};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Handle;
use vfield_core::source::BlockSource;
use vfield_export::fuse::{self, MountError, Mounted, Unmounted};
use vfield_export::nbd::{self, BindError, Server, Serving};

/// What is exported now.
#[derive(Debug)]
pub struct Exports {
    nbd: Vec<Serving>,
    mount: Option<Mounted>,
}

/// Refuses places that cannot be had, without taking them: the images cannot be read yet.
pub fn check(places: &[nbd::Address], mount: Option<&Path>) -> Result<(), Failure> {
    for place in places {
        match place {
            nbd::Address::Unix(path) => check_socket(path)?,
            nbd::Address::Tcp(addr) => {
                TcpListener::bind(addr).map_err(|error| explain_bind(&BindError::Tcp(*addr, error)))?;
            }
        }
    }
    mount.map_or(Ok(()), check_mount)
}

fn check_socket(path: &Path) -> Result<(), Failure> {
    let failed = |cause| explain_bind(&BindError::Unix { path: path.to_owned(), cause });
    match Occupant::at(path).map_err(failed)? {
        Occupant::Live => return Err(explain_bind(&BindError::InUse(path.to_owned()))),
        Occupant::NotASocket => return Err(explain_bind(&BindError::NotASocket(path.to_owned()))),
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
        Ok(true) => return Err(explain_mount(&MountError::NotEmpty(path))),
        // The mount of a dead daemon, which mounting clears away.
        Err(error) if dead(&error) => {}
        Err(error) => {
            return Err(explain_mount(&match error.kind() {
                ErrorKind::NotFound => MountError::Missing(path),
                ErrorKind::NotADirectory => MountError::NotADirectory(path),
                _ => MountError::Unusable { path, source: error },
            }));
        }
    }
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    device.map(drop).map_err(|error| explain_mount(&MountError::FuseUnavailable(error)))
}

impl Exports {
    /// Takes all places and serves `sources` there; none is kept if one cannot be had. Within a runtime.
    pub fn start(
        places: &[nbd::Address],
        mount: Option<&Path>,
        sources: Vec<Arc<dyn BlockSource>>,
    ) -> Result<Self, Failure> {
        let bound: Result<Vec<Server>, BindError> =
            places.iter().map(|place| Server::bind(place, sources.clone())).collect();
        let bound = bound.map_err(|error| explain_bind(&error))?;
        let mounted = mount.map(|dir| fuse::mount(dir, sources, fuse::Options::new(Handle::current())));
        let mount = mounted.transpose().map_err(|error| explain_mount(&error))?;
        Ok(Self { nbd: bound.into_iter().map(Server::start).collect(), mount })
    }

    /// Where the images can be attached, as clients write it.
    pub fn places(&self) -> Vec<String> {
        let mount = self.mount.iter().map(|mount| format!("fuse:{}", mount.directory().display()));
        self.nbd.iter().map(|serving| serving.address().uri("")).chain(mount).collect()
    }

    /// Ends all of them: the mount first, since its readers are most likely to be in the way.
    pub async fn stop(self, voice: &Voice) {
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

fn explain_bind(error: &BindError) -> Failure {
    let (fact, hint) = match error {
        BindError::PathTooLong(_) => (error.to_string(), "choose a shorter path".to_owned()),
        BindError::InUse(_) => (error.to_string(), "give this daemon another --nbd unix:PATH".to_owned()),
        BindError::NotASocket(_) => (error.to_string(), "move it away, or give another --nbd unix:PATH".to_owned()),
        BindError::Unix { path, cause } => (
            format!("cannot listen on the unix socket {}: {}", path.display(), plain(cause)),
            "its directory must exist and be writable".to_owned(),
        ),
        BindError::Tcp(addr, cause) => {
            let hint = match cause.kind() {
                ErrorKind::AddrInUse => "another program has this port: choose another with --nbd tcp:ADDR:PORT",
                ErrorKind::AddrNotAvailable => "it is no address of this machine: try --nbd tcp:127.0.0.1",
                ErrorKind::PermissionDenied => "ports below 1024 are for root: choose a higher one",
                _ => "choose another address with --nbd tcp:ADDR:PORT",
            };
            (format!("cannot listen on tcp address {addr}: {}", plain(cause)), hint.to_owned())
        }
        BindError::NoSource => (error.to_string(), "join an image".to_owned()),
        BindError::SameName(_) => (error.to_string(), "choose one of them with --image ID".to_owned()),
    };
    Failure::failed(fact).hint(hint)
}

fn explain_mount(error: &MountError) -> Failure {
    let (fact, hint) = match error {
        MountError::Missing(path) => (error.to_string(), format!("make it first: mkdir {}", path.display())),
        MountError::NotADirectory(_) => (error.to_string(), "give an empty directory to --mount".to_owned()),
        MountError::NotEmpty(_) => {
            (error.to_string(), "give an empty directory to --mount; nothing in it was touched".to_owned())
        }
        MountError::AlreadyMounted(_) => (error.to_string(), "give another directory to --mount".to_owned()),
        MountError::Stale { path, .. } => (error.to_string(), format!("take it away: umount {}", path.display())),
        MountError::Unusable { path, source } => (
            format!("mount point {} cannot be used: {}", path.display(), plain(source)),
            "give an empty directory of yours to --mount".to_owned(),
        ),
        MountError::FuseUnavailable(source) => (
            format!("FUSE is not available: /dev/fuse: {}", plain(source)),
            "load it with `modprobe fuse`, or use --nbd instead of --mount".to_owned(),
        ),
        MountError::Refused { path, source } => (
            format!("mounting on {} failed: {}", path.display(), plain(source)),
            "who is not root needs fusermount3 (package fuse3); --nbd does without".to_owned(),
        ),
        MountError::BadName(_) | MountError::SameName(_) => {
            (error.to_string(), "choose images with --image".to_owned())
        }
        MountError::TooLong { .. } => (error.to_string(), "use --nbd instead of --mount".to_owned()),
    };
    Failure::failed(fact).hint(hint)
}

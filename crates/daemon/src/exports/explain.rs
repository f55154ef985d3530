//! Why an export cannot be had, in words for people: the fact, and what to do about it.

use std::io::ErrorKind;
use vfield_console::failure::{Failure, plain};
use vfield_export::fuse::MountError;
use vfield_export::nbd::BindError;
use vfield_export::nbd::kernel::AttachError;
use vfield_export::ublk::UblkError;

/// Why a place for NBD clients cannot be had.
pub fn bind(error: &BindError) -> Failure {
    let (fact, hint) = match error {
        BindError::PathTooLong(_) => (error.to_string(), "choose a shorter path".to_owned()),
        BindError::InUse(_) => (error.to_string(), "give this daemon another --nbd unix:PATH".to_owned()),
        BindError::NotASocket(_) => (error.to_string(), "move the file, or give another --nbd unix:PATH".to_owned()),
        BindError::Unix { path, cause } => (
            format!("cannot listen on the unix socket {}: {}", path.display(), plain(cause)),
            "its directory must exist and be writable".to_owned(),
        ),
        BindError::Tcp(addr, cause) => {
            let hint = match cause.kind() {
                ErrorKind::AddrInUse => "another program has this port: choose another with --nbd tcp:ADDR:PORT",
                ErrorKind::AddrNotAvailable => "this machine does not have the address: try --nbd tcp:127.0.0.1",
                ErrorKind::PermissionDenied => "ports below 1024 need root: choose a higher port",
                _ => "choose another address with --nbd tcp:ADDR:PORT",
            };
            (format!("cannot listen on tcp address {addr}: {}", plain(cause)), hint.to_owned())
        }
        BindError::NoSource => (error.to_string(), "join an image".to_owned()),
        BindError::SameName(_) => (error.to_string(), "choose one of them with --image ID".to_owned()),
    };
    Failure::failed(fact).hint(hint)
}

/// Why a directory cannot be had.
pub fn mount(error: &MountError) -> Failure {
    let (fact, hint) = match error {
        MountError::Missing(path) => (error.to_string(), format!("make it first: mkdir {}", path.display())),
        MountError::NotADirectory(_) => (error.to_string(), "give an empty directory to --mount".to_owned()),
        MountError::NotEmpty(_) => {
            (error.to_string(), "give an empty directory to --mount; this one is unchanged".to_owned())
        }
        MountError::AlreadyMounted(_) => (error.to_string(), "give another directory to --mount".to_owned()),
        MountError::Stale { path, .. } => (error.to_string(), format!("unmount it: umount {}", path.display())),
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
            "users other than root need fusermount3 (package fuse3); or use --nbd".to_owned(),
        ),
        MountError::BadName(_) | MountError::SameName(_) => {
            (error.to_string(), "choose images with --image".to_owned())
        }
        MountError::TooLong { .. } => (error.to_string(), "use --nbd instead of --mount".to_owned()),
    };
    Failure::failed(fact).hint(hint)
}

/// Why images cannot be block devices of the kernel's NBD client.
pub fn attach(error: &AttachError) -> Failure {
    let hint = match error {
        AttachError::NotThere => "load it: `modprobe nbd`; or use --nbd or --mount",
        AttachError::NotAllowed => "run as root, or use --nbd or --mount instead of --device",
        AttachError::InUse { .. } => "end that daemon first, with `vfield leave`",
        AttachError::Refused { .. } => "see the kernel's log: dmesg",
    };
    Failure::failed(error.to_string()).hint(hint)
}

/// Why images cannot be block devices of ublk.
pub fn ublk(error: &UblkError) -> Failure {
    let (fact, hint) = match error {
        UblkError::NotThere => {
            (error.to_string(), "load it: `modprobe ublk_drv` (Linux 6.5 or later); or use --nbd or --mount".to_owned())
        }
        UblkError::NotAllowed => {
            (error.to_string(), "run as root, or use --nbd or --mount instead of --ublk".to_owned())
        }
        UblkError::TooOld { .. } => (error.to_string(), "use Linux 6.5 or later, --nbd or --mount".to_owned()),
        UblkError::NoRing(source) => (
            format!("ublk needs io_uring, which is not available: {}", plain(source)),
            "see `sysctl kernel.io_uring_disabled`; or use --nbd or --mount instead of --ublk".to_owned(),
        ),
        UblkError::InUse { server, .. } => {
            (error.to_string(), format!("end that daemon first, with `vfield leave` or `kill {server}`"))
        }
        UblkError::TooLong { .. } => (error.to_string(), "use --nbd instead of --ublk".to_owned()),
        UblkError::NotTakenOver { path, source } => (
            format!("taking over {} failed: {}", path.display(), plain(source)),
            "start the daemon again; reads of the device block until then".to_owned(),
        ),
        UblkError::Refused { what, source } => {
            (format!("ublk refused to {what}: {}", plain(source)), "see the kernel's log: dmesg".to_owned())
        }
    };
    Failure::failed(fact).hint(hint)
}

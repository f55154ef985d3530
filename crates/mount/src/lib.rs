//! Mounts the file system in an image file, and puts that of another image in its place.
//!
//! Invariant: no byte changes below an open file. The new file system is a mount of its own. It is
//! put beneath the old one, and the old one is taken away lazily. An open file stays in the old
//! one, and a newcomer finds the new one. This crate knows no field and no tag; the command line
//! calls it, as root.

mod file_system;
mod loop_device;
mod table;

pub use file_system::Kind;
pub use table::{Top, top};

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount, unmount,
};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// `MOVE_MOUNT_BENEATH` of Linux 6.5 and later.
const BENEATH: MoveMountFlags = MoveMountFlags::from_bits_retain(0x200);

/// Why a file system cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The image cannot be read.
    #[error("{}: {source}", path.display())]
    Image {
        /// The path of the image.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No file system that is known here begins the image.
    #[error("{}: no file system is found in the image", path.display())]
    NoFileSystem {
        /// The path of the image.
        path: PathBuf,
    },
    /// The kernel refuses it.
    #[error("{what} {}: {source}", path.display())]
    Refused {
        /// The failed step.
        what: &'static str,
        /// The image, or the directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// How a file system came into its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// Nothing of ours was there.
    First,
    /// Beneath the old one, which is gone from the tree. Open files end on it.
    Beneath,
    /// Over the old one, since this kernel cannot do better. The old one stays mounted below.
    Over,
}

/// A mounted file system that is in no tree yet. Dropping it unmounts it.
#[derive(Debug)]
pub struct Detached(OwnedFd);

/// Mounts the file system in `image`, read-only and without devices, in no tree yet. Without
/// `kind`, its first bytes tell which one it is.
///
/// # Errors
/// If there is none, or the kernel refuses it.
pub fn open(image: &Path, kind: Option<Kind>) -> Result<Detached, MountError> {
    let failed = |source| MountError::Image { path: image.to_owned(), source };
    let file = File::open(image).map_err(failed)?;
    let found = kind.map_or_else(|| Kind::of(&file).map_err(failed), |kind| Ok(Some(kind)))?;
    let kind = found.ok_or_else(|| MountError::NoFileSystem { path: image.to_owned() })?;
    let refused = |what| move |errno: Errno| MountError::Refused { what, path: image.to_owned(), source: errno.into() };
    // Linux 6.12 and later mounts an EROFS file itself.
    if kind == Kind::Erofs
        && let Ok(mounted) = make(kind, image)
    {
        return Ok(mounted);
    }
    let device = loop_device::attach(&file).map_err(refused("making a loop device of"))?;
    // The device goes with the last mount of it.
    make(kind, device.path()).map_err(refused("mounting"))
}

fn make(kind: Kind, source: &Path) -> Result<Detached, Errno> {
    let context = fsopen(kind.name(), FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", source)?;
    fsconfig_set_flag(&context, "ro")?;
    kind.flags().iter().try_for_each(|flag| fsconfig_set_flag(&context, *flag))?;
    fsconfig_create(&context)?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map(Detached)
}

impl Detached {
    /// Puts it at `dir`, over all that is mounted there.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn attach(self, dir: &Path) -> Result<Placed, MountError> {
        self.put(dir, MoveMountFlags::empty()).map_err(refusal(dir))?;
        Ok(Placed::First)
    }

    /// Puts it in the place of the mount on top of `dir`, which is taken away lazily. On kernels
    /// that cannot do so it comes over that mount.
    ///
    /// # Errors
    /// If the kernel refuses it; then the old one is still there.
    pub fn replace(self, dir: &Path) -> Result<Placed, MountError> {
        match self.put(dir, BENEATH) {
            Ok(()) => {
                unmount(dir, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).map_err(refusal(dir))?;
                Ok(Placed::Beneath)
            }
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                self.put(dir, MoveMountFlags::empty()).map_err(refusal(dir))?;
                Ok(Placed::Over)
            }
            Err(errno) => Err(refusal(dir)(errno)),
        }
    }

    fn put(&self, dir: &Path, how: MoveMountFlags) -> Result<(), Errno> {
        move_mount(&self.0, "", CWD, dir, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | how)
    }
}

fn refusal(dir: &Path) -> impl FnOnce(Errno) -> MountError {
    let path = dir.to_owned();
    move |errno| MountError::Refused { what: "mounting at", path, source: errno.into() }
}

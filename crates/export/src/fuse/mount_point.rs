//! The directory of a mount: its state before, and the removal of a mount.
//!
//! Owns no state; every function asks the kernel. Invariant: only mounts of ours (by their file
//! system type and device number) are ever removed. Called by [`super`]; knows nothing of images
//! and sessions.

use super::error::MountError;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the mount table calls our mounts, after `fuse.`.
pub(super) const SUBTYPE: &str = "vfield";

/// How many dead mounts, one on top of the other, are cleared away: each died with its daemon, so
/// more than a few are a crash loop that somebody should look at.
const STALE_MAX: usize = 16;

/// One line of the mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// Device number as the kernel writes it, `major:minor`: unique among present mounts.
    pub device: String,
    file_system: String,
}

impl Mount {
    pub(super) fn is_ours(&self) -> bool {
        self.file_system.strip_prefix("fuse.") == Some(SUBTYPE)
    }
}

/// The topmost mount at `path` (canonical) in this process's namespace.
pub(super) fn top(path: &Path) -> Option<Mount> {
    let table = fs::read("/proc/self/mountinfo").ok()?;
    // Later mounts come later in the table, and the last one at a path is the one on top.
    String::from_utf8_lossy(&table).lines().rev().find_map(|line| parse(line, path))
}

/// Reads a line of `mountinfo` (see `proc_pid_mountinfo(5)`) if it is about `path`.
fn parse(line: &str, path: &Path) -> Option<Mount> {
    let (place, kind) = line.split_once(" - ")?;
    let mut place = place.split(' ');
    let device = place.nth(2)?;
    let point = place.nth(1)?;
    (unescape(point).as_str() == path.to_str()?)
        .then(|| Mount { device: device.into(), file_system: kind.split(' ').next().unwrap_or_default().into() })
}

/// Undoes the kernel's octal escapes of space, tab, line feed and backslash.
fn unescape(point: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(point.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
}

/// The canonical path of an empty directory that nothing of ours is mounted on, after dead mounts
/// of ours have been cleared away.
pub(super) fn prepare(directory: &Path) -> Result<PathBuf, MountError> {
    let mut cleared = 0;
    let (path, empty) = loop {
        match look(directory) {
            Ok(found) => break found,
            Err(error) if is_dead(&error) && cleared < STALE_MAX => clear(directory, error)?,
            Err(error) => return Err(refusal(directory, error)),
        }
        cleared += 1;
    };
    if top(&path).is_some_and(|mount| mount.is_ours()) {
        return Err(MountError::AlreadyMounted(path));
    }
    if empty { Ok(path) } else { Err(MountError::NotEmpty(path)) }
}

/// Looks at a directory in ways that a dead mount does not survive: the attributes of its root may
/// still be cached, so that opening is needed. Gives its canonical path and whether it is empty.
fn look(directory: &Path) -> io::Result<(PathBuf, bool)> {
    if !fs::metadata(directory)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let empty = match fs::read_dir(directory)?.next() {
        None => true,
        Some(Ok(_)) => false,
        Some(Err(error)) => return Err(error),
    };
    Ok((fs::canonicalize(directory)?, empty))
}

fn refusal(directory: &Path, source: io::Error) -> MountError {
    let path = directory.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound => MountError::Missing(path),
        io::ErrorKind::NotADirectory => MountError::NotADirectory(path),
        _ if is_dead(&source) => MountError::Stale { path, source },
        _ => MountError::Unusable { path, source },
    }
}

/// True for what a FUSE mount answers whose daemon is gone.
fn is_dead(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Takes away the dead mount on top of `directory` if it is one of ours.
fn clear(directory: &Path, dead: io::Error) -> Result<(), MountError> {
    let path = resolve(directory);
    let stale = |source| MountError::Stale { path: path.clone(), source };
    match top(&path) {
        Some(mount) if mount.is_ours() => {
            tracing::warn!(path = %path.display(), "clearing away the mount of a dead export");
            detach(&path).map_err(stale)
        }
        _ => Err(stale(dead)),
    }
}

/// The canonical path, also where the last component is a dead mount that cannot be looked at.
fn resolve(directory: &Path) -> PathBuf {
    let by_parent = || {
        let absolute = std::path::absolute(directory).ok()?;
        Some(fs::canonicalize(absolute.parent()?).ok()?.join(absolute.file_name()?))
    };
    fs::canonicalize(directory).ok().or_else(by_parent).unwrap_or_else(|| directory.to_owned())
}

/// Unmounts; fails with `EBUSY` while files are open.
pub(super) fn unmount(path: &Path) -> io::Result<()> {
    unmount_with(path, UnmountFlags::empty(), &["-u"])
}

/// Ends requests in flight with an error where this process may, and unmounts despite open files.
pub(super) fn abort(path: &Path) -> io::Result<()> {
    unmount_with(path, UnmountFlags::FORCE | UnmountFlags::DETACH, &["-u", "-z"])
}

/// Unmounts from the tree at once; open files stay open.
fn detach(path: &Path) -> io::Result<()> {
    unmount_with(path, UnmountFlags::DETACH, &["-u", "-z"])
}

/// With umount(2), or by the set-uid helper where that is not permitted.
fn unmount_with(path: &Path, flags: UnmountFlags, helper_options: &[&str]) -> io::Result<()> {
    match rustix::mount::unmount(path, flags | UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => fusermount(path, helper_options),
        other => Ok(other?),
    }
}

fn fusermount(path: &Path, options: &[&str]) -> io::Result<()> {
    let output = Command::new("fusermount3").args(options).arg("--").arg(path).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let kind = if message.contains("busy") { io::ErrorKind::ResourceBusy } else { io::ErrorKind::Other };
    Err(io::Error::new(kind, message))
}

/// Ends a connection through the kernel's control files, where they are mounted: the only way once
/// its mount has left this namespace.
pub(super) fn abort_connection(device: &str) -> io::Result<()> {
    let minor = device.rsplit(':').next().unwrap_or_default();
    fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_its_escaped_path() {
        let line = r"36 35 0:51 / /mnt/two\040words rw,nosuid shared:1 - fuse.vfield vfield ro,user_id=0";
        let mount = parse(line, Path::new("/mnt/two words")).expect("it is that path");
        assert_eq!(mount.device, "0:51");
        assert!(mount.is_ours());
        assert_eq!(parse(line, Path::new("/mnt/two")), None);
    }

    #[test]
    fn mounts_of_others_are_not_ours() {
        let line = "36 35 0:51 / /mnt rw - fuse.sshfs host: rw";
        assert!(!parse(line, Path::new("/mnt")).expect("it is that path").is_ours());
    }

    #[test]
    fn broken_lines_are_skipped() {
        for line in ["", " - ", "1 2 3 - x", "36 35 0:51 / /mnt"] {
            assert_eq!(parse(line, Path::new("/mnt")), None);
        }
    }
}

//! The program that a guard starts as its daemon.
//!
//! A guard has given up nothing, and its daemon has. So a daemon never names a program. The guard
//! takes the program that lies where its own came from. A client may name another program if the
//! guard has not started that client, at any remove. The client shows itself by a pair of sockets:
//! the kernel knows the maker of each pair.

use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, accessat, fstat, open};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, geteuid, getpid};
use std::ffi::OsStr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use vfield_control::fd_message;

/// The program that runs, wherever it came from.
const SELF: &str = "/proc/self/exe";
/// Behind the path of a program that was replaced.
const DELETED: &str = " (deleted)";
/// Longest path of Linux.
const PATH_BYTES_MAX: usize = 4096;
/// More processes above one another are nobody's.
const ANCESTORS_MAX: usize = 1024;

/// A program that a guard can start as its daemon.
#[derive(Debug)]
pub enum Program {
    /// The program that the guard itself runs.
    Own,
    /// An opened file, whatever lies at its path now.
    Opened(OwnedFd),
}

impl Program {
    /// A command that starts it.
    pub fn command(&self) -> Command {
        match self {
            Self::Own => Command::new(SELF),
            Self::Opened(file) => Command::new(format!("/proc/self/fd/{}", file.as_raw_fd())),
        }
    }

    /// The program at this path, or the reason why there is none.
    pub fn at(path: &Path) -> Result<Self, String> {
        let refused = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let file = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| refused(&errno))?;
        let stat = fstat(&file).map_err(|errno| refused(&errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(refused(&"not a program"));
        }
        accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).map_err(|errno| refused(&errno))?;
        Ok(Self::Opened(file))
    }

    /// The program that a client names over a socket, if that client may.
    pub fn named(witness: &OwnedFd) -> Result<Self, String> {
        let maker = socket_peercred(witness).map_err(|errno| format!("nobody names a program: {errno}"))?;
        if maker.uid.as_raw() != 0 && maker.uid != geteuid() {
            return Err("only the user who started the daemon, or root, can name a program".to_owned());
        }
        if !stands_beside(maker.pid) {
            return Err("a daemon cannot name a program".to_owned());
        }
        let mut text = vec![0; PATH_BYTES_MAX];
        let (bytes, _) = fd_message::receive_into(witness, &mut text).map_err(|_| "no program is named".to_owned())?;
        let path = PathBuf::from(OsStr::from_bytes(&text[..bytes]));
        if path.is_absolute() { Self::at(&path) } else { Err("no program is named".to_owned()) }
    }
}

/// The path that this program was started from.
pub fn own_path() -> PathBuf {
    let path = std::fs::read_link(SELF).unwrap_or_default();
    let bytes = path.as_os_str().as_bytes();
    bytes.strip_suffix(DELETED.as_bytes()).map_or(path.clone(), |bytes| PathBuf::from(OsStr::from_bytes(bytes)))
}

/// True if a live process is neither this one nor started by it, at any remove.
fn stands_beside(pid: Pid) -> bool {
    let mut pid = pid.as_raw_nonzero().get();
    for _ in 0..ANCESTORS_MAX {
        if pid == getpid().as_raw_nonzero().get() {
            return false;
        }
        match parent(pid) {
            Some(0) => return true,
            Some(parent) => pid = parent,
            None => return false,
        }
    }
    false
}

/// The parent of a process; 0 for the first process of all, and for a process from outside this
/// container.
fn parent(pid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_program_is_a_file_that_can_be_started() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        assert!(Program::at(&path).unwrap_err().contains("No such file"));
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Program::at(&path).is_err(), "it is not executable");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(Program::at(&path).is_ok());
        assert!(Program::at(dir.path()).unwrap_err().ends_with("not a program"));
    }

    #[test]
    fn whoever_is_behind_the_guard_names_nothing() {
        // Made by this very process, which stands for the guard.
        let (client, guard) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        fd_message::send(&client, None, b"/bin/sh", None).unwrap();
        assert_eq!(Program::named(&guard).unwrap_err(), "a daemon cannot name a program");
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!stands_beside(Pid::from_child(&child)));
        child.kill().unwrap();
        child.wait().unwrap();
        let parent = rustix::process::getppid().expect("somebody started the tests");
        assert!(stands_beside(parent));
    }
}

//! The machine's service manager: told how far the daemon is (`sd_notify(3)`: one datagram to the
//! socket that `NOTIFY_SOCKET` names), and given the files that the next start of this service is
//! to have (its file descriptor store).

use super::inherited;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use vfield_control::fd_message;
use vfield_node::keeper::Keeper;

/// What the names of our files begin with; sockets on which others listen for us are called as the
/// unit says.
const OURS: &str = "vfield-";
/// More names were passed by nobody who means it.
const NAMES_MAX: usize = 1024;

/// Takes the way to the service manager from a process that this one starts. Its guard speaks for
/// it: the manager listens to one process, and a daemon in its sandbox needs no way to it.
pub fn hide_from(command: &mut Command) {
    ["NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"].iter().for_each(|name| {
        command.env_remove(name);
    });
}

/// Sends `state`, such as `READY=1`, if there is a service manager.
pub fn tell(state: &str) {
    tell_with(state, None);
}

/// The service manager as a keeper.
#[derive(Debug)]
pub struct FileStore {
    /// What it passed to this process, until it is taken.
    passed: Mutex<Vec<(String, OwnedFd)>>,
}

impl FileStore {
    /// The manager that started this process; `None` if none takes messages.
    pub fn find() -> Option<Self> {
        socket()?;
        let variable = |name| std::env::var(name).unwrap_or_default();
        let names = variable("LISTEN_FDNAMES");
        let names = passed(&variable("LISTEN_PID"), &variable("LISTEN_FDS"), &names);
        let files = inherited::take(&names, |name| name.starts_with(OURS));
        let passed = files.into_iter().map(|(name, file)| (name[OURS.len()..].to_owned(), file)).collect();
        Some(Self { passed: Mutex::new(passed) })
    }
}

impl Keeper for FileStore {
    fn take(&self) -> Vec<(String, OwnedFd)> {
        std::mem::take(&mut self.passed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn keep(&self, name: &str, file: BorrowedFd<'_>) {
        tell_with(&format!("FDSTORE=1\nFDNAME={OURS}{name}\nFDPOLL=0"), Some(file));
    }

    fn forget(&self, name: &str) {
        tell(&format!("FDSTOREREMOVE=1\nFDNAME={OURS}{name}"));
    }
}

/// The names of the files that were passed to this process, in their order; those without a name
/// are called "unknown".
fn passed<'a>(pid: &str, count: &str, names: &'a str) -> Vec<&'a str> {
    let for_us = pid.parse() == Ok(std::process::id());
    let count = count.parse().unwrap_or(0).min(if for_us { NAMES_MAX } else { 0 });
    names.split(':').chain(std::iter::repeat("unknown")).take(count).collect()
}

fn socket() -> Option<OsString> {
    std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty())
}

fn tell_with(state: &str, file: Option<BorrowedFd<'_>>) {
    let Some(socket) = socket() else { return };
    if let Err(error) = send(&socket, state, file) {
        tracing::debug!(%error, socket = %socket.display(), "the service manager was not told");
    }
}

fn send(socket: &OsStr, state: &str, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let addr = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddrUnix::new_abstract_name(name)?,
        None => SocketAddrUnix::new(socket)?,
    };
    let datagram = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // A full queue does not hold up the daemon.
    fd_message::send(&datagram, Some(&addr), state.as_bytes(), file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn a_service_manager_hears_the_state_and_has_the_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), "READY=1", None).unwrap();
        let (text, file) = fd_message::receive(&manager).unwrap();
        assert_eq!((&text[..], file.is_none()), (&b"READY=1"[..], true));
        send(path.as_os_str(), "FDSTORE=1", Some(tempfile::tempfile().unwrap().as_fd())).unwrap();
        let (text, file) = fd_message::receive(&manager).unwrap();
        assert_eq!((&text[..], file.is_some()), (&b"FDSTORE=1"[..], true));
        assert!(fd_message::receive(&manager).is_none());
        assert!(send(OsStr::new("/nonexistent/notify"), "READY=1", None).is_err());
    }

    #[test]
    fn files_are_for_the_process_they_were_passed_to() {
        let me = std::process::id().to_string();
        assert_eq!(passed(&me, "3", "vfield-store-1:socket"), ["vfield-store-1", "socket", "unknown"]);
        assert_eq!(passed(&me, "1", "a:b"), ["a"]);
        assert!(passed("1", "3", "a:b:c").is_empty());
        assert!(passed(&me, "-1", "a").is_empty() && passed(&me, "", "").is_empty() && passed("", "1", "a").is_empty());
        assert_eq!(passed(&me, "99999999", "").len(), NAMES_MAX);
    }
}

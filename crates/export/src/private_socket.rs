//! Unix sockets of which the file is its owner's alone, from its first moment on, and the way to
//! give one to somebody.
//!
//! Invariant: nothing is ever done to a path whose file may have been exchanged. The directory may
//! belong to the very user to whom a daemon of root's is to give the socket, and who would like
//! root to give him something else. Used by the NBD server and by whoever keeps a control socket.

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::geteuid;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Makes the socket's file; nobody is listened to yet.
///
/// # Errors
/// `AddrInUse` if something is at that path, and whatever else the system says.
pub fn bind(address: &SocketAddrUnix) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The file is made with the rights of the socket, so there is no moment with others, and no
    // umask of all threads.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, address)?;
    Ok(socket)
}

/// The file of a socket, whatever may be at its path later.
#[derive(Debug)]
pub struct SocketFile(OwnedFd);

impl SocketFile {
    /// The one at `path`.
    ///
    /// # Errors
    /// If something else is there.
    pub fn at(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        let socket = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) == FileType::Socket;
        if socket { Ok(Self(file)) } else { Err(exchanged()) }
    }

    /// Makes it another user's, if it is this one's.
    ///
    /// # Errors
    /// If it has another name, somewhere else, or another owner: then it is not what this user has
    /// made here.
    pub fn give(&self, uid: u32, gid: u32) -> io::Result<()> {
        let stat = rustix::fs::fstat(&self.0)?;
        if stat.st_uid != geteuid().as_raw() || stat.st_nlink != 1 {
            return Err(exchanged());
        }
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        Ok(rustix::fs::chownat(&self.0, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?)
    }

    /// True if this socket is at `path` now.
    pub fn is_at(&self, path: &Path) -> bool {
        let (ours, there) = (rustix::fs::fstat(&self.0), rustix::fs::lstat(path));
        ours.is_ok_and(|ours| there.is_ok_and(|there| (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)))
    }
}

fn exchanged() -> io::Error {
    io::Error::other("somebody has put something else in the place of the socket")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    fn bound(path: &Path) -> OwnedFd {
        bind(&SocketAddrUnix::new(path).unwrap()).unwrap()
    }

    #[test]
    fn its_file_is_private_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _socket = bound(&path);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let file = SocketFile::at(&path).unwrap();
        assert!(file.is_at(&path) && !file.is_at(dir.path()));
    }

    #[test]
    fn what_was_put_in_its_place_is_nobodys() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let (_one, _other) = (bound(&path("one")), bound(&path("other")));
        std::fs::write(path("file"), "somebody's").unwrap();
        symlink(path("one"), path("link to a socket")).unwrap();
        symlink(path("file"), path("link to a file")).unwrap();
        std::fs::hard_link(path("other"), path("second name")).unwrap();
        let (uid, gid) = (geteuid().as_raw(), rustix::process::getegid().as_raw());
        for name in ["file", "link to a socket", "link to a file", "second name", "other"] {
            let error = SocketFile::at(&path(name)).and_then(|file| file.give(uid, gid)).unwrap_err().to_string();
            assert_eq!(error, exchanged().to_string(), "{name}");
        }
        assert!(SocketFile::at(&path("none")).is_err());
    }

    #[test]
    fn what_is_given_is_what_was_found() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("socket"), dir.path().join("moved"));
        let _socket = bound(&path);
        let file = SocketFile::at(&path).unwrap();
        std::fs::rename(&path, &moved).unwrap();
        std::fs::write(&path, "somebody's").unwrap();
        // Only root can give something away; to oneself everybody can.
        let (uid, gid) = match geteuid().is_root() {
            true => (64_123, 64_123),
            false => (geteuid().as_raw(), rustix::process::getegid().as_raw()),
        };
        let before = path.metadata().unwrap().uid();
        file.give(uid, gid).unwrap();
        assert_eq!((moved.metadata().unwrap().uid(), path.metadata().unwrap().uid()), (uid, before));
    }
}

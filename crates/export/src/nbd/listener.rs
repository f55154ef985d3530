//! The listening socket and the file that a unix one leaves in the file system.
//!
//! Invariants: a unix socket can be opened by its owner only, from its first moment on; a socket
//! that somebody still answers on is never taken away; the file is removed with the listener, but
//! only if it is still the one that this listener made. The server calls it.

use super::address::{Address, UNIX_PATH_BYTES_MAX};
use super::socket::Socket;
use crate::private_socket::{self, SocketFile};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net as unix;
use std::path::{Path, PathBuf};
use tokio::net::{TcpListener, UnixListener};

/// Connections that wait to be accepted; the kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 1024;

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Longer than the operating system allows.
    #[error("the socket path {} has {len} bytes, {max} are possible", .0.display(), len = .0.as_os_str().len(), max = UNIX_PATH_BYTES_MAX)]
    PathTooLong(PathBuf),
    /// Somebody answers on the socket.
    #[error("another process is listening on {}", .0.display())]
    InUse(PathBuf),
    /// The path is taken by something that nobody would want to be replaced by a socket.
    #[error("{} exists and is not a socket", .0.display())]
    NotASocket(PathBuf),
    /// The operating system refused the unix socket.
    #[error("cannot listen on the unix socket {}: {cause}", path.display())]
    Unix {
        /// Path of the socket.
        path: PathBuf,
        /// What the operating system said.
        cause: io::Error,
    },
    /// The operating system refused the address or port.
    #[error("cannot listen on tcp address {0}: {1}")]
    Tcp(SocketAddr, io::Error),
    /// There is nothing to be served.
    #[error("a server needs at least one image")]
    NoSource,
    /// Two images of one name: clients could reach only one of them.
    #[error("two images are called '{0}'")]
    SameName(String),
}

/// A socket that listens. Has to be made, and used, within a tokio runtime.
#[derive(Debug)]
pub(super) enum Listener {
    Unix(UnixListener, OwnFile),
    Tcp(TcpListener),
}

impl Listener {
    /// Listens on `address`.
    pub(super) fn bind(address: &Address) -> Result<Self, BindError> {
        match address {
            Address::Unix(path) => bind_unix(path),
            Address::Tcp(address) => {
                let listen = || {
                    let listener = std::net::TcpListener::bind(address)?;
                    listener.set_nonblocking(true)?;
                    TcpListener::from_std(listener)
                };
                listen().map(Self::Tcp).map_err(|error| BindError::Tcp(*address, error))
            }
        }
    }

    /// Goes on with what another process listened at, wherever that is.
    pub(super) fn adopt(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        if sockopt::socket_domain(&socket)? != AddressFamily::UNIX {
            return TcpListener::from_std(socket.into()).map(Self::Tcp);
        }
        let listener = unix::UnixListener::from(socket);
        let path = listener.local_addr()?.as_pathname().map(Path::to_owned);
        let path = path.ok_or_else(|| io::Error::other("a socket without a path"))?;
        let file = OwnFile { file: SocketFile::at(&path)?, path };
        Ok(Self::Unix(UnixListener::from_std(listener)?, file))
    }

    /// Where it listens, with the port that was found if any would do.
    pub(super) fn address(&self) -> io::Result<Address> {
        match self {
            Self::Unix(_, file) => Ok(Address::Unix(file.path.clone())),
            Self::Tcp(listener) => listener.local_addr().map(Address::Tcp),
        }
    }

    /// Waits for the next client.
    pub(super) async fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Unix(listener, _) => listener.accept().await.map(|(stream, _)| Socket::unix(stream)),
            Self::Tcp(listener) => listener.accept().await.map(|(stream, _)| Socket::tcp(stream)),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener, _) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

fn bind_unix(path: &Path) -> Result<Listener, BindError> {
    let address = SocketAddrUnix::new(path).map_err(|errno| match errno {
        Errno::NAMETOOLONG => BindError::PathTooLong(path.to_owned()),
        other => unix_error(path, other.into()),
    })?;
    clear(path, &address)?;
    let listen = || -> io::Result<Listener> {
        let socket = private_socket::bind(&address)?;
        let file = OwnFile { path: path.to_owned(), file: SocketFile::at(path)? };
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Listener::Unix(UnixListener::from_std(unix::UnixListener::from(socket))?, file))
    };
    listen().map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse(path.to_owned()),
        _ => unix_error(path, error),
    })
}

fn unix_error(path: &Path, cause: io::Error) -> BindError {
    BindError::Unix { path: path.to_owned(), cause }
}

/// Removes the socket file of a process that is gone.
fn clear(path: &Path, address: &SocketAddrUnix) -> Result<(), BindError> {
    let failed = |error: io::Error| unix_error(path, error);
    match rustix::fs::lstat(path) {
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(failed(errno.into())),
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Socket => {
            return Err(BindError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    match knock(address) {
        // A full backlog says that somebody is there, too.
        Ok(()) | Err(Errno::AGAIN) => Err(BindError::InUse(path.to_owned())),
        Err(Errno::CONNREFUSED) => {
            tracing::info!(path = %path.display(), "replacing a socket file that nobody listens on");
            rustix::fs::unlink(path).map_err(|errno| failed(errno.into()))
        }
        Err(errno) => Err(failed(errno.into())),
    }
}

/// Connects without ever waiting, and hangs up.
fn knock(address: &SocketAddrUnix) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, address)
}

/// The file of a unix socket; removed when this is dropped, unless somebody else has replaced it.
#[derive(Debug)]
pub(super) struct OwnFile {
    path: PathBuf,
    file: SocketFile,
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if !self.file.is_at(&self.path) {
            return;
        }
        match rustix::fs::unlink(&self.path) {
            // Another user's directory: it was made before this process became who it is.
            Ok(()) | Err(Errno::ACCESS) => {}
            Err(error) => tracing::warn!(path = %self.path.display(), %error, "the socket file could not be removed"),
        }
    }
}

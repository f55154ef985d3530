//! Where the control socket is, and taking that place: a live daemon is never pushed aside, the
//! socket of a dead one is replaced.

use rustix::net::SocketAddrUnix;
use rustix::process::geteuid;
use std::fs::{DirBuilder, Permissions};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use vfield_console::failure::{Failure, plain};
use vfield_export::nbd::UNIX_PATH_BYTES_MAX;
use vfield_export::private_socket::{self, SocketFile};

/// Clients that wait to be accepted; the kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 128;
/// The owner's directory, through which a group gets to what it is told the names of.
const REACHED_BY_GROUP: u32 = 0o710;
/// What all but its owner may do to a directory: put something into it.
pub(crate) const OTHERS_WRITE: u32 = 0o022;

/// The occupant of a socket's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occupant {
    /// Nothing is there.
    Nobody,
    /// A socket that nobody listens at any more.
    Dead,
    /// A socket that somebody listens at.
    Live,
    /// Something else than a socket.
    NotASocket,
}

impl Occupant {
    /// Looks, and knocks if there is a socket.
    pub fn at(path: &Path) -> std::io::Result<Self> {
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::Nobody),
            Err(error) => return Err(error),
            Ok(metadata) if !metadata.file_type().is_socket() => return Ok(Self::NotASocket),
            Ok(_) => {}
        }
        match UnixStream::connect(path) {
            Ok(_) => Ok(Self::Live),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(Self::Dead),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::Nobody),
            // A full backlog: somebody is there and busy.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Self::Live),
            Err(error) => Err(error),
        }
    }
}

/// The path that was wished for, or else the usual one.
pub fn choose(wished: Option<&Path>) -> PathBuf {
    let wished = wished.filter(|path| !path.as_os_str().is_empty());
    wished.map_or_else(|| usual_dir().join("control.sock"), Path::to_owned)
}

fn usual_dir() -> PathBuf {
    if geteuid().is_root() {
        return PathBuf::from("/run/vfield");
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let own = || std::env::temp_dir().join(format!("vfield-{}", geteuid().as_raw()));
    runtime.map_or_else(own, |dir| dir.join("vfield"))
}

/// Lets a group reach the socket at `path` if it lies in the usual directory. That is root's and
/// stays so: nobody else can exchange or remove a socket in it. Other directories stay as they are.
pub fn open_usual_dir(path: &Path, gid: u32) -> std::io::Result<()> {
    let dir = usual_dir();
    if path.parent() != Some(dir.as_path()) {
        return Ok(());
    }
    std::os::unix::fs::lchown(&dir, None, Some(gid))?;
    std::fs::set_permissions(&dir, Permissions::from_mode(REACHED_BY_GROUP))
}

/// A control socket that is listened at; gone from the file system when this is dropped.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    /// So that only our own is removed; kept open, or its inode's number could be used again.
    file: SocketFile,
}

impl Place {
    /// Takes `path` (as [`choose`] gave it for `wished`).
    pub fn take(wished: Option<&Path>) -> Result<(Self, UnixListener), Failure> {
        let path = choose(wished);
        let refuse = |why: String| Failure::failed(format!("control socket {}: {why}", path.display()));
        if path.as_os_str().as_bytes().len() > UNIX_PATH_BYTES_MAX {
            let failure = refuse(format!("longer than {UNIX_PATH_BYTES_MAX} bytes"));
            return Err(failure.hint("choose a shorter path with --control; the system allows no more"));
        }
        if path.parent() == Some(usual_dir().as_path()) {
            make_private_dir(&usual_dir())?;
        }
        let listener = match bind(&path) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                clear(&path)?;
                bind(&path)
            }
            other => other,
        };
        let (file, listener) =
            listener.map_err(|error| refuse(plain(&error)).hint("choose a writable path with --control"))?;
        Ok((Self { path, file }, listener))
    }

    /// Goes on at the place where an earlier daemon listened at `socket`. If its file is not there
    /// any more, takes `wished`.
    pub fn adopt(wished: Option<&Path>, socket: OwnedFd) -> Result<(Self, UnixListener), Failure> {
        let listener = UnixListener::from(socket);
        let path = listener.local_addr().ok().and_then(|addr| Some(addr.as_pathname()?.to_owned()));
        match path.and_then(|path| Some((SocketFile::at(&path).ok()?, path))) {
            Some((file, path)) => Ok((Self { path, file }, listener)),
            None => {
                drop(listener);
                Self::take(wished)
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.file.is_at(&self.path) {
            // Nobody is left to hear of a failure, and a socket left behind is replaced at the next
            // start. With --user it always is, if it lies in root's directory.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Listens at `path`, a socket for its owner only.
fn bind(path: &Path) -> std::io::Result<(SocketFile, UnixListener)> {
    let socket = private_socket::bind(&SocketAddrUnix::new(path)?)?;
    let file = SocketFile::at(path)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok((file, UnixListener::from(socket)))
}

/// Removes the socket of a dead daemon.
fn clear(path: &Path) -> Result<(), Failure> {
    let refuse = |why: &str| Failure::failed(format!("control socket {}: {why}", path.display()));
    match Occupant::at(path) {
        Ok(Occupant::Nobody) => Ok(()),
        Ok(Occupant::Dead) => std::fs::remove_file(path)
            .map_err(|error| refuse(&plain(&error)).hint("remove it, or choose another path with --control")),
        Ok(Occupant::Live) => Err(refuse("another daemon answers there")
            .hint("give this one a --control PATH of its own, or end the other with `vfield leave`")),
        Ok(Occupant::NotASocket) => {
            Err(refuse("a file that is no socket is there").hint("choose another path with --control"))
        }
        Err(error) => Err(refuse(&plain(&error)).hint("choose another path with --control")),
    }
}

fn make_private_dir(dir: &Path) -> Result<(), Failure> {
    let refuse = |why: &str| {
        let failure = Failure::failed(format!("runtime directory {}: {why}", dir.display()));
        failure.hint("choose another place with --control PATH")
    };
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(refuse(&plain(&error))),
        _ => {}
    }
    let metadata = std::fs::symlink_metadata(dir).map_err(|error| refuse(&plain(&error)))?;
    if !metadata.is_dir() || metadata.uid() != geteuid().as_raw() {
        return Err(refuse("it belongs to another user"));
    }
    // Made by somebody else, or by an earlier version: others could exchange the socket.
    let mode = metadata.mode() & 0o7777;
    if mode & OTHERS_WRITE != 0 {
        let closed = std::fs::set_permissions(dir, Permissions::from_mode(mode & !OTHERS_WRITE));
        closed.map_err(|error| refuse(&plain(&error)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_socket_is_kept_and_a_dead_one_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.sock");
        let (place, listener) = Place::take(Some(&path)).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let failure = Place::take(Some(&path)).unwrap_err();
        assert!(failure.fact().ends_with("another daemon answers there"), "{failure}");
        drop(listener);
        assert_eq!(Occupant::at(&path).unwrap(), Occupant::Dead);
        let (second, _listener) = Place::take(Some(&path)).unwrap();
        drop(place);
        assert!(path.exists(), "the first one removed the second one's socket");
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_into_which_others_write_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let usual = dir.path().join("vfield");
        let mode = || std::fs::metadata(&usual).unwrap().permissions().mode() & 0o7777;
        make_private_dir(&usual).unwrap();
        assert_eq!(mode(), 0o700);
        for (before, after) in [(0o770, 0o750), (0o1777, 0o1755), (0o710, 0o710)] {
            std::fs::set_permissions(&usual, Permissions::from_mode(before)).unwrap();
            make_private_dir(&usual).unwrap();
            assert_eq!(mode(), after);
        }
    }

    #[test]
    fn what_is_no_socket_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes.txt");
        std::fs::write(&path, "precious").unwrap();
        assert!(Place::take(Some(&path)).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        assert!(Place::take(Some(&dir.path().join("missing/c.sock"))).is_err());
        assert!(Place::take(Some(&dir.path().join("x".repeat(120)))).is_err());
    }
}

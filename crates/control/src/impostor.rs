//! Tells a daemon from an impostor at its control socket, before anything is said.
//!
//! Invariant: an order, and a file that goes with it, is sent to three users only. These are root,
//! this user, and the owner of the socket's directory if no third user can exchange anything on the
//! way to it. Otherwise a local user could take the place of a daemon that does not run, and get
//! its orders. Called by [`crate::client`].

use crate::place::OTHERS_WRITE;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Uid, geteuid};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Only the owners of files may take them away, or replace them.
const STICKY: u32 = 0o1000;

/// Why nothing is said.
#[derive(Debug)]
pub enum NotTrusted {
    /// Another user, who may have put himself there.
    Foreign {
        /// The listener's user id.
        uid: u32,
    },
    /// The system does not say who it is.
    Unknown(io::Error),
}

/// Fails if the other end of `stream`, a connection to `socket`, may be an impostor.
pub fn check(stream: &UnixStream, socket: &Path) -> Result<(), NotTrusted> {
    // The user at the time of listen(2): that of a process which has become another is the first.
    let listener = socket_peercred(stream).map_err(|errno| NotTrusted::Unknown(errno.into()))?.uid;
    let own = geteuid();
    if listener.is_root() || listener == own {
        return Ok(());
    }
    let dir = socket.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let theirs = Users { own, listener };
    let keeps = std::path::absolute(dir).is_ok_and(|dir| theirs.keep(&dir, false))
        && dir.canonicalize().is_ok_and(|dir| theirs.keep(&dir, true));
    if keeps { Ok(()) } else { Err(NotTrusted::Foreign { uid: listener.as_raw() }) }
}

/// Those who may have put a socket somewhere, besides root.
#[derive(Debug, Clone, Copy)]
struct Users {
    own: Uid,
    listener: Uid,
}

impl Users {
    /// True if nobody else can have made or changed what lies in `dir`. Looks at each directory on
    /// the way to it; `resolved` says that none of them is a link.
    fn keep(self, dir: &Path, resolved: bool) -> bool {
        let mut inner: Option<Metadata> = None;
        for dir in dir.ancestors() {
            let Ok(here) = std::fs::symlink_metadata(dir) else { return false };
            let kept = here.is_symlink() && !resolved || self.keep_one(&here, inner.as_ref());
            if !kept || !self.one_of_us(here.uid()) {
                return false;
            }
            inner = Some(here);
        }
        true
    }

    /// True if nobody else can exchange what lies in a directory: `inner`, or the socket.
    fn keep_one(self, dir: &Metadata, inner: Option<&Metadata>) -> bool {
        match inner {
            None => dir.uid() == self.listener.as_raw() && dir.mode() & OTHERS_WRITE == 0,
            // In such a directory everybody can make something, and nobody can exchange it.
            Some(inner) if dir.mode() & STICKY != 0 => inner.uid() == 0 || inner.uid() == self.own.as_raw(),
            Some(_) => dir.mode() & OTHERS_WRITE == 0,
        }
    }

    fn one_of_us(self, uid: u32) -> bool {
        uid == 0 || uid == self.own.as_raw() || uid == self.listener.as_raw()
    }
}

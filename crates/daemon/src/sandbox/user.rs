//! Another user (setresuid(2)): whom a daemon of root's becomes when everything is set up, with no
//! capability and no group more.

use super::files::parent;
use crate::plan::Plan;
use crate::plan::overlay::OverlayPlan;
use crate::plan::user::User;
use caps::CapSet;
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use std::io;
use std::path::{Path, PathBuf};
use vfield_console::failure::{Failure, plain};
use vfield_control::place::open_usual_dir;
use vfield_export::private_socket::SocketFile;

/// The user to switch to, and the files it needs.
#[derive(Debug)]
pub struct Heir {
    user: User,
    /// They will be his.
    sockets: Vec<PathBuf>,
    /// Directories in which he replaces files.
    written: Vec<PathBuf>,
}

impl Heir {
    /// Whom a plan names, if anybody.
    pub fn of(plan: &Plan, control: &Path) -> Option<Self> {
        let user = plan.user.clone()?;
        let sockets = plan.exports.nbd_sockets().chain([control]).map(Path::to_owned).collect();
        let overlay = plan.overlay.as_ref().and_then(OverlayPlan::dir);
        let members = plan.members.as_deref().map(parent);
        Some(Self { user, sockets, written: overlay.into_iter().chain(members).map(Path::to_owned).collect() })
    }

    /// Becomes that user, in all threads; says who that is.
    pub fn take_over(&self) -> Result<String, Failure> {
        let (uid, gid) = (self.user.uid, self.user.gid);
        for socket in &self.sockets {
            // The directory may be his already, and somebody who acts for him may have been quick.
            let given = SocketFile::at(socket).and_then(|file| file.give(uid, gid));
            let given = given.and_then(|()| open_usual_dir(socket, gid));
            given.map_err(|error| self.failed(&socket.display().to_string(), &error))?;
        }
        // The user last, since that takes the capabilities for all of it from each thread
        // (capabilities(7)).
        let (user, group) = (Uid::from_raw(uid), Gid::from_raw(gid));
        setgroups(&[])
            .and_then(|()| setresgid(group, group, group))
            .and_then(|()| setresuid(user, user, user))
            .map_err(|errno| self.failed("refused", &errno.into()))?;
        // Another user is another process to the kernel: it may show its memory again.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .map_err(|errno| self.failed("hiding memory", &errno.into()))?;
        for dir in &self.written {
            accessat(CWD, dir, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).map_err(|errno| {
                let failure = self.failed(&dir.display().to_string(), &errno.into());
                failure.hint(format!("give it to that user: chown -R {uid} {}", dir.display()))
            })?;
        }
        match caps::read(None, CapSet::Permitted) {
            Ok(left) if left.is_empty() => Ok(format!("{} ({uid}), no capabilities", self.user.name)),
            Ok(_) => Err(self.failed("capabilities", &io::Error::other("some are left"))),
            Err(error) => Err(self.failed("capabilities", &io::Error::other(error.to_string()))),
        }
    }

    fn failed(&self, what: &str, error: &io::Error) -> Failure {
        Failure::failed(format!("becoming user {}: {what}: {}", self.user.name, plain(error)))
    }
}

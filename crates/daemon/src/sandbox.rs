//! What a daemon gives up: capabilities and files before it starts a thread, its user and system
//! calls when all is set up.
//!
//! Somebody who takes it over finds a process that can read its images, write where its sockets and
//! overlays are, and speak to the network. The order is that of the kernel's rules: what a thread
//! gives up, those that it starts later do not have. Three parts, each of which names the limits
//! in force; a kernel that lacks one is no reason not to run, unless told so.

mod calls;
mod files;
mod rights;
mod user;

use crate::plan::Plan;
use crate::values::sandbox::SandboxMode;
use calls::Filter;
use files::Reach;
use std::path::Path;
use user::Heir;
use vfield_console::failure::Failure;

/// Tasks of the daemon that need rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Needs {
    /// Mount and unmount, by way of a program that may do so.
    mount: bool,
    /// Make and serve block devices.
    devices: bool,
    /// Have all of its memory locked.
    locked: bool,
    /// Listen on ports that are for root.
    low_ports: bool,
    /// Become somebody else.
    user: bool,
}

impl Needs {
    fn of(plan: &Plan) -> Self {
        let low_ports = plan.tcp_ports().any(|port| (1..1024).contains(&port));
        let (mount, devices) = (plan.exports.mount.is_some(), plan.exports.device.is_some());
        Self { mount, devices, locked: plan.root, low_ports, user: plan.user.is_some() }
    }
}

/// Why a part is not in force; the words are for people.
type Missing = String;

/// The restrictions in force.
#[derive(Debug)]
pub struct Sandbox {
    mode: SandboxMode,
    needs: Needs,
    heir: Option<Heir>,
    in_force: Vec<String>,
    missing: Vec<Missing>,
}

impl Sandbox {
    /// Gives up capabilities and files. Before any other thread is there; `control` is where the
    /// socket lies.
    pub fn enter(mode: SandboxMode, plan: &Plan, control: &Path) -> Result<Self, Failure> {
        let needs = Needs::of(plan);
        let heir = Heir::of(plan, control);
        let mut sandbox = Self { mode, needs, heir, in_force: Vec::new(), missing: Vec::new() };
        if mode == SandboxMode::Off {
            return Ok(sandbox);
        }
        sandbox.take("capabilities", rights::give_up(needs))?;
        if needs.user {
            // All of them go with the user.
            sandbox.in_force.clear();
        }
        sandbox.take("files", if needs.mount { Err(mounts()) } else { Reach::of(plan, control).confine() })?;
        Ok(sandbox)
    }

    /// Gives up the user and system calls, of all threads. When everything is set up.
    pub fn close(mut self) -> Result<Vec<String>, Failure> {
        let user = self.heir.as_ref().map(Heir::take_over).transpose()?.map(|user| format!("user: {user}"));
        if self.mode == SandboxMode::Off {
            return Ok(user.into_iter().chain(["off".to_owned()]).collect());
        }
        self.in_force.splice(0..0, user);
        // The program that unmounts for other users gains rights when it starts, which could not be
        // afterwards.
        let helper = self.needs.mount && !rights::can_unmount();
        let closed = if helper { Err(mounts()) } else { Filter::of(self.needs).and_then(Filter::apply) };
        self.take("system calls", closed)?;
        Ok(self.in_force.into_iter().chain(self.missing.into_iter().map(|missing| format!("not {missing}"))).collect())
    }

    fn take(&mut self, part: &str, done: Result<String, Missing>) -> Result<(), Failure> {
        match done {
            Ok(what) => self.in_force.push(format!("{part}: {what}")),
            Err(why) if self.mode == SandboxMode::Require => {
                let failure = Failure::failed(format!("the sandbox is incomplete: {part}: {why}"));
                return Err(failure.hint("leave out the conflicting options, or use --sandbox auto"));
            }
            Err(why) => self.missing.push(format!("{part}: {why}")),
        }
        Ok(())
    }
}

fn mounts() -> Missing {
    "--mount needs a program that mounts".to_owned()
}

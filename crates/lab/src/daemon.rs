//! `vfield` daemons: started on hosts, asked how they are, told to leave.

use crate::lab::Host;
use crate::process::{Process, run};
use crate::service_manager::Passed;
use crate::wait::Deadline;
use crate::{LabError, wait};
use serde_json::Value;
use std::ffi::OsString;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// A daemon hashes its image before it answers; the lab's images take less than a second.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Fills run at memory speed unless a link is shaped.
pub const FILL_LIMIT: Duration = Duration::from_secs(30);

/// The program under test.
#[derive(Debug, Clone)]
pub struct Vfield {
    program: PathBuf,
}

/// How a daemon will be started.
#[derive(Debug)]
pub struct Start<'a> {
    program: &'a Path,
    host: &'a Host,
    name: String,
    words: Vec<OsString>,
    listen: SocketAddr,
    /// True if it is told where.
    told: bool,
    mount: bool,
    state: Option<PathBuf>,
    passed: Option<Passed>,
    env: Vec<(OsString, OsString)>,
}

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    process: Process,
    program: PathBuf,
    host_dir: PathBuf,
    addr: SocketAddr,
    control: PathBuf,
    nbd: PathBuf,
    mount: Option<PathBuf>,
}

impl Vfield {
    /// A program at a path.
    pub fn at(program: &Path) -> Self {
        Self { program: program.to_owned() }
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.program
    }

    /// A daemon that serves files.
    pub fn serve<'a>(&'a self, host: &'a Host, files: &[&Path]) -> Start<'a> {
        self.start(host, "serve").args(files)
    }

    /// A daemon that joins a field through one of its members.
    pub fn join<'a>(&'a self, host: &'a Host, bootstrap: impl Display) -> Start<'a> {
        self.start(host, "join").args(&[bootstrap.to_string()])
    }

    fn start<'a>(&'a self, host: &'a Host, verb: &str) -> Start<'a> {
        let (name, listen) = ("vfield".to_owned(), host.addr());
        Start {
            program: &self.program,
            host,
            name,
            words: vec![verb.into()],
            listen,
            told: true,
            mount: false,
            state: None,
            passed: None,
            env: Vec::new(),
        }
    }
}

impl Start<'_> {
    /// Adds words to the command line.
    #[must_use]
    pub fn args(mut self, words: &[impl AsRef<std::ffi::OsStr>]) -> Self {
        self.words.extend(words.iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// How much it holds: `40%`, `64M`, `all`, `0`.
    #[must_use]
    pub fn store(self, size: &str) -> Self {
        self.args(&["--store", size])
    }

    /// Tells daemons of one host apart.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Listens elsewhere than at the host's address.
    #[must_use]
    pub fn listen(mut self, addr: SocketAddr) -> Self {
        self.listen = addr;
        self
    }

    /// Lets it find out by itself where its host is.
    #[must_use]
    pub fn facing(mut self) -> Self {
        self.told = false;
        self
    }

    /// Gives the daemon this directory for state that outlives it.
    #[must_use]
    pub fn state(mut self, dir: &Path) -> Self {
        self.state = Some(dir.join("state"));
        self
    }

    /// Starts it with what a service manager passes to it.
    #[must_use]
    pub fn passed(mut self, passed: Passed) -> Self {
        self.passed = Some(passed);
        self
    }

    /// Gives it an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Attaches it through FUSE as well.
    #[must_use]
    pub fn mounted(mut self, yes: bool) -> Self {
        self.mount = yes;
        self
    }

    /// Starts it and waits until its images can be read.
    ///
    /// # Errors
    /// [`LabError::Ended`] if it refuses, [`LabError::Late`] if it is not ready in time.
    pub fn ready(self) -> Result<Daemon, LabError> {
        let mut daemon = self.spawn()?;
        daemon.wait_ready(START_LIMIT)?;
        Ok(daemon)
    }

    /// Starts it and returns at once.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn spawn(self) -> Result<Daemon, LabError> {
        let dir = self.host.dir();
        let (control, nbd) = (dir.join(format!("{}.control", self.name)), dir.join(format!("{}.nbd", self.name)));
        let mut command = match self.passed {
            Some(passed) => passed.command(self.host, self.program),
            None => self.host.command(self.program),
        };
        command.args(&self.words);
        if self.told {
            command.arg("--listen").arg(self.listen.to_string());
        }
        command.arg("--control").arg(&control).arg("--nbd").arg(format!("unix:{}", nbd.display()));
        let mount = self.mount.then(|| dir.join(format!("{}.mnt", self.name)));
        if let Some(mount) = &mount {
            free_mount_point(mount)?;
            command.arg("--mount").arg(mount);
        }
        command.envs(self.env);
        // Never that of the machine.
        command.env("STATE_DIRECTORY", self.state.as_deref().unwrap_or(dir));
        let process = self.host.spawn(&self.name, &mut command)?;
        Ok(Daemon {
            process,
            program: self.program.to_owned(),
            host_dir: dir.to_owned(),
            addr: self.listen,
            control,
            nbd,
            mount,
        })
    }
}

impl Daemon {
    /// Waits until it answers and its exports are there.
    ///
    /// # Errors
    /// Those of [`Start::ready`].
    pub fn wait_ready(&mut self, limit: Duration) -> Result<(), LabError> {
        let what = format!("{} is ready (its log: {})", self.addr, self.process.log_tail());
        Deadline::after(limit).poll(&what, || {
            self.process.check()?;
            Ok((self.nbd.exists() && self.status().is_ok()).then_some(()))
        })
    }

    /// Where peers find it.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its control socket.
    pub fn control(&self) -> &Path {
        &self.control
    }

    /// Its process, to look at.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Its process, to signal and to wait for.
    pub fn process_mut(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The directory of its FUSE mount, with one file for each image.
    pub fn mount(&self) -> Option<&Path> {
        self.mount.as_deref()
    }

    /// Its NBD socket.
    pub fn nbd(&self) -> &Path {
        &self.nbd
    }

    /// The NBD address of one of its images.
    pub fn uri(&self, image: &str) -> String {
        format!("nbd+unix:///{image}?socket={}", self.nbd.display())
    }

    /// Its view, the object of `vfield status --json`.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn status(&self) -> Result<Value, LabError> {
        let text = run(self.ask("status").arg("--json"))?;
        serde_json::from_str(&text)
            .map_err(|error| LabError::Command { command: "vfield status --json".to_owned(), why: error.to_string() })
    }

    /// What it says of its first image.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn image(&self) -> Result<Value, LabError> {
        Ok(self.status()?["images"][0].take())
    }

    /// Waits with `vfield status --wait` until it is `filled` or `covered`.
    ///
    /// # Errors
    /// If it is not within `limit`.
    pub fn wait(&self, condition: &str, limit: Duration) -> Result<(), LabError> {
        let seconds = limit.as_secs().to_string();
        run(self.ask("status").args(["--wait", condition, "--timeout", &seconds])).map(drop)
    }

    /// Waits until its status shows something.
    ///
    /// # Errors
    /// [`LabError::Late`] with the last status.
    pub fn wait_status(&self, what: &str, limit: Duration, cond: impl Fn(&Value) -> bool) -> Result<(), LabError> {
        let mut last = Value::Null;
        wait::wait_until(what, limit, || {
            last = self.status().unwrap_or_default();
            cond(&last)
        })
        .map(drop)
        .map_err(|_| LabError::Late { what: format!("{what}; the last status of {}: {last:#}", self.addr), limit })
    }

    /// Waits until it has said something in its log, and is still there.
    ///
    /// # Errors
    /// [`LabError::Late`] with the end of the log.
    pub fn says(&mut self, text: &str, limit: Duration) -> Result<(), LabError> {
        wait::wait_until(text, limit, || self.process.log().contains(text)).map_err(|_| LabError::Late {
            what: format!("{} says {text:?}; its log: {}", self.addr, self.process.log_tail()),
            limit,
        })?;
        self.process.check()
    }

    /// Tells it to leave, and waits for its end.
    ///
    /// # Errors
    /// If it refuses or does not end.
    pub fn leave(&mut self, limit: Duration) -> Result<ExitStatus, LabError> {
        run(&mut self.ask("leave"))?;
        self.process.wait(limit)
    }

    /// SIGKILL: no goodbye.
    pub fn kill(&mut self) {
        self.process.kill();
        // A mount without its server answers everything with an error, even `stat`.
        if let Some(mount) = &self.mount {
            detach(mount);
        }
    }

    /// A command of the same program that talks to this daemon, ended if it takes too long.
    pub fn ask(&self, verb: &str) -> Command {
        self.ask_to(&[verb])
    }

    /// The same for an order of several words.
    pub fn ask_to(&self, words: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=2", "60"]).arg(&self.program).args(words).arg("--control").arg(&self.control);
        command.current_dir(&self.host_dir);
        command
    }
}

/// Unmounts a directory if something is mounted on it.
fn detach(mount: &Path) {
    let quiet = |program: &str, option: &str| {
        let done = Command::new(program).arg(option).arg(mount).output();
        done.is_ok_and(|done| done.status.success())
    };
    let _ = quiet("umount", "-l") || quiet("fusermount3", "-uz");
}

/// Makes a directory to mount on, or clears it of the mount of a daemon that was killed.
fn free_mount_point(mount: &Path) -> Result<(), LabError> {
    match std::fs::create_dir(mount) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            detach(mount);
            Ok(())
        }
        other => other.map_err(LabError::at(mount)),
    }
}

//! The field that a fault befalls: an origin on host 0, a node on each other host, and their
//! restarts.

use super::Plan;
use super::kind::Fault;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use vfield_lab::bytes::{MIB, random_file};
use vfield_lab::cgroup::Cgroup;
use vfield_lab::daemon::Start;
use vfield_lab::process::run;
use vfield_lab::{Daemon, Lab, LabError, Link, Vfield};

/// A node fills over a thin link, beside all others.
const FILL_LIMIT: Duration = Duration::from_secs(180);
/// How often it is looked whether somebody has died.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Room besides the image on its disk, for the origin's memory of things.
const SPARE_BYTES: u64 = 16 * MIB;

/// Fields are dropped in this order: daemons before what confines them, and hosts last.
pub(super) struct Field<'a> {
    /// The origin, then the nodes.
    daemons: Vec<Daemon>,
    plan: &'a Plan,
    vfield: &'a Vfield,
    /// Where the origin's file lies.
    image: PathBuf,
    /// The host whose process has only so much memory.
    pub(super) confined: Option<(usize, Cgroup)>,
    /// The host whose processes see another time, and the file that says which.
    pub(super) clock: Option<(usize, PathBuf)>,
    /// Starts in the place of a process that had ended by itself.
    pub(super) revived: usize,
    lab: Lab,
}

impl<'a> Field<'a> {
    /// Starts everybody, and waits until stores are filled and cover the image.
    pub(super) fn lay_out(fault: Fault, plan: &'a Plan, vfield: &'a Vfield) -> Result<Self, LabError> {
        let lab = Lab::namespaces(1 + plan.nodes + fault.spare_hosts(), Link::mbit(plan.mbit))?;
        let disk = disk(&lab, fault, plan.size_bytes)?;
        let image = random_file(&disk.join("image"), plan.size_bytes, plan.seed)?;
        let mut field = Self { daemons: Vec::new(), plan, vfield, image, confined: None, clock: None, revived: 0, lab };
        for host in 0..=plan.nodes {
            let daemon = field.start(host)?.spawn()?;
            field.daemons.push(daemon);
            if host == 0 {
                field.daemons[0].wait_ready(FILL_LIMIT)?;
            }
        }
        for daemon in &mut field.daemons {
            daemon.wait_ready(FILL_LIMIT)?;
        }
        field.daemons.iter().try_for_each(|daemon| daemon.wait("filled", FILL_LIMIT))?;
        field.daemons.iter().try_for_each(|daemon| daemon.wait("covered", FILL_LIMIT))?;
        Ok(field)
    }

    pub(super) fn lab(&self) -> &Lab {
        &self.lab
    }

    /// The origin's file.
    pub(super) fn image(&self) -> &Path {
        &self.image
    }

    /// How many nodes there are besides the origin.
    pub(super) fn nodes(&self) -> usize {
        self.plan.nodes
    }

    /// How often a reader may ask for so many bytes; zero if it may at any time.
    pub(super) fn pace(&self, bytes: u64) -> Duration {
        self.plan.reader_bytes_per_s.map_or(Duration::ZERO, |rate| Duration::from_millis(bytes * 1000 / rate.max(1)))
    }

    /// The process of a host; 0 is the origin's.
    pub(super) fn daemon(&mut self, host: usize) -> &mut Daemon {
        &mut self.daemons[host]
    }

    /// All of them.
    pub(super) fn daemons(&mut self) -> &mut [Daemon] {
        &mut self.daemons
    }

    /// Where the readers of a host connect.
    pub(super) fn socket(&self, host: usize) -> PathBuf {
        self.daemons[host].nbd().to_owned()
    }

    /// How a host's process is started: through the origin and another node, since either may be
    /// gone.
    pub(super) fn start(&self, host: usize) -> Result<Start<'_>, LabError> {
        let at = self.lab.host(host);
        let other = |step: usize| self.lab.host((host + step) % (self.plan.nodes + 1)).addr();
        let start = if host == 0 {
            let start =
                self.vfield.serve(at, &[&self.image]).state(self.image.parent().expect("it lies in a directory"));
            if self.daemons.is_empty() { start } else { start.args(&["--join", &other(1).to_string()]) }
        } else {
            let start = self.vfield.join(at, self.lab.host(0).addr()).store(&self.plan.store);
            let start = start.args(&["--join-boost", "9"]);
            if self.daemons.is_empty() || self.daemons.len() <= host {
                start
            } else {
                start.args(&[other(1).to_string()])
            }
        };
        Ok(match &self.clock {
            Some((struck, file)) if *struck == host => start
                .args(&["--sandbox", "off"])
                .env("LD_PRELOAD", "/usr/$LIB/faketime/libfaketimeMT.so.1")
                .env("FAKETIME_TIMESTAMP_FILE", file)
                .env("FAKETIME_NO_CACHE", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            _ => start,
        })
    }

    /// Starts a host's process anew.
    pub(super) fn start_again(&mut self, host: usize) -> Result<(), LabError> {
        let daemon = self.start(host)?.spawn()?;
        if let Some((_, group)) = self.confined.as_ref().filter(|(confined, _)| *confined == host) {
            group.take(daemon.process().pid())?;
        }
        self.daemons[host] = daemon;
        Ok(())
    }

    /// SIGKILL, and another process at once.
    pub(super) fn kill(&mut self, host: usize) -> Result<(), LabError> {
        self.daemons[host].kill();
        self.start_again(host)
    }

    /// Restarts ended nodes; a node ends if it finds no member to join.
    pub(super) fn revive(&mut self) -> Result<(), LabError> {
        for host in 0..self.daemons.len() {
            if self.daemons[host].process_mut().ended().is_some() {
                self.revived += 1;
                self.start_again(host)?;
            }
        }
        Ok(())
    }

    /// Lets time pass, and revives.
    pub(super) fn keep_alive_for(&mut self, time: Duration) -> Result<(), LabError> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.revive()?;
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

/// A directory for the image, on a disk of the kind that the fault needs. The lab's janitor
/// unmounts it.
fn disk(lab: &Lab, fault: Fault, size_bytes: u64) -> Result<PathBuf, LabError> {
    let disk = lab.dir().join("disk");
    std::fs::create_dir(&disk).map_err(LabError::at(&disk))?;
    let bytes = size_bytes + SPARE_BYTES;
    match fault {
        Fault::DiskFull => {
            let size = format!("size={bytes}");
            run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&disk))?;
        }
        Fault::DiskErrors => {
            let backing = backing(lab);
            let file = std::fs::File::create(&backing).map_err(LabError::at(&backing))?;
            file.set_len(2 * bytes).map_err(LabError::at(&backing))?;
            run(Command::new("mkfs.ext4").args(["-q", "-F", "-O", "^has_journal"]).arg(&backing))?;
            run(Command::new("mount").args(["-o", "loop"]).arg(&backing).arg(&disk))?;
        }
        _ => {}
    }
    Ok(disk)
}

/// What lies under the disk that gives errors.
pub(super) fn backing(lab: &Lab) -> PathBuf {
    lab.dir().join("backing")
}

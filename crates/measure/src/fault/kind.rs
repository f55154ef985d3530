//! The kinds of faults, by name.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use vfield_lab::cgroup;
use vfield_lab::need::{Need, find_tool};

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Each second some process, the origin's among them, is killed with SIGKILL and started again
    /// at once.
    Kills,
    /// A node's process is stopped with SIGSTOP, and goes on in the end.
    Freeze,
    /// Nothing reaches one host any more, while what it sends arrives.
    OneWay,
    /// The file system with the origin's file, and what it remembers, is full.
    DiskFull,
    /// The disk under the origin's file gives input/output errors for most of it.
    DiskErrors,
    /// The origin's file is cut to half its length.
    Truncated,
    /// A node may have no more descriptors than it has.
    Descriptors,
    /// A node may have no more memory than it should need.
    Memory,
    /// A node may have so little memory that the kernel ends it; it is started again with what it
    /// needs.
    OutOfMemory,
    /// A node's clock goes back by an hour, and it is killed and started again with that clock.
    Clock,
    /// 200 nodes a minute join or leave.
    Churn,
    /// One node after the other is told to leave and is started again, as for an upgrade.
    Upgrade,
}

impl Fault {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 12] = [
        Self::Kills,
        Self::Freeze,
        Self::OneWay,
        Self::DiskFull,
        Self::DiskErrors,
        Self::Truncated,
        Self::Descriptors,
        Self::Memory,
        Self::OutOfMemory,
        Self::Clock,
        Self::Churn,
        Self::Upgrade,
    ];

    /// Its name on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kills => "kills",
            Self::Freeze => "freeze",
            Self::OneWay => "one-way",
            Self::DiskFull => "disk-full",
            Self::DiskErrors => "disk-errors",
            Self::Truncated => "truncated",
            Self::Descriptors => "descriptors",
            Self::Memory => "memory",
            Self::OutOfMemory => "out-of-memory",
            Self::Clock => "clock",
            Self::Churn => "churn",
            Self::Upgrade => "upgrade",
        }
    }

    /// Programs that it needs besides those of every lab.
    pub const fn needs(self) -> &'static [Need] {
        match self {
            Self::OneWay => &[Need::Tool("bridge")],
            Self::DiskErrors => &[Need::Tool("mkfs.ext4")],
            Self::Descriptors => &[Need::Tool("prlimit")],
            _ => &[],
        }
    }

    /// What it takes that this machine does not have, and that not every machine can be given:
    /// containers have neither loop devices nor control groups of their own.
    pub fn lacks(self) -> Option<&'static str> {
        let (there, what) = match self {
            Self::DiskErrors => (Path::new("/dev/loop-control").exists(), "loop devices"),
            Self::Memory | Self::OutOfMemory => (cgroup::are_there(), "control groups for memory"),
            Self::Clock => (find_tool("faketime").is_some(), "libfaketime"),
            _ => (true, ""),
        };
        (!there).then_some(what)
    }

    /// Hosts without a reader, for nodes that come and go.
    pub(super) const fn spare_hosts(self) -> usize {
        match self {
            Self::Churn => 8,
            _ => 0,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|fault| fault.name() == name)
            .ok_or_else(|| format!("{name:?} is none of {}", names()))
    }
}

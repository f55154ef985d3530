//! Bounds on what some processes have: control groups of the kernel's, of either version.

use crate::LabError;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the groups that bound memory lie, and the file that does: version 1 has a tree for each
/// resource.
const MEMORY: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
/// The same of processor time.
const PROCESSOR: [(&str, &str); 2] = [("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us"), ("/sys/fs/cgroup", "cpu.max")];
/// Processor time of a group in each period, in microseconds: the shortest that the kernel takes.
/// With more a busy host would stop for longer.
const QUOTA_US: u64 = 1000;

/// Removed when it is dropped, or by the janitor; its processes have to have ended by then.
#[derive(Debug)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// A group whose processes have at most so much memory together, and nothing is put on a disk
    /// instead.
    pub fn new(tag: &str, bytes: u64) -> Result<Self, LabError> {
        let (group, bound) = Self::make(MEMORY, &format!("{tag}-memory"))?;
        group.write(bound, &bytes.to_string())?;
        for (swap, most) in [("memory.memsw.limit_in_bytes", bytes), ("memory.swap.max", 0)] {
            if group.0.join(swap).exists() {
                group.write(swap, &most.to_string())?;
            }
        }
        Ok(group)
    }

    /// A group of a host, whose processes have together one processor divided by this, from 1 to
    /// 1000: a millisecond in each so many.
    pub fn of_processor(tag: &str, host: usize, divisor: u32) -> Result<Self, LabError> {
        let (group, bound) = Self::make(PROCESSOR, &format!("{tag}-cpu{host}"))?;
        let period = (QUOTA_US * u64::from(divisor)).to_string();
        if bound == "cpu.max" {
            group.write(bound, &format!("{QUOTA_US} {period}"))?;
        } else {
            group.write("cpu.cfs_period_us", &period)?;
            group.write(bound, &QUOTA_US.to_string())?;
        }
        Ok(group)
    }

    /// Makes a group in the tree that is there; returns the name of the file that bounds it, too.
    fn make(places: [(&str, &'static str); 2], name: &str) -> Result<(Self, &'static str), LabError> {
        let is_tree = |(root, _): &&(&str, &'static str)| Path::new(root).join("cgroup.procs").exists();
        let (root, bound) = places.iter().find(is_tree).copied().unwrap_or(places[1]);
        let path = Path::new(root).join(name);
        fs::create_dir(&path).map_err(LabError::at(&path))?;
        Ok((Self(path), bound))
    }

    /// Puts a process into it; what it has already is not counted.
    pub fn take(&self, pid: u32) -> Result<(), LabError> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// The file whose writers enter the group with their next programs.
    pub fn entrance(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }

    fn write(&self, name: &str, text: &str) -> Result<(), LabError> {
        let path = self.0.join(name);
        fs::write(&path, text).map_err(LabError::at(&path))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The search for leftovers finds its remains.
        let _ = fs::remove_dir(&self.0);
    }
}

/// True if groups that bound memory can be made.
pub fn are_there() -> bool {
    can_be_made(MEMORY)
}

/// True if groups that bound processor time can be made.
pub fn of_processors_are_there() -> bool {
    can_be_made(PROCESSOR)
}

fn can_be_made(places: [(&str, &str); 2]) -> bool {
    places.iter().any(|(root, _)| {
        let root = Path::new(root);
        root.join("cgroup.procs").exists() && rustix::fs::access(root, rustix::fs::Access::WRITE_OK).is_ok()
    })
}

/// Groups with this tag.
pub fn left(tag: &str) -> Vec<PathBuf> {
    let trees = MEMORY.iter().chain(&PROCESSOR).map(|(root, _)| root);
    let entries = trees.flat_map(|root| fs::read_dir(root).into_iter().flatten().flatten());
    let is_one = |name: &str| [format!("{tag}-memory"), format!("{tag}-cpu")].iter().any(|one| name.starts_with(one));
    let mut left: Vec<_> =
        entries.filter(|entry| entry.file_name().to_str().is_some_and(is_one)).map(|entry| entry.path()).collect();
    left.sort();
    left.dedup();
    left
}

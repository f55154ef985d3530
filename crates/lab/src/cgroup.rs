//! A bound on the memory of some processes: a control group of the kernel's, of either version.

use crate::LabError;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the groups that bound memory lie, and the file that does: version 1 has a tree for each
/// resource.
const PLACES: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

/// Removed when it is dropped, or by the janitor; its processes have to have ended by then.
#[derive(Debug)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// A group whose processes have at most so much memory together, and nothing is put on a disk
    /// instead.
    pub fn new(tag: &str, bytes: u64) -> Result<Self, LabError> {
        let is_tree = |(root, _): &&(&str, &str)| Path::new(root).join("cgroup.procs").exists();
        let (root, bound) = PLACES.iter().find(is_tree).copied().unwrap_or(PLACES[1]);
        let path = Path::new(root).join(format!("{tag}-memory"));
        fs::create_dir(&path).map_err(LabError::at(&path))?;
        let group = Self(path);
        group.write(bound, &bytes.to_string())?;
        for (swap, most) in [("memory.memsw.limit_in_bytes", bytes), ("memory.swap.max", 0)] {
            if group.0.join(swap).exists() {
                group.write(swap, &most.to_string())?;
            }
        }
        Ok(group)
    }

    /// Puts a process into it; what it has already is not counted.
    pub fn take(&self, pid: u32) -> Result<(), LabError> {
        self.write("cgroup.procs", &pid.to_string())
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

/// True if groups can be made.
pub fn are_there() -> bool {
    let writable = |(root, _): &(&str, &str)| {
        let root = Path::new(root);
        root.join("cgroup.procs").exists() && rustix::fs::access(root, rustix::fs::Access::WRITE_OK).is_ok()
    };
    PLACES.iter().any(writable)
}

/// Groups with this tag.
pub fn left(tag: &str) -> Vec<PathBuf> {
    let paths = PLACES.iter().map(|(root, _)| Path::new(root).join(format!("{tag}-memory")));
    paths.filter(|path| path.exists()).collect()
}

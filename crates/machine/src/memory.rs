//! How much memory there is: of the machine, of this process's control group, and what of it is
//! free.
//!
//! Reads `/proc` and `/sys/fs/cgroup` (version 2, or 1's memory controller); what the kernel does
//! not tell is unknown. Invariant: a limit is lower than the machine's memory.

use rustix::process::{Resource, getrlimit};
use std::path::{Path, PathBuf};

/// Where control groups are.
const CGROUPS: &str = "/sys/fs/cgroup";

/// What a daemon takes besides its stores: 24 MiB of transient chunks for each image that is read,
/// 8 MiB of unpacked ones if its store is compressed, and 8 to 16 MiB of its own. Left out, a small
/// machine would run out of memory with a store that just fits.
const BESIDE_STORES: u64 = 48 << 20;

/// A bound on this process's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// How much it may have.
    pub bytes: u64,
    /// How much of that its control group has already; 0 where the limit is the process's own.
    pub used_bytes: u64,
    /// `cgroup` or `rlimit`.
    pub by: &'static str,
}

/// The machine's memory; `None` where the kernel does not tell.
pub fn total_bytes() -> Option<u64> {
    field(&read("/proc/meminfo")?, "MemTotal:")
}

/// What this process can have at most: the machine's memory, or a bound below it. `None` where the
/// kernel does not tell.
pub fn most_bytes() -> Option<u64> {
    limit().map(|limit| limit.bytes).or_else(total_bytes)
}

/// What a new process could have without pushing out others: the least of the machine's and of the
/// control group's.
pub fn free_bytes() -> Option<u64> {
    let machine = field(&read("/proc/meminfo")?, "MemAvailable:");
    let group = limit().map(|limit| limit.bytes.saturating_sub(limit.used_bytes));
    machine.into_iter().chain(group).min()
}

/// What stores may take that nobody has asked for: half of the free memory, a daemon's other needs
/// taken off before.
pub fn default_stores_bytes() -> Option<u64> {
    stores_max_bytes().map(|most| most / 2)
}

/// What stores may take without pushing out others: the free memory, less a daemon's other needs.
pub fn stores_max_bytes() -> Option<u64> {
    free_bytes().map(|free| free.saturating_sub(BESIDE_STORES))
}

/// What this process has in memory.
pub fn process_bytes() -> u64 {
    read("/proc/self/status").and_then(|text| field(&text, "VmRSS:")).unwrap_or(0)
}

/// The lowest bound that there is, if it is below the machine's memory.
pub fn limit() -> Option<Limit> {
    let own = getrlimit(Resource::As).current.map(|bytes| Limit { bytes, used_bytes: 0, by: "rlimit" });
    let groups = read("/proc/self/cgroup").map(|text| groups(&text)).unwrap_or_default();
    let found = groups.iter().flat_map(|(dir, names)| of_groups(Path::new(CGROUPS), dir, names));
    let total = total_bytes().unwrap_or(u64::MAX);
    own.into_iter().chain(found).filter(|limit| limit.bytes < total).min_by_key(|limit| limit.bytes)
}

/// The files in which a version of control groups says how much may be had, and is.
type Names = [&'static str; 2];

/// The control groups of a process out of its `/proc/PID/cgroup`.
fn groups(text: &str) -> Vec<(PathBuf, Names)> {
    let group = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        match controllers {
            "" => Some((path.into(), ["memory.max", "memory.current"])),
            _ if controllers.split(',').any(|name| name == "memory") => {
                Some((Path::new("memory").join(path), ["memory.limit_in_bytes", "memory.usage_in_bytes"]))
            }
            _ => None,
        }
    };
    text.lines().filter_map(group).collect()
}

/// The limits of a control group and of all above it.
fn of_groups(root: &Path, dir: &Path, [most, now]: &Names) -> Vec<Limit> {
    let number = |dir: &Path, name: &str| read(root.join(dir).join(name))?.trim().parse().ok();
    let limit =
        |dir: &Path| Some(Limit { bytes: number(dir, most)?, used_bytes: number(dir, now).unwrap_or(0), by: "cgroup" });
    dir.ancestors().filter_map(limit).collect()
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Bytes of a line such as `VmRSS:  12 kB`.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_tells() {
        assert!(total_bytes().unwrap() > 1 << 20);
        assert!((1..=total_bytes().unwrap()).contains(&free_bytes().unwrap()));
        assert!((1..=total_bytes().unwrap()).contains(&most_bytes().unwrap()));
        assert!(process_bytes() > 1 << 16);
    }

    #[test]
    fn control_groups_of_both_versions_are_found() {
        let found = groups("3:cpu,memory:/room/one\n2:pids:/x\n0::/system.slice/vfield.service\nrubbish\n");
        let paths: Vec<_> = found.iter().map(|(dir, names)| (dir.to_str().unwrap(), names[0])).collect();
        assert_eq!(
            paths,
            [("memory/room/one", "memory.limit_in_bytes"), ("system.slice/vfield.service", "memory.max")]
        );
    }

    #[test]
    fn a_group_has_the_limits_of_those_above_it() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::write(inner.join("memory.max"), "max\n").unwrap();
        std::fs::write(root.path().join("a/memory.max"), "1048576\n").unwrap();
        std::fs::write(root.path().join("a/memory.current"), "4096\n").unwrap();
        let limits = of_groups(root.path(), Path::new("a/b"), &["memory.max", "memory.current"]);
        assert_eq!(limits, [Limit { bytes: 1 << 20, used_bytes: 4096, by: "cgroup" }]);
    }

    #[test]
    fn lines_are_in_kibibytes() {
        assert_eq!(field("MemTotal:       1024 kB\n", "MemTotal:"), Some(1 << 20));
        assert_eq!(field("MemTotal: lots\n", "MemTotal:"), None);
    }
}

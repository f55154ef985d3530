//! What should have been given back after a fault, and was not.

use super::field::Field;
use std::path::Path;
use std::time::Duration;
use vfield_lab::bytes::MIB;
use vfield_lab::cgroup;
use vfield_lab::wait::wait_until;

/// Connections end, and memory is given back, within this.
const SETTLED: Duration = Duration::from_secs(20);
/// What a node may have besides its store.
const BESIDES_BYTES: u64 = 64 * MIB;
/// Descriptors besides those of connections: sockets, stores, the program's own.
const DESCRIPTORS: usize = 64;

/// Descriptors and memory that the daemons still have though nobody reads any more.
pub(super) fn of_daemons(field: &mut Field<'_>) -> Vec<String> {
    // Two connections to each other node, and two from it.
    let descriptors_max = DESCRIPTORS + 4 * field.lab().hosts().len();
    let mut amiss = Vec::new();
    for (host, daemon) in field.daemons().iter_mut().enumerate() {
        let store = daemon.image().ok().and_then(|image| image["capacity_bytes"].as_u64());
        let Some(store) = store else {
            amiss.push(format!("host {host} does not answer: {}", daemon.process().log_tail()));
            continue;
        };
        let process = daemon.process();
        let descriptors = || process.descriptors();
        if wait_until("descriptors", SETTLED, || descriptors() <= descriptors_max).is_err() {
            amiss.push(format!("host {host} has {} descriptors", descriptors()));
        }
        let bytes = process.memory().total_bytes();
        if bytes > store + BESIDES_BYTES {
            amiss.push(format!("host {host} has {} MiB, its store {} MiB", bytes / MIB, store / MIB));
        }
    }
    amiss
}

/// Namespaces, mounts, files and control groups of a lab that is gone.
pub(super) fn of_lab(dir: &Path) -> Vec<String> {
    let tag = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let namespaces = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let namespaces = namespaces.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut left: Vec<String> = namespaces.filter(|name| name.starts_with(&format!("{tag}-"))).collect();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let below = dir.to_string_lossy().into_owned();
    left.extend(mounts.lines().filter(|line| line.contains(&below)).map(str::to_owned));
    left.extend(dir.exists().then(|| below.clone()));
    left.extend(cgroup::left(&tag).iter().map(|path| path.display().to_string()));
    left
}

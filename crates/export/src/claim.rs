//! Whether a block device is in use by more than readers.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;

/// True while somebody has claimed the device at `path` for himself: a mount, a RAID, a device
/// mapper.
pub fn is_claimed(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).err() == Some(Errno::BUSY)
}

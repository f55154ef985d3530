//! Whether somebody else uses a block device.
//!
//! The kernel says of a mount, and not of a plain reader. But it keeps the cached pages of a device
//! for as long as anybody has it open, and not longer.
//!
//! Both questions open the device, and no signal ends the wait of a process that opens or closes a
//! device with reads under way. So the process that serves a device leaves them to another one.

#![expect(unsafe_code, reason = "the kernel says of mapped memory alone which pages are cached")]

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::ptr::null_mut;

/// Bytes of a device that are cached and looked for: a page at most.
const PROBE_BYTES: usize = 4096;

/// True while somebody has claimed the device at `path` for himself: a mount, a RAID, a device
/// mapper.
pub fn is_claimed(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).err() == Some(Errno::BUSY)
}

/// True while anybody else has the device at `path` open, a reader or more. Reads its first page,
/// and blocks until that is there. False if it cannot be opened.
pub fn is_open(path: &Path) -> bool {
    let keeps_a_page = || {
        // It is closed again at once.
        File::open(path)?.read_at(&mut [0; PROBE_BYTES], 0)?;
        is_cached(&File::open(path)?)
    };
    keeps_a_page().unwrap_or_else(|_| is_claimed(path))
}

/// Whether the first page of a device is cached. The kernel tells owners only; others hear that it
/// is.
fn is_cached(device: &File) -> io::Result<bool> {
    let mut page = 0_u8;
    // SAFETY: the mapping is this call's alone, nothing reads it, and it ends here. One byte is
    // written for its one page.
    unsafe {
        let place = mmap(null_mut(), PROBE_BYTES, ProtFlags::READ, MapFlags::SHARED, device, 0)?;
        let looked = match libc::mincore(place, PROBE_BYTES, &raw mut page) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        munmap(place, PROBE_BYTES)?;
        looked?;
    }
    Ok(page & 1 == 1)
}

//! Files that this process was started with, by their numbers.

#![expect(unsafe_code, reason = "only whoever started this process knows that a number is a file, and whose")]

use rustix::io::{FdFlags, fcntl_setfd};
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The lowest number that a service manager passes a file under (`SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;

/// The files with numbers from 3 on whose names `wanted` accepts, given all names in the order of
/// the numbers. Programs that this one starts do not have them. Nothing the second time.
pub fn take(names: &[&str], wanted: impl Fn(&str) -> bool) -> Vec<(String, OwnedFd)> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Vec::new();
    }
    let named = (FIRST..).zip(names).filter(|(_, name)| wanted(name));
    let files = named.filter_map(|(number, name)| {
        // SAFETY: the service manager says, to this very process and before it has opened files of
        // its own, that the number is one for it to own, which the flag above sees to being
        // believed once.
        let file = unsafe { OwnedFd::from_raw_fd(number) };
        match fcntl_setfd(file.as_fd(), FdFlags::CLOEXEC) {
            Ok(()) => Some(((*name).to_owned(), file)),
            Err(_) => {
                // It is none, despite the variable: closing it would be an error of ours.
                std::mem::forget(file);
                None
            }
        }
    });
    files.collect()
}

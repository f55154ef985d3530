//! Read leases of the kernel (`fcntl(2)`, "Leases"). While one is held, no process has the file
//! open for writing. A process that wants to is held back until the lease is given up, for at most
//! `/proc/sys/fs/lease-break-time`.
//!
//! Invariant: the unsafe call in here passes integers only. The origin's guard uses it. The kernel
//! reports a waiting writer with SIGIO. So a handler for it must be there before [`take`]: its
//! default action ends the process.

#![expect(unsafe_code, reason = "no safe wrapper for F_SETLEASE and F_GETLEASE exists")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Takes a read lease on an open file. The caller must own the file or have CAP_LEASE. The file
/// must be a regular one, opened for reading, that no process has open for writing, on a file
/// system with leases.
pub fn take(file: impl AsFd) -> io::Result<()> {
    // Otherwise the signal would go to the calling thread's id, and nowhere once that thread is
    // gone.
    command(&file, libc::F_SETOWN, std::process::id() as libc::c_int)?;
    let taken = command(&file, libc::F_SETLEASE, libc::F_RDLCK as libc::c_int).map(drop);
    if taken.is_err() {
        // A writer may wait for the lease that an earlier process took on the same open file. That
        // process is not there any more to give it up.
        let _ = release(&file);
    }
    taken
}

/// True if the lease is held and nobody waits for its end. About 0.2 us.
pub fn holds(file: impl AsFd) -> bool {
    command(&file, libc::F_GETLEASE, 0).is_ok_and(|kind| kind == libc::F_RDLCK as libc::c_int)
}

/// Gives the lease up and lets writers in.
pub fn release(file: impl AsFd) -> io::Result<()> {
    command(&file, libc::F_SETLEASE, libc::F_UNLCK as libc::c_int).map(drop)
}

fn command(file: &impl AsFd, command: libc::c_int, argument: libc::c_int) -> io::Result<libc::c_int> {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: the descriptor is borrowed, so open; these commands take an integer and touch no
    // memory.
    match unsafe { libc::fcntl(fd, command, argument) } {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}

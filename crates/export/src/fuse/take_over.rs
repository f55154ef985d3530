//! A mount that an earlier process has left: its descriptor in the hands of a session of this one.
//!
//! The kernel greets a mount once. What `fuser` wants to be greeted with at the start of a session
//! therefore comes from a stand-in, a pair of sockets, whose place the mount's descriptor takes
//! when the greeting is over. What the kernel said to the first process goes on to hold.
//!
//! Requests that the earlier process has read and not answered are sent once more, which the
//! kernel does since Linux 6.9 if it is asked.

#![expect(unsafe_code, reason = "a session owns its descriptor, and cannot be given another one")]

use super::directory::Directory;
use fuser::{Config, Session};
use rustix::io::write;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

/// The request with which the kernel greets, `FUSE_INIT`.
const INIT: u32 = 26;
/// The protocol of the greeting; a session of any later kernel starts in the same way.
const PROTOCOL: [u32; 2] = [7, 40];
/// Lengths of the header of a request, and of the greeting behind it.
const HEADER_BYTES: usize = 40;
const INIT_BYTES: usize = 64;
/// The message that has the kernel send requests again, `FUSE_NOTIFY_RESEND`.
const RESEND: i32 = 7;

/// A session for the mount of `device`, which was greeted by an earlier process with as much as
/// this one wants.
pub(super) fn session(directory: Directory, device: &OwnedFd, config: &Config) -> io::Result<Session<Directory>> {
    let (kernel, stand_in) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    write(&kernel, &greeting())?;
    let session = Session::from_fd(directory, stand_in, config.acl, config.clone())?;
    // SAFETY: both are open. The number is the session's own before and after, and what it stood
    // for, a socket that nobody else has, is closed.
    if unsafe { libc::dup3(device.as_raw_fd(), session.as_fd().as_raw_fd(), libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(session)
}

/// Asks for all requests that were read and not answered.
pub(super) fn ask_again(device: BorrowedFd<'_>) -> io::Result<()> {
    // A header of an answer to nobody: its length, the kind of message, and no request.
    let mut message = Vec::from(16_u32.to_ne_bytes());
    message.extend(RESEND.to_ne_bytes());
    message.extend(0_u64.to_ne_bytes());
    write(device, &message)?;
    Ok(())
}

/// What the kernel says first: that it can do everything.
fn greeting() -> Vec<u8> {
    let length = (HEADER_BYTES + INIT_BYTES) as u32;
    let mut message = [length.to_ne_bytes(), INIT.to_ne_bytes()].concat();
    message.resize(HEADER_BYTES, 0);
    message.extend(PROTOCOL.map(u32::to_ne_bytes).concat());
    // How far to read ahead, and all features.
    message.extend([128 << 10, u32::MAX, u32::MAX].map(u32::to_ne_bytes).concat());
    message.resize(HEADER_BYTES + INIT_BYTES, 0);
    message
}

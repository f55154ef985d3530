//! Low-water marks of sockets (`socket(7)` SO_RCVLOWAT, `tcp(7)` TCP_NOTSENT_LOWAT): the bytes that
//! have to be there, or to have gone, before the kernel wakes a task. They decide the number of
//! wake-ups for a chunk.
//!
//! Both unsafe calls pass one integer. Failures are ignored: a mark saves work and changes no
//! meaning.

#![expect(unsafe_code, reason = "no crate in use wraps SO_RCVLOWAT and TCP_NOTSENT_LOWAT")]

use std::os::fd::{AsFd, AsRawFd};

/// Wakes the reader of a socket when `bytes` are there; also at its end, on errors, and when no
/// more fit into its buffer. The kernel keeps the mark below half of the largest buffer. Bytes that
/// are there already count.
pub fn wake_reader_at(socket: impl AsFd, bytes: usize) {
    set(&socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes);
}

/// Accepts bytes to send until this many wait for the link, and wakes the writer when half of them
/// have gone.
pub fn queue_at_most(socket: impl AsFd, bytes: usize) {
    set(&socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes);
}

fn set(socket: &impl AsFd, level: libc::c_int, option: libc::c_int, value: usize) {
    let value = libc::c_int::try_from(value).unwrap_or(libc::c_int::MAX);
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is borrowed, so open; the kernel reads one integer that lives until it
    // returns.
    let done = unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), length) };
    if done != 0 {
        tracing::trace!(level, option, error = %std::io::Error::last_os_error(), "a low-water mark was refused");
    }
}

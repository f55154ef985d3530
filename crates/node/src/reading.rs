//! One read from a peer's socket, for both sides of a connection. It never waits.

use rustix::io::{read, retry_on_intr};
use std::io;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// The bytes read; 0 if none were there.
    pub bytes: usize,
    /// True if those were all: the socket reports the next byte, so no retry is needed.
    pub all: bool,
}

/// Reads the available bytes into `room`, which is not empty. With `unasked`, reads even though the
/// socket has not reported data. The end of the stream is an error.
pub fn take(stream: &TcpStream, room: &mut [u8], unasked: bool) -> io::Result<Taken> {
    let mut bytes = 0;
    let mut attempt = || {
        bytes = retry_on_intr(|| read(stream, &mut *room))?;
        // A short read has taken all. This return value clears the readiness without another call.
        if bytes == 0 || bytes == room.len() { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    };
    let done = if unasked { attempt() } else { stream.try_io(Interest::READABLE, attempt) };
    match done {
        Ok(()) if bytes == 0 => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(()) => Ok(Taken { bytes, all: false }),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Taken { bytes, all: true }),
        Err(error) => Err(error),
    }
}

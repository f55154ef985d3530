//! One read from a peer's socket, as both sides of a connection do it. Never waits.

use rustix::io::{read, retry_on_intr};
use std::io;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// What a read brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// So many bytes; none if nothing is there.
    pub bytes: usize,
    /// That was all: there will be word of the next byte, so it need not be tried.
    pub all: bool,
}

/// Reads what is there into `room`, which is not empty; if `unasked`, even though the socket has not said
/// that there is something. The end of the stream is an error.
pub fn take(stream: &TcpStream, room: &mut [u8], unasked: bool) -> io::Result<Taken> {
    let mut bytes = 0;
    let mut attempt = || {
        bytes = retry_on_intr(|| read(stream, &mut *room))?;
        // Less than was asked for is all there is; said like this, readiness is taken back without another call.
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

//! The readers' NBD client: connects, and measures the longest time in which nothing came.
//!
//! Owns a socket and that time. Measured clients must not differ from system to system, and real
//! ones do not say how long a single request took. Called by [`super::reader`]; the protocol is
//! `vfield-export`'s.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use vfield_export::nbd::client::{self, ClientError};
use vfield_export::nbd::codec::{Command, Request};

/// Address of a server.
pub use vfield_export::nbd::Address as Target;

/// [`Target`] as text in an order.
pub(crate) mod text {
    use super::Target;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(target: &Target, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(target)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Target, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// A socket that knows the longest time between two reads that gave bytes.
struct Timed {
    socket: Socket,
    last_bytes: Instant,
    longest_gap: Duration,
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.socket {
            Socket::Unix(socket) => socket.read(buffer),
            Socket::Tcp(socket) => socket.read(buffer),
        }?;
        if read > 0 {
            let now = Instant::now();
            self.longest_gap = self.longest_gap.max(now - self.last_bytes);
            self.last_bytes = now;
        }
        Ok(read)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.socket {
            Socket::Unix(socket) => socket.write(bytes),
            Socket::Tcp(socket) => socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection to the export named "".
pub struct Client(client::Client<Timed>);

impl Client {
    /// Connects and negotiates.
    ///
    /// # Errors
    /// If no server listens there, or it does not speak NBD.
    pub fn connect(target: &Target) -> io::Result<Self> {
        let socket = match target {
            Target::Unix(path) => Socket::Unix(UnixStream::connect(path)?),
            Target::Tcp(addr) => {
                let stream = TcpStream::connect(addr)?;
                stream.set_nodelay(true)?;
                Socket::Tcp(stream)
            }
        };
        let timed = Timed { socket, last_bytes: Instant::now(), longest_gap: Duration::ZERO };
        let mut client = client::Client::start(timed, "", &|| true).map_err(|error| match error {
            ClientError::Stream(error) => error,
            error => io::Error::other(error),
        })?;
        client.stream().longest_gap = Duration::ZERO;
        Ok(Self(client))
    }

    /// Makes each read fail after `limit` without a byte.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn give_up_after(&mut self, limit: Duration) -> io::Result<()> {
        match &self.0.stream().socket {
            Socket::Unix(socket) => socket.set_read_timeout(Some(limit)),
            Socket::Tcp(socket) => socket.set_read_timeout(Some(limit)),
        }
    }

    /// Asks for `length` bytes. The cookie comes back with the answer.
    ///
    /// # Errors
    /// If the connection is broken.
    pub fn ask(&mut self, cookie: u64, offset: u64, length: u32) -> io::Result<()> {
        self.0.send(&Request { command: Command::Read, flags: 0, cookie, offset, length }, &[])
    }

    /// The cookie of the next answer; its bytes have to be taken with [`Client::fill`].
    ///
    /// # Errors
    /// If the connection is broken, or the server could not read.
    pub fn answer(&mut self) -> io::Result<u64> {
        match self.0.answer(&|| true)? {
            None => Err(ErrorKind::TimedOut.into()),
            Some(answer) if answer.error == 0 => Ok(answer.cookie),
            Some(answer) => Err(io::Error::other(format!("NBD error {}", answer.error))),
        }
    }

    /// Fills `buffer`.
    ///
    /// # Errors
    /// If the connection is broken.
    pub fn fill(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        if self.0.fill(buffer, &|| true)? { Ok(()) } else { Err(ErrorKind::TimedOut.into()) }
    }

    /// The longest time without a byte since the handshake.
    pub fn longest_gap(&mut self) -> Duration {
        self.0.stream().longest_gap
    }
}

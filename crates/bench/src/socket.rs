//! A socket that is read to the byte, and given up when nobody waits any more.

use super::sealed::Sealed;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use vfield_console::failure::plain;
use vfield_trust::KeyRing;

/// Interval at which a blocked read checks whether it is still wanted.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Timeout of a connect.
const CONNECT: Duration = Duration::from_secs(3);
/// Timeout of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// For headers; longer reads go past it.
const BUFFER: usize = 4 << 10;

/// What [`Socket`] needs of a connection.
trait Both: Read + Write + Send {}

impl<T: Read + Write + Send> Both for T {}

/// A blocking socket with a buffer for headers.
pub struct Socket(BufReader<Box<dyn Both>>);

impl Socket {
    /// Connects to a socket in the file system.
    pub fn unix(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(LOOK_EVERY))?;
        Ok(Self::of(stream))
    }

    /// Connects to a node, and proves to be a member if its field has a key. Returns a secret of
    /// the channel as well, zeros in an open field.
    pub fn node(addr: SocketAddr, keys: Option<&KeyRing>) -> io::Result<(Self, [u8; 32])> {
        let Some(keys) = keys else { return Ok((Self::tcp(addr)?, [0; 32])) };
        let stream = TcpStream::connect_timeout(&addr, CONNECT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(HANDSHAKE))?;
        let sealed = Sealed::start(stream.try_clone()?, keys)?;
        // Of the socket, whichever handle it is set with.
        stream.set_read_timeout(Some(LOOK_EVERY))?;
        let binding = sealed.binding();
        Ok((Self::of(sealed), binding))
    }

    /// Connects to an address.
    pub fn tcp(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, CONNECT)?;
        stream.set_read_timeout(Some(LOOK_EVERY))?;
        stream.set_nodelay(true)?;
        Ok(Self::of(stream))
    }

    fn of(stream: impl Both + 'static) -> Self {
        Self(BufReader::with_capacity(BUFFER, Box::new(stream)))
    }

    /// Writes all of it.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    /// Fills `buffer`; false if `is_over` said so before it was full.
    pub fn fill(&mut self, buffer: &mut [u8], is_over: &dyn Fn() -> bool) -> io::Result<bool> {
        vfield_export::nbd::client::fill(&mut self.0, buffer, is_over)
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.get_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.get_mut().flush()
    }
}

/// What went wrong on a connection, for people.
pub fn explain(error: &io::Error) -> String {
    match error.kind() {
        // Which of them depends on whether it had read everything.
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            "it closed the connection".to_owned()
        }
        _ => plain(error),
    }
}

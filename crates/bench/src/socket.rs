//! A socket that is read to the byte, and given up when nobody waits any more.

use super::sealed::Sealed;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use vfield_console::failure::plain;
use vfield_trust::KeyRing;

/// A read that waits looks this often whether anybody still wants it.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A machine that does not answer within this is not there.
const CONNECT: Duration = Duration::from_secs(3);
/// One that has been connected to proves itself within this.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// For headers; longer reads go past it.
const BUFFER: usize = 4 << 10;

/// What [`Socket`] needs of a connection.
trait Both: Read + Write + Send {}

impl<T: Read + Write + Send> Both for T {}

/// See the module.
pub struct Socket(BufReader<Box<dyn Both>>);

impl Socket {
    /// Connects to a socket in the file system.
    pub fn unix(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(LOOK_EVERY))?;
        Ok(Self::of(stream))
    }

    /// Connects to a node, and proves to be a member if its field has a key.
    pub fn node(addr: SocketAddr, keys: Option<&KeyRing>) -> io::Result<Self> {
        let Some(keys) = keys else { return Self::tcp(addr) };
        let stream = TcpStream::connect_timeout(&addr, CONNECT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(HANDSHAKE))?;
        let sealed = Sealed::start(stream.try_clone()?, keys)?;
        // Of the socket, whichever handle it is set with.
        stream.set_read_timeout(Some(LOOK_EVERY))?;
        Ok(Self::of(sealed))
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
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read(&mut buffer[filled..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => filled += read,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut if is_over() => return Ok(false),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(true)
    }
}

/// What went wrong on a connection, for people.
pub fn explain(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
        _ => plain(error),
    }
}

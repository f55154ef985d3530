//! A small NBD client: one connection, simple replies, any number of requests in flight.
//!
//! Measured clients must not differ from system to system, and real ones do not say how long a single request took.
//! Called by [`super::reader`]; owns a socket and the longest time in which nothing came over it.

use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// `NBDMAGIC`, first in the greeting.
const GREETING: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`, second in the greeting and before an option.
const OPTION: u64 = 0x4948_4156_454f_5054;
/// Before each reply to an option.
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;
/// The option that chooses an export and begins the transmission.
const GO: u32 = 7;
/// Replies to it: the end, and the first of the errors.
const ACK: u32 = 1;
const ERRORS: u32 = 1 << 31;
/// Both handshake flags: fixed newstyle, and no padding.
const FLAGS: u16 = 3;
/// Longest information that a server may give of an export.
const INFO_BYTES_MAX: u32 = 32 << 10;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// A socket file.
    Unix(PathBuf),
    /// A port.
    Tcp(SocketAddr),
}

trait Stream: Read + Write + Send {
    fn limit(&self, limit: Duration) -> io::Result<()>;
}

impl Stream for UnixStream {
    fn limit(&self, limit: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(limit))
    }
}

impl Stream for TcpStream {
    fn limit(&self, limit: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(limit))
    }
}

/// A connection to the export named "".
pub struct Client {
    stream: Box<dyn Stream>,
    last_bytes: Instant,
    longest_gap: Duration,
}

impl Client {
    /// Connects and negotiates.
    ///
    /// # Errors
    /// If nobody listens there, or does not speak NBD.
    pub fn connect(target: &Target) -> io::Result<Self> {
        let stream: Box<dyn Stream> = match target {
            Target::Unix(path) => Box::new(UnixStream::connect(path)?),
            Target::Tcp(addr) => {
                let stream = TcpStream::connect(addr)?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
        };
        let mut client = Self { stream, last_bytes: Instant::now(), longest_gap: Duration::ZERO };
        client.negotiate()?;
        client.longest_gap = Duration::ZERO;
        Ok(client)
    }

    fn negotiate(&mut self) -> io::Result<()> {
        let greeting: [u8; 18] = self.read_array()?;
        if greeting[..8] != GREETING.to_be_bytes() || greeting[8..16] != OPTION.to_be_bytes() {
            return Err(io::Error::other("not an NBD server"));
        }
        let mut go = u32::from(FLAGS).to_be_bytes().to_vec();
        go.extend(OPTION.to_be_bytes());
        // The length of the data, which are an empty name and no wishes.
        for word in [GO, 6, 0] {
            go.extend(word.to_be_bytes());
        }
        go.extend([0; 2]);
        self.stream.write_all(&go)?;
        loop {
            let head: [u8; 20] = self.read_array()?;
            let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let (kind, length) = (word(12), word(16));
            if head[..8] != OPTION_REPLY.to_be_bytes() || length > INFO_BYTES_MAX {
                return Err(io::Error::other("not a reply to an NBD option"));
            }
            self.fill(&mut vec![0; usize::try_from(length).expect("bounded")])?;
            match kind {
                ACK => return Ok(()),
                error if error >= ERRORS => {
                    return Err(io::Error::other(format!("the NBD export is refused: {error:#x}")));
                }
                _ => (),
            }
        }
    }

    /// Makes it an error if nothing comes for so long.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn give_up_after(&self, limit: Duration) -> io::Result<()> {
        self.stream.limit(limit)
    }

    /// Asks for bytes. The cookie comes back with the answer.
    ///
    /// # Errors
    /// If the server is gone.
    pub fn ask(&mut self, cookie: u64, offset: u64, length: u32) -> io::Result<()> {
        let mut request = [0; 28];
        request[..4].copy_from_slice(&REQUEST.to_be_bytes());
        // Bytes 4 to 8 are no flags, and the command READ: both zero.
        request[8..16].copy_from_slice(&cookie.to_be_bytes());
        request[16..24].copy_from_slice(&offset.to_be_bytes());
        request[24..].copy_from_slice(&length.to_be_bytes());
        self.stream.write_all(&request)
    }

    /// The cookie of the next answer; its bytes have to be taken with [`Client::fill`].
    ///
    /// # Errors
    /// If the server is gone, or could not read.
    pub fn answer(&mut self) -> io::Result<u64> {
        let head: [u8; 16] = self.read_array()?;
        if head[..4] != REPLY.to_be_bytes() {
            return Err(io::Error::other("not an NBD reply"));
        }
        match u32::from_be_bytes([head[4], head[5], head[6], head[7]]) {
            0 => Ok(u64::from_be_bytes(head[8..].try_into().expect("eight of sixteen bytes"))),
            error => Err(io::Error::other(format!("NBD error {error}"))),
        }
    }

    /// Reads exactly as many bytes as there is room.
    ///
    /// # Errors
    /// If the server is gone.
    pub fn fill(&mut self, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.stream.read(buffer) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
                Ok(count) => buffer = &mut buffer[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let now = Instant::now();
            self.longest_gap = self.longest_gap.max(now - self.last_bytes);
            self.last_bytes = now;
        }
        Ok(())
    }

    /// The longest time in which nothing came, since the connection was there.
    pub fn longest_gap(&self) -> Duration {
        self.longest_gap
    }

    fn read_array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }
}

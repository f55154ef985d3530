//! Requests of the transmission phase: from bytes to values, and back for clients.
//!
//! Owns the place in the stream: a header of 28 bytes, and after a write its payload, which is told from
//! requests as it comes. Invariant: needs at most one header to be buffered. The connection task calls it
//! with whatever has arrived. It does not judge offsets and lengths; the session does.

use super::{PAYLOAD_BYTES_MAX, magic, take_u16, take_u32, take_u64};

/// Length of a request header (section "Request message").
pub const HEADER_BYTES: usize = 28;

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// `NBD_CMD_READ`.
    Read,
    /// `NBD_CMD_WRITE`; its payload follows.
    Write,
    /// `NBD_CMD_DISC`: the client leaves; there is no reply.
    Disconnect,
    /// `NBD_CMD_FLUSH`.
    Flush,
    /// `NBD_CMD_TRIM`.
    Trim,
    /// `NBD_CMD_CACHE`.
    Cache,
    /// `NBD_CMD_WRITE_ZEROES`.
    WriteZeroes,
    /// `NBD_CMD_BLOCK_STATUS`.
    BlockStatus,
    /// Anything else.
    Unknown(u16),
}

impl From<u16> for Command {
    fn from(number: u16) -> Self {
        match number {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Disconnect,
            3 => Self::Flush,
            4 => Self::Trim,
            5 => Self::Cache,
            6 => Self::WriteZeroes,
            7 => Self::BlockStatus,
            other => Self::Unknown(other),
        }
    }
}

impl From<Command> for u16 {
    fn from(command: Command) -> Self {
        match command {
            Command::Read => 0,
            Command::Write => 1,
            Command::Disconnect => 2,
            Command::Flush => 3,
            Command::Trim => 4,
            Command::Cache => 5,
            Command::WriteZeroes => 6,
            Command::BlockStatus => 7,
            Command::Unknown(number) => number,
        }
    }
}

/// One request, as it came: nothing in it has been checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What is asked for.
    pub command: Command,
    /// [`super::flag`] bits of requests, known or not.
    pub flags: u16,
    /// The client's own number, returned in the answer.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

impl Request {
    /// The request as a client sends it; the payload of a write follows.
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&magic::REQUEST.to_be_bytes());
        header[4..6].copy_from_slice(&self.flags.to_be_bytes());
        header[6..8].copy_from_slice(&u16::from(self.command).to_be_bytes());
        header[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        header[16..24].copy_from_slice(&self.offset.to_be_bytes());
        header[24..].copy_from_slice(&self.length.to_be_bytes());
        header
    }
}

/// A stream that cannot be understood any more: the connection has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// No request starts where one should.
    #[error("a request starts with {0:#010x}, not with the magic number {magic:#010x}", magic = magic::REQUEST)]
    Magic(u32),
    /// Too much to be drained.
    #[error("a write of {0} bytes, more than {PAYLOAD_BYTES_MAX}")]
    WriteTooLong(u32),
}

/// What begins the bytes that have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Too few to say.
    More,
    /// A request, of [`HEADER_BYTES`].
    Request(Request),
    /// So many bytes of the payload of the write that came last, at least one.
    Payload(usize),
}

/// The parser of one connection's requests.
#[derive(Debug, Default)]
pub struct Requests {
    /// How much of a write's payload is still to come.
    payload: u32,
}

impl Requests {
    /// Says what is at the front of `input`, and takes it for used up. Constant time.
    pub fn next(&mut self, input: &[u8]) -> Result<Next, Violation> {
        if self.payload > 0 {
            let here = input.len().min(self.payload as usize);
            self.passed(here);
            return Ok(if here > 0 { Next::Payload(here) } else { Next::More });
        }
        let Some(header) = input.first_chunk::<HEADER_BYTES>() else {
            return match input.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes)) {
                Some(found) if found != magic::REQUEST => Err(Violation::Magic(found)),
                _ => Ok(Next::More),
            };
        };
        let request = parse(header)?;
        if request.command == Command::Write {
            if request.length > PAYLOAD_BYTES_MAX {
                return Err(Violation::WriteTooLong(request.length));
            }
            self.payload = request.length;
        }
        Ok(Next::Request(request))
    }

    /// So many bytes of the payload were taken without being shown to this parser.
    pub fn passed(&mut self, bytes: usize) {
        assert!(bytes <= self.payload as usize, "more than the payload was taken");
        self.payload -= bytes as u32;
    }

    /// True between two requests: the client may leave here without cutting anything off.
    pub fn at_boundary(&self) -> bool {
        self.payload == 0
    }
}

fn parse(header: &[u8; HEADER_BYTES]) -> Result<Request, Violation> {
    let mut rest = &header[..];
    // The array is exactly as long as the fields, so none of the defaults is ever taken.
    let found = take_u32(&mut rest).unwrap_or_default();
    if found != magic::REQUEST {
        return Err(Violation::Magic(found));
    }
    Ok(Request {
        flags: take_u16(&mut rest).unwrap_or_default(),
        command: take_u16(&mut rest).unwrap_or_default().into(),
        cookie: take_u64(&mut rest).unwrap_or_default(),
        offset: take_u64(&mut rest).unwrap_or_default(),
        length: take_u32(&mut rest).unwrap_or_default(),
    })
}

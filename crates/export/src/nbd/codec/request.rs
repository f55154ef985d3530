//! Requests of the transmission phase: from bytes to values, and back for clients.
//!
//! Owns the place in the stream: a header of 28 bytes, and after a write its payload, told apart
//! from requests as it arrives. Invariant: at most one header has to be buffered. The connection
//! task calls it with the bytes that have arrived. It does not judge offsets and lengths; the
//! session does.

use super::{PAYLOAD_BYTES_MAX, magic, take_u16, take_u32, take_u64};

/// Length of a request header (section "Request message").
pub const HEADER_BYTES: usize = 28;

/// Commands of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// `NBD_CMD_READ`: data follow the reply.
    Read,
    /// `NBD_CMD_WRITE`; its payload follows.
    Write,
    /// `NBD_CMD_DISC`: the client leaves; there is no reply.
    Disconnect,
    /// `NBD_CMD_FLUSH`: makes earlier changes durable.
    Flush,
    /// `NBD_CMD_TRIM`: the data are no longer needed.
    Trim,
    /// `NBD_CMD_CACHE`: the data will be read.
    Cache,
    /// `NBD_CMD_WRITE_ZEROES`: writes zeros without a payload.
    WriteZeroes,
    /// `NBD_CMD_BLOCK_STATUS`: asks for allocation.
    BlockStatus,
    /// Any other number.
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

/// One request as it arrived: nothing in it has been checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What the client wants.
    pub command: Command,
    /// [`super::flag`] bits of requests, known or not.
    pub flags: u16,
    /// The client's own number, returned in the answer.
    pub cookie: u64,
    /// Offset of the first byte.
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

/// A violation of the protocol: the connection has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// No request starts where one should.
    #[error("a request starts with {0:#010x}, not with the magic number {magic:#010x}", magic = magic::REQUEST)]
    Magic(u32),
    /// A payload too long to be drained.
    #[error("a write of {0} bytes, more than {PAYLOAD_BYTES_MAX}")]
    WriteTooLong(u32),
}

/// The item at the front of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// More bytes are needed.
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
    /// Parses the item at the front of `input`, which counts as consumed. Constant time.
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

    /// Counts `bytes` of the payload that were taken without this parser.
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

//! Requests of the transmission phase: from bytes to values.
//!
//! Owns the place in the stream: a header of 28 bytes, and after a write its payload, which is thrown
//! away as it comes. Invariant: needs at most one header to be buffered. The connection task calls it
//! with whatever has arrived. It does not judge offsets and lengths; the session does.

use super::{PAYLOAD_BYTES_MAX, magic, take_u16, take_u32, take_u64};

/// Length of a request header (section "Request message").
pub const HEADER_BYTES: usize = 28;

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// `NBD_CMD_READ`.
    Read,
    /// `NBD_CMD_WRITE`; its payload has been dropped already.
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

/// The parser of one connection's requests.
#[derive(Debug, Default)]
pub struct Requests {
    /// A write whose payload is still coming, and how much of it.
    writing: Option<(Request, u32)>,
}

impl Requests {
    /// Takes one request from the front of `input`. Returns how many bytes of it are used up (also when
    /// there is no request yet) and the request if there is a whole one. Constant time.
    pub fn next(&mut self, input: &[u8]) -> Result<(usize, Option<Request>), Violation> {
        if let Some((request, left)) = self.writing {
            return Ok(self.drain(request, left, input, 0));
        }
        let Some((header, payload)) = input.split_first_chunk::<HEADER_BYTES>() else {
            return match input.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes)) {
                Some(found) if found != magic::REQUEST => Err(Violation::Magic(found)),
                _ => Ok((0, None)),
            };
        };
        let request = parse(header)?;
        if request.command != Command::Write {
            return Ok((HEADER_BYTES, Some(request)));
        }
        if request.length > PAYLOAD_BYTES_MAX {
            return Err(Violation::WriteTooLong(request.length));
        }
        Ok(self.drain(request, request.length, payload, HEADER_BYTES))
    }

    /// True between two requests: the client may leave here without cutting anything off.
    pub fn at_boundary(&self) -> bool {
        self.writing.is_none()
    }

    fn drain(&mut self, request: Request, left: u32, payload: &[u8], before: usize) -> (usize, Option<Request>) {
        let dropped = payload.len().min(left as usize);
        let left = left - dropped as u32;
        self.writing = (left > 0).then_some((request, left));
        (before + dropped, (left == 0).then_some(request))
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

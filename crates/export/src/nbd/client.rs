//! A blocking NBD client over any byte stream: one export, simple replies, any number of requests
//! in flight.
//!
//! Owns the stream and what the server said of the export. Invariant: memory follows the caller's
//! own requests, whatever the server sends. Called by benchmarks and tests. It opens no sockets: a
//! stream's read timeout is how often a call looks whether its caller still waits.

use super::codec::option::{self, REPLY_HEADER_BYTES, ReplyHeader, answer};
use super::codec::reply::Header;
use super::codec::{Request, flag, magic};
use std::io::{self, ErrorKind, Read, Write};

/// Longest reply to an option, in bytes; those of today's servers have about 20.
const REPLY_BYTES_MAX: u32 = 64 << 10;
/// Greeting: two magic numbers and the server's flags.
const GREETING_BYTES: usize = 18;
/// Length of the header of a simple reply.
const ANSWER_BYTES: usize = 16;

/// Why an export cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The stream failed.
    #[error(transparent)]
    Stream(#[from] io::Error),
    /// The peer sends no fixed-newstyle greeting.
    #[error("not an NBD server of the fixed newstyle")]
    NotNbd,
    /// The server sent something that the protocol does not have.
    #[error("the server broke the NBD protocol: {0}")]
    Protocol(&'static str),
    /// The server refused the export.
    #[error("the server refused the export {name:?}: {reason}")]
    Refused {
        /// The name asked for.
        name: String,
        /// The server's words, without control characters.
        reason: String,
    },
}

/// The answer to a request. The data of a read follow and have to be taken with [`Client::fill`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The request's number.
    pub cookie: u64,
    /// An error number; 0 for success.
    pub error: u32,
}

/// A connection to an export.
#[derive(Debug)]
pub struct Client<S> {
    stream: S,
    size_bytes: u64,
    flags: u16,
}

impl<S: Read + Write> Client<S> {
    /// Negotiates the export `name` ("" is the server's first). At each read timeout of the stream
    /// the client gives up if `is_over` says so.
    ///
    /// # Errors
    /// If the server has no such export, does not speak NBD, or does not answer in time.
    pub fn start(mut stream: S, name: &str, is_over: &dyn Fn() -> bool) -> Result<Self, ClientError> {
        let mut greeting = [0; GREETING_BYTES];
        fill_all(&mut stream, &mut greeting, is_over)?;
        let magics = [magic::GREETING.to_be_bytes(), magic::OPTION.to_be_bytes()].concat();
        let theirs = u16::from_be_bytes([greeting[16], greeting[17]]);
        if greeting[..16] != magics[..] || theirs & flag::FIXED_NEWSTYLE == 0 {
            return Err(ClientError::NotNbd);
        }
        let ours = theirs & (flag::FIXED_NEWSTYLE | flag::NO_ZEROES);
        let go = option::request(option::GO, &option::wanted(name.as_bytes(), &[]));
        stream.write_all(&[&u32::from(ours).to_be_bytes()[..], &go].concat())?;
        let (size_bytes, flags) = chosen(&mut stream, name, is_over)?;
        Ok(Self { stream, size_bytes, flags })
    }

    /// Length of the device in bytes.
    pub const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// True if the server refuses writes.
    pub const fn is_read_only(&self) -> bool {
        self.flags & flag::READ_ONLY != 0
    }

    /// The stream, to look at or to set its timeouts.
    pub const fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Sends a request with its payload, which only a write has.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn send(&mut self, request: &Request, payload: &[u8]) -> io::Result<()> {
        match payload {
            [] => self.stream.write_all(&request.header()),
            _ => self.stream.write_all(&[&request.header()[..], payload].concat()),
        }
    }

    /// The next answer to any request; `None` if `is_over` said so before.
    ///
    /// # Errors
    /// Those of the stream, or [`ErrorKind::InvalidData`] if no simple reply comes.
    pub fn answer(&mut self, is_over: &dyn Fn() -> bool) -> io::Result<Option<Answer>> {
        let mut header = [0; ANSWER_BYTES];
        if !fill(&mut self.stream, &mut header, is_over)? {
            return Ok(None);
        }
        match Header::parse(&header) {
            Ok(Some((Header::Simple { error, cookie }, _))) => Ok(Some(Answer { cookie, error })),
            _ => Err(io::Error::new(ErrorKind::InvalidData, "the server broke the NBD protocol: no simple reply")),
        }
    }

    /// Takes the data of an answer; `false` if `is_over` said so before all were there.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn fill(&mut self, buffer: &mut [u8], is_over: &dyn Fn() -> bool) -> io::Result<bool> {
        fill(&mut self.stream, buffer, is_over)
    }
}

/// Size in bytes and flags of the export that was asked for.
fn chosen(stream: &mut impl Read, name: &str, is_over: &dyn Fn() -> bool) -> Result<(u64, u16), ClientError> {
    let mut found = None;
    loop {
        let mut header = [0; REPLY_HEADER_BYTES];
        fill_all(stream, &mut header, is_over)?;
        let header = ReplyHeader::parse(&header).filter(|header| header.length <= REPLY_BYTES_MAX);
        let header = header.ok_or(ClientError::Protocol("no reply to an option"))?;
        let mut data = vec![0; header.length as usize];
        fill_all(stream, &mut data, is_over)?;
        match header.kind {
            answer::ACK => return found.ok_or(ClientError::Protocol("the export's size is missing")),
            answer::INFO => found = option::size_and_flags(&data).or(found),
            kind if kind & answer::ERROR != 0 => {
                let reason = String::from_utf8_lossy(&data).replace(char::is_control, "?");
                let reason = if reason.is_empty() { "no reason given".to_owned() } else { reason };
                return Err(ClientError::Refused { name: name.to_owned(), reason });
            }
            _ => {}
        }
    }
}

/// Fills `buffer`. At each read timeout of the stream the call gives up if `is_over` says so:
/// `false`.
///
/// # Errors
/// Those of the stream; its end is [`ErrorKind::UnexpectedEof`].
pub fn fill(stream: &mut impl Read, buffer: &mut [u8], is_over: &dyn Fn() -> bool) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection")),
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

fn fill_all(stream: &mut impl Read, buffer: &mut [u8], is_over: &dyn Fn() -> bool) -> io::Result<()> {
    if fill(stream, buffer, is_over)? { Ok(()) } else { Err(ErrorKind::TimedOut.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd::codec::Command;

    /// What the server said, and what the client did.
    #[derive(Debug)]
    struct Script {
        said: io::Cursor<Vec<u8>>,
        sent: Vec<u8>,
    }

    impl Read for Script {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.said.read(buffer)? {
                0 => Err(ErrorKind::WouldBlock.into()),
                read => Ok(read),
            }
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.sent.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn start(greeting: &[u8], replies: &[(u32, &[u8])]) -> Result<Client<Script>, ClientError> {
        let mut said = greeting.to_vec();
        for (kind, data) in replies {
            option::reply(&mut said, option::GO, *kind, &[data]);
        }
        Client::start(Script { said: io::Cursor::new(said), sent: Vec::new() }, "x", &|| true)
    }

    const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\0\x03";
    const EXPORT: (u32, &[u8]) = (answer::INFO, b"\0\0\0\0\0\0\0\0\x02\0\0\x03");

    #[test]
    fn frames_are_those_of_the_specification() {
        let mut client = start(GREETING, &[(answer::INFO, b"\0\x01x"), EXPORT, (answer::ACK, b"")]).unwrap();
        assert_eq!((client.size_bytes(), client.is_read_only()), (512, true));
        assert_eq!(client.stream().sent, b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0\0\x07\0\0\0\x01x\0\0");
        client.stream().sent.clear();
        let request = Request { command: Command::Write, flags: 1, cookie: 2, offset: 3, length: 4 };
        client.send(&request, b"abcd").unwrap();
        let header = b"\x25\x60\x95\x13\0\x01\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\x04";
        assert_eq!(client.stream().sent, [&header[..], b"abcd"].concat());
        client.stream().said = io::Cursor::new(b"\x67\x44\x66\x98\0\0\0\x05\0\0\0\0\0\0\0\x02".to_vec());
        assert_eq!(client.answer(&|| true).unwrap(), Some(Answer { cookie: 2, error: 5 }));
        assert_eq!(client.answer(&|| true).unwrap(), None);
    }

    #[test]
    fn a_server_that_breaks_the_protocol_is_given_up() {
        let fails = |greeting: &[u8], replies: &[(u32, &[u8])]| start(greeting, replies).unwrap_err().to_string();
        assert_eq!(fails(b"NBDMAGICIHAVEOPT\0\0", &[]), "not an NBD server of the fixed newstyle");
        assert_eq!(fails(b"SSH-2.0-OpenSSH_9.6p1", &[]), "not an NBD server of the fixed newstyle");
        let no_size = fails(GREETING, &[(answer::ACK, b"")]);
        assert_eq!(no_size, "the server broke the NBD protocol: the export's size is missing");
        let refused = fails(GREETING, &[(answer::ERR_UNKNOWN, b"no\nsuch")]);
        assert_eq!(refused, "the server refused the export \"x\": no?such");
        assert!(matches!(start(GREETING, &[]), Err(ClientError::Stream(error)) if error.kind() == ErrorKind::TimedOut));
    }

    #[test]
    fn headers_of_answers_are_read_as_they_are_written() {
        use crate::nbd::codec::reply::{self, kind};
        let mut out = Vec::new();
        reply::simple(&mut out, 7, None);
        assert_eq!(Header::parse(&out), Ok(Some((Header::Simple { error: 0, cookie: 7 }, 16))));
        out.clear();
        reply::offset_data(&mut out, 9, true, 0, 4);
        let chunk = Header::Chunk { flags: flag::DONE, kind: kind::OFFSET_DATA, cookie: 9, length: 12 };
        assert_eq!(Header::parse(&out), Ok(Some((chunk, 20))));
        assert_eq!(Header::parse(&out[..19]), Ok(None));
        assert_eq!(Header::parse(b"HTTP/1.1"), Err(0x4854_5450));
    }
}

//! The requests of NBD, as a stream.
//!
//! Promises: a stream in parts is parsed as a whole one; requests begin where they must; at most a
//! header has to be buffered.

use vfield_export::nbd::codec::request::HEADER_BYTES;
use vfield_export::nbd::codec::{Command, Next, PAYLOAD_BYTES_MAX, Request, Requests, Violation};

/// The parsed requests, bytes of payload, and the end.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    requests: Vec<Request>,
    payload_bytes: usize,
    left_bytes: usize,
    end: Option<Violation>,
}

/// The first byte: in parts of how many bytes the rest comes the second time.
pub fn target(bytes: &[u8]) {
    let Some((part, stream)) = bytes.split_first() else { return };
    let whole = parse(stream, stream.len());
    assert_eq!(parse(stream, usize::from(*part) + 1), whole);
    let heads = whole.requests.len() * HEADER_BYTES;
    assert_eq!(heads + whole.payload_bytes + whole.left_bytes, stream.len(), "every byte is accounted for");
    assert!(whole.end.is_some() || whole.left_bytes < HEADER_BYTES);
    let writes = whole.requests.iter().filter(|request| request.command == Command::Write);
    let wanted: u64 = writes.map(|request| u64::from(request.length)).sum();
    assert!(whole.payload_bytes as u64 <= wanted);
}

fn parse(stream: &[u8], part: usize) -> Found {
    let (mut found, mut parser) = (Found::default(), Requests::default());
    let (mut used, mut arrived) = (0, 0);
    loop {
        match parser.next(&stream[used..arrived]) {
            Ok(Next::More) if arrived == stream.len() => break,
            Ok(Next::More) => arrived = stream.len().min(arrived + part.max(1)),
            Ok(Next::Request(request)) => {
                assert!(request.command != Command::Write || request.length <= PAYLOAD_BYTES_MAX);
                used += HEADER_BYTES;
                found.requests.push(request);
            }
            Ok(Next::Payload(bytes)) => {
                assert!(bytes > 0);
                used += bytes;
                found.payload_bytes += bytes;
            }
            Err(violation) => {
                found.end = Some(violation);
                break;
            }
        }
    }
    found.left_bytes = stream.len() - used;
    found
}

/// A request as clients send it.
pub(crate) fn request(flags: u16, command: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    Request { command: command.into(), flags, cookie, offset, length }.header().to_vec()
}

/// Requests of all kinds.
pub fn seeds() -> Vec<Vec<u8>> {
    let write = [request(0, 1, 2, 512, 5), b"bytes".to_vec()].concat();
    let all = [request(0, 0, 1, 0, 512), write, request(1, 3, 3, 0, 0), request(0, 2, 4, 0, 0)].concat();
    vec![
        [&[5][..], &all].concat(),
        [&[0][..], &request(0, 1, 1, 0, PAYLOAD_BYTES_MAX + 1)].concat(),
        [&[255][..], &request(0, 7, 1, 0, u32::MAX), b"rubbish"].concat(),
    ]
}

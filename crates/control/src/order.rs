//! An order as it comes in over a control socket: one bounded line, and perhaps files that are
//! handed over with it, each with a part of the line.

use super::message::REQUEST_BYTES_MAX;
use crate::fd_message;
use std::fs::File;
use std::io::{self, ErrorKind};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Most files of an order: one to serve, and its hashes. More are closed.
const FILES_MAX: usize = 2;

/// What a client has sent.
#[derive(Debug)]
pub struct Order {
    /// Without its newline.
    pub line: Vec<u8>,
    /// The last files that came with it, [`FILES_MAX`] at most.
    pub files: Vec<File>,
}

/// Waits for one; `None` if the client has gone without a word.
///
/// # Errors
/// If the input is longer than an order, or ends before it is whole.
pub async fn receive(stream: &UnixStream) -> io::Result<Option<Order>> {
    let (mut buffer, mut filled, mut files) = (vec![0; REQUEST_BYTES_MAX], 0, Vec::new());
    loop {
        let read = || fd_message::receive_into(stream, &mut buffer[filled..]);
        let (bytes, handed) = stream.async_io(Interest::READABLE, read).await?;
        files.extend(handed.map(File::from));
        files.drain(..files.len().saturating_sub(FILES_MAX));
        let end = buffer[filled..filled + bytes].iter().position(|byte| *byte == b'\n');
        if let Some(end) = end {
            buffer.truncate(filled + end);
            return Ok(Some(Order { line: buffer, files }));
        }
        filled += bytes;
        match bytes {
            0 if filled == 0 => return Ok(None),
            0 => return Err(io::Error::new(ErrorKind::UnexpectedEof, "a request without an end")),
            _ if filled == buffer.len() => {
                return Err(io::Error::new(ErrorKind::InvalidData, "a request without an end"));
            }
            _ => {}
        }
    }
}

/// Waits until the client says more, or goes. It has nothing more to say: any byte,
/// and the end, ends the conversation.
pub async fn anything_more(stream: &UnixStream) {
    let mut byte = [0];
    // An error is an end as well.
    let _ = stream.async_io(Interest::READABLE, || fd_message::receive_into(stream, &mut byte)).await;
}

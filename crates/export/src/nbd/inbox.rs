//! What a client has sent and nobody has looked at yet.
//!
//! Invariant: holds at most the bytes it was made for, so a client that sends faster than it is
//! served waits in its own socket. Filled from a socket, emptied from the front by the parsers.

use super::socket::Socket;
use std::io;
use std::task::{Context, Poll};

/// A buffer of fixed size.
#[derive(Debug)]
pub(super) struct Inbox {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Inbox {
    pub(super) fn new(capacity_bytes: usize) -> Self {
        Self { buffer: vec![0; capacity_bytes], start: 0, end: 0 }
    }

    /// A buffer that begins with these bytes.
    pub(super) fn with(bytes: &[u8], capacity_bytes: usize) -> Self {
        let mut inbox = Self::new(capacity_bytes.max(bytes.len()));
        inbox.end = bytes.len();
        inbox.buffer[..inbox.end].copy_from_slice(bytes);
        inbox
    }

    /// The bytes that are here.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The first `bytes` of them are done with.
    pub(super) fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.end - self.start, "more was consumed than is there");
        self.start += bytes;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// True if not one more byte fits.
    pub(super) fn is_full(&self) -> bool {
        self.end - self.start == self.buffer.len()
    }

    /// Reads once. 0 bytes mean that the client will send no more; must not be called when full.
    pub(super) fn poll_fill(&mut self, socket: &mut Socket, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        assert!(!self.is_full(), "a full inbox would look like a client that left");
        // At most a header is left over between reads, so moving it to the front costs nothing.
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        socket.poll_read(cx, &mut self.buffer[self.end..]).map_ok(|bytes| {
            self.end += bytes;
            bytes
        })
    }
}

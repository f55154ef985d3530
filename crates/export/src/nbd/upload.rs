//! A write whose payload is on its way in.
//!
//! Owns the payload as far as it has arrived, in windows. Invariant: holds one window at a time,
//! and those parts that have to wait for the source, which are the first and the last at most. A
//! window that is complete is written at once if it can be. A write that failed, or was refused, is
//! read to its end and thrown away. The connection feeds it and hands it to the answers when it is
//! complete.

use super::codec::Errno;
use super::session::Change;
use super::socket::Socket;
use bytes::Bytes;
use std::io;
use std::task::{Context, Poll};
use vfield_block::device::{BlockDevice, WriteError};
use vfield_block::extent::Extent;
use vfield_block::source::ReadError;

/// How much is collected before it is written, cut where windows of the device end: what the Linux
/// kernel's and QEMU's requests stay below. Those cuts lie between granules, so only a write's own
/// ends are parts of one.
const WINDOW_BYTES: u64 = 1 << 20;

/// A part of a write that has to wait: where it goes, and its bytes.
pub(super) type Late = (u64, Bytes);

/// Why a change failed, for the client.
pub(super) type Refusal = (Errno, String);

/// The payload of one write while it arrives.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) cookie: u64,
    pub(super) change: Change,
    /// Bytes neither written nor discarded.
    rest: Extent,
    window: Vec<u8>,
    /// How much of the window is here.
    filled: usize,
    late: Vec<Late>,
    refusal: Option<Refusal>,
}

impl Upload {
    /// A write that is to be done if it was admitted. Puts it together in `window`, whatever that
    /// holds.
    pub(super) fn new(cookie: u64, change: Change, window: Vec<u8>, admitted: Result<(), WriteError>) -> Self {
        let (rest, refusal) = (change.extent, admitted.err().map(|error| refusal(&error)));
        Self { cookie, change, rest, window, filled: 0, late: Vec::new(), refusal }
    }

    /// A write of `length` bytes that is not to be done.
    pub(super) fn refused(cookie: u64, length: u32, window: Vec<u8>, (errno, why): (Errno, &str)) -> Self {
        let extent = Extent::from(0..u64::from(length));
        let change = Change { kind: super::session::Kind::Write, extent, durable: false };
        Self { refusal: Some((errno, why.to_owned())), ..Self::new(cookie, change, window, Ok(())) }
    }

    /// True if all of the payload has come.
    pub(super) fn is_complete(&self) -> bool {
        self.rest.is_empty()
    }

    /// The window, for the next write.
    pub(super) fn take_window(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.window)
    }

    /// The remaining work, or the reason of its end.
    pub(super) fn outcome(self) -> Result<Vec<Late>, Refusal> {
        match self.refusal {
            None => Ok(self.late),
            Some(refusal) => Err(refusal),
        }
    }

    fn window_bytes(&self) -> usize {
        self.rest.take(WINDOW_BYTES - self.rest.start() % WINDOW_BYTES).len() as usize
    }

    /// Takes bytes of the payload that have arrived, not more than it has.
    pub(super) fn take(&mut self, mut bytes: &[u8], device: Option<&dyn BlockDevice>) {
        while !bytes.is_empty() {
            let length = self.window_bytes();
            if self.filled == 0 && bytes.len() >= length {
                let (window, rest) = bytes.split_at(length);
                self.put(window, device);
                bytes = rest;
                continue;
            }
            let part = bytes.len().min(length - self.filled);
            self.room(length)[..part].copy_from_slice(&bytes[..part]);
            self.arrived(part, device);
            bytes = &bytes[part..];
        }
    }

    /// Reads from the socket to where the bytes are wanted. 0 bytes mean that the client will send
    /// no more.
    pub(super) fn poll_fill(
        &mut self,
        socket: &mut Socket,
        device: Option<&dyn BlockDevice>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let length = self.window_bytes();
        let polled = socket.poll_read(cx, self.room(length));
        if let Poll::Ready(Ok(bytes)) = polled {
            self.arrived(bytes, device);
        }
        polled
    }

    /// The part of the window that has not come.
    fn room(&mut self, length: usize) -> &mut [u8] {
        if self.window.len() < length {
            self.window.resize(length, 0);
        }
        &mut self.window[self.filled..length]
    }

    /// So many more bytes are in the window.
    fn arrived(&mut self, bytes: usize, device: Option<&dyn BlockDevice>) {
        self.filled += bytes;
        let length = self.window_bytes();
        if self.filled == length && length > 0 {
            let window = std::mem::take(&mut self.window);
            self.filled = 0;
            self.put(&window[..length], device);
            self.window = window;
        }
    }

    /// Writes the next window, or has it wait.
    fn put(&mut self, window: &[u8], device: Option<&dyn BlockDevice>) {
        let offset = self.rest.start();
        self.rest = self.rest.skip(window.len() as u64);
        if let (None, Some(device)) = (&self.refusal, device) {
            match device.try_write(offset, window) {
                Some(Ok(())) => {}
                Some(Err(error)) => self.refusal = Some(refusal(&error)),
                None => self.late.push((offset, Bytes::copy_from_slice(window))),
            }
        }
    }
}

/// What a client is told of a change that failed.
pub(super) fn refusal(error: &WriteError) -> Refusal {
    let errno = match error {
        WriteError::Full => Errno::NoSpace,
        WriteError::Read(ReadError::ShuttingDown | ReadError::Dropped) => Errno::Shutdown,
        WriteError::Read(_) | WriteError::Io(_) => Errno::Io,
    };
    (errno, error.to_string())
}

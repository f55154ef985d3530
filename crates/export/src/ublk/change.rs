//! Changes to a device: writes, zeros, discards and flushes, for sources that can be written.
//!
//! Invariant: a request is answered when all of it is in the source, and durable if it was asked to
//! be. The bytes of a write stay in the request's own pages until they are written, a window at a
//! time, so a waiting change holds no more than a window. The queue's thread makes changes that
//! need no waiting. Called by the queue.

use super::abi::{Descriptor, Operation};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use vfield_block::device::{BlockDevice, WriteError};
use vfield_block::extent::Extent;

/// How much of a write is taken at a time, cut where windows of the device end: what stays in a
/// core's own cache. The cuts lie between granules, so only a write's own ends are parts of one.
pub(super) const WINDOW_BYTES: u64 = 64 << 10;

/// The remaining work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    operation: Operation,
    rest: Extent,
    /// Made durable before it is answered.
    durable: bool,
    /// Where the bytes of `rest` lie in the character device.
    place: u64,
}

impl Change {
    /// What `descriptor` asks of `extent`; its bytes lie at `place` of the character device.
    pub fn new(descriptor: Descriptor, extent: Extent, place: u64) -> Self {
        Self { operation: descriptor.operation, rest: extent, durable: descriptor.durable, place }
    }

    /// Makes as much as can be made without waiting; `None` if something is left for
    /// [`Self::make`].
    pub fn try_make(
        &mut self,
        device: &dyn BlockDevice,
        from: BorrowedFd<'_>,
        window: &mut Vec<u8>,
    ) -> Option<Result<(), WriteError>> {
        match self.operation {
            Operation::Discard => return Some(device.discard(self.rest)),
            // Whole or not at all, though it is made in windows.
            Operation::Write => match device.admit(self.rest) {
                Ok(()) => {}
                Err(error) => return Some(Err(error)),
            },
            Operation::Read | Operation::Flush | Operation::Zero | Operation::Other(_) => return None,
        }
        while !self.rest.is_empty() {
            let offset = self.rest.start();
            let written = match self.take_window(from, window) {
                Ok(()) => device.try_write(offset, window)?,
                Err(error) => Err(error),
            };
            match written {
                Ok(()) => self.skip(window.len() as u64),
                Err(error) => return Some(Err(error)),
            }
        }
        (!self.durable).then_some(Ok(()))
    }

    /// Makes the remaining changes.
    pub async fn make(mut self, device: &dyn BlockDevice, from: BorrowedFd<'_>) -> Result<(), WriteError> {
        match self.operation {
            Operation::Write => {
                while !self.rest.is_empty() {
                    let mut window = Vec::new();
                    self.take_window(from, &mut window)?;
                    let length = window.len() as u64;
                    device.write(self.rest.start(), window.into()).await?;
                    self.skip(length);
                }
            }
            Operation::Zero => device.zero(self.rest).await?,
            Operation::Discard => device.discard(self.rest)?,
            Operation::Flush => return device.flush().await,
            Operation::Read | Operation::Other(_) => return Err(WriteError::Io("no such change".into())),
        }
        if self.durable { device.flush().await } else { Ok(()) }
    }

    /// Reads the next bytes of a write.
    fn take_window(&self, from: BorrowedFd<'_>, window: &mut Vec<u8>) -> Result<(), WriteError> {
        let part = self.rest.take(WINDOW_BYTES - self.rest.start() % WINDOW_BYTES);
        window.resize(part.len() as usize, 0);
        let mut done = 0;
        while done < window.len() {
            let at = self.place + done as u64;
            match rustix::io::retry_on_intr(|| rustix::io::pread(from, &mut window[done..], at)) {
                Ok(0) => return Err(WriteError::Io("the kernel gave less than it wants to have written".into())),
                Ok(count) => done += count,
                Err(error) => return Err(WriteError::Io(format!("taking bytes from the kernel failed: {error}"))),
            }
        }
        Ok(())
    }

    fn skip(&mut self, length: u64) {
        self.rest = self.rest.skip(length);
        self.place += length;
    }
}

/// What the kernel is told about a change that failed.
pub(super) fn errno(error: &WriteError) -> Errno {
    match error {
        WriteError::Full => Errno::NOSPC,
        WriteError::Read(_) | WriteError::Io(_) => Errno::IO,
    }
}

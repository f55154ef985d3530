//! A queue of requests and the thread that answers them.
//!
//! Owns the thread's loop. Invariants: each request that the kernel hands out is committed exactly
//! once, with all of its bytes or an error; a hit is answered by the thread that took the request,
//! and wakes nobody; a miss holds up nothing, as a task of the runtime waits for it, and its end
//! comes back through [`Ends`], because the kernel takes commits only from the thread that fetched.
//! Started by `device`; ends when the kernel gives up every place of the queue.

use super::abi::{self, Descriptor, Operation};
use super::change::{self, Change};
use super::gather::Gather;
use super::ring::{Event, QueueRing};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::watch;
use vfield_block::device::WriteError;
use vfield_block::extent::Extent;
use vfield_block::source::{BlockSource, Piece, ReadError};

/// What all queues of a device share.
pub(super) struct Shared {
    pub source: Arc<dyn BlockSource>,
    /// Where misses are waited for.
    pub runtime: Handle,
    /// The character device: requests come from it, their bytes go there.
    pub device: OwnedFd,
    /// Length of the block device in bytes.
    pub size_bytes: u64,
    /// True once waiting requests have to fail.
    pub closing: watch::Sender<bool>,
}

/// Answers the requests of a queue until the device is stopped; says on `ready` whether that can
/// begin.
pub(super) fn serve(shared: Arc<Shared>, queue: u16, depth: u16, ready: &Sender<io::Result<()>>) {
    let mut thread = match Queue::new(shared, queue, depth) {
        Ok(thread) => thread,
        Err(error) => {
            // The requester may have given up.
            let _ = ready.send(Err(error));
            return;
        }
    };
    let _ = ready.send(Ok(()));
    if let Err(error) = thread.run() {
        tracing::error!(queue, %error, "a ublk queue failed: its requests wait until the daemon is started again");
    }
}

struct Queue {
    shared: Arc<Shared>,
    ring: QueueRing,
    queue: u16,
    depth: u16,
    ends: Arc<Ends>,
    gather: Gather,
    /// Kept for their allocations.
    pieces: Vec<Piece>,
    window: Vec<u8>,
}

impl Queue {
    /// A queue whose places all ask for requests.
    fn new(shared: Arc<Shared>, queue: u16, depth: u16) -> io::Result<Self> {
        let mut ring = QueueRing::new(shared.device.as_fd(), queue, depth)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let ends = Arc::new(Ends { list: Mutex::default(), wake });
        for tag in 0..depth {
            ring.fetch(tag)?;
        }
        ring.watch(ends.wake.as_raw_fd())?;
        ring.flush()?;
        Ok(Self { shared, ring, queue, depth, ends, gather: Gather::mapping(), pieces: Vec::new(), window: Vec::new() })
    }

    fn run(&mut self) -> io::Result<()> {
        let mut places = self.depth;
        let mut events = Vec::new();
        while places > 0 {
            self.ring.wait(&mut events)?;
            for event in events.drain(..) {
                match event {
                    Event::Woken => self.commit_ends()?,
                    Event::Request { tag, result: 0 } => self.take(tag)?,
                    Event::Request { tag, result } => {
                        if result != -Errno::NODEV.raw_os_error() {
                            tracing::error!(queue = self.queue, tag, result, "the kernel refused a command");
                        }
                        places -= 1;
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes a request and answers it, now or later.
    fn take(&mut self, tag: u16) -> io::Result<()> {
        let descriptor = self.ring.descriptor(tag);
        let result = match (descriptor.operation, self.asked(descriptor)) {
            (_, None) => Some(-Errno::IO.raw_os_error()),
            (Operation::Other(_), _) => Some(-Errno::OPNOTSUPP.raw_os_error()),
            (Operation::Read, Some(asked)) => self.read(tag, asked),
            (_, Some(asked)) => self.change(tag, descriptor, asked),
        };
        result.map_or(Ok(()), |result| self.ring.commit(tag, result))
    }

    /// The extent of a request, if it lies within the device and is as short as it may be; a flush
    /// has none.
    fn asked(&self, descriptor: Descriptor) -> Option<Extent> {
        let bytes_max = match descriptor.operation {
            Operation::Flush | Operation::Other(_) => return Some(Extent::from(0..0)),
            Operation::Read | Operation::Write => super::REQUEST_BYTES_MAX,
            Operation::Discard | Operation::Zero => super::DISCARD_BYTES_MAX,
        };
        let start = descriptor.first_sector.checked_mul(super::SECTOR_BYTES)?;
        let asked = Extent::new(start, u64::from(descriptor.sectors) * super::SECTOR_BYTES)?;
        (asked.end() <= self.shared.size_bytes && asked.len() <= u64::from(bytes_max)).then_some(asked)
    }

    /// The result of a change that could be made at once; `None` if it is waited for.
    fn change(&mut self, tag: u16, descriptor: Descriptor, asked: Extent) -> Option<i32> {
        // The kernel keeps changes away from a device that is read-only.
        let Some(device) = self.shared.source.device() else { return Some(-Errno::OPNOTSUPP.raw_os_error()) };
        let mut change = Change::new(descriptor, asked, abi::buffer_place(self.queue, tag));
        if let Some(done) = change.try_make(device, self.shared.device.as_fd(), &mut self.window) {
            return Some(changed(descriptor, asked, done));
        }
        let (shared, ends) = (self.shared.clone(), self.ends.clone());
        self.shared.runtime.spawn(async move {
            let done = shared.wait_for_change(change).await;
            ends.push(tag, changed(descriptor, asked, done));
        });
        None
    }

    /// The result of a read whose bytes are here; `None` if it is waited for.
    fn read(&mut self, tag: u16, asked: Extent) -> Option<i32> {
        let held = self.shared.held(asked);
        if !held.is_empty() && !self.shared.source.try_read(held, &mut self.pieces) {
            let (shared, ends, queue) = (self.shared.clone(), self.ends.clone(), self.queue);
            self.shared.runtime.spawn(async move {
                let result = shared.wait_for(asked, abi::buffer_place(queue, tag)).await;
                ends.push(tag, shared.result(asked, result));
            });
            return None;
        }
        let found: u64 = self.pieces.iter().map(Piece::len).sum();
        let done = if found == held.len() {
            if held.len() < asked.len() {
                self.pieces.push(Piece::Zero(asked.len() - held.len()));
            }
            let place = abi::buffer_place(self.queue, tag);
            let written = self.gather.write(self.shared.device.as_fd(), place, &self.pieces);
            written.map_err(|error| ReadError::Io(held, error.to_string()))
        } else {
            Err(ReadError::Io(held, format!("the source gave {found} bytes")))
        };
        self.pieces.clear();
        Some(self.shared.result(asked, done))
    }

    /// Commits finished requests.
    fn commit_ends(&mut self) -> io::Result<()> {
        for (tag, result) in self.ends.take() {
            self.ring.commit(tag, result)?;
        }
        self.ring.watch(self.ends.wake.as_raw_fd())
    }
}

impl Shared {
    /// The part of an extent that the source has; what the device has beyond it is zeros.
    fn held(&self, extent: Extent) -> Extent {
        extent.clip(Extent::from(0..self.source.size_bytes()))
    }

    /// What the kernel is told about a read.
    fn result(&self, asked: Extent, done: Result<(), ReadError>) -> i32 {
        match done {
            // At most `REQUEST_BYTES_MAX`.
            Ok(()) => asked.len() as i32,
            Err(error) => {
                tracing::warn!(%error, "a read failed");
                -Errno::IO.raw_os_error()
            }
        }
    }

    /// Writes all of `asked` to `place` as it comes, or fails as soon as the device closes.
    async fn wait_for(&self, asked: Extent, place: u64) -> Result<(), ReadError> {
        let mut closing = self.closing.subscribe();
        tokio::select! {
            biased;
            done = self.fill(asked, place) => done,
            _ = closing.wait_for(|closing| *closing) => Err(ReadError::ShuttingDown),
        }
    }

    /// Completes a change, or fails as soon as the device closes.
    async fn wait_for_change(&self, change: Change) -> Result<(), WriteError> {
        let Some(device) = self.source.device() else { return Err(WriteError::Io("the source is read-only".into())) };
        let mut closing = self.closing.subscribe();
        tokio::select! {
            biased;
            done = change.make(device, self.device.as_fd()) => done,
            _ = closing.wait_for(|closing| *closing) => Err(ReadError::ShuttingDown.into()),
        }
    }

    async fn fill(&self, asked: Extent, place: u64) -> Result<(), ReadError> {
        let held = self.held(asked);
        let mut rest = held;
        while !rest.is_empty() {
            let pieces = self.source.read(rest).await?;
            let length: u64 = pieces.iter().map(Piece::len).sum();
            if length == 0 || length > rest.len() {
                return Err(ReadError::Io(rest, format!("the source gave {length} bytes")));
            }
            self.copy(rest, place + (rest.start() - asked.start()), &pieces)?;
            rest = rest.skip(length);
        }
        match asked.len() - held.len() {
            0 => Ok(()),
            beyond => self.copy(asked, place + held.len(), &[Piece::Zero(beyond)]),
        }
    }

    /// Copied as they come rather than kept: a piece may keep room in the source's cache.
    fn copy(&self, of: Extent, place: u64, pieces: &[Piece]) -> Result<(), ReadError> {
        let written = Gather::copying().write(self.device.as_fd(), place, pieces);
        written.map_err(|error| ReadError::Io(of, error.to_string()))
    }
}

/// What the kernel is told about a change.
fn changed(descriptor: Descriptor, asked: Extent, done: Result<(), WriteError>) -> i32 {
    match done {
        // At most `REQUEST_BYTES_MAX`.
        Ok(()) if descriptor.operation == Operation::Write => asked.len() as i32,
        Ok(()) => 0,
        Err(error) => {
            tracing::debug!(%error, "a change failed");
            -change::errno(&error).raw_os_error()
        }
    }
}

/// The ends of requests that were waited for, on their way back to the queue's thread.
struct Ends {
    list: Mutex<Vec<(u16, i32)>>,
    wake: OwnedFd,
}

impl Ends {
    fn push(&self, tag: u16, result: i32) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.push((tag, result));
        if list.len() == 1
            && let Err(error) = rustix::io::write(&self.wake, &1_u64.to_ne_bytes())
        {
            tracing::error!(%error, "waking a ublk queue failed");
        }
    }

    /// All of them, for the thread that was woken.
    fn take(&self) -> Vec<(u16, i32)> {
        // Nothing to read means that an earlier call took what this wake-up was for.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        std::mem::take(&mut self.list.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

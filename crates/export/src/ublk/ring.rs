//! The rings over which the kernel is spoken to: one for control commands, one for each queue of a
//! device.
//!
//! Owns the rings and the pages in which the kernel describes a queue's requests. Invariants: a
//! buffer given to a control command outlives it, since the command is waited for; a queue's
//! commands carry no pointers at all; the pages are mapped for as long as the ring lives. Called by
//! `control` and `queue`, which never see a pointer.

#![expect(unsafe_code, reason = "io_uring takes addresses, and requests are described in shared pages")]

use super::abi::{self, Control, Descriptor, Io};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::ptr::{self, NonNull};

/// A ring for control commands, one at a time.
pub(super) struct ControlRing(IoUring<squeue::Entry128, cqueue::Entry>);

impl ControlRing {
    /// # Errors
    /// If there is no io_uring, or it may not be used.
    pub fn new() -> io::Result<Self> {
        IoUring::builder().build(2).map(Self)
    }

    /// Gives a command and waits for it. `buffer` is read or written by the kernel.
    ///
    /// # Errors
    /// What the command answered.
    pub fn run(
        &mut self,
        to: BorrowedFd<'_>,
        command: Control,
        device: u32,
        buffer: &mut [u8],
        data: u64,
    ) -> io::Result<()> {
        // Every buffer is a structure of less than 100 bytes.
        let place = (buffer.as_mut_ptr() as u64, buffer.len() as u16);
        let payload = abi::control_command(device, place, data);
        let entry = opcode::UringCmd80::new(types::Fd(to.as_raw_fd()), command as u32).cmd(payload).build();
        // SAFETY: the descriptor and the buffer are borrowed until the command's completion has
        // been seen below.
        unsafe { self.0.submission().push(&entry) }.map_err(|_| io::Error::from(Errno::AGAIN))?;
        loop {
            match self.0.submit_and_wait(1) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
            if let Some(done) = self.0.completion().next() {
                return if done.result() < 0 { Err(io::Error::from_raw_os_error(-done.result())) } else { Ok(()) };
            }
        }
    }
}

/// What the ring of a queue tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// Somebody wrote to the watched descriptor; it is not watched any more.
    Woken,
    /// Place `tag` has a request, if `result` is 0; else it never has one again.
    Request { tag: u16, result: i32 },
}

/// The ring of one queue. Has to be made and used by one thread.
pub(super) struct QueueRing {
    ring: IoUring,
    queue: u16,
    depth: u16,
    descriptors: NonNull<c_void>,
    descriptors_bytes: usize,
}

/// The user data of the watch; tags are below 2^16.
const WATCH: u64 = u64::MAX;
/// The character device's place among the ring's registered files.
const DEVICE: types::Fixed = types::Fixed(0);

impl QueueRing {
    /// A ring over which the requests of a queue of `device` come; `depth` is what the device was
    /// made with.
    ///
    /// # Errors
    /// If there is no io_uring, or the device does not give its descriptors away.
    pub fn new(device: BorrowedFd<'_>, queue: u16, depth: u16) -> io::Result<Self> {
        let entries = u32::from(depth) + 1;
        // One thread submits, and what the kernel has to do for it waits until it asks: no
        // interrupts in between.
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_defer_taskrun()
            .build(entries.next_power_of_two())?;
        ring.submitter().register_files(&[device.as_raw_fd()])?;
        let page_bytes = rustix::param::page_size() as u64;
        let (offset, descriptors_bytes) = abi::descriptors_place(queue, depth, page_bytes);
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let mapped = unsafe { mmap(ptr::null_mut(), descriptors_bytes, ProtFlags::READ, flags, device, offset) }?;
        let descriptors = NonNull::new(mapped).ok_or(Errno::NOMEM)?;
        Ok(Self { ring, queue, depth, descriptors, descriptors_bytes })
    }

    /// The request in place `tag`, after [`Event::Request`] named it.
    pub fn descriptor(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth, "the kernel named a place that the queue does not have");
        let place = self.descriptors.cast::<[u8; Descriptor::BYTES]>();
        // SAFETY: within the mapping, as the tag is below the depth; bytes have no alignment; the
        // kernel writes here only while it owns the place, so not now, and the read is volatile in
        // case it does.
        Descriptor::from_bytes(&unsafe { place.add(usize::from(tag)).read_volatile() })
    }

    /// Asks for a request in place `tag`, once.
    ///
    /// # Errors
    /// If the ring is full, which cannot happen: there is an entry for each place.
    pub fn fetch(&mut self, tag: u16) -> io::Result<()> {
        self.push(Io::Fetch, tag, 0)
    }

    /// Says that the request in place `tag` is answered, and asks for the next one. `result` is its
    /// length in bytes or a negative errno. Sent with the next [`Self::wait`].
    ///
    /// # Errors
    /// As for [`Self::fetch`].
    pub fn commit(&mut self, tag: u16, result: i32) -> io::Result<()> {
        self.push(Io::Commit, tag, result)
    }

    fn push(&mut self, command: Io, tag: u16, result: i32) -> io::Result<()> {
        let payload = abi::io_command(self.queue, tag, result);
        let entry = opcode::UringCmd16::new(DEVICE, command as u32).cmd(payload).build().user_data(tag.into());
        self.submit(&entry)
    }

    /// Tells [`Event::Woken`] as soon as `wake` can be read; it must stay open for as long as the
    /// ring lives.
    ///
    /// # Errors
    /// As for [`Self::fetch`].
    pub fn watch(&mut self, wake: RawFd) -> io::Result<()> {
        let entry = opcode::PollAdd::new(types::Fd(wake), libc::POLLIN as u32).build().user_data(WATCH);
        self.submit(&entry)
    }

    fn submit(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: none of the commands points anywhere, and a closed descriptor is an error of the
        // command.
        unsafe { self.ring.submission().push(entry) }.map_err(|_| io::Error::from(Errno::AGAIN))
    }

    /// Submits the pushed entries.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn flush(&mut self) -> io::Result<()> {
        self.ring.submit().map(drop)
    }

    /// Submits the pushed entries, waits for events and appends them to `events`.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn wait(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        match self.ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        events.extend(self.ring.completion().map(|done| match done.user_data() {
            WATCH => Event::Woken,
            // All others are tags.
            tag => Event::Request { tag: tag as u16, result: done.result() },
        }));
        Ok(())
    }
}

impl Drop for QueueRing {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, and nothing refers to it any more. Failing
        // would leak it.
        let _ = unsafe { munmap(self.descriptors.as_ptr(), self.descriptors_bytes) };
    }
}

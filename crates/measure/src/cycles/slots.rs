//! Memory that a bare receiver receives into: a mapped memory file, as a store could be.
//!
//! Pages that are resident before the start show what receiving alone takes; fresh ones what the
//! kernel's new pages add to it.

#![expect(unsafe_code, reason = "received into a mapping, which safe Rust cannot make")]

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Bytes of the pages that are touched to make a mapping resident.
const PAGE_BYTES: usize = 4 << 10;

/// A mapped memory file of this process alone.
#[derive(Debug)]
pub(super) struct Slots {
    start: NonNull<u8>,
    length: usize,
}

impl Slots {
    /// So many zeros; with pages from the start if they are not to be fresh.
    pub(super) fn new(length: usize, fresh: bool) -> io::Result<Self> {
        let file = memfd_create("slots", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, length as u64)?;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let start = unsafe {
            mmap(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)?
        };
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut slots = Self { start, length };
        if !fresh {
            slots.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
        }
        Ok(slots)
    }
}

impl Deref for Slots {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping has this length and lives as long as this value. Nobody else has the
        // file, so nobody else writes to it or cuts it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for Slots {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this value is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`, and no borrow of it is left.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "a mapping of our own");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_written_and_read_with_and_without_pages() {
        for fresh in [false, true] {
            let mut slots = Slots::new(3 * PAGE_BYTES, fresh).unwrap();
            assert_eq!(slots.len(), 3 * PAGE_BYTES);
            slots.fill(7);
            assert!(slots.iter().all(|byte| *byte == 7));
        }
    }
}

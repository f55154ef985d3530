//! Memory for buffers, cut from large mappings.
//!
//! The kernel gives the pages of a part in one call: seventeen page faults for each new buffer took
//! more time than receiving and hashing its chunk. A room of ten took a tenth more processor time
//! with huge pages. The pages of a part go back to the kernel with it, the mapping with its last
//! part.
//!
//! Invariant: a part of a mapping belongs to one [`Memory`], since [`Slab::cut`] never cuts the
//! same bytes twice. This is the only file that handles the addresses.

#![expect(unsafe_code, reason = "safe Rust cannot own disjoint parts of one mapping")]

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// Length of a mapping: seven chunks of the largest size. Only the used part costs memory.
const SLAB_BYTES: usize = 8 << 20;
/// Memory begins at a multiple of this, a page of most machines.
const ALIGNED: usize = 4 << 10;

/// A mapping of the process's own.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: it is plain memory. `Memory` hands out disjoint parts.
unsafe impl Send for Mapping {}
// SAFETY: as above; the mapping itself reads and writes nothing.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeros; `None` if the kernel has no memory for them.
    fn new(length: usize) -> Option<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let start = NonNull::new(start.ok()?.cast::<u8>())?;
        Some(Self { start, length })
    }

    /// Has the kernel give the pages of a part now. Before Linux 5.14 they come one by one.
    fn populate(&self, offset: usize, length: usize) {
        // SAFETY: the range lies in this mapping, and the advice does not change its bytes.
        let _ = unsafe { madvise(self.start.as_ptr().add(offset).cast(), length, Advice::LinuxPopulateWrite) };
    }
}

/// A part of a mapping.
#[derive(Debug)]
struct Part {
    mapping: Arc<Mapping>,
    offset: usize,
    length: usize,
}

impl Drop for Part {
    /// Gives the pages back. Else one part that is in use would keep those of all others.
    fn drop(&mut self) {
        // SAFETY: the range lies in the mapping. Nobody else has it, and it is not cut again.
        let _ =
            unsafe { madvise(self.mapping.start.as_ptr().add(self.offset).cast(), self.length, Advice::LinuxDontNeed) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`, and all its parts are gone: each owns a share.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "a mapping of our own");
    }
}

/// The mapping that new memory is cut from.
#[derive(Debug, Default)]
pub struct Slab {
    mapping: Option<Arc<Mapping>>,
    used: usize,
}

impl Slab {
    /// New memory of at least `length_bytes`, with zeros in it.
    pub fn cut(&mut self, length_bytes: usize) -> Memory {
        let length = length_bytes.next_multiple_of(ALIGNED);
        if length > SLAB_BYTES {
            return Memory::from(vec![0; length_bytes]);
        }
        if self.mapping.is_none() || self.used + length > SLAB_BYTES {
            (self.mapping, self.used) = (Mapping::new(SLAB_BYTES).map(Arc::new), 0);
        }
        let Some(mapping) = &self.mapping else { return Memory::from(vec![0; length_bytes]) };
        let offset = self.used;
        self.used += length;
        mapping.populate(offset, length);
        Memory(Kind::Part(Part { mapping: Arc::clone(mapping), offset, length }))
    }
}

/// A run of bytes that one owner may write.
#[derive(Debug)]
pub struct Memory(Kind);

#[derive(Debug)]
enum Kind {
    Heap(Vec<u8>),
    Part(Part),
}

impl Memory {
    /// A run without bytes, which needs no memory.
    pub const fn empty() -> Self {
        Self(Kind::Heap(Vec::new()))
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::empty()
    }
}

impl From<Vec<u8>> for Memory {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Kind::Heap(bytes))
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Kind::Heap(bytes) => bytes,
            // SAFETY: the part lies within the mapping, which lives as long as this value's share,
            // and is initialised. Nobody else has it, so it is written through this value only.
            Kind::Part(Part { mapping, offset, length }) => unsafe {
                std::slice::from_raw_parts(mapping.start.as_ptr().add(*offset), *length)
            },
        }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Kind::Heap(bytes) => bytes,
            // SAFETY: as above, and this value is borrowed alone.
            Kind::Part(Part { mapping, offset, length }) => unsafe {
                std::slice::from_raw_parts_mut(mapping.start.as_ptr().add(*offset), *length)
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_apart_and_outlive_the_slab() {
        let mut slab = Slab::default();
        let mut parts: Vec<Memory> = (0..300).map(|_| slab.cut(68 << 10)).collect();
        drop(slab);
        for (at, part) in parts.iter_mut().enumerate() {
            assert!(part.iter().all(|byte| *byte == 0), "nobody else has written there");
            part.fill(at as u8 | 1);
        }
        for (at, part) in parts.iter().enumerate() {
            assert!(part.iter().all(|byte| *byte == at as u8 | 1));
            assert_eq!((part.len(), part.as_ptr() as usize % ALIGNED), (68 << 10, 0));
        }
    }

    #[test]
    fn a_part_gives_its_pages_back_alone() {
        let mut slab = Slab::default();
        let [mut first, mut second] = [slab.cut(ALIGNED), slab.cut(ALIGNED)];
        first.fill(1);
        second.fill(2);
        let mapping = Arc::clone(slab.mapping.as_ref().unwrap());
        drop(first);
        // SAFETY: a byte of the mapping, which is still there; nobody writes it.
        let byte = unsafe { mapping.start.as_ptr().read() };
        assert_eq!(byte, 0, "a new page, since the old one is gone");
        assert!(second.iter().all(|byte| *byte == 2));
    }

    #[test]
    fn what_is_longer_than_a_mapping_is_had_as_well() {
        let mut slab = Slab::default();
        assert!(slab.cut(SLAB_BYTES + 1).len() > SLAB_BYTES);
        assert!(slab.cut(SLAB_BYTES).len() == SLAB_BYTES && slab.cut(1).len() == ALIGNED);
    }
}

//! Memory of chunks that pass through: received into, handed on without a copy, and used again.
//!
//! A lane receives a chunk into the memory of a buffer. The store shares it with readers and with
//! senders to peers, and the last of them gives the memory back. So a relayed chunk costs no new
//! pages, which take longer than TCP does.

pub mod memory;

use memory::{Memory, Slab};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most bytes of memory that wait for their next use: a chunk of the largest size for each of four
/// lanes. The transient chunks of all images bound the memory in use.
const SPARE_BYTES_MAX: usize = 4 << 20;

/// The memory that waits for its next use.
#[derive(Debug, Default)]
pub struct Buffers {
    spare: Mutex<Spare>,
}

#[derive(Debug, Default)]
struct Spare {
    memory: Vec<Memory>,
    bytes: usize,
    /// What new memory is cut from.
    slab: Slab,
}

impl Buffers {
    /// Memory of at least `length_bytes`, with bytes of no meaning.
    pub fn take(&self, length_bytes: usize) -> Memory {
        let mut spare = self.spare();
        let taken = spare.memory.pop();
        spare.bytes -= taken.as_ref().map_or(0, |memory| memory.len());
        taken.filter(|memory| memory.len() >= length_bytes).unwrap_or_else(|| spare.slab.cut(length_bytes))
    }

    /// A buffer with a copy of `content`.
    pub fn copy(self: &Arc<Self>, content: &[u8]) -> Buffer {
        let mut memory = self.take(content.len());
        memory[..content.len()].copy_from_slice(content);
        self.own(memory, 0..content.len())
    }

    /// A buffer of memory whose `content` is of use.
    pub fn own(self: &Arc<Self>, memory: Memory, content: Range<usize>) -> Buffer {
        Buffer { memory, content, home: Arc::clone(self) }
    }

    fn give(&self, memory: Memory) {
        let mut spare = self.spare();
        if spare.bytes + memory.len() <= SPARE_BYTES_MAX {
            spare.bytes += memory.len();
            spare.memory.push(memory);
        }
    }

    fn spare(&self) -> MutexGuard<'_, Spare> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes in memory that is used again after them.
#[derive(Debug)]
pub struct Buffer {
    memory: Memory,
    content: Range<usize>,
    home: Arc<Buffers>,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.memory[self.content.clone()]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.home.give(std::mem::take(&mut self.memory));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again() {
        let buffers = Arc::new(Buffers::default());
        let buffer = buffers.copy(&[1, 2, 3]);
        assert_eq!(buffer.as_ref(), [1, 2, 3]);
        let place = buffer.as_ref().as_ptr();
        drop(buffer);
        let memory = buffers.take(2);
        assert_eq!(memory.as_ptr(), place);
        assert_eq!(buffers.own(memory, 1..3).as_ref(), [2, 3]);
    }

    #[test]
    fn spare_memory_is_bounded() {
        let buffers = Arc::new(Buffers::default());
        let used: Vec<Buffer> = (0..100).map(|_| buffers.copy(&[0; 64 << 10])).collect();
        drop(used);
        assert_eq!(buffers.spare().bytes, SPARE_BYTES_MAX);
        assert!(buffers.take(1 << 20).len() >= 1 << 20, "one that is too short is not used");
        assert_eq!(buffers.spare().bytes, SPARE_BYTES_MAX - (64 << 10));
    }
}

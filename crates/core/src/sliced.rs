//! How much of each chunk a node has sent in slices: after as much as the whole chunk, it sends
//! whole chunks.
//!
//! A node cannot know whether an asker is alone, or the first of many that read the same.
//! Slices for all of them would cost one link as much as a chain costs all links. This is the
//! ski rental problem (Karlin, Manasse, Rudolph and Sleator, 1988). The node sends slices up to the
//! price of the chunk, and then the others go the way of whole chunks. So it sends at most twice
//! the bytes of a node with foresight. The serving side of a node owns one table for each image,
//! with a bounded number of entries.

use crate::chunk::Chunk;
use crate::latest::Latest;
use crate::slice::{GROUP_BYTES, Groups};
use crate::time::Time;
use std::time::Duration;

/// How long slices of a chunk are counted together: about as long as a room needs to boot. Over a
/// longer time, readers that have nothing to do with each other would count as a crowd.
const TOGETHER: Duration = Duration::from_secs(30);
/// Most chunks remembered: 2 MB of memory.
const ENTRIES_MAX: usize = 1 << 15;

/// The slices sent of one image.
#[derive(Debug, Default)]
pub struct Sliced {
    /// Groups sent of each chunk, and since when they are counted.
    sent: Latest<Chunk, (u64, Time), ENTRIES_MAX>,
}

impl Sliced {
    /// True if these groups of a chunk of `length_bytes` are to be sent, which is noted. False if
    /// the asker is to request the whole chunk.
    pub fn may_send(&mut self, chunk: Chunk, length_bytes: u64, groups: Groups, now: Time) -> bool {
        if self.sent.get(&chunk).is_none_or(|(_, since)| now - *since >= TOGETHER) {
            self.sent.note(chunk, (0, now));
        }
        let Some((counted, _)) = self.sent.get_mut(&chunk) else { return true };
        let (sent, whole) = (*counted + u64::from(groups.count()), length_bytes.div_ceil(GROUP_BYTES));
        let may = sent <= whole;
        if may {
            *counted = sent;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(start: u16, end: u16) -> Groups {
        Groups::new(start, end).expect("a range of groups")
    }

    fn at(seconds: u64) -> Time {
        Time::after_start(Duration::from_secs(seconds))
    }

    #[test]
    fn as_much_as_the_chunk_is_sent_in_slices() {
        let (mut sliced, length) = (Sliced::default(), 64 << 10);
        for reader in 0..16 {
            assert!(sliced.may_send(Chunk(7), length, groups(3, 4), at(reader)), "reader {reader}");
        }
        assert!(!sliced.may_send(Chunk(7), length, groups(0, 1), at(16)));
        assert!(sliced.may_send(Chunk(8), length, groups(0, 16), at(16)), "another chunk");
        assert!(!sliced.may_send(Chunk(8), length, groups(0, 1), at(45)));
        assert!(sliced.may_send(Chunk(8), length, groups(0, 1), at(46)), "long after");
    }

    #[test]
    fn a_short_chunk_costs_what_it_has() {
        let mut sliced = Sliced::default();
        assert!(sliced.may_send(Chunk(1), 5000, groups(0, 2), at(0)));
        assert!(!sliced.may_send(Chunk(1), 5000, groups(1, 2), at(0)));
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut sliced = Sliced::default();
        for chunk in 0..2 * ENTRIES_MAX as u64 {
            assert!(sliced.may_send(Chunk(chunk), 64 << 10, groups(0, 1), at(0)));
        }
        assert_eq!(sliced.sent.len(), ENTRIES_MAX);
        let counted = |chunk: u64| sliced.sent.get(&Chunk(chunk)).is_some();
        assert!(!counted(ENTRIES_MAX as u64 - 1) && counted(ENTRIES_MAX as u64), "what is old has gone");
    }
}

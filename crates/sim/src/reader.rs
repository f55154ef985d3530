//! A reader of one machine: reads an image block after block, like an export's client, and records
//! its waits.

use crate::dice::Dice;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use vfield_block::extent::Extent;
use vfield_block::source::ReadError;
use vfield_core::chunk::Chunk;
use vfield_core::fetch::Token;
use vfield_core::image::Geometry;
use vfield_core::prefetch::Prefetcher;
use vfield_core::read_ahead::ReadAhead;
use vfield_core::slice::{GROUP_BYTES, Groups};
use vfield_core::slicing::Slicing;
use vfield_core::time::Time;

/// In which order blocks are read.
#[derive(Debug, Clone)]
pub enum Order {
    /// A range of chunks in order, in blocks.
    Along {
        /// The chunks that are left.
        chunks: Range<u64>,
        /// Chunks of a block.
        step: u64,
    },
    /// Blocks at random places.
    Random {
        /// The source of positions.
        dice: Dice,
        /// Chunks of the image.
        chunks: u64,
        /// Chunks of a block.
        step: u64,
        /// The number of blocks left.
        left: u64,
    },
    /// As it was recorded: for all readers the same list, and how much of it has been read.
    Recorded(Arc<Vec<Range<u64>>>, usize),
}

impl Order {
    /// The order in one word.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Along { .. } => "sequential",
            Self::Random { .. } => "random",
            Self::Recorded(..) => "recorded",
        }
    }

    fn next(&mut self) -> Option<Range<u64>> {
        match self {
            Self::Along { chunks, step } => {
                let start = chunks.start;
                chunks.start = chunks.end.min(start + *step);
                (start < chunks.end).then_some(start..chunks.start)
            }
            Self::Random { dice, chunks, step, left } => {
                *left = left.checked_sub(1)?;
                let start = dice.among(0..chunks.div_ceil(*step)) * *step;
                Some(start..(start + *step).min(*chunks))
            }
            Self::Recorded(list, at) => {
                *at += 1;
                list.get(*at - 1).cloned()
            }
        }
    }
}

/// A read in flight.
#[derive(Debug, Clone)]
pub struct Block {
    /// The part that is still unread.
    pub left: Range<u64>,
    /// When it was begun.
    pub begun: Time,
    /// Since when it waits for the first of that.
    pub since: Time,
    /// The token of its read, while it waits.
    pub token: Option<Token>,
    /// The groups that it wants of its only chunk, if it is short; `None` for whole chunks.
    pub part: Option<Groups>,
}

/// The state of a reader.
#[derive(Debug)]
pub struct Reader {
    /// On this machine.
    pub machine: usize,
    /// The index of its image.
    pub image: usize,
    order: Order,
    depth: usize,
    /// Reads in flight, the oldest first.
    pub open: Vec<Block>,
    /// Recognises its order.
    pub ahead: ReadAhead,
    /// Prefetches along a list that was learned from others.
    pub prefetcher: Option<Prefetcher>,
    /// Groups of each read, if it reads only so many of each first chunk of a block.
    pub groups: Option<u16>,
    /// Recognises reads that are better served with a slice.
    pub slicing: Slicing,
    /// Number of chunks read.
    pub read: u64,
    /// When it started.
    pub started: Time,
    /// When it last progressed; once it is done, when it finished.
    pub since: Time,
    /// The longest that it waited for one chunk.
    pub longest_wait: Duration,
    /// The longest that it did not get on at all.
    pub longest_stall: Duration,
    /// Times from asking for a block to having it, if they are kept.
    pub times: Option<Vec<Duration>>,
    /// Number of waits so far.
    pub waits: u32,
    /// Why it gave up.
    pub failed: Option<ReadError>,
    /// The time that it works on each block before it reads on.
    pub think: Duration,
    /// When it will be done with each block that it has read and works on, oldest first.
    held: VecDeque<Time>,
    tokens: u64,
    ended: bool,
}

impl Reader {
    /// Begins at `now`. `ahead_chunks` chunks are read ahead of a sequential one, of `total`.
    pub fn new(machine: usize, image: usize, order: Order, depth: usize, ahead: ReadAhead, now: Time) -> Self {
        Self {
            machine,
            image,
            order,
            depth,
            open: Vec::with_capacity(depth),
            ahead,
            prefetcher: None,
            groups: None,
            slicing: Slicing::default(),
            read: 0,
            started: now,
            since: now,
            longest_wait: Duration::ZERO,
            longest_stall: Duration::ZERO,
            times: None,
            waits: 0,
            failed: None,
            think: Duration::ZERO,
            held: VecDeque::new(),
            tokens: 0,
            ended: false,
        }
    }

    /// True if it has read all it wanted, or has given up.
    pub fn is_done(&self) -> bool {
        (self.ended && self.open.is_empty() && self.held.is_empty()) || self.failed.is_some()
    }

    /// Takes out the blocks that are read. A reader with a think time works on them one after the
    /// other, and their places are free only then. Returns the end of each of these times.
    pub fn take(&mut self, now: Time) -> Vec<Time> {
        let before = self.open.len();
        self.open.retain(|block| !block.left.is_empty());
        while self.held.front().is_some_and(|done| *done <= now) {
            self.held.pop_front();
        }
        if self.think.is_zero() {
            return Vec::new();
        }
        let think = |_| {
            let done = self.held.back().copied().unwrap_or(now) + self.think;
            self.held.push_back(done);
            done
        };
        (self.open.len()..before).map(think).collect()
    }

    /// Begins the next block, if there is one and fewer than its depth are in flight.
    pub fn begin(&mut self, now: Time) -> Option<Range<u64>> {
        if self.ended || self.open.len() + self.held.len() >= self.depth {
            return None;
        }
        let next = self.order.next();
        self.ended = next.is_none();
        let mut left = next?;
        if self.groups.is_some() {
            left.end = left.start + 1;
        }
        self.open.push(Block { left: left.clone(), begun: now, since: now, token: None, part: None });
        Some(left)
    }

    /// Says which slice to ask for in place of a block that is begun, if one is better.
    pub fn slice(&mut self, geometry: &Geometry, block: usize) -> Option<(Chunk, Groups)> {
        let count = u64::from(self.groups?);
        let block = &mut self.open[block];
        if block.part.is_some() {
            // The slice did not come, or went before this reader came to it.
            return None;
        }
        let chunk = Chunk(block.left.start);
        let whole = geometry.extent(chunk);
        // Somewhere in the chunk, and there in each run.
        let start = whole.start() + (chunk.0 % 4 * count * GROUP_BYTES).min(whole.len() - 1);
        let part = Extent::from(start..whole.end().min(start + count * GROUP_BYTES));
        let slice = self.slicing.note(geometry, part)?;
        block.part = Some(slice.1);
        Some(slice)
    }

    /// A token that it has not used before.
    pub fn token(&mut self, me: usize) -> Token {
        self.tokens += 1;
        Token((me as u64) << 32 | self.tokens)
    }

    /// The reader that a token belongs to.
    pub const fn of(token: Token) -> usize {
        (token.0 >> 32) as usize
    }

    /// Notes progress by this many chunks.
    pub fn moved(&mut self, chunks: u64, now: Time) {
        self.longest_stall = self.longest_stall.max(now - self.since);
        self.read += chunks;
        self.since = now;
    }

    /// Ends the wait of one of its reads; `None` if that one did not wait.
    pub fn answered(&mut self, token: Token, now: Time) -> Option<&Block> {
        let block = self.open.iter_mut().find(|block| block.token == Some(token))?;
        block.token = None;
        self.waits += 1;
        self.longest_wait = self.longest_wait.max(now - block.since);
        Some(block)
    }

    /// The first chunk that it has not read.
    pub fn position(&self) -> Option<u64> {
        self.open.iter().map(|block| block.left.start).min()
    }
}

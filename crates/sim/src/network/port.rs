//! The two ends of a link: what leaves waits in line, the more urgent first; what comes is taken as it comes.

use super::takes;
use std::collections::VecDeque;
use std::time::Duration;
use vfield_core::time::Time;
use vfield_core::wire::Priority;

/// One direction of a link that carries one message after the other.
#[derive(Debug, Clone, Copy)]
pub struct Pipe {
    /// Bytes a second.
    pub rate: u64,
    /// Until when it is busy with what it has.
    pub free: Time,
    /// Bytes it has carried.
    pub carried: u64,
}

impl Pipe {
    /// An idle one.
    pub const fn new(rate: u64) -> Self {
        Self { rate, free: Time::ZERO, carried: 0 }
    }

    /// Takes in a message whose first byte is here now and whose last comes after `left`. Returns when its first byte
    /// comes out, and how long after it the last one does.
    pub fn carry(&mut self, bytes: u64, left: Duration, now: Time) -> (Time, Duration) {
        let start = self.free.max(now);
        // A message that trickles in does not keep others from using what it leaves.
        self.free = start + takes(bytes, self.rate);
        self.carried += bytes;
        (start, self.free.max(now + left) - start)
    }

    /// A short message takes its share, and does not wait. Returns how long it takes.
    pub fn squeeze(&mut self, bytes: u64, now: Time) -> Duration {
        let takes = takes(bytes, self.rate);
        self.free = self.free.max(now) + takes;
        self.carried += bytes;
        takes
    }
}

/// Where a machine is connected.
#[derive(Debug)]
pub struct Port {
    /// Out of the machine.
    pub up: Pipe,
    /// Into it.
    pub down: Pipe,
    /// Messages that wait to leave, by priority: numbers of packets.
    pub lines: [VecDeque<u32>; 3],
    /// It is going to be looked at when it is free.
    pub awaited: bool,
}

impl Port {
    /// A link with so many bytes a second in each direction.
    pub fn new(rate: u64) -> Self {
        Self { up: Pipe::new(rate), down: Pipe::new(rate), lines: Default::default(), awaited: false }
    }

    /// Lines a message up.
    pub fn line_up(&mut self, packet: u32, priority: Priority) {
        self.lines[priority as usize].push_back(packet);
    }

    /// What leaves next.
    pub fn next(&mut self) -> Option<u32> {
        self.lines.iter_mut().find_map(VecDeque::pop_front)
    }

    /// True if nothing waits.
    pub fn is_idle(&self) -> bool {
        self.lines.iter().all(VecDeque::is_empty)
    }
}

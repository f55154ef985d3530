//! The two ends of a link: outgoing packets wait in a queue, demand ones first; incoming ones are
//! taken in order.

use super::{Rates, takes};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use vfield_core::send_queue::SendQueue;
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

    /// Takes in a message whose first byte is here now and whose last comes at `last`. Returns when
    /// its first and its last byte come out.
    pub fn carry(&mut self, bytes: u64, last: Time, now: Time) -> (Time, Time) {
        let start = self.free.max(now);
        // A message that trickles in does not keep others from using what it leaves.
        self.free = start + takes(bytes, self.rate);
        self.carried += bytes;
        (start, self.free.max(last))
    }

    /// A short message takes its share, and does not wait. Returns how long it takes.
    pub fn squeeze(&mut self, bytes: u64, now: Time) -> Duration {
        let takes = takes(bytes, self.rate);
        self.free = self.free.max(now) + takes;
        self.carried += bytes;
        takes
    }
}

/// Most bytes of a connection handed to the kernel, where nothing overtakes them any more: the
/// daemon's bound.
const WRITTEN_MAX: u64 = 128 << 10;

/// The queue of one connection.
#[derive(Debug, Default)]
struct Outgoing {
    /// In the kernel: packets and their bytes.
    written: VecDeque<(u32, u32)>,
    written_bytes: u64,
    /// Packets not yet handed to the kernel.
    queue: SendQueue<(u32, u32)>,
}

impl Outgoing {
    fn write(&mut self) {
        while self.written_bytes < WRITTEN_MAX
            && let Some(next) = self.queue.pop()
        {
            self.written_bytes += u64::from(next.1);
            self.written.push_back(next);
        }
    }
}

/// A machine's link. Connections share the way out fairly, message by message; within one
/// connection demand packets go first.
#[derive(Debug)]
pub struct Port {
    /// Out of the machine.
    pub up: Pipe,
    /// Towards the machine.
    pub down: Pipe,
    /// Its rates when nothing slows it down.
    own: Rates,
    /// True if an event will find it free.
    pub awaited: bool,
    /// Waiting packets, by receiver.
    waiting: BTreeMap<u32, Outgoing>,
    /// Receivers with waiting packets, in turn.
    turns: VecDeque<u32>,
    /// Arrived packets that wait to get in, first come, first served.
    pub coming: VecDeque<u32>,
}

impl Port {
    /// An idle link.
    pub fn new(own: Rates) -> Self {
        let (up, down) = (Pipe::new(own.up), Pipe::new(own.down));
        let (waiting, turns, coming) = (BTreeMap::new(), VecDeque::new(), VecDeque::new());
        Self { up, down, own, awaited: false, waiting, turns, coming }
    }

    /// Divides the link's own rates by these factors, out and in; with 1 it is as it was.
    pub fn slow(&mut self, up: u64, down: u64) {
        let rates = self.own.divided(up, down);
        (self.up.rate, self.down.rate) = (rates.up, rates.down);
    }

    /// True if nothing slows it down.
    pub const fn is_at_its_own_rate(&self) -> bool {
        self.up.rate == self.own.up && self.down.rate == self.own.down
    }

    /// Queues a packet of this many bytes.
    pub fn enqueue(&mut self, packet: u32, bytes: u32, to: u32, priority: Priority) {
        let turns = &mut self.turns;
        let outgoing = self.waiting.entry(to).or_insert_with(|| {
            turns.push_back(to);
            Outgoing::default()
        });
        outgoing.queue.push(priority, (packet, bytes));
        outgoing.write();
    }

    /// Removes the packet that leaves next.
    pub fn next_packet(&mut self) -> Option<u32> {
        let to = self.turns.pop_front()?;
        let outgoing = self.waiting.get_mut(&to)?;
        let (packet, bytes) = outgoing.written.pop_front()?;
        outgoing.written_bytes -= u64::from(bytes);
        outgoing.write();
        if outgoing.written.is_empty() {
            self.waiting.remove(&to);
        } else {
            self.turns.push_back(to);
        }
        Some(packet)
    }

    /// True if nothing waits.
    pub fn is_idle(&self) -> bool {
        self.turns.is_empty()
    }
}

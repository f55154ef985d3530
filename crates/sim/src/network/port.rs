//! The two ends of a link: outgoing packets wait in a queue, demand ones first; incoming ones are
//! taken in order.

use super::{Rates, takes};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use vfield_core::send_queue::SendQueue;
use vfield_core::time::Time;
use vfield_core::wire::Priority;

/// One direction of a link that carries one message after the other: a token bucket.
#[derive(Debug, Clone, Copy)]
pub struct Pipe {
    /// Bytes a second.
    pub rate: u64,
    /// Bytes that pass at once after idle time.
    burst: u64,
    /// Until when its rate is used up by what it has carried; the bucket is full then.
    free: Time,
    /// Bytes it has carried.
    pub carried: u64,
}

impl Pipe {
    /// An idle one, with a burst in bytes.
    pub const fn new(rate: u64, burst: u64) -> Self {
        Self { rate, burst, free: Time::ZERO, carried: 0 }
    }

    /// When the first byte of the next message can pass.
    pub fn ready(&self) -> Time {
        self.less_a_burst(self.free)
    }

    /// Earlier by the time of as many bytes as the bucket has.
    fn less_a_burst(&self, at: Time) -> Time {
        if self.burst == 0 {
            return at;
        }
        Time::after_start(at.since_start().saturating_sub(takes(self.burst, self.rate)))
    }

    /// Takes in a message whose first byte is here now and whose last comes at `last`. Returns when
    /// its first and its last byte come out.
    pub fn carry(&mut self, bytes: u64, last: Time, now: Time) -> (Time, Time) {
        let start = self.ready().max(now);
        // A message that trickles in does not keep others from using what it leaves.
        self.free = self.free.max(now) + takes(bytes, self.rate);
        self.carried += bytes;
        (start, self.ready().max(start).max(last))
    }

    /// A short message takes its share, and does not wait. Returns how long it takes.
    pub fn squeeze(&mut self, bytes: u64, now: Time) -> Duration {
        let takes = takes(bytes, self.rate);
        self.free = self.free.max(now) + takes;
        self.carried += bytes;
        if self.burst == 0 { takes } else { takes.min(self.ready().since(now)) }
    }
}

/// Most bytes of a connection handed to the kernel, where nothing overtakes them any more: the
/// daemon's bound.
const WRITTEN_MAX: u64 = 128 << 10;

/// Whose turn it is to send.
#[derive(Debug, Clone, Copy)]
enum Turn {
    /// The connection to one receiver.
    Of(u32),
    /// One of those that share a turn.
    Shared,
}

/// The queue of one connection.
#[derive(Debug, Default)]
struct Outgoing {
    /// True if it shares its turn with others.
    shares: bool,
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

/// Bytes that have come in, of all machines together and of each.
#[derive(Debug, Default)]
pub struct Came {
    all: u64,
    of: BTreeMap<u32, u64>,
    /// The message that comes in now, and counts byte by byte.
    coming: Option<Coming>,
}

/// A message that comes in.
#[derive(Debug, Clone, Copy)]
struct Coming {
    from: u32,
    bytes: u64,
    begun: Time,
    end: Time,
}

impl Coming {
    /// The bytes that are here.
    fn here(&self, now: Time) -> u64 {
        let (gone, whole) = (now.since(self.begun), self.end.since(self.begun));
        if gone >= whole { self.bytes } else { bytes_in(self.bytes, gone, whole) }
    }
}

/// The part of some bytes that takes `gone` if all of them take `whole`.
fn bytes_in(bytes: u64, gone: Duration, whole: Duration) -> u64 {
    u64::try_from(u128::from(bytes) * gone.as_nanos() / whole.as_nanos().max(1)).unwrap_or(u64::MAX)
}

impl Came {
    /// The bytes of all machines, and those of one.
    pub fn by(&self, now: Time, machine: u32) -> (u64, u64) {
        let here = self.coming.map_or(0, |coming| coming.here(now));
        let of = self.of.get(&machine).copied().unwrap_or(0);
        let is_its = self.coming.is_some_and(|coming| coming.from == machine);
        (self.all + here, of + if is_its { here } else { 0 })
    }

    /// A message of a machine comes in from now until `end`, after the one before it.
    pub fn begin(&mut self, from: u32, bytes: u64, now: Time, end: Time) {
        if let Some(Coming { from, bytes, .. }) = self.coming.replace(Coming { from, bytes, begun: now, end }) {
            self.all += bytes;
            *self.of.entry(from).or_default() += bytes;
        }
    }
}

/// A machine's link. Connections share the way out fairly, message by message; within one
/// connection demand packets go first. Those to leaves take turns, and count as one together.
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
    turns: VecDeque<Turn>,
    /// Those that share a turn, in their order.
    sharing: VecDeque<u32>,
    /// Bytes that have come in.
    pub came: Came,
    /// Arrived packets that wait to get in, first come, first served.
    pub coming: VecDeque<u32>,
}

impl Port {
    /// An idle link, whose directions have a burst in bytes each.
    pub fn new(own: Rates, burst: u64) -> Self {
        let (up, down) = (Pipe::new(own.up, burst), Pipe::new(own.down, burst));
        Self {
            up,
            down,
            own,
            awaited: false,
            waiting: BTreeMap::new(),
            turns: VecDeque::new(),
            sharing: VecDeque::new(),
            came: Came::default(),
            coming: VecDeque::new(),
        }
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

    /// Queues a packet of this many bytes. `shares` is true for a receiver that shares its turn.
    pub fn enqueue(&mut self, packet: u32, bytes: u32, to: u32, priority: Priority, shares: bool) {
        let is_new = !self.waiting.contains_key(&to);
        let outgoing = self.waiting.entry(to).or_insert_with(|| Outgoing { shares, ..Outgoing::default() });
        outgoing.queue.push(priority, (packet, bytes));
        outgoing.write();
        if is_new {
            self.take_turn(to, shares);
        }
    }

    /// Stands at the end of those that take turns.
    fn take_turn(&mut self, to: u32, shares: bool) {
        if !shares {
            return self.turns.push_back(Turn::Of(to));
        }
        if self.sharing.is_empty() {
            self.turns.push_back(Turn::Shared);
        }
        self.sharing.push_back(to);
    }

    /// Removes the packet that leaves next.
    pub fn next_packet(&mut self) -> Option<u32> {
        let to = match self.turns.pop_front()? {
            Turn::Of(to) => to,
            Turn::Shared => {
                let to = self.sharing.pop_front()?;
                if !self.sharing.is_empty() {
                    self.turns.push_back(Turn::Shared);
                }
                to
            }
        };
        let outgoing = self.waiting.get_mut(&to)?;
        let (packet, bytes) = outgoing.written.pop_front()?;
        outgoing.written_bytes -= u64::from(bytes);
        outgoing.write();
        if outgoing.written.is_empty() {
            self.waiting.remove(&to);
        } else {
            let shares = outgoing.shares;
            self.take_turn(to, shares);
        }
        Some(packet)
    }

    /// True if nothing waits.
    pub fn is_idle(&self) -> bool {
        self.turns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::after_start(Duration::from_millis(ms))
    }

    /// When messages that come at their times, in milliseconds, have passed a pipe of a byte in
    /// each millisecond.
    fn passed<const N: usize>(burst: u64, messages: [(u64, u64); N]) -> [(Time, Time); N] {
        let mut pipe = Pipe::new(1000, burst);
        messages.map(|(bytes, ms)| pipe.carry(bytes, at(ms), at(ms)))
    }

    #[test]
    fn a_pipe_without_a_burst_carries_one_message_after_the_other() {
        let passed = passed(0, [(100, 1000), (50, 1000), (10, 2000)]);
        assert_eq!(passed, [(at(1000), at(1100)), (at(1100), at(1150)), (at(2000), at(2010))]);
    }

    #[test]
    fn a_burst_passes_at_once_after_idle_time() {
        let passed = passed(100, [(100, 1000), (50, 1000), (30, 1070), (100, 5000)]);
        // The second one finds an empty bucket, the third twenty bytes in it, the last a full one.
        assert_eq!(passed[0], (at(1000), at(1000)));
        assert_eq!(passed[1], (at(1000), at(1050)));
        assert_eq!(passed[2], (at(1070), at(1080)));
        assert_eq!(passed[3], (at(5000), at(5000)));
    }

    #[test]
    fn a_burst_is_no_rate() {
        let mut pipe = Pipe::new(1000, 100);
        let last = (0..100).map(|_| pipe.carry(100, at(1000), at(1000)).1).max();
        assert_eq!(last, Some(at(1000 + 10_000 - 100)));
    }

    #[test]
    fn short_messages_take_their_share_of_the_bucket() {
        let mut pipe = Pipe::new(1000, 100);
        assert_eq!(pipe.squeeze(100, at(1000)), Duration::ZERO);
        assert_eq!(pipe.squeeze(20, at(1000)), Duration::from_millis(20));
        assert_eq!(Pipe::new(1000, 0).squeeze(20, at(1000)), Duration::from_millis(20));
    }

    #[test]
    fn leaves_count_as_one_connection() {
        let order = |shares: fn(u32) -> bool| {
            let mut port = Port::new(Rates { up: 1000, down: 1000 }, 0);
            // Three packets to each of four receivers, by receiver.
            for packet in 0..12 {
                port.enqueue(packet, 100, packet % 4, Priority::Demand, shares(packet % 4));
            }
            std::iter::from_fn(move || port.next_packet()).map(|packet| packet % 4).collect::<Vec<_>>()
        };
        assert_eq!(order(|_| false), [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!(order(|to| to > 0), [0, 1, 0, 2, 0, 3, 1, 2, 3, 1, 2, 3]);
        assert_eq!(order(|to| to > 1), [0, 1, 2, 0, 1, 3, 0, 1, 2, 3, 2, 3]);
    }

    #[test]
    fn bytes_count_as_they_come() {
        let mut came = Came::default();
        assert_eq!(came.by(at(5), 1), (0, 0));
        came.begin(1, 100, at(10), at(20));
        assert_eq!([10, 15, 20, 30].map(|ms| came.by(at(ms), 1)), [(0, 0), (50, 50), (100, 100), (100, 100)]);
        came.begin(2, 50, at(30), at(40));
        assert_eq!((came.by(at(35), 1), came.by(at(35), 2)), ((125, 100), (125, 25)));
    }
}

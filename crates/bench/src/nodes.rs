//! The nodes of a field, one after the other: the rate of each, in both directions.
//!
//! One node is measured at a time, each way for a bounded time with a bounded number of bytes under
//! way. So a field that is in use goes on. All of it passes this machine's link, so no figure is
//! above what that carries.

use super::guest::{Guest, Reach, Reply};
use super::load::{self, Answer, Channel, Measured, noise};
use super::outcome::NodeRate;
use super::sample::{PeerChannel, Sample};
use super::work::{Order, Work};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vfield_console::failure::Failure;
use vfield_control::message::DaemonStatus;
use vfield_control::slow_links::slow_links;
use vfield_core::chunk::Chunk;
use vfield_core::identity::NodeId;
use vfield_core::image::{Geometry, ImageId};
use vfield_core::membership::State;
use vfield_core::record::Record;
use vfield_core::wire::HEADER;
use vfield_trust::{KeyRing, NodeKey};

/// Different bytes of a node that are asked for: an origin takes this machine for their holder for
/// half a minute, so they are few.
const SAMPLE_BYTES: u64 = 8 << 20;
/// Connections each way.
const STREAMS: usize = 4;
/// Chunks that each connection asks for at once. With chunks of 64 KiB, half a megabyte is under
/// way: what a link of 1 Gbit/s carries in 4 ms, and a link of 1 Mbit/s in 4 s.
const CHUNKS_AT_ONCE: usize = 2;
/// A frame that the node skips. Longer frames wait for a turn there.
const FILLER_BYTES: u64 = (32 << 10) - HEADER as u64;
/// Such frames of a connection under way: as many bytes as the other way.
const FILLERS_AT_ONCE: usize = 4;

/// A node to measure, as somebody else knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Its id, 16 hexadecimal digits.
    pub node: String,
    /// Where it is.
    pub addr: SocketAddr,
    /// The rate of its link in bytes a second, if it has measured one.
    pub link_bytes_per_s: Option<u64>,
}

/// The other nodes that a daemon knows.
pub fn of_daemon(daemon: &DaemonStatus) -> Vec<Known> {
    let others = daemon.node.nodes.iter().filter(|node| node.state != "self");
    let known = others.filter_map(|node| {
        let (node, addr, link_bytes_per_s) = (node.id.clone(), node.addr.parse().ok()?, node.link_bytes_per_s);
        Some(Known { node, addr, link_bytes_per_s })
    });
    known.collect()
}

/// The node of a guest, and the others that it knows.
pub fn of_member(guest: &mut Guest) -> Result<Vec<Known>, Failure> {
    let snapshot = guest.snapshot()?;
    let alive = snapshot.members.iter().chain(&snapshot.gateways).filter(|member| member.state == State::Alive);
    let mut nodes: Vec<Known> = Vec::new();
    for member in alive {
        let (node, addr) = (member.identity.node, member.identity.addr);
        let records = snapshot.records.iter().chain(&snapshot.outside).filter(|record| record.node == node);
        let speed = records.map(|record| record.link().speed()).max().unwrap_or_default();
        let known = Known { node: node.to_string(), addr, link_bytes_per_s: speed.bytes_per_s() };
        if nodes.iter().all(|other| other.node != known.node) {
            nodes.push(known);
        }
    }
    Ok(nodes)
}

/// How each node is measured.
pub struct Survey<'a> {
    /// The guest's key.
    pub me: &'a NodeKey,
    /// The keys of the field.
    pub keys: Option<&'a KeyRing>,
    /// The time of each way.
    pub time: Duration,
    /// The bytes of each way.
    pub bytes_max: u64,
    /// True once nobody waits any more.
    pub stop: &'a Arc<AtomicBool>,
}

impl Survey<'_> {
    /// Measures the nodes; `progress` hears which one is next. Those that cannot be measured say
    /// why.
    pub fn of(&self, nodes: &[Known], progress: &dyn Fn(&Known)) -> Vec<NodeRate> {
        let mut rates = Vec::new();
        for known in nodes {
            progress(known);
            let mut rate = NodeRate {
                node: known.node.clone(),
                addr: known.addr.to_string(),
                up_bytes_per_s: None,
                down_bytes_per_s: None,
                link_bytes_per_s: known.link_bytes_per_s,
                slow: false,
                failure: None,
            };
            let result = self.measure(known, &mut rate);
            if self.stop.load(Ordering::Relaxed) {
                // Half a measurement tells nothing.
                break;
            }
            rate.failure = result.err().map(|failure| failure.fact().to_owned());
            rates.push(rate);
        }
        name_slow(&mut rates);
        rates
    }

    fn measure(&self, known: &Known, rate: &mut NodeRate) -> Result<(), Failure> {
        let greet = || Guest::greet(known.addr, self.me, self.keys);
        let mut guest = greet()?;
        let node = guest.peer().node;
        if node.to_string() != known.node {
            return Err(Failure::failed(format!("node {}: node {node} is there now", known.addr)));
        }
        let fillers = (0..STREAMS).map(|_| Ok(Box::new(FillerChannel::new(greet()?)) as Box<dyn Channel>));
        let fillers = fillers.collect::<Result<Vec<_>, Failure>>()?;
        rate.down_bytes_per_s = bytes_per_s(&self.run(fillers, FILLERS_AT_ONCE, u64::MAX, FILLER_BYTES)?);
        let Some((sample, chunk_bytes)) = sample(&mut guest, node)? else { return Ok(()) };
        let sample = Arc::new(sample);
        let takers =
            (0..STREAMS).map(|_| Ok(Box::new(PeerChannel::new(greet()?, Arc::clone(&sample))) as Box<dyn Channel>));
        let takers = takers.collect::<Result<Vec<_>, Failure>>()?;
        rate.up_bytes_per_s = bytes_per_s(&self.run(takers, CHUNKS_AT_ONCE, sample.len(), chunk_bytes)?);
        Ok(())
    }

    /// One direction: blocks until the time or the bytes of the survey are over.
    fn run(
        &self,
        channels: Vec<Box<dyn Channel>>,
        depth: usize,
        blocks: u64,
        block_bytes: u64,
    ) -> Result<Measured, Failure> {
        let count = self.bytes_max.div_ceil(block_bytes);
        let work = Arc::new(Work::new(Order::Sequential, blocks, count, self.time, Arc::clone(self.stop)));
        load::run(channels, depth, &work, &|_| {})
    }
}

/// Chunks that the node holds, of whichever image, and the length of one; `None` if it holds none.
fn sample(guest: &mut Guest, node: NodeId) -> Result<Option<(Sample, u64)>, Failure> {
    let records = guest.snapshot()?.records;
    let holds = |record: &Record| record.origin || record.filled.count > 0;
    let mut records: Vec<Record> =
        records.into_iter().filter(|record| record.node == node && record.is_sound() && holds(record)).collect();
    // Where most can be asked for.
    records.sort_unstable_by_key(|record| std::cmp::Reverse((record.origin, record.filled.count)));
    let Some(record) = records.first() else { return Ok(None) };
    let geometry = Geometry::new(super::header(record)?);
    Ok(Some((Sample::gather(guest, record, &geometry, SAMPLE_BYTES)?, geometry.chunk_bytes())))
}

/// `None` if nothing came.
fn bytes_per_s(measured: &Measured) -> Option<u64> {
    let seconds = measured.time.as_secs_f64();
    (measured.bytes > 0 && seconds > 0.0).then(|| (measured.bytes as f64 / seconds) as u64)
}

/// Marks the nodes whose link is slower than those of the others, as `vfield status` does.
fn name_slow(rates: &mut [NodeRate]) {
    let slow: Vec<String> = slow_links(links(rates)).iter().map(|slow| slow.addr.to_owned()).collect();
    rates.iter_mut().for_each(|rate| rate.slow = slow.contains(&rate.addr));
}

/// The rate of each measured link: that of its slower way.
pub fn links(rates: &[NodeRate]) -> impl Iterator<Item = (&str, u64)> {
    let slower = |rate: &NodeRate| [rate.up_bytes_per_s, rate.down_bytes_per_s].into_iter().flatten().min();
    rates.iter().filter_map(move |rate| Some((&*rate.addr, slower(rate)?)))
}

/// A stream of frames that a node skips. Behind each comes a request that it refuses, so the answer
/// says that the frame has arrived.
struct FillerChannel {
    guest: Guest,
    filler: Vec<u8>,
}

impl FillerChannel {
    /// Fills the way to the guest's node.
    fn new(guest: Guest) -> Self {
        Self { guest, filler: noise(FILLER_BYTES) }
    }
}

impl Channel for FillerChannel {
    fn ask(&mut self, request: u64, _block: u64) -> Result<(), Failure> {
        self.guest.fill_way(&self.filler)?;
        // Of no image.
        self.guest.ask(request, ImageId([0; _]), Chunk(0), Reach::Here)
    }

    fn answer(&mut self, is_over: &dyn Fn() -> bool) -> Result<Answer, Failure> {
        let addr = self.guest.addr();
        match self.guest.answer(is_over)? {
            None => Ok(Answer::Over),
            Some((request, Reply::Refused)) => Ok(Answer::Bytes { request, bytes: FILLER_BYTES }),
            Some((_, Reply::Chunk(_))) => Err(Failure::failed(format!("node {addr} sent a chunk of no image"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(addr: &str, up: Option<u64>, down: Option<u64>) -> NodeRate {
        NodeRate {
            node: "1a".repeat(8),
            addr: addr.to_owned(),
            up_bytes_per_s: up,
            down_bytes_per_s: down,
            link_bytes_per_s: None,
            slow: false,
            failure: None,
        }
    }

    #[test]
    fn the_slower_way_is_the_rate_of_a_link() {
        let (fast, slow) = (Some(11_000_000), Some(1_000_000));
        let mut rates = [
            rate("a", fast, fast),
            rate("b", slow, fast),
            rate("c", fast, slow),
            rate("d", None, fast),
            rate("e", fast, fast),
            rate("f", None, None),
        ];
        name_slow(&mut rates);
        assert_eq!(rates.map(|rate| rate.slow), [false, true, true, false, false, false]);
    }
}

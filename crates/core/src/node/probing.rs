//! Probes: a node that waits for its upstream while their links are idle asks it once more for a
//! few chunks that it has just sent. They come as fast as the links carry them, whatever the
//! upstream waits for itself.
//!
//! So a node knows what its link carries before it ever had to carry that much. If a slow machine
//! is the first of a chain, nobody behind it has a busy link, and nothing else shows that it is
//! slow.

use super::requests::Asked;
use super::{Node, Output};
use crate::chunk::Chunk;
use crate::doubling::Doubling;
use crate::fetch::ImageNumber;
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::reach::Reach;
use crate::speed::{ENOUGH, Speed};
use crate::time::Time;
use crate::wire::Priority;
use std::collections::VecDeque;
use std::time::Duration;

/// Bytes of a probe: eight chunks of the default size. A shaped link lets the first one pass at any
/// speed after a pause; the rate is then an eighth too high.
const BYTES: u64 = 512 << 10;
/// Most different chunks of a probe.
const CHUNKS_MAX: usize = 8;
/// Pauses between probes. After the first one a speed is announced and known to all. A probe in a
/// minute is 9 KB/s.
const PAUSES: Doubling = Doubling { first: Duration::from_millis(500), longest: Duration::from_secs(60) };

/// The probes of a node.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// The chunks that came last.
    latest: VecDeque<(NodeId, ImageNumber, Chunk)>,
    under_way: Option<UnderWay>,
    sent: u32,
    last: Option<Time>,
}

/// A probe under way.
#[derive(Debug)]
struct UnderWay {
    peer: NodeId,
    /// Answers that have not come.
    left: usize,
    bytes: u64,
    /// When the first byte came.
    since: Option<Time>,
}

impl Probes {
    /// True if another may be sent.
    fn is_due(&self, now: Time) -> bool {
        let pause = PAUSES.pause(self.sent.saturating_sub(1));
        self.last.is_none_or(|last| now - last >= pause)
    }

    /// Notes a chunk that came.
    pub fn came(&mut self, peer: NodeId, image: ImageNumber, chunk: Chunk) {
        self.latest.truncate(CHUNKS_MAX - 1);
        self.latest.push_front((peer, image, chunk));
    }
}

impl Node {
    /// A peer delivers, and the links between it and this node are idle: finds out what they carry,
    /// unless this node's own speed is known. An origin is spared.
    pub(super) fn probe(&mut self, id: ImageId, peer: NodeId) {
        let (now, identity) = (self.now, self.identity_of(peer).copied());
        let Some((image, identity)) = self.images.get(&id).zip(identity) else { return };
        // The pace of an upstream whose speed is known needs no explanation.
        let is_known = self.announced_speed(peer).is_known();
        let waits = self.peers.owed(peer) > 0 && !is_known && !image.map.origins().contains(&peer);
        if !waits || self.speed.announced().is_known() || !self.probes.is_due(now) {
            return;
        }
        let of_peer = self.probes.latest.iter().filter(|(node, of, _)| (*node, *of) == (peer, image.number));
        let latest: Vec<Chunk> = of_peer.map(|(.., chunk)| *chunk).collect();
        let (mut bytes, mut chunks) = (0, Vec::new());
        for chunk in latest.iter().cycle() {
            if bytes >= BYTES {
                break;
            }
            bytes += image.inventory.geometry().length(*chunk);
            chunks.push(*chunk);
        }
        if chunks.is_empty() {
            return;
        }
        self.probes.sent += 1;
        self.probes.last = Some(now);
        self.probes.under_way = Some(UnderWay { peer, left: chunks.len(), bytes: 0, since: None });
        for chunk in chunks {
            let (priority, reach) = (Priority::Demand, Reach::HOLDER);
            let asked = Asked { peer, chunk, priority, reach, hedge: false, check: true };
            let Some(request) = self.open_request(id, asked) else { return };
            let (peer, image, insists, origin, keep) = (identity, id, false, false, false);
            self.out(Output::Request { request, peer, image, chunk, priority, reach, insists, origin, keep });
        }
    }

    /// An answer came that took this time from its first byte to its last, and that is not kept. At
    /// the end of a probe both sides know the rate, as if enough windows had shown it.
    pub(super) fn probed(&mut self, peer: NodeId, bytes: u64, took: Duration) {
        let now = self.now;
        let Some(probe) = self.probes.under_way.as_mut().filter(|probe| probe.peer == peer) else { return };
        let began = Time::after_start(now.since_start().saturating_sub(took));
        let since = *probe.since.get_or_insert(began);
        probe.bytes += bytes;
        probe.left -= 1;
        if probe.left > 0 {
            return;
        }
        let rate = u128::from(probe.bytes) * 1_000_000 / (now - since).as_micros().max(1);
        let speed = Speed::of(u64::try_from(rate).unwrap_or(u64::MAX));
        self.probes.under_way = None;
        for _ in 0..ENOUGH {
            self.out(Output::TellSpeed(peer, speed));
            self.delivers(peer, speed);
        }
    }
}

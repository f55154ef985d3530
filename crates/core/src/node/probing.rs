//! Probes: a node that waits for its upstream while their links are idle asks it once more for a
//! few chunks that it has just sent. They come as fast as the links carry them, whatever the
//! upstream waits for itself.
//!
//! So a node knows what its link carries before it ever had to carry that much. If a slow machine
//! is the first of a chain, nobody behind it has a busy link, and nothing else shows that it is
//! slow.
//!
//! A node that is taken for slow may have had slow partners only: then its links are busy at their
//! rate, and those of its neighbours too. So it asks a faster node as well. That has read on, and
//! has only the page of hashes in common with it: it is asked for that.

use super::{Node, Output};
use crate::chunk::Chunk;
use crate::doubling::Doubling;
use crate::fetch::{ImageNumber, RequestId};
use crate::identity::{Identity, NodeId};
use crate::image::ImageId;
use crate::speed::{ENOUGH, Speed, Transit, Way};
use crate::time::Time;
use crate::wire::Priority;
use std::collections::VecDeque;
use std::time::Duration;

/// Bytes of a probe: four chunks of the default size. A shaped link lets the first one pass at any
/// speed after a pause. The rate is then a third too high; classes differ by more.
const BYTES: u64 = 256 << 10;
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
    under_way: UnderWay,
    sent: u32,
    last: Option<Time>,
}

/// A probe under way. If one of its requests fails, it tells nothing, and the next takes its place.
#[derive(Debug, Default)]
struct UnderWay {
    /// The requests that have not been answered. Spot checks of the same peer are none of them.
    open: Vec<RequestId>,
    /// Bytes of its answers, and of all that came meanwhile: the link has carried both.
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

    /// The chunks of an image that came last, from one peer or from any.
    fn latest(&self, image: ImageNumber, peer: Option<NodeId>) -> Vec<Chunk> {
        let counts = |node: &NodeId| peer.is_none_or(|peer| peer == *node);
        let latest = self.latest.iter().filter(|(node, of, _)| *of == image && counts(node));
        latest.map(|(.., chunk)| *chunk).collect()
    }

    /// Notes the answer to a request, and how it came. Returns the speed if it was the last one of
    /// a probe.
    fn answered(&mut self, request: RequestId, bytes: u64, transit: Transit, now: Time) -> Option<Speed> {
        let probe = &mut self.under_way;
        let index = probe.open.iter().position(|open| *open == request)?;
        probe.open.swap_remove(index);
        let began = Time::after_start(now.since_start().saturating_sub(transit.took));
        let since = *probe.since.get_or_insert(began);
        probe.bytes = probe.bytes.saturating_add(bytes).saturating_add(transit.beside);
        let rate = u128::from(probe.bytes) * 1_000_000 / (now - since).as_micros().max(1);
        probe.open.is_empty().then(|| Speed::of(u64::try_from(rate).unwrap_or(u64::MAX)))
    }
}

impl Node {
    /// A peer delivers, and the links between it and this node are idle: finds out what they carry,
    /// unless this node's own speed is known. An origin is spared.
    pub(super) fn probe(&mut self, id: ImageId, peer: NodeId) {
        let (now, identity) = (self.now, self.identity_of(peer).copied());
        let Some((image, identity)) = self.images.get(&id).zip(identity) else { return };
        // The pace of an upstream whose speed is known needs no explanation.
        let is_known = self.announced_link(peer).measured.is_known();
        let waits = self.peers.owes(peer) && !is_known && !image.map.origins().contains(&peer);
        if !waits || self.speed.is_measured() || !self.probes.is_due(now) {
            return;
        }
        let latest = self.probes.latest(image.number, Some(peer));
        self.send_probe(id, &identity, &latest);
    }

    /// A peer delivers as much as its links carry. If this node is taken for slow, finds out from a
    /// faster one whether it is.
    pub(super) fn probe_faster(&mut self, id: ImageId) {
        let now = self.now;
        if !self.speed.is_measured() || !self.probes.is_due(now) {
            return;
        }
        let Some(image) = self.images.get(&id) else { return };
        let class = |node| self.place_of(image, node).map(|place| place.class);
        let mine = self.intake(image);
        let is_faster = |node: &&NodeId| {
            let ahead = class(**node).is_some_and(|class| class < mine);
            ahead && self.announced_link(**node).measured.is_known() && self.peers.is_usable(**node, now)
        };
        let faster: Vec<NodeId> = image.map.participants().iter().filter(is_faster).copied().collect();
        let latest = self.probes.latest(image.number, None);
        let page = |chunk: &Chunk| image.inventory.geometry().parent(*chunk).map(|(page, _)| page);
        let pages: Vec<Chunk> = latest.first().and_then(page).into_iter().collect();
        let dice = self.dice();
        let Some(peer) = faster.get((dice % (faster.len() as u64).max(1)) as usize) else { return };
        if let Some(identity) = self.identity_of(*peer).copied() {
            self.send_probe(id, &identity, &pages);
        }
    }

    /// Asks a peer for these chunks, as often as a probe needs them.
    fn send_probe(&mut self, id: ImageId, peer: &Identity, latest: &[Chunk]) {
        let Some(image) = self.images.get(&id) else { return };
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
        // On a slow link the last one may still be under way.
        for request in std::mem::take(&mut self.probes.under_way.open) {
            self.orphan(request);
        }
        self.probes.sent += 1;
        self.probes.last = Some(self.now);
        let open = chunks.into_iter().map_while(|chunk| self.request_check(id, peer, chunk, Priority::Demand));
        let open = open.collect();
        self.probes.under_way = UnderWay { open, ..UnderWay::default() };
    }

    /// A check was answered. At the end of a probe both sides know the rate, as if enough windows
    /// had shown it: what one side says once is one sample at the other.
    pub(super) fn probed(&mut self, request: RequestId, peer: NodeId, bytes: u64, transit: Transit) {
        let Some(speed) = self.probes.answered(request, bytes, transit, self.now) else { return };
        for _ in 0..ENOUGH {
            self.out(Output::TellSpeed(peer, speed));
            self.delivers(peer, speed, Way::In);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_counts_its_own_answers_only() {
        let (mut probes, ms) = (Probes::default(), Duration::from_millis);
        let at = |millis| Time::after_start(ms(millis));
        let took = |millis| Transit { took: ms(millis), beside: 0 };
        probes.under_way.open = [1, 2].map(RequestId).into();
        assert_eq!(probes.answered(RequestId(1), 64 << 10, took(5), at(105)), None);
        assert_eq!(probes.answered(RequestId(7), 64 << 10, took(900), at(1000)), None, "a spot check of that peer");
        assert_eq!(probes.answered(RequestId(2), 64 << 10, took(5), at(110)), Some(Speed::of((128 << 10) * 100)));
        assert_eq!(probes.answered(RequestId(2), 64 << 10, took(5), at(115)), None);
    }

    #[test]
    fn probes_grow_rare() {
        let (mut probes, start) = (Probes::default(), Time::after_start(Duration::from_secs(9)));
        let mut times = Vec::new();
        for half in 0..600 {
            let now = start + Duration::from_millis(500 * half);
            if probes.is_due(now) {
                (probes.sent, probes.last) = (probes.sent + 1, Some(now));
                times.push(half);
            }
        }
        assert_eq!(times, [0, 1, 3, 7, 15, 31, 63, 127, 247, 367, 487]);
    }

    #[test]
    fn the_last_chunks_of_each_are_known() {
        let (mut probes, image) = (Probes::default(), ImageNumber(3));
        (0..20).for_each(|chunk| probes.came(NodeId(chunk % 2), image, Chunk(chunk)));
        probes.came(NodeId(1), ImageNumber(4), Chunk(99));
        let latest =
            |peer: Option<u64>| probes.latest(image, peer.map(NodeId)).iter().map(|chunk| chunk.0).collect::<Vec<_>>();
        assert_eq!(latest(None), [19, 18, 17, 16, 15, 14, 13]);
        assert_eq!((latest(Some(0)), latest(Some(5))), (vec![18, 16, 14], vec![]));
    }

    #[test]
    fn a_probe_counts_what_came_beside_it() {
        let (mut probes, ms) = (Probes::default(), Duration::from_millis);
        probes.under_way.open = [RequestId(1)].into();
        let transit = Transit { took: ms(10), beside: 32 << 10 };
        let shown = probes.answered(RequestId(1), 64 << 10, transit, Time::after_start(ms(100)));
        assert_eq!(shown, Some(Speed::of((96 << 10) * 100)));
    }
}

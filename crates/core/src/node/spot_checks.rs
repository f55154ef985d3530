//! Spot checks: holders are asked for random chunks that they claim to hold.
//!
//! "The origin may leave" is said of stores that were seen to hold what they claim, not of claims.
//! An origin checks by itself, and any other node while somebody asks it. It begins once the claims
//! cover the image, and ends once the [verified](crate::verified) part of them does. So a room of
//! any size costs a few checks for each store that is needed. After that an origin goes on with one
//! check at a time.
//!
//! While nobody asks, an origin checks slowly, and a node that somebody only looks at in a small
//! share of its link ([`crate::inquiry`]). Their checks take the links of holders, which serve
//! readers just then: in a room that reads at once, each of them delays all the readers behind a
//! holder.
//!
//! A holder that fetches what it is asked for, and then delivers it, passes.

use super::images::Image;
use super::requests::Asked;
use super::{Keep, Node, Output, Timer};
use crate::chunk::Chunk;
use crate::fetch::{Beneficiary, RequestId};
use crate::identity::{Identity, NodeId};
use crate::image::ImageId;
use crate::inquiry::{Purpose, Wanted};
use crate::placement::coverage::{Coverage, Layers};
use crate::placement::map::mix;
use crate::placement::{Arc, Filled, Holding};
use crate::reach::Reach;
use crate::wire::Priority;
use std::ops::Range;
use std::time::Duration;

/// Most checks under way for one image while somebody asks: two holders' worth, and with chunks of
/// 64 KiB one megabyte.
const AT_ONCE: usize = 16;
/// Most checks under way for one image while nobody asks.
const UNASKED_AT_ONCE: usize = 1;
/// Shortest interval between two checks while nobody asks. Readers in lockstep all wait for the
/// slowest holder, so the delays of all checks add up: with 10 ms for a chunk of 64 KiB on a link
/// of 50 Mbit/s this is 0.3 % of the time. At four checks a second a storm took 3 % longer.
const UNASKED_EVERY: Duration = Duration::from_secs(4);
/// Pause after which holders are looked at again. It gives time to a missing page of hashes, and to
/// the answers of others.
const AGAIN: Duration = Duration::from_millis(250);
/// Interval of checks once all is verified. 64 KiB in that time are 1 KB/s, half of the 2 KB/s that
/// an idle node may cost.
const LATER: Duration = Duration::from_secs(64);
/// Age from which a verified claim is verified again before this node leaves: a store may have been
/// lost since. It is below the pause between two attempts to leave, and above the time that the
/// checks of a large room take.
const FRESH: Duration = Duration::from_secs(10);
/// Chunks drawn in search of one to ask for. They are of the part or of the arc, whichever is
/// smaller. An eighth of a full store is in a part, so all draws miss once in 5 000 times.
const DRAWS: u64 = 64;

impl Node {
    /// Somebody asks whether each chunk has `times` holders, or what would be lost with this node.
    pub(super) fn inquired(&mut self, times: u64, purpose: Purpose) {
        self.inquiries.ask(times, purpose, self.now);
        for id in self.image_ids() {
            if purpose == Purpose::Leave {
                self.verify_anew(id);
            }
            self.spot_check_soon(id);
        }
    }

    /// Verifies claims again before what hangs on them is given up.
    pub(super) fn verify_anew(&mut self, id: ImageId) {
        let now = self.now;
        if let Some(image) = self.images.get_mut(&id) {
            image.verified.forget_older(FRESH, now);
            self.recount_soon(id);
        }
    }

    /// What somebody wants to know of an image, or this node itself.
    fn wanted(&self, id: ImageId) -> Wanted {
        let goes = self.goes() || self.images.get(&id).is_some_and(|image| image.care.verifies());
        if goes { Wanted { times: 1, waits: true, parts: true } } else { self.inquiries.wanted(self.now) }
    }

    /// The holdings that count, each as far as it is verified; this node's own needs no proof.
    pub(super) fn verified_holdings(&self, image: &Image) -> Vec<Holding> {
        let me = self.me().node;
        let own = image.map.staying(|node| node == me);
        own.into_iter().chain(self.holdings_elsewhere(image, |image, holding| image.verified.of(holding))).collect()
    }

    /// The holdings of other nodes that count and can be asked, each as far as `verify` says.
    pub(super) fn holdings_elsewhere(
        &self,
        image: &Image,
        verify: impl Fn(&Image, &Holding) -> Filled,
    ) -> Vec<Holding> {
        let others = self.others(image).into_iter();
        others.map(|holding| Holding { filled: verify(image, &holding), ..holding }).collect()
    }

    /// What other nodes claim to hold, as far as they count and can be asked.
    fn others(&self, image: &Image) -> Vec<Holding> {
        let me = self.me().node;
        image.map.staying(|node| node != me && self.counts(node) && self.peers.is_usable(node, self.now))
    }

    /// How well stores hold an image that showed it to this node, its own counted.
    pub(super) fn verified_coverage(&self, image: &Image) -> Coverage {
        Coverage::of(image.map.ring(), &self.verified_holdings(image))
    }

    /// True if those stores hold each chunk `times` times.
    pub(super) fn is_verified(&self, image: &Image, times: u64) -> bool {
        Coverage::lowest(image.map.ring(), &self.verified_holdings(image), times) >= times.max(1)
    }

    /// A holder delivered a chunk that it claims to hold.
    pub(super) fn delivered_as_claimed(&mut self, id: ImageId, node: NodeId, chunk: Chunk) {
        let now = self.now;
        let Some(image) = self.images.get_mut(&id) else { return };
        let size = image.map.ring().size();
        if let Some(holding) = image.map.claim(node, chunk)
            && image.verified.delivered(holding, chunk, size, now)
        {
            self.recount_soon(id);
        }
    }

    /// A holder did not deliver a chunk that it claims to hold.
    pub(super) fn failed_a_check(&mut self, id: ImageId, node: NodeId) {
        let now = self.now;
        let Some(image) = self.images.get_mut(&id) else { return };
        image.verified.failed(node, now);
        self.recount_soon(id);
    }

    /// A check of a holder has ended, in whatever way; a delivery is noted after that. An origin
    /// that finds the chunk to be zeros has not asked for it.
    pub(super) fn check_ended(&mut self, id: ImageId, peer: NodeId, chunk: Chunk) {
        let now = self.now;
        if let Some(image) = self.images.get_mut(&id).filter(|image| !image.inventory.is_zero(chunk)) {
            image.verified.ended(peer, now);
        }
        self.spot_check_soon(id);
    }

    /// Looks for something to check at once.
    pub(super) fn spot_check_soon(&mut self, id: ImageId) {
        self.spot_check_later(id, Duration::ZERO);
    }

    fn spot_check_later(&mut self, id: ImageId, after: Duration) {
        let at = self.now + after;
        let Some(image) = self.images.get_mut(&id) else { return };
        let (number, before) = (image.number, image.spot_check_timer);
        if before.is_none_or(|(set, _)| set > at) {
            self.cancel(before);
            let timer = self.set(after, Timer::SpotCheck(number));
            if let Some(image) = self.images.get_mut(&id) {
                image.spot_check_timer = Some(timer);
            }
        }
    }

    /// Asks holders for chunks that they claim to hold, as far as that is wanted.
    pub(super) fn spot_check(&mut self, id: ImageId) {
        let (wanted, now) = (self.wanted(id), self.now);
        let Some(image) = self.images.get_mut(&id) else { return };
        image.spot_check_timer = None;
        let (times, number) = (wanted.times.max(u64::from(image.origin)), image.number);
        if times == 0 {
            return;
        }
        let under_way = self.requests.iter().map(|(_, request)| request);
        let under_way = under_way.filter(|request| request.check && !request.orphan && request.image == number);
        let under_way: Vec<(NodeId, Chunk)> = under_way.map(|request| (request.peer, request.chunk)).collect();
        let at_once = if wanted.times > 0 { AT_ONCE } else { UNASKED_AT_ONCE };
        if under_way.len() > at_once / 2 {
            return;
        }
        let Some(image) = self.images.get(&id) else { return };
        let ring = image.map.ring();
        let claimed = Coverage::lowest(ring, &image.map.staying(|node| self.counts(node)), times);
        if claimed == 0 && !wanted.parts {
            return;
        }
        let verified = self.verified_holdings(image);
        if Coverage::lowest(ring, &verified, times) < claimed.max(1) {
            let (by_itself, origin) = (image.spot_checked.map_or(now, |last| last + UNASKED_EVERY), image.origin);
            if wanted.times == 0 && by_itself > now {
                self.spot_check_later(id, by_itself - now);
                return;
            }
            let chunk_bytes = image.inventory.geometry().chunk_bytes();
            let room = at_once - under_way.len();
            let room = match wanted {
                Wanted { waits: false, times: 1.., .. } => {
                    let allowed = self.allowance.chunks(chunk_bytes, self.speed.bytes_per_s(), now);
                    room.min(allowed.max(usize::from(origin && by_itself <= now)))
                }
                _ => room,
            };
            self.spot_check_some(id, times, &verified, &under_way, room);
            self.spot_check_later(id, AGAIN);
        } else if image.origin {
            let due = image.spot_checked.map_or(now, |last| last + LATER);
            if due <= now {
                self.spot_check_one(id);
            }
            self.spot_check_later(id, if due > now { due - now } else { LATER });
        }
    }

    /// Checks holders of which something is not `verified` yet, one after the other.
    fn spot_check_some(
        &mut self,
        id: ImageId,
        times: u64,
        verified: &[Holding],
        under_way: &[(NodeId, Chunk)],
        mut room: usize,
    ) {
        let (me, now, mut dice) = (self.me().node, self.now, self.dice());
        let Some(image) = self.images.get(&id) else { return };
        let size = image.map.ring().size();
        let full: Vec<Arc> = verified.iter().filter(|h| h.filled.count == size).map(|h| h.arc).collect();
        let layers = Layers::of(&full, size);
        let mut holdings = self.others(image);
        holdings.retain(|holding| layers.lowest(holding.arc) < times);
        // Nodes that check at the same time begin with different holders.
        holdings.sort_unstable_by_key(|holding| mix(holding.node.0 ^ mix(me.0)));
        for holding in holdings {
            let Some(image) = self.images.get_mut(&id) else { return };
            let parts: Vec<_> = image.verified.open_parts(&holding, now).collect();
            for (part, distances) in parts {
                let in_part = |chunk: Chunk| distances.contains(&holding.filled.distance(chunk, size));
                if under_way.iter().any(|(peer, chunk)| *peer == holding.node && in_part(*chunk)) {
                    continue;
                }
                if room == 0 || !self.has_window(Priority::Fill) {
                    return;
                }
                dice = mix(dice);
                if let Some(chunk) = self.draw(id, &holding, &distances, dice) {
                    room -= usize::from(self.check_holder(id, holding.node, chunk));
                } else if let Some(image) = self.images.get_mut(&id)
                    && image.verified.has_none(&holding, part, now)
                {
                    self.recount_soon(id);
                }
            }
        }
    }

    /// Checks a chunk of any holder.
    fn spot_check_one(&mut self, id: ImageId) {
        let (me, dice) = (self.me().node, self.dice());
        let Some(image) = self.images.get(&id) else { return };
        let others = image.map.staying(|node| node != me && self.counts(node));
        let Some(holding) = others.get((dice % (others.len() as u64).max(1)) as usize) else { return };
        if let Some(chunk) = self.draw(id, holding, &(0..holding.filled.count), mix(dice)) {
            self.check_holder(id, holding.node, chunk);
        }
    }

    /// A chunk of a holding, at one of these distances from its first one; `None` if hardly any is
    /// there that is not zeros.
    pub(super) fn draw(&self, id: ImageId, holding: &Holding, distances: &Range<u64>, dice: u64) -> Option<Chunk> {
        let image = self.images.get(&id)?;
        let (ring, size) = (image.map.ring(), image.map.ring().size());
        let &Holding { arc, filled, .. } = holding;
        let length = distances.end.saturating_sub(distances.start);
        if length == 0 {
            return None;
        }
        let chunk = |step: u64| {
            let dice = mix(dice ^ mix(step));
            if length < arc.length {
                Chunk((filled.from + distances.start + dice % length) % size)
            } else {
                ring.chunk((arc.start + dice % arc.length) % size)
            }
        };
        let held = |chunk: &Chunk| {
            distances.contains(&filled.distance(*chunk, size))
                && arc.contains(ring.place(*chunk), size)
                && !image.inventory.is_zero(*chunk)
        };
        (0..DRAWS).map(chunk).find(held)
    }

    /// Asks a holder for a chunk, only to see that it has it. False if the page with its hash has
    /// to come first.
    pub(super) fn check_holder(&mut self, id: ImageId, peer: NodeId, chunk: Chunk) -> bool {
        let (now, identity) = (self.now, self.identity_of(peer).copied());
        let (Some(identity), Some(image)) = (identity, self.images.get_mut(&id)) else { return false };
        image.spot_checked = Some(now);
        let geometry = image.inventory.geometry();
        let (parent, bytes) = (geometry.parent(chunk).map(|(page, _)| page), geometry.length(chunk));
        // An origin has all hashes.
        if let Some(page) = parent.filter(|page| !image.origin && !image.inventory.is_here(*page)) {
            self.want(id, page, Priority::Fill, Beneficiary::Store);
            return false;
        }
        let is_asked = self.request_check(id, &identity, chunk, Priority::Fill).is_some();
        if is_asked {
            self.allowance.take(bytes);
        }
        is_asked
    }

    /// Requests a chunk of its holder only to see that it comes, or how fast; it is not kept.
    /// `None` if the image is gone.
    pub(super) fn request_check(
        &mut self,
        id: ImageId,
        peer: &Identity,
        chunk: Chunk,
        priority: Priority,
    ) -> Option<RequestId> {
        let reach = Reach::HOLDER;
        let asked = Asked { peer: peer.node, chunk, priority, reach, hedge: false, check: true, slice: None };
        let request = self.open_request(id, asked)?;
        let (peer, image, insists, origin, keep) = (*peer, id, false, false, Keep::Not);
        self.out(Output::Request { request, peer, image, chunk, priority, reach, insists, origin, keep });
        Some(request)
    }
}

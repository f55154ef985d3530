//! The chain's step of the plan: the upstream node that is asked, or waited for.

use super::{Choice, Situation, Source};
use crate::identity::NodeId;
use crate::placement::chain::Way;
use crate::placement::{Chain, Holding, Place, mix};
use crate::reach::Reach;
use crate::tuning::{LOOKS, OVERDUE_AFTER};
use crate::wire::Priority;

/// The node at which a chunk enters this zone. All nodes of the zone agree on it; the chain begins
/// there.
#[derive(Debug, Clone, Copy)]
pub(super) enum EntryPoint {
    /// At an origin.
    Origin(NodeId),
    /// At a gateway, which is to get it.
    Gateway(NodeId),
    /// At this node, which is the gateway.
    Here,
}

impl EntryPoint {
    /// The gateway, if it is another node.
    pub const fn gateway(self) -> Option<NodeId> {
        if let Self::Gateway(gateway) = self { Some(gateway) } else { None }
    }
}

/// An upstream node, as a candidate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub peer: NodeId,
    pub reach: Reach,
    /// True if it has announced the chunk.
    pub has: bool,
}

impl Situation<'_> {
    /// The gateway whose turn it is; in a field without zones, an origin.
    pub(super) fn entry_point(&self) -> Option<EntryPoint> {
        if let Some(gateway) = self.gateways.in_turn(self.wanted.chunk).next() {
            return Some(if gateway == self.me { EntryPoint::Here } else { EntryPoint::Gateway(gateway) });
        }
        let origin = self.origins().next().or_else(|| self.map.origins().first().copied());
        origin.filter(|_| self.has_chain()).map(EntryPoint::Origin)
    }

    /// An upstream in the chain of this zone.
    pub(super) fn ask_chain(&self, entry: Option<EntryPoint>) -> Option<Choice> {
        let way = self.way(entry).filter(|_| self.may_ask_zone())?;
        let (map, me, source) = (self.map, self.me, way.source.node);
        let (gateway, origins) = (entry.and_then(EntryPoint::gateway), map.origins());
        // The entry point serves only chunks that no other node of the zone has yet.
        let had = || self.homes().any(|home| home.node != me && self.has(home));
        let shut = |peer: NodeId| {
            (origins.contains(&peer) && had())
                || (gateway == Some(peer)
                    && !map.holds(peer, self.wanted.chunk)
                    && self.full().any(|home| home.node != me))
        };
        let at_source = if gateway == Some(source) { Reach::GATEWAY } else { Reach::HOLDER };
        let upstream = self.chain.upstream(self.stands()?, way).filter(|(peer, _)| !shut(*peer));
        let steps = upstream.map(|(peer, distance)| Step {
            peer,
            reach: if peer == source { at_source } else { Reach::in_zone(distance) },
            has: (peer == source || map.holds(peer, self.wanted.chunk)) && self.is_believed(peer),
        });
        self.along(steps)
    }

    /// The way of the chunk along the chain to this node.
    fn way(&self, entry: Option<EntryPoint>) -> Option<Way> {
        let (chain, me) = (self.chain, self.stands()?);
        match entry {
            Some(EntryPoint::Here) => None,
            Some(EntryPoint::Gateway(gateway)) => Some(chain.way_from(self.place_of(gateway)?, me, self.full())),
            Some(EntryPoint::Origin(origin)) => {
                // Once stores are full no chunk enters at the origin any more, and chains go on
                // past it.
                let past = if self.is_settled() { Chain::way_around(me, self.full()) } else { None };
                past.or_else(|| {
                    let origins = self.origins().filter_map(|origin| self.place_of(origin));
                    Some(chain.way_from(self.place_of(origin)?, me, self.full().chain(origins)))
                })
            }
            None => {
                let filling = || self.homes().filter(|home| self.has_chain() && home.filled.count > 0);
                Chain::way_around(me, self.full()).or_else(|| Chain::way_around(me, filling().map(Holding::place)))
            }
        }
    }

    /// Holders at which the chain may begin. While stores fill, news of progress reaches some nodes
    /// earlier than others, so only full holders count.
    fn full(&self) -> impl Iterator<Item = Place> + '_ {
        let (size, has_chain) = (self.map.ring().size(), self.has_chain());
        let full = self.homes();
        let full = full.filter(move |home| has_chain && home.filled.count == size && !self.is_bypassed(home));
        full.map(Holding::place)
    }

    /// The first upstream node that is in step and has room.
    pub(super) fn along(&self, upstream: impl Iterator<Item = Step>) -> Option<Choice> {
        let (wanted, peers, now) = (&self.wanted, self.peers, self.now);
        let upstream = self.considered(upstream).into_iter();
        let (in_step, aside): (Vec<Step>, Vec<Step>) = upstream.partition(|step| peers.may_be_in_step(step.peer, now));
        // While a room is switched on, the upstream may only just begin; a reader that is alone
        // need not wait.
        let patient = wanted.priority != Priority::Demand || self.warms_up;
        if let Some(step) = aside.first().filter(|step| patient && peers.may_begin(step.peer, now)) {
            return Some(Choice::Park(step.peer));
        }
        let mut full: Option<Step> = None;
        for step in in_step {
            let Step { peer, reach, has } = step;
            if !has && reach == Reach::HOLDER {
                break;
            }
            // Among several holders an upstream that is out of step is but one of them. Once stores
            // are full, an upstream in step is waited for: chunks from others would slow the chain
            // down behind them. While stores fill, it leads as long as its window has room. Random
            // readers are in step with no other node; while stores fill, though, the first reads of
            // a chain look like random ones.
            let has_room = self.has_room(peer);
            let is_one_of_many = has || (!wanted.stream && self.is_settled());
            let leads = peers.is_in_step(peer) && (has_room || !has || self.is_settled());
            if is_one_of_many && !leads && self.has_several_holders() {
                break;
            }
            if has_room {
                let origin = self.map.origins().contains(&peer);
                return Some(Choice::Ask(Source { peer, reach, rank: (!origin).then_some(reach) }));
            }
            full = full.or(Some(step));
            // Do not bypass an upstream that still delivers: its own upstream already serves it.
            // Both would get half of that link, and the slower one would fall behind for good.
            let delivers = peers.is_in_step(peer) && peers.silent_for(peer, now) < OVERDUE_AFTER;
            if !wanted.overdue || delivers {
                break;
            }
        }
        // Windows that wait for each other around the chain would wait for ever.
        full.map(
            |Step { peer, reach, .. }| {
                if wanted.overdue { Choice::Ask(Source::passing(peer, reach)) } else { Choice::Park(peer) }
            },
        )
    }

    /// The upstream nodes that are considered: the next one, and those after it if that one is out
    /// of step, slow, or gone.
    ///
    /// If the first one is banned but goes on reading, its own upstream already serves it. That
    /// node would slow the whole chain down if it had to replace all of the first one's deliveries.
    /// So the upstream nodes take turns, chunk by chunk; the source stays last.
    fn considered(&self, upstream: impl Iterator<Item = Step>) -> Vec<Step> {
        let mut upstream = upstream.peekable();
        let is_aside = |step: &Step| !self.peers.is_usable(step.peer, self.now);
        let usable = |step: &Step| self.usable(step.peer);
        if !upstream.peek().is_some_and(is_aside) {
            return upstream.filter(usable).take(LOOKS).collect();
        }
        let mut upstream: Vec<Step> = upstream.collect();
        if let [_, others @ .., _] = &mut upstream[..]
            && !others.is_empty()
        {
            others.rotate_left((mix(self.wanted.chunk.0) % others.len() as u64) as usize);
        }
        upstream.into_iter().filter(usable).take(LOOKS).collect()
    }
}

//! Whom to ask for a chunk.

use super::Node;
use super::images::Image;
use crate::chunk::Chunk;
use crate::identity::NodeId;
use crate::image::ImageId;
use crate::placement::{Holding, chain};
use crate::reach::Reach;
use crate::wire::Priority;

/// A hash page that no home and no origin has is asked for from so many nodes at a time that may have read it.
const STRANGERS_MAX: usize = 8;
/// So many nodes upstream in the chain are considered: the next, and those after it if that one is not
/// in step, too slow, or gone.
const NEIGHBOURS: usize = 3;

/// With fewer nodes than this, and small stores, there is no chain: all may well ask all, and a chunk that comes by
/// way of its home is kept there. Who keeps all is home of all.
const CROWD: usize = 8;

/// Whom to ask.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    pub peer: NodeId,
    /// To be sent along.
    pub reach: Reach,
    /// See [`crate::fetch::Fetch::rank`].
    pub rank: Option<Reach>,
}

/// What to do about a chunk that is wanted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Choice {
    Ask(Source),
    /// Wait until this peer can take more.
    Park(NodeId),
    Nobody,
}

impl Node {
    /// Whom to ask for a chunk: the neighbour in the chain, if it is in step; else one that has it; else the
    /// home that is to relay it; else an origin.
    pub(super) fn choose(&mut self, id: ImageId, chunk: Chunk) -> Choice {
        let (me, now) = (self.me().node, self.now);
        let Some(image) = self.images.get(&id) else { return Choice::Nobody };
        let Some(fetch) = image.fetches.get(&chunk) else { return Choice::Nobody };
        let (bytes, priority) = (image.inventory.geometry().length(chunk), fetch.priority);
        let (live, peers) = (self.membership.live(), &self.peers);
        let usable =
            |node: NodeId| live.contains_key(&node) && !fetch.tried.contains(&node) && peers.is_usable(node, now);
        let room = |node: &NodeId| peers.has_room(*node, bytes, priority);
        let homes = image.map.homes(chunk);
        let has = |home: &&Holding| home.node != me && image.map.has(home, chunk);
        // An origin has it for sure. What others have said may be out of date, and of two nodes that each
        // believe that the other has it neither may wait for the other.
        let likely = |peer| Choice::Ask(Source { peer, reach: Reach::HOLDER, rank: Some(Reach::HOLDER) });
        let surely = |peer| Choice::Ask(Source { peer, reach: Reach::HOLDER, rank: None });
        if let Some(peer) = fetch.advice.filter(|&node| node != me && usable(node)) {
            return likely(peer);
        }
        let origins: Vec<NodeId> = image.map.origins().iter().copied().filter(|&node| usable(node)).collect();
        if let Some(&peer) = origins.first().filter(|_| fetch.insist) {
            return surely(peer);
        }

        // The chain.
        let mut full = None;
        let having: Vec<NodeId> = homes.iter().filter(has).map(|home| home.node).collect();
        let holders: Vec<NodeId> = having.iter().copied().filter(|&node| usable(node)).collect();
        let origins_too = having.is_empty();
        let settled = homes.iter().all(|home| home.filled.count == image.map.ring().size());
        if let Some(source) = self.chain_source(image, &homes) {
            let mine = chain::distance(source, me);
            let before = image.chain.upstream(me).take_while(|node| chain::distance(source, *node) < mine);
            let before = before.filter(|node| usable(*node));
            let before = before.filter(|node| origins_too || !image.map.origins().contains(node));
            let (in_step, aside): (Vec<NodeId>, Vec<NodeId>) =
                before.take(NEIGHBOURS).partition(|node| peers.may_be_in_step(*node, now));
            // In a room that is switched on the neighbour may only just begin; a reader that is alone need not wait.
            let patient = priority != Priority::Demand || now < image.young_until;
            if let Some(&peer) = aside.first().filter(|peer| patient && peers.may_begin(**peer, now)) {
                return Choice::Park(peer);
            }
            for peer in in_step {
                let reach = Reach::of_chain(chain::distance(source, peer)).min(fetch.reach);
                let has = peer == source || having.contains(&peer);
                if !has && reach == Reach::HOLDER {
                    break;
                }
                // Among many that have it the neighbour is but one, unless it is in step anyway. And whoever reads here
                // and there is in step with nobody; while stores fill, though, the first reads of a crowd look like that.
                if (has || (!fetch.stream && settled)) && holders.len() > 1 && !peers.is_in_step(peer) {
                    break;
                }
                if room(&peer) {
                    let rank = (!image.map.origins().contains(&peer)).then_some(reach);
                    return Choice::Ask(Source { peer, reach, rank });
                }
                full = full.or(Some(peer));
                if !fetch.overdue {
                    break;
                }
            }
            match full {
                Some(peer) if fetch.overdue => {
                    // Windows that wait for each other around the chain would wait for ever.
                    let reach = Reach::of_chain(chain::distance(source, peer)).min(fetch.reach);
                    return Choice::Ask(Source { peer, reach, rank: Some(reach) });
                }
                Some(peer) => return Choice::Park(peer),
                None => {}
            }
        }

        // Those who have it take turns.
        let free: Vec<NodeId> = holders.iter().copied().filter(room).collect();
        if let Some(peer) = self.peers.choose(&free) {
            return likely(peer);
        }
        if let Some(peer) = self.peers.choose(&holders) {
            return if fetch.overdue { likely(peer) } else { Choice::Park(peer) };
        }

        // A home asks as one, so that two homes never wait for each other.
        let peers = &self.peers;
        let room = |node: &NodeId| peers.has_room(*node, bytes, priority);
        let usable =
            |node: NodeId| live.contains_key(&node) && !fetch.tried.contains(&node) && peers.is_usable(node, now);
        let is_home = homes.iter().any(|home| home.node == me);
        let reach = fetch.reach.min(if is_home { Reach::HOME } else { Reach::READER });
        let first = homes.iter().map(|home| home.node).find(|&node| node == me || usable(node));
        let participants = || image.map.participants().iter().copied().filter(|&node| node == me || usable(node));
        let relay = if homes.is_empty() { image.map.relay(chunk, participants()) } else { first };
        let relay = relay.filter(|&node| node != me && reach.is_relay());
        if let Some(peer) = relay {
            return if room(&peer) || fetch.overdue {
                Choice::Ask(Source { peer, reach, rank: Some(reach) })
            } else {
                Choice::Park(peer)
            };
        }
        let mut others: Vec<NodeId> =
            homes.iter().map(|home| home.node).filter(|&node| node != me && usable(node)).collect();
        // Whoever has data has had the pages above it, whether it is their home or not.
        if !image.inventory.geometry().is_data(chunk) && fetch.tried.len() < STRANGERS_MAX {
            others.extend(image.map.participants().iter().filter(|&&node| node != me && usable(node)));
        }
        let free: Vec<NodeId> = origins.iter().copied().filter(room).collect();
        if let Some(peer) = self.peers.choose(&free) {
            return surely(peer);
        }
        if let Some(peer) = self.peers.choose(&origins) {
            return if fetch.overdue { surely(peer) } else { Choice::Park(peer) };
        }
        // What homes have said of themselves is a moment old: they may have it by now.
        self.peers.choose(&others).map_or(Choice::Nobody, likely)
    }

    /// Where in the chain a chunk comes from, so that all nodes agree: while stores fill, what each says that it has
    /// reaches some earlier than others, so only full stores count; else an origin; else whoever fills. Of
    /// several the nearest upstream.
    fn chain_source(&self, image: &Image, homes: &[Holding]) -> Option<NodeId> {
        let keeps_all = image.fill.arc().length == image.map.ring().size();
        // Who has just come knows few, perhaps of many; those who then ask homes and those who take from their neighbours
        // would fetch everything twice, and could wait for each other.
        let few = image.map.participants().len() < CROWD && self.now >= image.blind_until;
        if !keeps_all && few {
            return None;
        }
        let me = self.me().node;
        let size = image.map.ring().size();
        let nearest = |nodes: &mut dyn Iterator<Item = NodeId>| {
            nodes.filter(|node| *node != me).min_by_key(|source| chain::distance(*source, me))
        };
        nearest(&mut homes.iter().filter(|home| home.filled.count == size).map(|home| home.node))
            .or_else(|| nearest(&mut image.map.origins().iter().copied()))
            .or_else(|| nearest(&mut homes.iter().filter(|home| home.filled.count > 0).map(|home| home.node)))
    }
}

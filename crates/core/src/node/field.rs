//! The field around a node: members that come and go, and the maps made from their records.

use super::images::Image;
use super::{Node, Notice, Output, Timer};
use crate::config;
use crate::doubling::Doubling;
use crate::identity::{Identity, NodeId};
use crate::image::ImageId;
use crate::membership::message::{self, Level};
use crate::membership::{Effects, Member, Membership};
use crate::placement::{Chain, Holding, Map};
use crate::record::Record;
use crate::speed::Classes;
use crate::time::Time;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;
use vfield_block::gather::Gather as _;

/// After joining, snapshots are exchanged at these intervals, so that a room that is switched on at
/// once knows itself within two seconds.
const EARLY_SYNCS: [Duration; 5] = [
    Duration::from_millis(200),
    Duration::from_millis(200),
    Duration::from_millis(300),
    Duration::from_millis(500),
    Duration::from_millis(1000),
];
/// Members below which snapshots are exchanged with the eldest, and of which a newcomer of a crowd
/// is told. Answers of 25 KB each cost one node little. With all members in each, a thousand
/// newcomers would take most of a second of the link of the node that they join through.
pub(super) const KNOWN_TO_ONE: usize = 128;
/// Time in which the member that this node joins through has answered, or never will: the shell's
/// timeout for a snapshot.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// Shortest interval between new maps, while news of fills pours in.
const REMAP_EVERY: Duration = Duration::from_millis(50);
/// Coverage is counted at most this often while news pours in.
const RECOUNT_AFTER: Duration = Duration::from_millis(50);

impl Node {
    /// Carries out the effects of membership.
    pub(super) fn apply(&mut self, mut effects: Effects) {
        self.say(&mut effects);
        if effects.doubt {
            self.mapped = u64::MAX;
        }
        for member in effects.up {
            if self.now - self.forming.0 > config::FORMING_FOR {
                self.forming = (self.now, 0);
            }
            self.forming.1 += 1;
            if self.forming.1 >= config::FORMING_MEMBERS {
                self.forming_until = self.now + config::FORMING_FOR;
                self.membership.set_forming(true);
            }
            self.mapped = u64::MAX;
            self.peers.is_back(member.node);
            self.note_life(&member);
            self.out(Output::Notice(Notice::Up(member)));
        }
        self.have_moved(effects.moved);
        let bereft = !effects.down.is_empty() && self.membership.live().is_empty();
        for departed in effects.down {
            self.mapped = u64::MAX;
            let node = departed.identity.node;
            if self.identity_of(node).is_none() {
                self.abandon(node);
                self.peers.forget(node);
            }
            self.former.went(departed, self.now, self.membership.records().of(node));
            self.note_death(departed);
            self.seek_soon();
            self.out(Output::Notice(Notice::Down(departed)));
        }
        if let Some(rival) = effects.rival {
            self.rival(rival);
        }
        if bereft && !self.leaving {
            self.start_over();
        }
        self.wake_membership();
        self.hear_tags(effects.tags);
    }

    /// All that was known of the ways to these members is of their addresses before.
    pub(super) fn have_moved(&mut self, members: Vec<Identity>) {
        for member in members {
            self.peers.is_back(member.node);
            self.out(Output::Notice(Notice::Moved(member)));
        }
    }

    /// Sends what a membership has to say.
    pub(super) fn say(&mut self, effects: &mut Effects) {
        self.outputs.extend(effects.denied.then_some(Output::Denied));
        let datagrams = effects.datagrams.drain(..).map(|(to, bytes)| Output::Datagram(to, bytes));
        self.outputs.extend(datagrams);
        let by_connection = effects.by_connection.drain(..).map(|(to, bytes)| Output::Gossip(to, bytes));
        self.outputs.extend(by_connection);
    }

    /// Sets a timer for what membership wants to do next, unless there is one.
    fn wake_membership(&mut self) {
        let next = self.membership.next_wake();
        if let Some(at) = next.filter(|at| self.member_at.is_none_or(|set| *at < set.0)) {
            self.cancel(self.member_at);
            self.member_at = Some(self.set(at - self.now, Timer::Member));
        }
    }

    /// Forgets all deaths and seeks: all other members are gone, or this node is cut off and they
    /// hold it for dead. Gossip alone would not reunite the two sides, since each remembers the
    /// other's death.
    fn start_over(&mut self) {
        self.membership.start_over();
        self.announce_all();
    }

    pub(super) fn met(&mut self, member: Member) {
        let Identity { node, zone, .. } = member.identity;
        self.peers.progressed(node, self.now);
        let effects = self.membership.met(member, self.now);
        self.apply(effects);
        if zone != self.me().zone {
            self.contact(member, node);
        }
    }

    /// Notes a sign of life of a node, by whatever way.
    pub(super) fn heard(&mut self, node: NodeId) {
        self.membership.heard(node, self.now);
        if let Some(backbone) = &mut self.outside.backbone {
            backbone.heard(node, self.now);
        }
    }

    /// A gossip datagram.
    pub(super) fn datagram(&mut self, from: SocketAddr, bytes: &[u8]) {
        self.hear_gossip(bytes, |membership, now| membership.datagram(from, bytes, now));
    }

    /// Gossip over a node's connection.
    pub(super) fn gossip(&mut self, from: NodeId, bytes: &[u8]) {
        self.hear_gossip(bytes, |membership, now| membership.gossip(from, bytes, now));
    }

    /// Gossip, to whichever of the two memberships it is for.
    fn hear_gossip(&mut self, bytes: &[u8], hear: impl FnOnce(&mut Membership, Time) -> Effects) {
        let now = self.now;
        match (message::level(bytes), &mut self.outside.backbone) {
            (Some(Level::Zone), _) => {
                let effects = hear(&mut self.membership, now);
                self.apply(effects);
            }
            (Some(Level::Backbone), Some(backbone)) => {
                let before = backbone.records().changes();
                let effects = hear(backbone, now);
                if backbone.records().changes() != before {
                    self.map_outside_soon();
                }
                self.apply_outside(effects);
            }
            (Some(Level::Backbone), None) | (None, _) => {}
        }
    }

    pub(super) fn broken(&mut self, node: NodeId) {
        self.peers.broken(node, self.now);
        self.unpark_for(node);
        self.mapped = u64::MAX;
        let effects = self.membership.suspect(node, self.now);
        self.apply(effects);
        self.suspect_outside(node);
    }

    pub(super) fn misbehaved(&mut self, node: NodeId) {
        self.blame(node);
        self.abandon(node);
    }

    /// The eldest other member, which knows most of the newcomers.
    pub(super) fn eldest(&self) -> Option<Identity> {
        self.membership.live().values().min_by_key(|member| member.age()).copied()
    }

    /// Exchanges snapshots with a partner: what gossip missed, this finds. What the last ones told
    /// is verified before.
    pub(super) fn sync(&mut self) {
        self.verify_some();
        let live = self.membership.live();
        // Of nodes that came together each knows another part; the eldest knows all of them.
        let early = EARLY_SYNCS.get(self.syncs as usize);
        let is_joining = self.joins_since.is_some_and(|since| self.now - since < ANSWERED_WITHIN);
        if let Some(soon) = early.filter(|_| is_joining) {
            // Another question to the same member would only make its answer later.
            self.set(*soon, Timer::Sync);
            return;
        }
        let (eldest, partner) = (self.eldest(), self.membership.partner(self.syncs));
        let chosen = match early {
            Some(_) if live.len() < KNOWN_TO_ONE => eldest,
            // The eldest is beside each newcomer in the order of joins.
            Some(_) if partner == eldest => {
                live.around(self.me().node).find(|member| Some(**member) != eldest).copied()
            }
            _ => partner,
        };
        let misquoted = self.membership.misquoted(self.syncs).filter(|member| Some(*member) != chosen);
        self.outputs.extend(chosen.into_iter().chain(misquoted).map(Output::Sync));
        self.syncs = self.syncs.wrapping_add(1);
        self.set(early.copied().unwrap_or_else(|| self.sync_later()), Timer::Sync);
    }

    /// The interval after the early ones. The eldest has told all that it knows; in a room that is
    /// too large for that, intervals double.
    fn sync_later(&self) -> Duration {
        let longest = self.membership.sync_every();
        if self.membership.live().len() < KNOWN_TO_ONE {
            return longest;
        }
        let first = 2 * EARLY_SYNCS[EARLY_SYNCS.len() - 1];
        Doubling { first, longest }.pause(self.syncs.saturating_sub(EARLY_SYNCS.len() as u32 + 1))
    }

    /// This node joins through a member that knows this latest generation, and answers soon.
    pub(super) fn arrive(&mut self, latest: u64) {
        self.membership.arrive(latest);
        self.joins_since = Some(self.now);
    }

    /// True while so many nodes come that one alone cannot tell each of them of all others.
    pub(super) fn is_crowded(&self) -> bool {
        self.now - self.forming.0 <= config::FORMING_FOR && self.forming.1 as usize > KNOWN_TO_ONE
    }

    /// Forgets the state of departed nodes, and counts anew which peers may be asked again.
    pub(super) fn sweep(&mut self) {
        self.membership.sweep();
        self.verify_some();
        self.sweep_outside();
        let (zone, backbone) = (self.membership.live(), self.outside.backbone.as_ref().map(Membership::live));
        let is_there = |node| zone.contains_key(&node) || backbone.is_some_and(|backbone| backbone.contains_key(&node));
        self.peers.sweep(is_there);
        self.look_at_gateways();
        self.look_at_ways();
        self.look_around();
        self.recount_all();
        self.set(config::SYNC_EVERY, Timer::Sweep);
    }

    fn look_at_ways(&mut self) {
        let first = [self.without_datagrams().next(), self.without_a_way().next()];
        let were_told = std::mem::replace(&mut self.told_of_ways, first.map(|member| member.is_some()));
        let notices: [fn(Identity) -> Notice; 2] = [Notice::NoDatagrams, Notice::NoWay];
        for ((first, was_told), notice) in first.into_iter().zip(were_told).zip(notices) {
            self.outputs.extend(first.filter(|_| !was_told).map(|member| Output::Notice(notice(member))));
        }
    }

    fn verify_some(&mut self) {
        let effects = self.membership.verify_some(self.now);
        self.apply(effects);
    }

    /// Announces that this node is about to leave, or stays after all.
    pub(super) fn leave(&mut self, leaving: bool) {
        if std::mem::replace(&mut self.leaving, leaving) != leaving {
            self.now_goes(leaving);
        }
    }

    /// Has peers ask this node last, and its store fetch no more; or takes that back. It may stay
    /// so for days, so it seeks others and is sought as before.
    pub(super) fn drain(&mut self, drains: bool) {
        if std::mem::replace(&mut self.draining, drains) != drains {
            self.now_goes(drains);
        }
    }

    /// Tells others that this node goes or stays, and does what follows.
    fn now_goes(&mut self, goes: bool) {
        self.announce_all();
        if goes {
            self.image_ids().into_iter().for_each(|id| self.verify_anew(id));
        }
        self.go_on_filling();
    }

    /// True if this node goes, or is drained for that.
    pub(super) const fn goes(&self) -> bool {
        self.leaving || self.draining
    }

    /// Notes whether others can connect to this node. If they cannot, it announces that it has
    /// nothing.
    pub(super) fn reachable(&mut self, reachable: bool) {
        if std::mem::replace(&mut self.unreachable, !reachable) == reachable {
            self.announce_all();
        }
    }

    /// Tells the others another address of this node.
    pub(super) fn readdress(&mut self, addr: SocketAddr) {
        let effects = self.membership.readdress(addr, self.now);
        self.apply(effects);
        if let Some(backbone) = &mut self.outside.backbone {
            let effects = backbone.readdress(addr, self.now);
            self.apply_outside(effects);
        }
    }

    /// True if others may count on what this node holds.
    pub(super) const fn stays(&self) -> bool {
        !self.goes() && !self.unreachable
    }

    pub(super) fn announce_all(&mut self) {
        for id in self.image_ids() {
            self.announce(id);
        }
    }

    pub(super) fn gone(&mut self) {
        self.retire();
        let effects = self.membership.leave(self.now);
        self.apply(effects);
    }

    /// Makes new maps if anything that they are made of has changed.
    pub(super) fn remap(&mut self) {
        let changes = self.membership.records().changes();
        if self.mapped == changes || (self.remap_set && self.mapped != u64::MAX) {
            return;
        }
        self.mapped = changes;
        self.note_unavailable();
        if !std::mem::replace(&mut self.remap_set, true) {
            self.set(REMAP_EVERY, Timer::Remap);
        }
        let (mut reordered, mut leaving) = (false, BTreeSet::new());
        for id in self.image_ids() {
            let Some(mut image) = self.images.remove(&id) else { continue };
            image.classes = self.classes(id);
            let left = image.map.leaving().to_vec();
            self.fill_map(id, &image.classes, &mut image.map);
            leaving.extend(image.map.leaving().iter().copied().filter(|node| !left.contains(node)));
            image.verified.keep(|node| image.map.holding(node).is_some());
            let gateways = self.gateways(id, &image.classes, &image.own_way);
            let turns = gateways != image.gateways && self.now < image.warm_up_until;
            image.gateways = gateways;
            let ends = |node| image.gateways.contains(node);
            let place = |node: &NodeId| self.place_of(&image, *node);
            let staying = image.map.participants().iter().filter(|node| !image.map.is_leaving(**node));
            let chain = Chain::of(staying.filter_map(place), ends);
            reordered |= chain.slow() != image.chain.slow();
            image.chain = chain;
            self.images.insert(id, image);
            if turns {
                self.ask_anew(id);
            }
            self.recount_soon(id);
            self.repair_soon(id);
        }
        // Chunks that wait for a node that leaves may be had from others.
        leaving.into_iter().for_each(|node| self.unpark_for(node));
        if reordered {
            // Others may stand before this node now than those for whose room chunks wait.
            self.unpark_all();
            self.leave_slower();
        }
        self.update_gateway_role();
        self.seek_soon();
        // Chunks that no node had may be available now.
        self.retry_waiting();
    }

    /// Finds the members that announce that nobody should count on them, of any image: they leave,
    /// or others cannot connect to them. A member that has dropped an image announces the same of
    /// that image.
    fn note_unavailable(&mut self) {
        let others = self.membership.live().values().map(|member| member.node);
        let now: BTreeSet<NodeId> = others.filter(|node| self.is_unavailable(*node)).gathered();
        let before = std::mem::replace(&mut self.unavailable, now.clone());
        for node in now.symmetric_difference(&before) {
            self.out(Output::Notice(Notice::Available(*node, !now.contains(node))));
        }
    }

    /// True if a member announces so of all its images.
    fn is_unavailable(&self, node: NodeId) -> bool {
        let said = self.membership.records().of(node);
        !said.is_empty() && said.iter().all(|record| record.leaving)
    }

    /// True if a member announces that it leaves, and others can connect to it.
    pub(super) fn announces_leaving(&self, node: NodeId) -> bool {
        let said = self.membership.records().of(node);
        self.is_unavailable(node) && !said.iter().all(Record::offers_nothing)
    }

    /// Puts into a map what live members, and this node, have said of an image.
    pub(super) fn fill_map(&self, id: ImageId, classes: &Classes, map: &mut Map) {
        let (me, live) = (self.me().node, self.membership.live());
        let arrival = |node| live.get(&node).unwrap_or_else(|| self.me()).arrival();
        let records = self.membership.records();
        let about = || records.iter().filter(|r| r.image() == id && (r.node == me || live.contains_key(&r.node)));
        // A suspect may still be asked, but does not count as a holder.
        let suspects = self.membership.suspects();
        let holding = |r: &Record| Holding {
            node: r.node,
            class: classes.class(r.link()),
            arrival: arrival(r.node),
            arc: r.arc,
            filled: r.filled,
            leaving: r.leaving,
            suspect: suspects.contains_key(&r.node),
        };
        // A member that does not count and has nothing is not asked either.
        let takes_part = |r: &Record| r.node == me || !r.offers_nothing();
        map.update(
            about().filter(|record| !record.origin && takes_part(record)).map(holding),
            about().filter(|record| record.origin && record.node != me).map(|record| record.node),
        );
        map.set_leaving(about().filter(|record| record.leaving).map(|record| record.node));
    }

    /// By how much this node slows its talk down: see [`config::TALK_MEMBERS`].
    pub(super) fn talk(&self) -> u32 {
        self.membership.talk()
    }

    pub(super) fn recount_soon(&mut self, id: ImageId) {
        if let Some(image) = self.images.get_mut(&id)
            && !image.recount_set
        {
            image.recount_set = true;
            let timer = Timer::Recount(image.number);
            self.set(RECOUNT_AFTER, timer);
        }
    }

    /// True unless a node was caught lying, or without chunks that it announced: then its store
    /// does not count.
    pub(super) fn counts(&self, node: NodeId) -> bool {
        self.peers.counts(node, self.now)
    }

    /// True if the stores that count hold all of an image.
    pub(super) fn is_whole(&self, image: &Image) -> bool {
        image.map.is_whole(|node| self.counts(node))
    }

    /// Bans a peer that lied. Chunks that only it announced cannot be had from here meanwhile.
    pub(super) fn blame(&mut self, node: NodeId) {
        let pause = self.peers.lied(node, self.now);
        self.out(Output::Notice(Notice::Blamed(node, pause)));
        self.recount_all();
    }

    /// Counts the coverage of all images anew: a ban or its end may have changed it.
    pub(super) fn recount_all(&mut self) {
        for number in 0..self.numbered.len() {
            self.recount_soon(self.numbered[number]);
        }
    }

    /// Counts whether an image is covered, and reports a change.
    pub(super) fn recount(&mut self, id: ImageId) {
        let Some(image) = self.images.get(&id) else { return };
        let claimed = self.is_whole(image);
        let covered = claimed && self.is_verified(image, 1) && self.dependents_of(image).is_empty();
        let Some(image) = self.images.get_mut(&id) else { return };
        image.recount_set = false;
        let was_claimed = std::mem::replace(&mut image.claimed_whole, claimed);
        let was_covered = std::mem::replace(&mut image.notified_covered, covered);
        if covered != was_covered {
            self.out(Output::Notice(Notice::Coverage(id, covered)));
        }
        if claimed != was_claimed {
            self.seek_soon();
            self.announce_outside();
        }
        self.spot_check_soon(id);
    }
}

//! The backbone: the gateways of all zones, which know each other.
//!
//! The eldest nodes of a zone are its gateways. They are members of the backbone and of their zone.
//! In the backbone each announces the holdings of its zone's stores, as if the zone were one node.
//! All members of a zone compute its gateways from what they know; there is no election. A member
//! that gets nothing from any of them is its own gateway: nobody has to agree to that.

use super::images::Image;
use super::own_way::OwnWay;
use super::{Node, Output, Timer};
use crate::config::SYNC_EVERY_EARLY;
use crate::identity::{Identity, NodeId, Zone};
use crate::image::ImageId;
use crate::membership::message::Level;
use crate::membership::{Effects, Member, Membership};
use crate::placement::map::mix;
use crate::placement::zones::Stock;
use crate::placement::{Arc, Filled, Gateways};
use crate::record::Record;
use crate::signing::Signature;
use crate::speed::Classes;
use std::collections::BTreeSet;
use std::sync::Arc as Shared;
use std::time::Duration;
use vfield_block::gather::Gather as _;

/// How long a former gateway stays in the backbone: while a room is switched on, its gateways
/// change often.
const RETIRE_AFTER: Duration = Duration::from_secs(5);
/// Delay between news of other gateways and new maps of zones. News pours in while a field is
/// switched on; until then chunks follow the old maps.
const MAP_AFTER: Duration = Duration::from_millis(10);
/// Interval at which a gateway that knows no other zone looks for one.
const SEEK_EVERY: Duration = Duration::from_millis(200);
/// Exchanges after which a gateway that looks for others in vain asks the members of its zone too,
/// and one that looks for the gateways of some zones is in no hurry any more. While a room is
/// switched on, members know as little as it does.
const LOST_AFTER: u32 = 16;
/// The first snapshot exchanges of a gateway, each with any other it knows. Each time a gateway
/// knows at least twice as many. Gossip would take longer, and would fill the link of one machine
/// that all ask.
const EARLY_SYNCS: [Duration; 5] = [
    Duration::from_millis(30),
    Duration::from_millis(40),
    Duration::from_millis(50),
    Duration::from_millis(80),
    Duration::from_millis(150),
];

impl Node {
    /// Computes the gateways of an image from the members of the zone and their classes.
    pub(super) fn gateways(&self, id: ImageId, classes: &Classes, own_way: &OwnWay) -> Gateways {
        if !self.is_zoned() {
            return Gateways::default();
        }
        let records =
            || self.membership.records().iter().filter(|record| record.image() == id && !record.offers_nothing());
        let member = |record: &Record| {
            let me = self.me();
            let known = if record.node == me.node { me } else { self.membership.live().get(&record.node)? };
            Some((classes.class(record.link()), known))
        };
        let eldest_of = |(leaving, origin): (bool, bool)| {
            let are_so = records().filter(|record| (record.leaving, record.origin) == (leaving, origin));
            Gateways::eldest(are_so.filter_map(member))
        };
        // Nodes that leave, or give the image up, come last: nobody else has what they hold.
        let mut kinds = [(false, false), (false, true), (true, false), (true, true)].into_iter().map(eldest_of);
        let eldest = kinds.find(|gateways| !gateways.nodes().is_empty()).unwrap_or_default();
        let me = self.me().node;
        let mute = |node: &NodeId| *node != me && self.peers.is_given_up(*node, self.now);
        let are_mute = !eldest.nodes().is_empty() && eldest.nodes().iter().all(mute);
        if are_mute || own_way.replaces(&eldest, self.now) { Gateways::of([me].into_iter()) } else { eldest }
    }

    /// A peer has been given up, or may be tried again: the gateways may be others.
    pub(super) fn look_at_gateways(&mut self) {
        let zoned = self.is_zoned();
        let classes = |id| if zoned { self.classes(id) } else { Classes::default() };
        let differs = |id: &ImageId, image: &Image| self.gateways(*id, &classes(*id), &image.own_way) != image.gateways;
        if self.images.iter().any(|(id, image)| differs(id, image)) {
            self.mapped = u64::MAX;
        }
    }

    /// Becomes a gateway, or ceases to be one, and says in the backbone what the zone has.
    pub(super) fn update_gateway_role(&mut self) {
        let me = *self.me();
        // A newcomer that heard of others in its zone has to know them first, or a whole room would
        // be gateways.
        let knows = |image: &Image| {
            let settled = self.now >= image.warm_up_until || self.before_us(image.subject.image) < Gateways::COUNT;
            !self.outside.has_fellows || (self.now >= image.gateway_from && settled)
        };
        let is_gateway = |image: &Image| image.gateways.contains(me.node) && knows(image);
        let called = self.images.values().any(|image| is_gateway(image)) && !self.leaving;
        match (&self.outside.backbone, called) {
            (None, true) => {
                let mut backbone = Membership::new(Level::Backbone, me, Shared::clone(&self.keys), self.now);
                // It knows nobody yet, so nobody is dropped.
                backbone.admit(Shared::clone(&self.admission), self.now);
                if let Some(farewell) = self.outside.farewell {
                    backbone.return_after(farewell);
                }
                self.outside.backbone = Some(backbone);
                (self.outside.idle_since, self.outside.syncs) = (None, 0);
                self.seek_outside();
            }
            (Some(_), true) => self.outside.idle_since = None,
            (Some(_), false) => {
                let since = self.outside.idle_since;
                if since.is_some_and(|since| self.now - since >= RETIRE_AFTER) || self.leaving {
                    self.retire();
                } else if since.is_none() {
                    self.outside.idle_since = Some(self.now);
                    self.set(RETIRE_AFTER, Timer::GatewayRole);
                }
            }
            (None, false) => {}
        }
        self.announce_outside();
        self.map_outside();
    }

    /// Nodes of the zone that are older than this node and take part in an image, or may. While a
    /// room is switched on, this node may not have heard their records yet.
    fn before_us(&self, id: ImageId) -> usize {
        let mine = self.me().age();
        let may_take_part = |member: &&Identity| {
            let records = self.membership.records().of(member.node);
            records.is_empty() || records.iter().any(|record| record.image() == id && !record.origin && !record.leaving)
        };
        self.membership.live().values().filter(|member| member.age() < mine).filter(may_take_part).count()
    }

    /// Exchanges snapshots with the eldest node once more before this node decides whether it is a
    /// gateway. While a room is switched on, all newcomers ask the eldest first, so it knows most.
    pub(super) fn gather(&mut self) {
        self.outputs.extend(self.eldest().map(Output::Sync));
    }

    /// Leaves the backbone.
    pub(super) fn retire(&mut self) {
        let Some(mut backbone) = self.outside.backbone.take() else { return };
        let me = self.me().node;
        let members: Vec<Member> = backbone.statements().copied().collect();
        self.outside.farewell = Some(backbone.myself().life());
        let mut effects = backbone.leave(self.now);
        self.say(&mut effects);
        for gateway in members {
            self.contact(gateway, me);
            self.gone_outside(gateway.identity.node);
        }
    }

    /// Says for each image what this zone has, if that has changed.
    pub(super) fn announce_outside(&mut self) {
        let Some(backbone) = &self.outside.backbone else { return };
        let (me, mut news) = (*self.me(), Vec::new());
        let version = me.generation + self.outside.version;
        for (id, image) in self.images.iter().filter(|(_, image)| image.gateways.contains(me.node)) {
            let size = image.map.ring().size();
            let whole = if image.claimed_whole { size } else { 0 };
            let origin = image.origin || !image.map.origins().is_empty();
            let (arc, filled) = (Arc { start: 0, length: whole }, Filled { from: 0, count: whole });
            let known = backbone.records().get(&crate::record::RecordKey { node: me.node, image: *id });
            if known.is_none_or(|known| known.leaving || (known.arc, known.origin) != (arc, origin)) {
                news.push(Record {
                    node: me.node,
                    version,
                    progress: 0,
                    subject: Shared::clone(&image.subject),
                    origin,
                    arc,
                    filled,
                    leaving: false,
                    signature: Signature::default(),
                });
            }
        }
        // Others are not to ask it for this zone any more, though it stays in the backbone for a
        // while.
        let is_gateway = |image: &ImageId| self.images.get(image).is_some_and(|image| image.gateways.contains(me.node));
        let mine = backbone.records().iter().filter(|record| record.node == me.node && !record.leaving);
        let gone = mine.filter(|record| !is_gateway(&record.image())).cloned();
        news.extend(gone.map(|record| Record { version, leaving: true, ..record }));
        self.outside.version += u64::from(!news.is_empty());
        for record in news {
            let Some(backbone) = &mut self.outside.backbone else { return };
            let effects = backbone.announce(record, self.now);
            self.apply_outside(effects);
        }
    }

    /// Schedules new maps of zones; while a field is switched on, gateways come with each message.
    pub(super) fn map_outside_soon(&mut self) {
        if !std::mem::replace(&mut self.outside.map_set, true) {
            self.set(MAP_AFTER, Timer::MapOutside);
        }
    }

    /// Other gateways have come, or have said something.
    pub(super) fn remap_outside(&mut self) {
        self.outside.map_set = false;
        self.map_outside();
        // Chunks that no node had may be available now.
        self.retry_waiting();
    }

    /// Makes new maps of zones.
    fn map_outside(&mut self) {
        let Some(backbone) = &self.outside.backbone else { return };
        let me = *self.me();
        for (id, image) in &mut self.images {
            let records = backbone.records().iter().filter(|record| record.image() == *id && !record.leaving);
            let said = records.filter_map(|record| {
                let gateway = if record.node == me.node { &me } else { backbone.live().get(&record.node)? };
                Some((gateway.zone, gateway.node, Stock { whole: record.arc.length > 0, origin: record.origin }))
            });
            image.outside.update(me.zone, said);
        }
    }

    /// Carries out the effects of the backbone.
    pub(super) fn apply_outside(&mut self, mut effects: Effects) {
        self.say(&mut effects);
        for gateway in effects.up {
            self.map_outside_soon();
            let said = self.outside.backbone.as_ref().and_then(|backbone| backbone.statement(gateway.node)).copied();
            if let Some(said) = said.filter(|_| gateway.zone == self.me().zone) {
                // The backbone itself vouches for this gateway.
                self.contact(said, self.me().node);
            }
        }
        self.have_moved(effects.moved);
        if !effects.down.is_empty() {
            self.seek_again();
        }
        for gateway in effects.down.into_iter().map(|departed| departed.identity) {
            self.gone_outside(gateway.node);
            self.outside.contacts.remove(gateway.zone, gateway.node);
        }
        if let Some(rival) = effects.rival {
            self.rival(rival);
        }
        let next = self.outside.backbone.as_ref().and_then(Membership::next_wake);
        if let Some(at) = next.filter(|at| self.outside.woken_at.is_none_or(|set| *at < set.0)) {
            self.cancel(self.outside.woken_at);
            self.outside.woken_at = Some(self.set(at - self.now, Timer::Backbone));
        }
        self.hear_tags(effects.tags);
    }

    fn gone_outside(&mut self, gateway: NodeId) {
        self.map_outside_soon();
        if !self.membership.live().contains_key(&gateway) {
            self.abandon(gateway);
            self.peers.forget(gateway);
        }
    }

    /// Forgets what gateways that are gone have said.
    pub(super) fn sweep_outside(&mut self) {
        if let Some(backbone) = &mut self.outside.backbone {
            backbone.sweep();
            let effects = backbone.verify_some(self.now);
            self.apply_outside(effects);
        }
    }

    /// A node cannot be reached, or its connection broke.
    pub(super) fn suspect_outside(&mut self, node: NodeId) {
        if let Some(backbone) = &mut self.outside.backbone {
            let effects = backbone.suspect(node, self.now);
            self.apply_outside(effects);
        }
    }

    /// Does everything that is due in the backbone.
    pub(super) fn wake_outside(&mut self) {
        self.outside.woken_at = None;
        let now = self.now;
        if let Some(backbone) = &mut self.outside.backbone {
            let effects = backbone.tick(now);
            self.apply_outside(effects);
        }
    }

    /// Exchanges snapshots with other gateways: at once with some, then with all of them now and
    /// then.
    pub(super) fn seek_outside(&mut self) {
        let Some(backbone) = &self.outside.backbone else { return };
        let (zone, syncs) = (self.me().zone, self.outside.syncs);
        let early = EARLY_SYNCS.get(syncs as usize).copied();
        // Most zones have the same contacts, so each begins with another one.
        let drawn = mix(self.me().node.0);
        let (chosen, wait) = match early {
            Some(early) if !self.outside.is_alone(zone) => {
                let around = NodeId(mix(drawn.wrapping_add(syncs.into())));
                (backbone.live().around(around).next().copied(), early)
            }
            _ if !self.outside.has_met_another(zone) => {
                (self.contact_in_turn(drawn, syncs), early.unwrap_or(SEEK_EVERY))
            }
            _ => {
                let unreached = self.unreached();
                let turn = (syncs as usize / 2) % unreached.len().max(1);
                let contact = unreached.get(turn).copied().filter(|_| syncs.is_multiple_of(2));
                let hurries = !unreached.is_empty() && syncs < LOST_AFTER;
                let wait = if hurries { SYNC_EVERY_EARLY } else { backbone.sync_every() };
                (contact.or_else(|| backbone.partner(syncs)), wait)
            }
        };
        (self.outside.syncs, self.outside.has_followed) = (syncs.wrapping_add(1), false);
        self.outputs.extend(chosen.map(Output::Sync));
        self.outside.seeks = Some(self.set(wait, Timer::SeekOutside));
    }

    /// The contacts in zones of which no gateway is known, those that have spoken first. The
    /// backbone may have come up in two parts, each of them content with itself.
    fn unreached(&self) -> Vec<Identity> {
        let live = self.outside.backbone.iter().flat_map(|backbone| backbone.live().values());
        let reached: BTreeSet<Zone> = live.map(|gateway| gateway.zone).gathered();
        let contacts = self.outside.contacts.spoken_first();
        contacts.map(|contact| contact.identity).filter(|contact| !reached.contains(&contact.zone)).collect()
    }

    /// The last gateway of another zone that had spoken to this one may be gone: looks for others
    /// soon, although it has just looked.
    fn seek_again(&mut self) {
        let (zone, soon) = (self.me().zone, self.now + SEEK_EVERY);
        if self.outside.seeks.is_some_and(|set| set.0 > soon) && !self.outside.has_met_another(zone) {
            self.cancel(self.outside.seeks);
            self.outside.seeks = Some(self.set(SEEK_EVERY, Timer::SeekOutside));
        }
    }

    /// One of the known contacts, beginning with the `first`. Some have left the backbone, and some
    /// may be made up. So those that have spoken to this node and all of them take turns. If that
    /// does not help, the members of its zone do too, who may know others. An origin is last of its
    /// kind: all know it, and its link is to carry chunks.
    fn contact_in_turn(&self, first: u64, turn: u32) -> Option<Identity> {
        let (contacts, of) = (&self.outside.contacts, |contact: &Member| contact.identity);
        let is_origin = |node| self.outside.images.values().any(|record| record.origin && record.node == node);
        let in_order = |known: Vec<Identity>| {
            let (origins, mut known): (Vec<Identity>, Vec<_>) = known.into_iter().partition(|it| is_origin(it.node));
            let start = first as usize % known.len().max(1);
            known.rotate_left(start);
            known.extend(origins);
            known
        };
        let spoken = contacts.spoken().map(of).filter(|known| !is_origin(known.node)).collect();
        let all = contacts.iter().chain(self.fellows()).map(of).collect();
        let is_lost = turn >= LOST_AFTER;
        let zone = self.membership.live().values().copied().filter(|_| is_lost).collect();
        let kinds = [spoken, all, zone].map(in_order);
        let kinds: Vec<&Vec<Identity>> = kinds.iter().filter(|known| !known.is_empty()).collect();
        let turn = turn as usize;
        let kind = kinds.get(turn % kinds.len().max(1))?;
        kind.get(turn / kinds.len() % kind.len()).copied()
    }
}

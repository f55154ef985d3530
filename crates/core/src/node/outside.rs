//! Beyond the zone: the gateways of all zones, who know each other, and the way to them for all others.
//!
//! A node knows every member of its own zone, and of other zones only a few contacts. The eldest nodes of a zone are its
//! gateways. Those are members of the backbone as well, where each says for its zone what the zone's stores
//! hold, as if the zone were one node. Who is a gateway follows from what all members of a zone know; nobody is asked.

use super::images::Image;
use super::{Node, Output, Timer, TimerKey};
use crate::few::Few;
use crate::identity::{Identity, NodeId, Zone};
use crate::image::ImageId;
use crate::membership::message::{self, Level};
use crate::membership::{Effects, Member, Membership, State};
use crate::placement::map::mix;
use crate::placement::zones::Stock;
use crate::placement::{Arc, Filled, Gateways};
use crate::record::Record;
use crate::snapshot::Snapshot;
use crate::time::Time;
use std::collections::BTreeMap;
use std::sync::Arc as Shared;
use std::time::Duration;

/// So many contacts are remembered in each of so many zones, the eldest and those that came last. Whoever comes is told of
/// those in its own zone, so that all find each other who are switched on at once.
const CONTACTS: usize = 3;
const CONTACT_ZONES_MAX: usize = 4096;
/// So many gateways of other zones are told to those who are not gateways.
const TOLD: usize = 8;
/// The same for who comes from another zone and is told of some of its own, from whom it will hear the rest: a whole field that
/// is switched on may ask one machine first, whose link is to carry chunks soon.
const TOLD_BESIDES: usize = 2;
/// So many images are remembered that only other zones have.
const IMAGES_MAX: usize = 1024;
/// A gateway that is one no more stays in the backbone for so long: a room that is switched on changes its mind often.
const RETIRE_AFTER: Duration = Duration::from_secs(5);
/// The maps of zones are made anew so long after news of other gateways, which pours in while a field is switched on: for that
/// long chunks go by the maps of before.
const MAP_AFTER: Duration = Duration::from_millis(10);
/// How often a gateway that knows no other zone looks for one.
const SEEK_EVERY: Duration = Duration::from_millis(200);
/// When gateways compare notes at first, each with any that it knows: with each time a gateway knows twice as many at least, and
/// all do so at once, while gossip would take turns and one machine that is asked by all would have its link full.
const EARLY_SYNCS: [Duration; 5] = [
    Duration::from_millis(30),
    Duration::from_millis(40),
    Duration::from_millis(50),
    Duration::from_millis(80),
    Duration::from_millis(150),
];

/// What a node knows beyond its zone.
#[derive(Default)]
pub(super) struct Outside {
    pub backbone: Option<Membership>,
    contacts: BTreeMap<Zone, Few<Identity>>,
    /// Images as other zones have them, any record of each.
    images: BTreeMap<ImageId, Record>,
    /// When the backbone is going to be woken.
    pub woken_at: Option<Time>,
    /// The timer of the next comparing of notes.
    pub seeks: Option<TimerKey>,
    /// See [`Node::follow`].
    has_followed: bool,
    /// Others of this zone are there.
    has_fellows: bool,
    /// The maps of zones are going to be made anew.
    map_set: bool,
    /// Since when this node is a gateway no more.
    idle_since: Option<Time>,
    syncs: u32,
    version: u64,
}

impl Outside {
    /// How many nodes of other zones are remembered.
    pub fn contacts(&self) -> usize {
        self.contacts.values().map(|contacts| contacts.len()).sum()
    }

    /// True for a gateway that knows none of another zone than `zone`, its own, whose gateways may know each other and nobody else.
    fn is_alone(&self, zone: Zone) -> bool {
        self.backbone.as_ref().is_some_and(|backbone| backbone.live().values().all(|gateway| gateway.zone == zone))
    }

    /// The other zones in which it has heard of somebody.
    pub fn zones(&self) -> impl Iterator<Item = Zone> + '_ {
        self.contacts.iter().filter(|(_, contacts)| !contacts.is_empty()).map(|(zone, _)| *zone)
    }
}

impl Node {
    /// A node of the field that can be asked for something.
    pub(super) fn identity_of(&self, node: NodeId) -> Option<&Identity> {
        let outside = || self.outside.backbone.as_ref().and_then(|backbone| backbone.live().get(&node));
        self.membership.live().get(&node).or_else(outside)
    }

    /// True in a field of zones.
    pub(super) fn is_zoned(&self) -> bool {
        self.me().zone != Zone::default() || !self.outside.contacts.is_empty()
    }

    /// The other gateways of its zone, for any image.
    fn fellows(&self) -> impl Iterator<Item = &Identity> {
        let gateways = self.images.values().flat_map(|image| image.gateways.nodes());
        gateways.filter_map(|node| self.membership.live().get(node))
    }

    /// What to tell a node that we meet.
    pub fn snapshot(&self, to: &Identity) -> Snapshot {
        let (members, records) = self.membership.snapshot();
        let theirs = self.outside.contacts.get(&to.zone).into_iter().flatten();
        let mut snapshot = Snapshot { members, records, ..Snapshot::default() };
        let same_zone = to.zone == self.me().zone;
        match &self.outside.backbone {
            Some(backbone) if backbone.live().contains_key(&to.node) => {
                (snapshot.gateways, snapshot.outside) = backbone.snapshot();
                snapshot.backbone = true;
            }
            Some(backbone) => {
                let live = backbone.live();
                let near: Vec<Identity> = if same_zone {
                    self.fellows().copied().collect()
                } else {
                    // Who stands for its zone lives; contacts may be dead.
                    let mut near: Vec<Identity> = live.values().filter(|near| near.zone == to.zone).copied().collect();
                    near.sort_unstable_by_key(Identity::age);
                    for contact in theirs {
                        if near.iter().all(|known| known.node != contact.node) {
                            near.push(*contact);
                        }
                    }
                    near.truncate(CONTACTS);
                    near
                };
                let told = if same_zone || near.is_empty() { TOLD } else { TOLD_BESIDES };
                // Each is told of others.
                let far = live.around(to.node).filter(|gateway| gateway.zone != to.zone).take(told);
                let others = near.iter().chain(far).filter(|gateway| gateway.node != to.node);
                snapshot.gateways.push(backbone.myself());
                snapshot.gateways.extend(others.map(alive));
            }
            None => {
                let mine = self.fellows().filter(|_| !same_zone);
                let others = self.outside.contacts.values().flatten().take(TOLD);
                snapshot.gateways.extend(theirs.chain(mine).chain(others).map(alive));
            }
        }
        if !same_zone {
            snapshot.members.truncate(1);
            snapshot.records.clear();
        }
        if !same_zone && !snapshot.backbone {
            let images: BTreeMap<ImageId, &Record> =
                self.known_records().map(|record| (record.image(), record)).collect();
            snapshot.outside = images.into_values().cloned().collect();
        }
        snapshot
    }

    /// What is known of images, of whatever zone; origins last.
    fn known_records(&self) -> impl Iterator<Item = &Record> {
        let (origins, others): (Vec<&Record>, Vec<&Record>) =
            self.membership.records().iter().partition(|record| record.origin);
        self.outside.images.values().chain(others).chain(origins)
    }

    /// One record of each image that is known in the field.
    pub fn known_images(&self) -> Vec<Record> {
        let images: BTreeMap<ImageId, &Record> = self.known_records().map(|record| (record.image(), record)).collect();
        images.into_values().cloned().collect()
    }

    /// Takes in what another node told us.
    pub(super) fn learned(&mut self, snapshot: Snapshot) {
        let Snapshot { members, records, gateways, outside, backbone: among_gateways } = snapshot;
        let me = *self.me();
        // Who does not say who it is, is a guest.
        let from = members.first().map(|member| member.identity);
        if from.is_none_or(|from| from.zone == me.zone) {
            let effects = self.membership.learn(members, records, self.now);
            self.apply(effects);
        }
        let room = IMAGES_MAX.saturating_sub(self.outside.images.len());
        let sound =
            outside.iter().filter(|record| record.is_sound() && !self.outside.images.contains_key(&record.image()));
        let new: Vec<Record> = sound.take(room).cloned().collect();
        self.outside.images.extend(new.into_iter().map(|record| (record.image(), record)));
        let mut seen: Vec<Identity> =
            gateways.iter().filter(|member| member.state.is_live()).map(|member| member.identity).collect();
        let Some(from) = from else { return };
        seen.push(from);
        let is_gateway = gateways.iter().any(|member| member.identity.node == from.node);
        if let Some(backbone) = self.outside.backbone.as_mut().filter(|_| is_gateway) {
            let mut effects = backbone.met(from, self.now);
            if among_gateways {
                effects.add(backbone.learn(gateways.clone(), outside, self.now));
                self.map_outside_soon();
            }
            self.apply_outside(effects);
        }
        let others = gateways.iter().map(|member| member.identity);
        self.follow(others.filter(|gateway| gateway.node != from.node).find(|gateway| gateway.zone != me.zone));
        // What the backbone knows need not be known twice.
        for identity in seen.into_iter().filter(|seen| !among_gateways || seen.zone == me.zone) {
            self.contact(identity);
        }
    }

    /// Whoever has just come to stand for its zone is told of the gateways of another by any node there, and asks one of them at
    /// once; once for each time that it compares notes of its own accord.
    fn follow(&mut self, gateway: Option<Identity>) {
        if self.outside.is_alone(self.me().zone) && !self.outside.has_followed {
            self.outside.has_followed = true;
            self.outputs.extend(gateway.map(Output::Sync));
        }
    }

    /// Remembers a node beyond those that membership knows; one of this node's own zone is met.
    pub(super) fn contact(&mut self, identity: Identity) {
        let me = *self.me();
        if identity.node == me.node || identity.addr == me.addr {
            return;
        }
        if identity.zone == me.zone {
            self.outside.has_fellows = true;
            if !self.membership.knows(identity.node) {
                self.out(Output::Sync(identity));
            }
            return;
        }
        let zones = self.outside.contacts.len();
        if zones >= CONTACT_ZONES_MAX && !self.outside.contacts.contains_key(&identity.zone) {
            return;
        }
        let contacts = self.outside.contacts.entry(identity.zone).or_default();
        if !contacts.iter().any(|known| known.node == identity.node) {
            // The eldest stays: all who come are told of that one, which so knows all of its zone.
            contacts.push(identity);
            if contacts.len() > CONTACTS {
                let is_eldest = contacts.iter().skip(1).all(|contact| contacts[0].age() < contact.age());
                let former = contacts[usize::from(is_eldest)].node;
                contacts.retain(|contact| contact.node != former);
            }
            if zones == 0 {
                self.mapped = u64::MAX;
            }
        }
    }

    /// Decides who the gateways of an image are, from what all members of the zone know.
    pub(super) fn gateways(&self, id: ImageId) -> Gateways {
        if !self.is_zoned() {
            return Gateways::default();
        }
        let records = || self.membership.records().iter().filter(|record| record.image() == id && !record.leaving);
        let member = |record: &Record| {
            let me = self.me();
            if record.node == me.node { Some(me) } else { self.membership.live().get(&record.node) }
        };
        let readers = Gateways::eldest(records().filter(|record| !record.origin).filter_map(member));
        if readers.nodes().is_empty() { Gateways::eldest(records().filter_map(member)) } else { readers }
    }

    /// Becomes a gateway, or ceases to be one, and says in the backbone what the zone has.
    pub(super) fn stand(&mut self) {
        let me = *self.me();
        // Who has just come and was told of others of its zone is to know them first, or a whole room would stand.
        let knows = |image: &Image| {
            let settled = self.now >= image.young_until || self.before_us(image.subject.image) < Gateways::COUNT;
            !self.outside.has_fellows || (self.now >= image.stands_from && settled)
        };
        let is_gateway = |image: &Image| image.gateways.contains(me.node) && knows(image);
        let called = self.images.values().any(|image| is_gateway(image)) && !self.leaving;
        match (&self.outside.backbone, called) {
            (None, true) => {
                self.outside.backbone = Some(Membership::new(Level::Backbone, me, self.now));
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
                    self.set(RETIRE_AFTER, Timer::Stand);
                }
            }
            (None, false) => {}
        }
        self.announce_outside();
        self.map_outside();
    }

    /// How many of the zone are older than this node and take part in an image, or may: while a room is switched on, it may not
    /// have heard yet what they say.
    fn before_us(&self, id: ImageId) -> usize {
        let mine = self.me().age();
        let may_take_part = |member: &&Identity| {
            let records = self.membership.records().of(member.node);
            records.is_empty() || records.iter().any(|record| record.image() == id && !record.origin && !record.leaving)
        };
        self.membership.live().values().filter(|member| member.age() < mine).filter(may_take_part).count()
    }

    /// While a room is switched on the eldest is whom all who come ask first, so it knows most: it is asked once more before this
    /// node stands for its zone, or does not.
    pub(super) fn gather(&mut self) {
        self.outputs.extend(self.eldest().map(Output::Sync));
    }

    /// Leaves the backbone.
    pub(super) fn retire(&mut self) {
        let Some(mut backbone) = self.outside.backbone.take() else { return };
        let members: Vec<Identity> = backbone.live().values().copied().collect();
        let effects = backbone.leave(self.now);
        self.outputs.extend(effects.datagrams.into_iter().map(|(to, bytes)| Output::Datagram(to, bytes)));
        for gateway in members {
            self.contact(gateway);
            self.gone_outside(gateway.node);
        }
    }

    /// Says for each image what this zone has, if that has changed.
    pub(super) fn announce_outside(&mut self) {
        let Some(backbone) = &self.outside.backbone else { return };
        let (me, mut news) = (*self.me(), Vec::new());
        let version = me.generation + self.outside.version;
        for (id, image) in self.images.iter().filter(|(_, image)| image.gateways.contains(me.node)) {
            let size = image.map.ring().size();
            let whole = if image.told_covered { size } else { 0 };
            let origin = image.origin || !image.map.origins().is_empty();
            let (arc, filled) = (Arc { start: 0, length: whole }, Filled { from: 0, count: whole });
            let known = backbone.records().get(&crate::record::RecordKey { node: me.node, image: *id });
            if known.is_none_or(|known| known.leaving || (known.arc, known.origin) != (arc, origin)) {
                news.push(Record {
                    node: me.node,
                    version,
                    subject: Shared::clone(&image.subject),
                    origin,
                    arc,
                    filled,
                    leaving: false,
                });
            }
        }
        // Others are not to ask it for this zone any more, though it stays in the backbone for a while.
        let stands = |image: &ImageId| self.images.get(image).is_some_and(|image| image.gateways.contains(me.node));
        let mine = backbone.records().iter().filter(|record| record.node == me.node && !record.leaving);
        let gone = mine.filter(|record| !stands(&record.image())).cloned();
        news.extend(gone.map(|record| Record { version, leaving: true, ..record }));
        self.outside.version += u64::from(!news.is_empty());
        for record in news {
            let Some(backbone) = &mut self.outside.backbone else { return };
            let effects = backbone.announce(record, self.now);
            self.apply_outside(effects);
        }
    }

    /// Makes the maps of zones anew before long: while a field is switched on, gateways come with each message.
    fn map_outside_soon(&mut self) {
        if !std::mem::replace(&mut self.outside.map_set, true) {
            self.set(MAP_AFTER, Timer::MapOutside);
        }
    }

    /// Other gateways have come, or have said something.
    pub(super) fn remap_outside(&mut self) {
        self.outside.map_set = false;
        self.map_outside();
        // Somebody may have now what nobody had.
        self.retry_waiting();
    }

    /// Makes the maps of zones anew.
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

    /// Does what the backbone asks for.
    pub(super) fn apply_outside(&mut self, effects: Effects) {
        self.outputs.extend(effects.datagrams.into_iter().map(|(to, bytes)| Output::Datagram(to, bytes)));
        for gateway in effects.up {
            self.map_outside_soon();
            if gateway.zone == self.me().zone {
                self.contact(gateway);
            }
        }
        for gateway in effects.down {
            self.gone_outside(gateway.node);
            if let Some(contacts) = self.outside.contacts.get_mut(&gateway.zone) {
                contacts.retain(|contact| contact.node != gateway.node);
            }
        }
        let next = self.outside.backbone.as_ref().and_then(Membership::next_wake);
        if let Some(at) = next.filter(|at| self.outside.woken_at.is_none_or(|set| *at < set)) {
            self.outside.woken_at = Some(self.set(at - self.now, Timer::Backbone).0);
        }
    }

    fn gone_outside(&mut self, gateway: NodeId) {
        self.map_outside_soon();
        if !self.membership.live().contains_key(&gateway) {
            self.abandon(gateway);
            self.peers.forget(gateway);
        }
    }

    /// Something came from a node, by whatever way.
    pub(super) fn heard(&mut self, node: NodeId) {
        self.membership.heard(node, self.now);
        if let Some(backbone) = &mut self.outside.backbone {
            backbone.heard(node, self.now);
        }
    }

    /// Forgets what gateways that are gone have said.
    pub(super) fn sweep_outside(&mut self) {
        if let Some(backbone) = &mut self.outside.backbone {
            backbone.sweep();
        }
    }

    /// A node cannot be reached, or its connection broke.
    pub(super) fn suspect_outside(&mut self, node: NodeId) {
        if let Some(backbone) = &mut self.outside.backbone {
            let effects = backbone.suspect(node, self.now);
            self.apply_outside(effects);
        }
    }

    /// Does what is due in the backbone.
    pub(super) fn wake_outside(&mut self) {
        self.outside.woken_at = None;
        let now = self.now;
        if let Some(backbone) = &mut self.outside.backbone {
            let effects = backbone.tick(now);
            self.apply_outside(effects);
        }
    }

    /// A gossip datagram, to whichever of the two memberships it is for.
    pub(super) fn datagram(&mut self, bytes: &[u8]) {
        let now = self.now;
        match (message::level(bytes), &mut self.outside.backbone) {
            (Some(Level::Zone), _) => {
                let effects = self.membership.datagram(bytes, now);
                self.apply(effects);
            }
            (Some(Level::Backbone), Some(backbone)) => {
                let before = backbone.records().changes();
                let effects = backbone.datagram(bytes, now);
                if backbone.records().changes() != before {
                    self.map_outside_soon();
                }
                self.apply_outside(effects);
            }
            (Some(Level::Backbone), None) | (None, _) => {}
        }
    }

    /// Compares notes with other gateways: at once with some, then with all of them now and then.
    pub(super) fn seek_outside(&mut self) {
        let Some(backbone) = &self.outside.backbone else { return };
        self.outside.has_followed = false;
        let syncs = self.outside.syncs;
        self.outside.syncs = syncs.wrapping_add(1);
        let (early, alone) = (EARLY_SYNCS.get(syncs as usize).copied(), self.outside.is_alone(self.me().zone));
        // All zones have the same contacts, mostly: each begins with another of them.
        let drawn = mix(self.me().node.0);
        let chosen = if alone {
            // Not all who are known stand in the backbone: each has its turn, an origin last. All have heard of it, and its
            // link is to carry chunks.
            let contacts = self.outside.contacts.values().flatten().chain(self.fellows());
            let is_origin = |node| self.outside.images.values().any(|record| record.origin && record.node == node);
            let (origins, mut known): (Vec<Identity>, Vec<Identity>) =
                contacts.partition(|known| is_origin(known.node));
            let first = drawn as usize % known.len().max(1);
            known.rotate_left(first);
            let known: Vec<Identity> = known.into_iter().chain(origins).collect();
            known.get(syncs as usize % known.len().max(1)).copied()
        } else if early.is_some() {
            backbone.live().around(NodeId(mix(drawn.wrapping_add(syncs.into())))).next().copied()
        } else {
            backbone.partner(syncs)
        };
        self.outputs.extend(chosen.map(Output::Sync));
        let later = if alone { SEEK_EVERY } else { backbone.sync_every() };
        let every = early.unwrap_or(later);
        self.outside.seeks = Some(self.set(every, Timer::SeekOutside));
    }
}

fn alive(identity: &Identity) -> Member {
    Member { identity: *identity, incarnation: 0, state: State::Alive }
}

//! Beyond the zone: what a node knows of other zones, and what newcomers hear of them.
//!
//! A node knows every member of its own zone, and a few contacts of each other zone.
//! [`super::backbone`] is about the gateways of all zones among themselves.

use super::contacts::{self, Contacts};
use super::field::KNOWN_TO_ONE;
use super::hearsay::{Hearsay, NAMED_MAX};
use super::{Node, Output, TimerKey};
use crate::config::SYNC_EVERY;
use crate::identity::{Identity, NodeId, Zone};
use crate::membership::{Member, Membership};
use crate::record::{Record, Subject};
use crate::snapshot::{Known, Snapshot};
use crate::time::Time;
use std::collections::BTreeMap;
use std::sync::Arc as Shared;

/// Most nodes that are asked because of their questions, within [`SYNC_EVERY`]. Their answers may
/// have a mebibyte each, and gossip tells the rest.
const ASKED_BACK_MAX: usize = 32;
/// Gateways of other zones that a node hears of if it is not a gateway.
const GATEWAYS_NAMED: usize = 8;
/// The same for a newcomer of another zone that hears of contacts in its own, which tell it the
/// rest. A whole field that is switched on may ask one machine first, whose link is soon to carry
/// chunks.
const GATEWAYS_NAMED_AFAR: usize = 2;

/// The state of a node beyond its zone.
#[derive(Default)]
pub(super) struct Outside {
    pub backbone: Option<Membership>,
    pub contacts: Contacts,
    /// Images as other zones have them, any record of each subject.
    pub images: BTreeMap<Shared<Subject>, Record>,
    /// The timer at which the backbone is due next.
    pub woken_at: Option<TimerKey>,
    /// The timer of the next exchange of snapshots.
    pub seeks: Option<TimerKey>,
    /// True once the node has followed a gateway; see [`Node::follow`].
    pub has_followed: bool,
    /// Others of this zone are there.
    pub has_fellows: bool,
    /// True if new maps of zones are scheduled.
    pub map_set: bool,
    /// The life with which this node left the backbone, if it did.
    pub farewell: Option<(u64, u32)>,
    /// Since when this node is a gateway no more.
    pub idle_since: Option<Time>,
    /// Snapshot exchanges that this node began.
    pub syncs: u32,
    /// The version of its records about its zone.
    pub version: u64,
    /// The bound on dials that others caused.
    pub hearsay: Hearsay,
    /// When nodes were last asked because of their questions.
    pub asked_back: BTreeMap<NodeId, Time>,
}

impl Outside {
    /// True if this node may ask one that asked it. Two that do not agree on a member would ask
    /// each other all the time.
    fn may_ask_back(&mut self, node: NodeId, now: Time) -> bool {
        self.asked_back.retain(|_, at| now - *at < SYNC_EVERY);
        let may = self.asked_back.len() < ASKED_BACK_MAX && !self.asked_back.contains_key(&node);
        if may {
            self.asked_back.insert(node, now);
        }
        may
    }

    /// True for a gateway that knows no node outside `zone`, its own. Gateways of one zone may know
    /// only each other.
    pub fn is_alone(&self, zone: Zone) -> bool {
        self.backbone.as_ref().is_some_and(|backbone| backbone.live().values().all(|gateway| gateway.zone == zone))
    }

    /// True if a live gateway outside `zone`, this node's own, has spoken to it. Others may be made
    /// up.
    pub fn has_met_another(&self, zone: Zone) -> bool {
        let has_met =
            |backbone: &Membership, gateway: &Identity| gateway.zone != zone && backbone.has_met(gateway.node);
        self.backbone.as_ref().is_some_and(|backbone| backbone.live().values().any(|it| has_met(backbone, it)))
    }
}

impl Node {
    /// The identity of any known node that can be asked.
    pub(super) fn identity_of(&self, node: NodeId) -> Option<&Identity> {
        let outside = || self.outside.backbone.as_ref().and_then(|backbone| backbone.live().get(&node));
        self.membership.live().get(&node).or_else(outside)
    }

    /// True in a field of zones.
    pub(super) fn is_zoned(&self) -> bool {
        self.me().zone != Zone::default() || self.outside.contacts.had_any()
    }

    /// The other gateways of its zone, for any image.
    pub(super) fn fellows(&self) -> impl Iterator<Item = &Member> {
        let gateways = self.images.values().flat_map(|image| image.gateways.nodes());
        gateways.filter_map(|node| self.membership.statement(*node))
    }

    /// The snapshot that asks another node for its own: this node's statements about itself, and
    /// which others it knows.
    pub fn question(&self, to: &Identity) -> Snapshot {
        let (members, records) = (vec![*self.membership.myself()], self.membership.records().of(self.me().node));
        let known = if to.zone == self.me().zone { self.membership.known() } else { Vec::new() };
        self.with_gateways(to, Snapshot { members, records: records.to_vec(), known, ..Snapshot::default() })
    }

    /// The snapshot that answers another node, which knows some statements. While many nodes join
    /// at once, each newcomer is told of [`KNOWN_TO_ONE`] members only, and others tell it the
    /// rest: this node's link is soon to carry chunks.
    pub fn snapshot(&self, to: &Identity, known: &[Known]) -> Snapshot {
        let (members, records) = if known.len() < KNOWN_TO_ONE && self.is_crowded() {
            self.membership.short_snapshot(known, to.node, KNOWN_TO_ONE)
        } else {
            self.membership.snapshot(known)
        };
        self.with_gateways(to, Snapshot { members, records, ..Snapshot::default() })
    }

    /// Adds the gateways for a node, and removes what only members of this zone are told.
    fn with_gateways(&self, to: &Identity, mut snapshot: Snapshot) -> Snapshot {
        let theirs = self.outside.contacts.of(to.zone);
        let same_zone = to.zone == self.me().zone;
        match &self.outside.backbone {
            Some(backbone) if backbone.live().contains_key(&to.node) => {
                (snapshot.gateways, snapshot.outside) = backbone.snapshot(&[]);
                snapshot.backbone = true;
            }
            Some(backbone) => {
                let live = backbone.live();
                let near: Vec<Member> = if same_zone {
                    self.fellows().copied().collect()
                } else {
                    // Gateways are alive; contacts may be dead.
                    let gateways = backbone.statements().filter(|near| near.identity.zone == to.zone);
                    let mut near: Vec<Member> = gateways.copied().collect();
                    near.sort_unstable_by_key(|member| member.identity.age());
                    for contact in theirs {
                        if near.iter().all(|known| known.identity.node != contact.identity.node) {
                            near.push(*contact);
                        }
                    }
                    near.truncate(contacts::EACH_MAX);
                    near
                };
                let most = if same_zone || near.is_empty() { GATEWAYS_NAMED } else { GATEWAYS_NAMED_AFAR };
                // Each newcomer hears of other gateways.
                let far = live.around(to.node).filter(|gateway| gateway.zone != to.zone).take(most);
                let far = far.filter_map(|gateway| backbone.statement(gateway.node));
                let others = near.iter().chain(far).filter(|gateway| gateway.identity.node != to.node);
                snapshot.gateways.push(*backbone.myself());
                snapshot.gateways.extend(others);
            }
            None => {
                let mine = self.fellows().filter(|_| !same_zone);
                let others = self.outside.contacts.spoken_first().take(GATEWAYS_NAMED);
                snapshot.gateways.extend(theirs.chain(mine).chain(others));
            }
        }
        if !same_zone {
            snapshot.members.truncate(1);
            snapshot.records.clear();
        }
        if !same_zone && !snapshot.backbone {
            snapshot.outside = self.one_of_each_subject();
        }
        snapshot
    }

    /// Takes in the snapshot of another node.
    pub(super) fn learned(&mut self, sender: NodeId, snapshot: Snapshot) {
        let Snapshot { members, records, gateways, outside, backbone: among_gateways, known } = snapshot;
        let me = *self.me();
        if !self.admission.may_admit(sender) {
            return;
        }
        self.joins_since = None;
        // A sender without an identity is a guest.
        let first = members.first().copied().filter(|first| first.identity.node == sender);
        let from = first.map(|first| first.identity);
        if from.is_none_or(|from| from.zone == me.zone) {
            let effects = self.membership.learn(sender, members, records, self.now);
            self.apply(effects);
        }
        outside.iter().for_each(|record| self.remember_outside(record));
        // It knows somebody that this node does not know: this node asks in turn.
        let unknown = |known: &Known| known.node != me.node && !self.membership.knows(known.node);
        let asks = from.filter(|from| from.zone == me.zone && known.iter().any(unknown));
        if let Some(from) = asks.filter(|from| self.outside.may_ask_back(from.node, self.now)) {
            self.out(Output::Sync(from));
        }
        let Some(first) = first else { return };
        let from = first.identity;
        // Members of the backbone need not be contacts too.
        let named = gateways.iter().filter(|member| member.state.is_live());
        let named = named.filter(|named| !among_gateways || named.identity.zone == me.zone).take(NAMED_MAX);
        let mut seen: Vec<Member> = named.copied().collect();
        seen.extend(Some(first).filter(|_| !among_gateways || from.zone == me.zone));
        let is_gateway = gateways.iter().any(|member| member.identity.node == from.node);
        if let Some(backbone) = self.outside.backbone.as_mut().filter(|_| is_gateway) {
            let mut effects = backbone.met(first, self.now);
            if among_gateways {
                effects.add(backbone.learn(sender, gateways.clone(), outside, self.now));
                self.map_outside_soon();
            }
            self.apply_outside(effects);
        }
        let others = gateways.iter().map(|member| member.identity);
        self.follow(others.filter(|gateway| gateway.node != from.node).find(|gateway| gateway.zone != me.zone));
        for member in seen {
            self.contact(member, from.node);
        }
        self.offer_tags(from.node);
    }

    /// Asks a gateway of another zone at once, once for each snapshot exchange that this node
    /// began. A new gateway hears of such gateways from any node there.
    fn follow(&mut self, gateway: Option<Identity>) {
        if self.outside.is_alone(self.me().zone) && !self.outside.has_followed {
            self.outside.has_followed = true;
            self.outputs.extend(gateway.map(Output::Sync));
        }
    }

    /// Remembers a node outside membership that `teller` named; one of this node's own zone is met.
    pub(super) fn contact(&mut self, member: Member, teller: NodeId) {
        let (me, identity) = (*self.me(), member.identity);
        if identity.node == me.node || identity.addr == me.addr || !self.admission.admits(&member.key) {
            return;
        }
        if identity.zone == me.zone {
            self.outside.has_fellows = true;
            if !self.membership.knows(identity.node) && self.outside.hearsay.may_dial(teller, self.now) {
                self.out(Output::Sync(identity));
            }
            return;
        }
        if self.outside.contacts.add(member, teller == identity.node) {
            self.mapped = u64::MAX;
        }
    }
}

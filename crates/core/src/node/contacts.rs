//! Contacts: a few nodes of each other zone, through which gateways find each other.
//!
//! Any member names contacts, and they may be dead or made up. So those that have spoken to this
//! node themselves count more: others do not displace them, and do not keep them out. Owned by
//! [`super::outside`]; [`super::backbone`] asks them in turn. Invariant: at most
//! [`ZONES_MAX`] zones, with at most [`EACH_MAX`] contacts each.

use crate::identity::{NodeId, Zone};
use crate::membership::Member;
use crate::small_list::SmallList;
use std::collections::BTreeMap;

/// Contacts remembered in each zone: the eldest and the latest. A newcomer hears of those in its
/// own zone, so nodes that are switched on together find each other.
pub(super) const EACH_MAX: usize = 3;
/// Most zones with contacts: 1 MiB of them.
const ZONES_MAX: usize = 4096;

#[derive(Debug, Clone, Copy)]
struct Contact {
    member: Member,
    has_spoken: bool,
}

/// The contacts of a node, by zone.
#[derive(Debug, Default)]
pub(super) struct Contacts(BTreeMap<Zone, SmallList<Contact>>);

impl Contacts {
    /// True once there was a contact.
    pub fn had_any(&self) -> bool {
        !self.0.is_empty()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of contacts.
    pub fn len(&self) -> usize {
        self.0.values().map(|contacts| contacts.len()).sum()
    }

    /// The zones with a contact.
    pub fn zones(&self) -> impl Iterator<Item = Zone> + '_ {
        self.0.iter().filter(|(_, contacts)| !contacts.is_empty()).map(|(zone, _)| *zone)
    }

    /// All contacts, by zone.
    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.0.values().flatten().map(|contact| &contact.member)
    }

    /// The contacts in a zone.
    pub fn of(&self, zone: Zone) -> impl Iterator<Item = &Member> {
        self.0.get(&zone).into_iter().flatten().map(|contact| &contact.member)
    }

    /// The contacts that have spoken to this node.
    pub fn spoken(&self) -> impl Iterator<Item = &Member> {
        self.0.values().flatten().filter(|contact| contact.has_spoken).map(|contact| &contact.member)
    }

    /// All contacts, those that have spoken to this node first.
    pub fn spoken_first(&self) -> impl Iterator<Item = &Member> {
        let silent = self.0.values().flatten().filter(|contact| !contact.has_spoken);
        self.spoken().chain(silent.map(|contact| &contact.member))
    }

    /// Remembers a node of another zone. `has_spoken` says that it spoke to this node itself.
    /// Returns true if its zone is the first one.
    pub fn add(&mut self, member: Member, has_spoken: bool) -> bool {
        let (zone, node, zones) = (member.identity.zone, member.identity.node, self.0.len());
        if zones >= ZONES_MAX && !self.0.contains_key(&zone) {
            let is_silent = |contacts: &SmallList<Contact>| contacts.iter().all(|contact| !contact.has_spoken);
            let silent = self.0.iter().find(|(_, contacts)| is_silent(contacts)).map(|(zone, _)| *zone);
            let Some(silent) = silent.filter(|_| has_spoken) else { return false };
            self.0.remove(&silent);
        }
        let contacts = self.0.entry(zone).or_default();
        if let Some(at) = contacts.iter().position(|known| known.member.identity.node == node) {
            contacts[at].has_spoken |= has_spoken;
            return false;
        }
        contacts.push(Contact { member, has_spoken });
        if contacts.len() > EACH_MAX {
            let former = contacts[displaced(contacts)].member.identity.node;
            contacts.retain(|contact| contact.member.identity.node != former);
        }
        zones == 0
    }

    /// Forgets a contact.
    pub fn remove(&mut self, zone: Zone, node: NodeId) {
        if let Some(contacts) = self.0.get_mut(&zone) {
            contacts.retain(|contact| contact.member.identity.node != node);
        }
    }

    /// Keeps those for which this is true.
    pub fn retain(&mut self, keeps: impl Fn(&Member) -> bool) {
        self.0.values_mut().for_each(|contacts| contacts.retain(|contact| keeps(&contact.member)));
    }
}

/// Which of a zone's contacts goes: the first that has not spoken, if there is one. The eldest
/// stays: all newcomers hear of it, so it knows all of its zone.
fn displaced(contacts: &[Contact]) -> usize {
    let silent: Vec<usize> = (0..contacts.len()).filter(|at| !contacts[*at].has_spoken).collect();
    let any = if silent.is_empty() { (0..contacts.len()).collect() } else { silent };
    let age = |at: usize| contacts[at].member.identity.age();
    let is_eldest = |at: usize| (0..contacts.len()).all(|other| age(at) <= age(other));
    any.iter().copied().find(|at| !is_eldest(*at)).unwrap_or(any[0])
}

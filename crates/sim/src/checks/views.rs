//! Views: once all faults are mended, no node believes in a dead one, all live machines of a zone
//! know each other, and no zone is cut off. Each machine has a path to every other along members
//! and gateways.
//!
//! All machines join through machine 0. If that goes before it has told a zone of any other, no
//! machine there can find one.

use crate::field::Field;
use crate::machine::number_of;
use std::collections::{BTreeMap, BTreeSet};
use vfield_core::identity::NodeId;

pub(super) fn check(field: &Field) -> Result<(), (usize, String)> {
    let there: BTreeSet<usize> = field.honest().into_iter().collect();
    let running: BTreeSet<usize> = field.there().into_iter().collect();
    let malice = field.has_known_malice();
    let mut knows: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for &machine in &there {
        let node = &field.machines[machine].node;
        let members = node.members();
        // A malicious member may be the way to others. Members that were made up are none.
        let of_interest = |node: NodeId| Some(number_of(node)).filter(|other| !malice || running.contains(other));
        let seen: BTreeSet<usize> = members.iter().filter_map(|member| of_interest(member.identity.node)).collect();
        let gateways: BTreeSet<usize> =
            node.backbone().iter().filter_map(|gateway| of_interest(gateway.node)).collect();
        if let Some(ghost) = seen.union(&gateways).find(|other| !running.contains(other)) {
            return Err((machine, format!("believes in machine {ghost}, which is gone")));
        }
        let zone = field.machines[machine].zone;
        let mut expected = there.iter().filter(|other| field.machines[**other].zone == zone);
        if let Some(missed) = expected.find(|other| !seen.contains(other)) {
            let count = members.len();
            return Err((machine, format!("does not know machine {missed} of its zone, which lives ({count} known)")));
        }
        for &other in seen.union(&gateways) {
            knows.entry(machine).or_default().insert(other);
            knows.entry(other).or_default().insert(machine);
        }
    }
    let Some(&first) = there.first() else { return Ok(()) };
    let (mut reached, mut next) = (BTreeSet::from([first]), vec![first]);
    while let Some(machine) = next.pop() {
        for &other in knows.get(&machine).into_iter().flatten() {
            if reached.insert(other) {
                next.push(other);
            }
        }
    }
    let heard = |machine: &usize| heard_of_others(field, &there, field.machines[*machine].zone);
    match there.difference(&reached).copied().find(heard) {
        Some(lost) => Err((lost, format!("and its zone have no way to machine {first}"))),
        None => Ok(()),
    }
}

/// True unless a zone has heard of machine 0 only, outside of it, and that is gone.
fn heard_of_others(field: &Field, there: &BTreeSet<usize>, zone: u32) -> bool {
    let of_zone = there.iter().map(|machine| &field.machines[*machine]).filter(|host| host.zone == zone);
    let mut contacts = of_zone.flat_map(|host| host.node.contacts()).map(|contact| number_of(contact.node));
    there.contains(&0) || contacts.any(|contact| contact != 0)
}

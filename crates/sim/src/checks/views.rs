//! Once nothing is wrong any more nobody believes in the dead, all live machines of a zone know each other, and no zone is
//! cut off: from each machine there is a way to every other along those who know each other, as neighbours or as gateways.

use crate::field::Field;
use crate::machine::number_of;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(field: &Field) -> Result<(), (usize, String)> {
    let there: BTreeSet<usize> = field.there().into_iter().collect();
    let mut knows: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for &machine in &there {
        let node = &field.machines[machine].node;
        let members = node.members();
        let seen: BTreeSet<usize> = members.iter().map(|member| number_of(member.identity.node)).collect();
        let gateways: BTreeSet<usize> = node.backbone().iter().map(|gateway| number_of(gateway.node)).collect();
        if let Some(ghost) = seen.union(&gateways).find(|other| !there.contains(other)) {
            return Err((machine, format!("believes in machine {ghost}, which is gone")));
        }
        let zone = field.machines[machine].zone;
        let mut neighbours = there.iter().filter(|other| field.machines[**other].zone == zone);
        if let Some(missed) = neighbours.find(|other| !seen.contains(other)) {
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
    match there.difference(&reached).next() {
        Some(&lost) => Err((lost, format!("and its zone have no way to machine {first}"))),
        None => Ok(()),
    }
}

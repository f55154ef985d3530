//! Admission lists: one machine gets a list, and the field shuts a machine out.

use crate::{filled_field, secs};
use std::sync::Arc;
use vfield_core::admission::{Admission, Line, Rule};
use vfield_core::identity::NodeId;
use vfield_core::signing::{Signatures as _, Simulated};
use vfield_sim::field::Field;

/// A list that revokes these machines, or allows no others.
fn list(field: &Field, rule: Rule, machines: &[usize]) -> Arc<Admission> {
    let key = |machine: &usize| Simulated::key_of(field.machines[*machine].identity.node);
    let lines: Vec<Line> = machines.iter().map(|at| Line { rule, key: key(at), name: String::new() }).collect();
    Arc::new(Admission::new(&lines, |key| Simulated(NodeId(0)).id_of(key)))
}

fn knows(field: &Field, machine: usize, other: usize) -> bool {
    let node = field.machines[other].identity.node;
    field.machines[machine].node.members().iter().any(|member| member.identity.node == node)
}

/// One machine hears of the list; within two seconds no other has the revoked one for a member, nor
/// counts what it holds.
#[test]
fn a_revoked_machine_is_dropped_by_all_and_stays_out() {
    // Its 603 chunks are in no other store but the origin's.
    let (mut field, nodes) = filled_field(11, 30, 0);
    let lost = field.join(0, &[(0, 603)]);
    field.until("its store is full", secs(20), |field| field.filled(&[lost]));
    field.until("all count it", secs(5), |field| field.covered(&nodes));
    let revoked = list(&field, Rule::Revoke, &[lost]);
    field.admit(nodes[7], 1, revoked);
    let others: Vec<usize> = nodes.iter().copied().chain([0]).collect();
    let dropped = |field: &Field| others.iter().all(|other| !knows(field, *other, lost));
    field.until("all dropped it", secs(2), dropped);
    field.until("none counts it", secs(2), |field| nodes.iter().all(|node| !field.covered(&[*node])));
    // It goes on gossiping and asking.
    for _ in 0..50 {
        field.run(std::time::Duration::from_millis(100));
        assert!(dropped(&field), "it came back\n{}", field.describe());
    }
    for other in &others {
        assert_eq!(field.machines[*other].node.members().len(), others.len(), "somebody else was dropped");
    }
}

/// A list of those that are allowed drops all others at once; the next list lets one in again.
#[test]
fn a_later_list_admits_again() {
    let (mut field, nodes) = filled_field(12, 10, 100);
    let (known, other) = nodes.split_at(6);
    let allowed: Vec<usize> = known.iter().copied().chain([0]).collect();
    field.admit(0, 1, list(&field, Rule::Allow, &allowed));
    let sees = |field: &Field, count: usize| allowed.iter().all(|at| field.machines[*at].node.members().len() == count);
    field.until("four are out", secs(2), |field| sees(field, 7));
    let more: Vec<usize> = allowed.iter().copied().chain([other[0]]).collect();
    field.admit(known[3], 2, list(&field, Rule::Allow, &more));
    field.until("one is back", secs(40), |field| sees(field, 8));
    assert!(allowed.iter().all(|at| knows(&field, *at, other[0])), "{}", field.describe());
}

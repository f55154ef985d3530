//! Gossip partners: the live members form a few circles, each in another order. A member's partners
//! are beside it in these circles.
//!
//! Circles in unrelated orders make a graph without bottlenecks. News reaches all N members in
//! about log N steps, and the death of some members does not cut the rest in two. (Rapid watches in
//! the same way: Suresh et al., 2018, 4.1.) No member has more than a few partners, however large
//! the field. A kernel's ARP table, of 1024 entries by default, holds them in any room.
//!
//! Circles are not stored. One look at all members finds the partners of one. That is rarely
//! needed, takes a few nanoseconds for each member, and saves most of the memory for a member's
//! entry.

use crate::identity::{Identity, NodeId};
use crate::placement::mix;
use std::collections::BTreeSet;

/// Circles, and so members that each member watches. With three of them even a third of all members
/// that die at once leaves every other with some partner.
const CIRCLES: usize = 3;

/// The partners of one member: those before and after it in each circle.
#[derive(Debug, Default)]
pub struct Partners([Option<Beside>; CIRCLES]);

/// The two partners in one circle.
#[derive(Debug, Clone, Copy)]
struct Beside {
    before: Place,
    after: Place,
}

type Place = (u64, NodeId);

/// The position of a member in a circle. The first circle is in the order of joins, like the chain:
/// a member exchanges chunks with its partners there.
fn place(circle: usize, member: &Identity) -> Place {
    let node = member.node;
    (if circle == 0 { member.arrival().0 } else { mix(node.0 ^ mix(circle as u64)) }, node)
}

impl Partners {
    /// Most partners of a member.
    pub const MAX: usize = 2 * CIRCLES;

    /// The partners of `member` among the live members, which may include it.
    pub fn of<'a>(member: &Identity, live: impl Iterator<Item = &'a Identity>) -> Self {
        let mine: [Place; CIRCLES] = std::array::from_fn(|circle| place(circle, member));
        let mut found = Self::default();
        for other in live.filter(|other| other.node != member.node) {
            for (circle, (mine, beside)) in mine.iter().zip(&mut found.0).enumerate() {
                let other = place(circle, other);
                let Beside { before, after } = beside.get_or_insert(Beside { before: other, after: other });
                // Around the circle: higher places come first after it, and lower ones first before
                // it.
                let around = |place: Place| (place < *mine, place);
                if around(other) < around(*after) {
                    *after = other;
                }
                if around(other) > around(*before) {
                    *before = other;
                }
            }
        }
        found
    }

    /// The members that it watches: those after it, each once.
    pub fn after(&self) -> BTreeSet<NodeId> {
        self.0.iter().flatten().map(|beside| beside.after.1).collect()
    }

    /// All partners, each once: the members that it watches, and those that watch it.
    pub fn all(&self) -> BTreeSet<NodeId> {
        self.0.iter().flatten().flat_map(|beside| [beside.before.1, beside.after.1]).collect()
    }

    /// Its predecessor and successor in the order of joins.
    pub fn in_order(&self) -> Option<(NodeId, NodeId)> {
        self.0[0].map(|beside| (beside.before.1, beside.after.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Zone;

    /// The `number`-th that came.
    fn member(number: u64) -> Identity {
        let addr = "198.18.0.1:4000".parse().expect("an address");
        Identity { addr, node: NodeId(mix(number)), generation: number, zone: Zone::default() }
    }

    /// The partners of each of `count` members, with its id.
    fn partners(count: u64) -> Vec<(NodeId, Partners)> {
        let members: Vec<Identity> = (0..count).map(member).collect();
        members.iter().map(|me| (me.node, Partners::of(me, members.iter()))).collect()
    }

    #[test]
    fn each_watched_member_has_its_watcher_as_partner() {
        let all = partners(40);
        for (me, partners) in &all {
            let watches = |other: &NodeId| all.iter().any(|(node, of)| node == other && of.after().contains(me));
            let (all, after) = (partners.all(), partners.after());
            assert!(after.is_subset(&all) && all.difference(&after).all(watches));
        }
    }

    #[test]
    fn news_reaches_all_in_few_steps() {
        for (count, most) in [(10, 3), (50, 5), (1000, 8)] {
            let graph: Vec<(NodeId, BTreeSet<NodeId>)> =
                partners(count).into_iter().map(|(node, partners)| (node, partners.all())).collect();
            let mut told = BTreeSet::from([graph[0].0]);
            let mut steps = 0;
            while told.len() < count as usize {
                let tellers = graph.iter().filter(|(node, _)| told.contains(node));
                let next: BTreeSet<NodeId> = tellers.flat_map(|(_, partners)| partners).copied().collect();
                told.extend(next);
                steps += 1;
            }
            assert!(steps <= most, "{steps} steps for {count} members");
        }
    }

    #[test]
    fn each_stands_between_two() {
        let node = |number| member(number).node;
        let beside = |number, others: &[u64]| {
            let others: Vec<Identity> = others.iter().copied().map(member).collect();
            Partners::of(&member(number), others.iter()).in_order()
        };
        assert_eq!(beside(5, &[3, 5, 9]), Some((node(3), node(9))));
        assert_eq!(beside(9, &[3, 5, 9]), Some((node(5), node(3))));
        assert_eq!(beside(4, &[3, 5, 9]), Some((node(3), node(5))), "whether it is one of them or not");
        assert_eq!(beside(9, &[9, 3]), Some((node(3), node(3))));
        assert_eq!(beside(1, &[1]), None);
    }

    #[test]
    fn a_member_alone_has_no_partners() {
        let alone = Partners::of(&member(1), std::iter::empty());
        assert!(alone.after().is_empty() && alone.all().is_empty());
    }
}

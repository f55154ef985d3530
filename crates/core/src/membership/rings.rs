//! Who talks to whom: the live members stand in a few circles, each in another order, and each member's
//! partners are those beside it.
//!
//! Circles in unrelated orders make a graph without narrow places: news that each passes to its partners
//! reaches all N in about log N steps, and a part of the members that dies does not cut the rest in two
//! (Rapid: Suresh et al., 2018, 4.1, watches in the same way). Nobody has to talk with more than a few others,
//! however large the field: a kernel's table of neighbours, 1024 by default, holds them in any room.
//!
//! Circles are not kept: who stands beside a member is found by one look at all the others, which is seldom needed, takes a few
//! nanoseconds for each, and spares a member's memory most of what it would have to know of another.

use crate::identity::{Identity, NodeId};
use crate::placement::mix;
use std::collections::BTreeSet;

/// Circles, and so members that each member watches. With three of them even a third of all members that
/// die at once leaves every other with some partner.
const CIRCLES: usize = 3;

/// Who stands beside a member, in each circle.
#[derive(Debug, Default)]
pub struct Neighbours([Option<Beside>; CIRCLES]);

/// Who stands beside it in one of them.
#[derive(Debug, Clone, Copy)]
struct Beside {
    before: Place,
    after: Place,
}

type Place = (u64, NodeId);

/// Where a member stands in a circle. The first is in the order of arrivals, like the crowd's: its neighbours there are
/// those with which it shares chunks.
fn place(circle: usize, member: &Identity) -> Place {
    let node = member.node;
    (if circle == 0 { member.arrival().0 } else { mix(node.0 ^ mix(circle as u64)) }, node)
}

impl Neighbours {
    /// There are at most so many.
    pub const MAX: usize = 2 * CIRCLES;

    /// The neighbours of `member` among the live, of whom it may be one itself.
    pub fn of<'a>(member: &Identity, live: impl Iterator<Item = &'a Identity>) -> Self {
        let mine: [Place; CIRCLES] = std::array::from_fn(|circle| place(circle, member));
        let mut found = Self::default();
        for other in live.filter(|other| other.node != member.node) {
            for (circle, (mine, beside)) in mine.iter().zip(&mut found.0).enumerate() {
                let other = place(circle, other);
                let Beside { before, after } = beside.get_or_insert(Beside { before: other, after: other });
                // Around: whoever stands higher comes first after it, and whoever stands lower first before it.
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

    /// Whom it watches: those after it, each once.
    pub fn after(&self) -> BTreeSet<NodeId> {
        self.0.iter().flatten().map(|beside| beside.after.1).collect()
    }

    /// All of them, each once: those whom it watches, and those who watch it.
    pub fn all(&self) -> BTreeSet<NodeId> {
        self.0.iter().flatten().flat_map(|beside| [beside.before.1, beside.after.1]).collect()
    }

    /// Who stands before and after it in the order of arrivals.
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

    /// Those of each of `count` members, with its id.
    fn neighbours(count: u64) -> Vec<(NodeId, Neighbours)> {
        let members: Vec<Identity> = (0..count).map(member).collect();
        members.iter().map(|me| (me.node, Neighbours::of(me, members.iter()))).collect()
    }

    #[test]
    fn who_watches_is_watched() {
        let all = neighbours(40);
        for (me, neighbours) in &all {
            let watches = |other: &NodeId| all.iter().any(|(node, of)| node == other && of.after().contains(me));
            let (all, after) = (neighbours.all(), neighbours.after());
            assert!(after.is_subset(&all) && all.difference(&after).all(watches));
        }
    }

    #[test]
    fn news_reaches_all_in_few_steps() {
        for (count, most) in [(10, 3), (50, 5), (1000, 8)] {
            let graph: Vec<(NodeId, BTreeSet<NodeId>)> =
                neighbours(count).into_iter().map(|(node, neighbours)| (node, neighbours.all())).collect();
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
            Neighbours::of(&member(number), others.iter()).in_order()
        };
        assert_eq!(beside(5, &[3, 5, 9]), Some((node(3), node(9))));
        assert_eq!(beside(9, &[3, 5, 9]), Some((node(5), node(3))));
        assert_eq!(beside(4, &[3, 5, 9]), Some((node(3), node(5))), "whether it is one of them or not");
        assert_eq!(beside(9, &[9, 3]), Some((node(3), node(3))));
        assert_eq!(beside(1, &[1]), None);
    }

    #[test]
    fn a_member_alone_has_no_partners() {
        let alone = Neighbours::of(&member(1), std::iter::empty());
        assert!(alone.after().is_empty() && alone.all().is_empty());
    }
}
